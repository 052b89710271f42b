"""From a call to what a host of another build would do: which module, bindings, push and specialization words, grid.

The rows are `OpSpec.module`; `refsim.ops.base.host` has their vocabulary and says what a host tells its kernels of a
tensor. Everything here is data for an executor that loads the modules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from refsim.core.errors import ParameterError, UnknownOperatorError
from refsim.core.launch import Triple
from refsim.core.tensor import TensorDesc
from refsim.ops.base.host import tensor, weights, words, writers
from refsim.ops.base.host.row import ModuleCall, Shader
from refsim.ops.base.host.weights import Packing
from refsim.ops.base.host.words import Site
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call, Kind, OpSpec

__all__ = [
    "Bind",
    "Features",
    "ModuleCall",
    "ModuleDispatch",
    "Shader",
    "Written",
    "dispatches",
    "packing_dispatch",
    "why_not",
    "written",
]


class Interface(Protocol):
    """What a module declares; `refsim.spirv.reflect` reads it."""

    @property
    def bindings(self) -> Sequence[Any]: ...

    @property
    def push_bytes(self) -> int: ...


#: Modules that there are: names, or what each declares by its name. None stands for every name there is.
Available = Mapping[str, Interface] | Collection[str] | None


@dataclass(frozen=True)
class Features:
    """What a host asks its device, and what the user forces.

    - ``dot_product``: the device has the integer dot product.
    - ``unsigned_dot``: it is fast for unsigned bytes and not for signed ones.
    - ``max_texture2d``: the largest extent of an image; weights beyond it go to a buffer.
    - ``float_images``: float tensors lie in images, not in buffers.
    - ``variant``: ``base``, ``fallback`` or ``unsigned`` forces this one where an operator has it.
    - ``later``: the modules are of the latest release, or of the first, whatever they tell.
    """

    dot_product: bool = True
    unsigned_dot: bool = False
    max_texture2d: int = 16384
    float_images: bool = False
    variant: str = ""
    later: bool | None = None

    def __post_init__(self) -> None:
        if self.variant not in ("", "base", "fallback", "unsigned"):
            raise ParameterError(
                "module variant", "unknown", got=self.variant, need="base, fallback or unsigned"
            )


@dataclass(frozen=True)
class Bind:
    """What stands at one binding.

    ``what`` is the word of the row. ``buffer`` is the name of a tensor's buffer, as in `Dispatch`; everything else has
    its content in ``words``, uint32. ``storage`` is ``buffer``, ``uniform``, ``texture2d`` or ``texture3d``; an image
    has an ``extent`` in texels of four words, and lies row by row, plane by plane. ``count`` is how many words there
    are: buffers are rounded up to 16 bytes. ``desc`` is the tensor, if it is one.
    """

    what: str
    storage: str
    count: int
    buffer: str = ""
    words: np.ndarray | None = field(default=None, repr=False, compare=False)
    extent: tuple[int, ...] = ()
    writes: bool = False
    desc: TensorDesc | None = None


@dataclass(frozen=True)
class ModuleDispatch:
    """One dispatch of one module: bindings in order, push bytes, specialization words from id 3 on, sizes, grid."""

    shader: str
    binds: tuple[Bind, ...]
    push: bytes
    spec: tuple[int, ...]
    global_size: Triple
    local: Triple

    @property
    def grid(self) -> Triple:
        """Workgroups along each axis."""
        x, y, z = (-(-extent // local) for extent, local in zip(self.global_size, self.local, strict=True))
        return (x, y, z)


# --- which module ----------------------------------------------------------------------------------------


def _k_per_group(call: Call) -> int:
    weight = call.consts.get("weight")
    return 0 if weight is None else weight.shape[-1]


def _packing(call: Call, whole: Call, name: str) -> Packing:
    given = None if whole.op.module is None else whole.op.module.packing.get(name)
    assert call.op.module is not None
    return given or call.op.module.packing[name]


def _weight_extent(call: Call, whole: Call) -> tuple[int, int]:
    """Texels of a weight along x and y."""
    weight = call.consts["weight"]
    packing = _packing(call, whole, "weight")
    assert weight is not None
    height, width, _ = packing.texels(weight, packing.sizes(call)).shape
    return (width, height)


def _refusal(shader: Shader, call: Call, features: Features, variants: set[str]) -> str | None:
    """Why a host could not run a module for a call."""
    if features.variant in variants and shader.variant != features.variant:
        return f"variant {features.variant} is forced"
    if shader.unsigned and _k_per_group(call) > weights.MAX_UNSIGNED_K:
        return f"K = {_k_per_group(call)} is too long for unsigned sums"
    if shader.dot_product and not features.dot_product:
        return "the device has no integer dot product"
    return None


def _rank(shader: Shader, call: Call, whole: Call, features: Features) -> tuple[int, int]:
    """How readily a host takes a module: the least first."""
    variant = {"base": 1, "fallback": 2, "unsigned": 0 if features.unsigned_dot else 3}[shader.variant]
    image = shader.textures != ()
    if "weight" in call.op.module.packing:  # type: ignore[union-attr]
        wants_image = max(_weight_extent(call, whole)) <= features.max_texture2d
        # signed kernels have no other storage than an image, whatever its size
        return (variant, int(image != wants_image))
    return (variant, int(image != features.float_images))


def ranked(call: Call, features: Features, whole: Call | None = None) -> list[Shader]:
    """The modules that could compute a call, in the order in which a host wants them."""
    assert call.op.module is not None
    shaders = call.op.module.shaders
    variants = {shader.variant for shader in shaders}
    fit = [shader for shader in shaders if _refusal(shader, call, features, variants) is None]
    return sorted(fit, key=lambda shader: _rank(shader, call, whole or call, features))


def choose(call: Call, features: Features, available: Available, whole: Call | None = None) -> Shader:
    """The module that a host would take among those that there are; UnknownOperatorError if there is none."""
    if call.op.module is None or not call.op.module.shaders:
        raise UnknownOperatorError(call.op.name, "no row says how modules of another build are called")
    wanted = ranked(call, features, whole)
    for shader in wanted:
        if available is None or shader.name in available:
            return shader
    need = " or ".join(shader.name for shader in wanted) or "a device with the integer dot product"
    raise UnknownOperatorError(call.op.name, "no module computes it", need=need)


def _declared(available: Available, name: str) -> Interface | None:
    return available[name] if isinstance(available, Mapping) and name in available else None


def release(op: OpSpec, features: Features, available: Available) -> ModuleCall:
    """The row of the release that the modules are from: the last whose push words a module declares."""
    row = op.module
    assert row is not None
    if features.later is not None:
        return row.later[-1] if row.later and features.later else row
    found = row
    for later in row.later:
        if later.told_by:
            teller = OPS[later.told_by]
            newer = release(teller, features, available) is not teller.module
        else:
            declared = [_declared(available, shader.name) for shader in row.shaders]
            newer = any(module is not None and module.push_bytes >= later.push_bytes for module in declared)
        if newer:
            found = later
    return found


def why_not(call: Call, features: Features | None = None, available: Available = None) -> str | None:
    """Why modules cannot compute a call; None if they can."""
    try:
        dispatches(call, features, available)
    except UnknownOperatorError as error:
        return str(error)
    return None


# --- dispatches ------------------------------------------------------------------------------------------


def dispatches(
    call: Call, features: Features | None = None, available: Available = None
) -> list[ModuleDispatch]:
    """The dispatches with which a host computes a call, in order. A global size with a 0 gives none.

    Raises UnknownOperatorError if there is no row or no module, ParameterError for a word that a row may not have.
    """
    features = features or Features()
    made: dict[str, TensorDesc] = {}  # what steps before this one wrote, as the host sees it
    found = (_dispatch(step, features, available, made) for step in _steps(call))
    return [step for step in found if step is not None]


@dataclass(frozen=True)
class _Step:
    """One kernel of a call: its own call, the call that the graph holds, and its buffers by argument."""

    call: Call
    whole: Call
    names: Mapping[str, str]


def _steps(call: Call, names: Mapping[str, str] | None = None, whole: Call | None = None) -> Iterator[_Step]:
    names = names or {}
    if call.op.expand is None:
        yield _Step(call, whole or call, names)
        return
    for part in call.op.expand(call):
        inner = {argument: names.get(buffer, buffer) for argument, buffer in part.inputs.items()}
        output = names.get(part.output, part.output)
        # an operator that only picks another has no row, and the graph might as well hold the other
        yield from _steps(part.call, {**inner, "out": output}, call if call.op.module is not None else None)


def _site(
    step: _Step, features: Features, available: Available, made: dict[str, TensorDesc]
) -> tuple[Site, ModuleCall, dict[str, str]]:
    """(where the words of a step are looked up, its row, its buffers by argument)."""
    call, names = step.call, {name: step.names.get(name, name) for name in step.call.tensors}
    shader = choose(call, features, available, step.whole)
    row = release(call.op, features, available)
    inputs = {name: made.get(names[name], desc) for name, desc in call.descs.items()}
    fed = frozenset(name for name in inputs if names[name] in made)
    out = made[names["out"]] = words.VIEWS[row.view](call.out)
    return Site(call, step.whole, {**inputs, "out": out}, fed, shader), row, names


def _dispatch(
    step: _Step, features: Features, available: Available, made: dict[str, TensorDesc]
) -> ModuleDispatch | None:
    site, row, names = _site(step, features, available, made)
    size = words.global_size(site, row.global_size)
    if 0 in size:
        return None
    return ModuleDispatch(
        site.shader.name,
        tuple(_bind(site, word, names) for word in row.bindings),
        np.array([words.push(site, word) for word in row.push], "<u4").tobytes(),
        tuple(words.spec(site, word) for word in row.spec),
        size,
        words.local_size(site, size, row.local_size),
    )


@dataclass(frozen=True)
class Written:
    """The last dispatch of a call: the module, its sizes, and who writes each word of the output: int64 (3, words)."""

    shader: str
    global_size: Triple
    local: Triple
    items: np.ndarray


def written(call: Call, features: Features | None = None, available: Available = None) -> Written:
    """Who writes the output of a call. Raises what `dispatches` raises."""
    made: dict[str, TensorDesc] = {}
    *before, last = _steps(call)
    for step in before:
        _site(step, features or Features(), available, made)
    site, row, _ = _site(last, features or Features(), available, made)
    size = words.global_size(site, row.global_size)
    items = writers.work_items(site, row.global_size)
    return Written(site.shader.name, size, words.local_size(site, size, row.local_size), items)


def _bind(site: Site, word: str, names: Mapping[str, str]) -> Bind:
    name, of = words.split(word)
    if name in words.BLOCKS:
        block = words.BLOCKS[name](site, of)
        return Bind(word, "uniform", block.size, words=block)
    if word in site.tensors:
        return _tensor(site, word, names[word])
    if word not in {arg.name for arg in site.call.op.of_kind(Kind.CONST)}:
        constants = (arg.name for arg in site.call.op.of_kind(Kind.CONST))
        raise site.unknown("binding", word, [*site.tensors, *constants, *words.BLOCKS])
    if word in site.call.op.module.packing:  # type: ignore[union-attr]
        return _weight(site, word)
    content = weights.vector_words(site.call.consts[word])
    return Bind(word, "buffer", content.size, words=content)


def _tensor(site: Site, name: str, buffer: str) -> Bind:
    desc = site.tensors[name]
    if site.is_image(name):
        extent = tensor.image_extent(desc)
        count = 4 * extent[0] * extent[1] * extent[2]
        return Bind(name, "texture3d", count, buffer, None, extent, name == "out", desc)
    return Bind(name, "buffer", 4 * weights.up4(desc.words), buffer, None, (), name == "out", desc)


def _weight(site: Site, name: str) -> Bind:
    texels = packed(site.call, site.whole, name, site.shader.unsigned)
    content = texels.reshape(-1).view(np.uint32)
    if site.is_image(name):
        return Bind(name, "texture2d", content.size, words=content, extent=(texels.shape[1], texels.shape[0]))
    return Bind(name, "buffer", content.size, words=content)


# --- weights ---------------------------------------------------------------------------------------------


def packed(call: Call, whole: Call, name: str, unsigned: bool = False) -> np.ndarray:
    """A constant in texels: int32 (rows, texels of a row, 4)."""
    value = call.consts[name]
    assert value is not None
    packing = _packing(call, whole, name)
    texels = packing.texels(value, packing.sizes(call))
    return weights.add_offset(texels) if unsigned else texels


def packing_dispatch(
    call: Call, features: Features | None = None, available: Available = None, *, image: bool | None = None
) -> list[ModuleDispatch]:
    """The host's own packing modules for the weights of a call: what they write must be what `dispatches` binds.

    ``image``: to an image or to a buffer, and nothing else; None takes the one that there is. The output is the buffer
    ``packed:weight``. Empty if no module packs.
    """
    features = features or Features()
    found = []
    for step in _steps(call):
        part, whole, row = step.call, step.whole, step.call.op.module
        if row is None or not row.packing or not row.shaders:
            continue
        try:
            shader = choose(part, features, available, whole)
        except UnknownOperatorError:
            continue
        for name in row.packing:
            module = _pack(part, whole, name, shader, available, image)
            if module is not None:
                found.append(module)
    return found


def _pack(
    call: Call, whole: Call, name: str, shader: Shader, available: Available, image: bool | None
) -> ModuleDispatch | None:
    packing = _packing(call, whole, name)
    stem = packing.shader + ("_unsigned" if shader.unsigned else "")
    wanted = [True, False] if image is None else [image]
    if image is None and name not in shader.textures:
        wanted.reverse()
    for as_image in wanted:
        module = f"{stem}_{'texture2d' if as_image else 'buffer'}"
        if available is None or module in available:
            break
    else:
        return None
    value = call.consts[name]
    assert value is not None
    sizes = packing.sizes(call)
    height, width, _ = packing.texels(value, sizes).shape
    source = weights.byte_words(packing.source(value, sizes))
    storage, extent = ("texture2d", (width, height)) if as_image else ("buffer", ())
    size = (width, height, 1)
    return ModuleDispatch(
        module,
        (
            Bind(name, storage, 4 * width * height, f"packed:{name}", None, extent, True),
            Bind(f"source:{name}", "buffer", source.size, words=source),
        ),
        np.array([4 * width, height, 1, 1, *sizes], "<i4").tobytes(),
        (),
        size,
        words.default_local(size),
    )
