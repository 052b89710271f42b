"""From a call to what a host of another build would do: which module, bindings, push and specialization words, grid.

The rows are `Upstream.module`; `refsim.ops.base.host` has their vocabulary and says what a host tells its kernels of a
tensor. Everything here is data for an executor that loads the modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from refsim.core.errors import UnknownOperatorError
from refsim.core.launch import Triple
from refsim.core.layout import layout
from refsim.core.push import MAX_PUSH_WORDS
from refsim.core.tensor import TensorDesc
from refsim.ops.base.arg import Kind
from refsim.ops.base.host import expression, tensor, weights, words, writers
from refsim.ops.base.host.choice import Available, DeclaredInterface, Host, HostFeatures
from refsim.ops.base.host.row import ModuleCall, Own, PlainWords, Shader
from refsim.ops.base.host.words import CallSite
from refsim.ops.base.spec import Call
from refsim.ops.flat import call as flat

__all__ = [
    "Available",
    "Bind",
    "DeclaredInterface",
    "Host",
    "HostFeatures",
    "ModuleCall",
    "ModuleDispatch",
    "Own",
    "PlainWords",
    "Shader",
    "WrittenOutput",
    "disagreements",
    "dispatches",
    "packing_dispatches",
    "why_not",
    "written",
]  # fmt: skip

#: A host with every module, and a device that has everything.
THIS = Host()
BUFFER, UNIFORM, TEXTURE_2D, TEXTURE_3D = "buffer", "uniform", "texture2d", "texture3d"


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
    """One dispatch of one module: bindings in order, push bytes, specialization words from id ``first_spec`` on, sizes.

    The ids before hold the workgroup. ``own`` is set for a kernel that is not upstream's.
    """

    shader: str
    binds: tuple[Bind, ...]
    push: bytes
    spec: tuple[int, ...]
    global_size: Triple
    local: Triple
    first_spec: int = 3
    own: Own | None = None

    @property
    def spec_words(self) -> dict[int, int]:
        """Specialization constants that a host sets, by id."""
        return dict(enumerate((*self.local[: self.first_spec], *self.spec)))

    @property
    def grid(self) -> Triple:
        """Workgroups along each axis."""
        x, y, z = (-(-extent // local) for extent, local in zip(self.global_size, self.local, strict=True))
        return (x, y, z)


def dispatches(call: Call, host: Host = THIS) -> list[ModuleDispatch]:
    """The dispatches with which a host computes a call, in order. A global size with a 0 gives none.

    Raises UnknownOperatorError if there is no row or no module, ParameterError for a word that a row may not have.
    """
    made: dict[str, TensorDesc] = {}  # what steps before this one wrote, as the host sees it
    found = (_dispatch(host, step, made) for step in _steps(host, call))
    return [step for step in found if step is not None]


def why_not(call: Call, host: Host = THIS) -> str | None:
    """Why modules cannot compute a call; None if they can."""
    try:
        dispatches(call, host)
    except UnknownOperatorError as error:
        return str(error)
    return None


@dataclass(frozen=True)
class _Step:
    """One kernel of a call: its own call, the call that the graph holds, and its buffers by argument."""

    call: Call
    whole: Call
    names: Mapping[str, str]


def _steps(
    host: Host, call: Call, names: Mapping[str, str] | None = None, whole: Call | None = None
) -> Iterator[_Step]:
    names, row = names or {}, host.row(call.op)
    if row is not None and row.own is not None:
        call = flat.laid_flat(call) if row.own.flat else _relaid(call, row.own.relaid)
    if call.op.expand is None or (row is not None and row.shaders):
        yield _Step(call, whole or call, names)
        return
    for part in call.op.expand(call):
        inner = {argument: names.get(buffer, buffer) for argument, buffer in part.inputs.items()}
        output = names.get(part.output, part.output)
        # an operator that only picks another has no row: the graph might as well hold the other
        yield from _steps(host, part.call, {**inner, "out": output}, None if row is None else call)


def _relaid(call: Call, layouts: Mapping[str, str]) -> Call:
    """The call on tensors in these layouts, by argument."""
    descs = {
        name: replace(desc, layout=layout(layouts[name])) if name in layouts else desc
        for name, desc in call.tensors.items()
    }
    return replace(call, out=descs.pop("out"), descs=descs) if layouts else call


def _site(
    host: Host, step: _Step, made: dict[str, TensorDesc]
) -> tuple[CallSite, ModuleCall, dict[str, str]]:
    """(where the words of a step are looked up, its row, its buffers by argument)."""
    call, names = step.call, {name: step.names.get(name, name) for name in step.call.tensors}
    shader = host.choose(call, step.whole)
    row = host.release(call.op, call.target.runtime.later)
    inputs = {name: made.get(names[name], desc) for name, desc in call.descs.items()}
    fed = frozenset(name for name in inputs if names[name] in made)
    out = made[names["out"]] = words.VIEWS[row.view](call.out)
    if names["out"] == "out" and out.numel < call.out.numel:
        raise UnknownOperatorError(
            call.op.name, "its host writes a part of the output only", got=out, need=call.out
        )
    return CallSite(call, step.whole, {**inputs, "out": out}, fed, shader), row, names


def _dispatch(host: Host, step: _Step, made: dict[str, TensorDesc]) -> ModuleDispatch | None:
    site, row, names = _site(host, step, made)
    if row.own is not None and row.own.launched:
        return _launched(site, row, names)
    size, local = _sizes(host, site, row)
    if 0 in size:
        return None
    return ModuleDispatch(
        site.shader.name,
        tuple(_bind(host, site, word, names) for word in row.bindings),
        np.array([expression.word(site, word, local) for word in row.push], "<u4").tobytes(),
        tuple(expression.word(site, word, local) for word in row.spec),
        size,
        local,
        3 if row.own is None else 0,
        row.own,
    )


def _launched(site: CallSite, row: ModuleCall, names: Mapping[str, str]) -> ModuleDispatch:
    """What refsim dispatches on its own kernel of an operator."""
    (step,) = site.call.dispatches()
    launch = step.launch
    x, y, z = (groups * local for groups, local in zip(launch.grid, launch.local, strict=True))
    push = np.zeros(MAX_PUSH_WORDS, "<u4")
    push[: len(launch.push)] = [word & 0xFFFFFFFF for word in launch.push]
    return ModuleDispatch(
        site.shader.name,
        tuple(
            _tensor(site, str(word), names[str(word)])
            if word in site.tensors
            else _padded(str(word), site.call.words(str(word)))
            for word in row.bindings
        ),
        push.tobytes(),
        tuple(word & 0xFFFFFFFF for word in (*launch.tile, *launch.spec)),
        (x, y, z),
        launch.local,
        own=row.own,
    )


def _sizes(host: Host, site: CallSite, row: ModuleCall) -> tuple[Triple, Triple]:
    """Global size and workgroup. A kernel that is not upstream's may have a workgroup of its own."""
    if isinstance(row.global_size, str):
        size = words.global_size(site, row.global_size)
    else:
        x, y, z = (expression.count(site, word) for word in row.global_size)
        size = (x, y, z)
    local = (
        words.local_size(site, size, row.local_size) if row.local_size else _declared_local(host, site, row)
    )
    if row.own is not None and row.own.groups:
        size = (size[0] * local[0], size[1] * local[1], size[2] * local[2])
    return size, local


def _declared_local(host: Host, site: CallSite, row: ModuleCall) -> Triple:
    """The workgroup that a module has with the specialization words of its row."""
    module = host.declared(site.shader.name)
    if module is None:
        return (1, 1, 1)  # nothing is dispatched where the modules are not known
    return module.local({number: expression.word(site, word) for number, word in enumerate(row.spec)})


@dataclass(frozen=True)
class WrittenOutput:
    """The last dispatch of a call: the module, its sizes, and who writes each word of the output: int64 (3, words)."""

    shader: str
    global_size: Triple
    local: Triple
    items: np.ndarray


def written(call: Call, host: Host = THIS) -> WrittenOutput:
    """Who writes the output of a call. Raises what `dispatches` raises."""
    made: dict[str, TensorDesc] = {}
    *before, last = _steps(host, call)
    for step in before:
        _site(host, step, made)
    site, row, _ = _site(host, last, made)
    if row.own is not None and row.own.launched:
        raise UnknownOperatorError(call.op.name, "refsim's own launch says who writes a word")
    if row.own is not None and row.own.relaid:
        raise UnknownOperatorError(call.op.name, "its words are others than those of the call")
    size, local = _sizes(host, site, row)
    return WrittenOutput(site.shader.name, size, local, writers.work_items(site, row))


def output_binding(module: str, rows: Mapping[str, ModuleCall]) -> int:
    """The binding of a module's output; in modules of upstream's build it is the first one."""
    own = (row for row in rows.values() if module in {shader.name for shader in row.shaders})
    return next((row.bindings.index("out") for row in own), 0)


# --- bindings --------------------------------------------------------------------------------------------


def _bind(host: Host, site: CallSite, word: str | PlainWords, names: Mapping[str, str]) -> Bind:
    if isinstance(word, PlainWords):
        block = weights.padded_words(np.array([expression.word(site, each) for each in word.words], "<u4"))
        return Bind(str(word), UNIFORM if word.uniform else BUFFER, block.size, words=block)
    name, of = words.split(word)
    if name in words.BLOCKS:
        block = words.BLOCKS[name](site, of)
        return Bind(word, UNIFORM, block.size, words=block)
    if word in site.tensors:
        return _tensor(site, word, names[word])
    constants = [arg.name for arg in site.call.op.of_kind(Kind.CONST)]
    if word not in constants:
        raise site.unknown("binding", word, [*site.tensors, *constants, *words.BLOCKS])
    row = host.row(site.call.op)
    if row is not None and word in row.packing:
        return _packed(host, site, word)
    return _padded(word, _content(site, word, row))


def _padded(word: str, value: np.ndarray | None) -> Bind:
    content = weights.padded_words(value)
    return Bind(word, BUFFER, content.size, words=content)


def _content(site: CallSite, name: str, row: ModuleCall | None) -> np.ndarray | None:
    """A constant. A kernel that is not upstream's gets zeros for one that the call lacks, as long as its others."""
    value = site.call.consts[name]
    if value is not None or row is None or row.own is None:
        return value
    rows = [given.size for given in site.call.consts.values() if given is not None and given.ndim == 1]
    return np.zeros(max(rows, default=0), np.float32)


def _tensor(site: CallSite, name: str, buffer: str) -> Bind:
    desc = site.tensors[name]
    if site.is_image(name):
        extent = tensor.image_extent(desc)
        count = 4 * extent[0] * extent[1] * extent[2]
        return Bind(name, TEXTURE_3D, count, buffer, None, extent, name == "out", desc)
    return Bind(name, BUFFER, 4 * weights.up4(desc.words), buffer, None, (), name == "out", desc)


def _packed(host: Host, site: CallSite, name: str) -> Bind:
    value = site.call.consts[name]
    assert value is not None
    packing = host.packing(site.call, site.whole, name)
    texels = packing.texels(value, packing.sizes(site.call))
    if site.shader.unsigned:
        texels = weights.add_offset(texels)
    content = texels.reshape(-1).view(np.uint32)
    if site.is_image(name):
        return Bind(name, TEXTURE_2D, content.size, words=content, extent=(texels.shape[1], texels.shape[0]))
    return Bind(name, BUFFER, content.size, words=content)


# --- the host's own packing ------------------------------------------------------------------------------


def packing_dispatches(call: Call, host: Host = THIS) -> list[ModuleDispatch]:
    """The host's own packing modules for the weights of a call, those that there are: to an image and to a buffer.

    What each writes to its binding 0, the buffer ``packed:weight``, must be the words that `dispatches` binds.
    """
    found = []
    for step in _steps(host, call):
        row = host.row(step.call.op)
        if row is not None and row.own is None and row.packing and host.ranked(step.call, step.whole):
            shader = host.choose(step.call, step.whole)
            found += [
                module for name in row.packing for module in _packings(host, step, name, shader.unsigned)
            ]
    return found


def _packings(host: Host, step: _Step, name: str, unsigned: bool) -> Iterator[ModuleDispatch]:
    packing = host.packing(step.call, step.whole, name)
    value, sizes = step.call.consts[name], packing.sizes(step.call)
    assert value is not None
    x, y = packing.extent(sizes)
    source = weights.padded_words(packing.source(value, sizes))
    push = np.array([4 * x, y, 1, 1, *sizes], "<i4").tobytes()
    for storage, extent in ((TEXTURE_2D, (x, y)), (BUFFER, ())):
        module = f"{packing.shader}{'_unsigned' if unsigned else ''}_{storage}"
        if host.has(module):
            yield ModuleDispatch(
                module,
                (
                    Bind(name, storage, 4 * x * y, f"packed:{name}", None, extent, True),
                    Bind(f"source:{name}", BUFFER, source.size, words=source),
                ),
                push,
                (),
                (x, y, 1),
                words.default_local((x, y, 1)),
            )


# --- what a module declares ------------------------------------------------------------------------------

#: How a binding may be declared, by what stands there.
KINDS = {
    BUFFER: ("storage buffer",),
    UNIFORM: ("uniform block",),
    TEXTURE_2D: ("sampled image 2d", "storage image 2d"),
    TEXTURE_3D: ("sampled image 3d", "storage image 3d"),
}


def disagreements(
    step: ModuleDispatch, module: DeclaredInterface, called: Callable[[Any], str] = lambda binding: ""
) -> list[str]:
    """Where a module declares something else than a host gives it. A module may declare less than it gets.

    ``called`` tells how the source names a binding, "" if that is not known.
    """
    found = []
    for binding in module.bindings:
        if binding.number >= len(step.binds):
            number = f"{binding.number} ({name})" if (name := called(binding)) else f"{binding.number}"
            found.append(f"declares binding {number}; the host binds 0 to {len(step.binds) - 1}")
            continue
        bind = step.binds[binding.number]
        if binding.kind not in KINDS[bind.storage]:
            need = " or ".join(KINDS[bind.storage])
            found.append(
                f"binding {binding.number} ({bind.what}) is a {binding.kind}; the host binds a {need}"
            )
        elif bind.storage == UNIFORM and binding.nbytes > 4 * bind.count:
            size = f"{binding.nbytes} bytes; the host's block has {4 * bind.count}"
            found.append(f"binding {binding.number} ({bind.what}) has {size}")
    if module.push_bytes > len(step.push):
        found.append(f"declares {module.push_bytes} push bytes; the host pushes {len(step.push)}")
    elif step.own is not None and module.push_bytes != len(step.push):
        found.append(f"declares {module.push_bytes} push bytes, and gets {len(step.push)}")
    beyond = [number for number in module.spec_ids if number not in step.spec_words]
    if beyond:
        last = f"the host's last is {max(step.spec_words, default='none')}"
        found.append(f"declares specialization constants {', '.join(map(str, beyond))}; {last}")
    return found
