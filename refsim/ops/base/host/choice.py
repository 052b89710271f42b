"""Which module a host takes for a call, and which release's row says how to call it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from refsim.core import choices
from refsim.core.errors import ParameterError, UnknownOperatorError
from refsim.ops.base.host import weights
from refsim.ops.base.host.row import ModuleCall, Shader
from refsim.ops.base.host.weights import Packing
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call, OpSpec

VARIANTS = ("base", "fallback", "unsigned")


class DeclaredInterface(Protocol):
    """What a module declares; `refsim.spirv.reflect` reads it."""

    @property
    def bindings(self) -> Sequence[Any]: ...

    @property
    def push_bytes(self) -> int: ...

    @property
    def spec_ids(self) -> Mapping[int, int]: ...

    def local(self, spec: Mapping[int, int]) -> tuple[int, int, int]: ...


#: Modules that there are: names, or what each declares by its name. None stands for every name there is.
Available = Mapping[str, DeclaredInterface] | Collection[str] | None


@dataclass(frozen=True)
class HostFeatures:
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
        if self.variant and self.variant not in VARIANTS:
            raise ParameterError(
                "module variant", "unknown", got=self.variant, need=choices.need(self.variant, VARIANTS)
            )

    @classmethod
    def of(cls, device: Any, variant: str = "", images: bool = False) -> HostFeatures:
        """What a host asks this device (``refsim.exec.device_info.DeviceInfo``), and these two choices."""
        return cls(
            dot_product=device.integer_dot_product,
            unsigned_dot=device.dot_4x8_unsigned_accelerated and not device.dot_4x8_accelerated,
            max_texture2d=int(device.limits["maxImageDimension2D"]),
            float_images=images,
            variant=variant,
        )


@dataclass(frozen=True)
class Host:
    """A host with its device, its modules, and rows that replace those of operators by name."""

    features: HostFeatures = field(default_factory=HostFeatures)
    available: Available = None
    rows: Mapping[str, ModuleCall] = field(default_factory=dict)

    def row(self, op: OpSpec) -> ModuleCall | None:
        """How the operator is called, in the first release that is known."""
        return self.rows.get(op.name, op.upstream.module)

    def has(self, shader: str) -> bool:
        return self.available is None or shader in self.available

    def declared(self, shader: str) -> DeclaredInterface | None:
        """What a module declares, if that is known."""
        return self.available[shader] if isinstance(self.available, Mapping) and self.has(shader) else None

    def packing(self, call: Call, whole: Call, name: str) -> Packing:
        """How a constant is laid out: as the call that the graph holds says, else as the operator itself does."""
        outer, own = self.row(whole.op), self.row(call.op)
        assert own is not None
        if own.own is not None:
            return own.packing[name]
        return own.packing[name] if outer is None else outer.packing.get(name, own.packing[name])

    def ranked(self, call: Call, whole: Call | None = None) -> list[Shader]:
        """The modules that can compute a call on this device, in the order in which the host wants them."""
        row = self.row(call.op)
        shaders = () if row is None else row.shaders
        variants = {shader.variant for shader in shaders}
        fit = [shader for shader in shaders if self._refusal(shader, call, variants) is None]
        return sorted(fit, key=lambda shader: self._rank(shader, call, whole or call))

    def _refusal(self, shader: Shader, call: Call, variants: set[str]) -> str | None:
        if self.features.variant in variants and shader.variant != self.features.variant:
            return f"variant {self.features.variant} is forced"
        if shader.unsigned and _k_per_group(call) > weights.MAX_UNSIGNED_K:
            return f"K = {_k_per_group(call)} is too long for unsigned sums"
        if shader.dot_product and not self.features.dot_product:
            return "the device has no integer dot product"
        if any(len(call.tensors[name].shape) > 4 for name in shader.textures if name in call.tensors):
            return "an image holds four dims"
        return None

    def _rank(self, shader: Shader, call: Call, whole: Call) -> tuple[int, bool]:
        """How readily the host takes a module: the least first. Of equals it takes the one with the right storage."""
        unsigned = 0 if self.features.unsigned_dot else 3
        variant = {"base": 1, "fallback": 2, "unsigned": unsigned}[shader.variant]
        return (variant, bool(shader.textures) != self._wants_image(call, whole))

    def _wants_image(self, call: Call, whole: Call) -> bool:
        row = self.row(call.op)
        if row is None or not row.packing:
            return self.features.float_images
        packings = (self.packing(call, whole, name) for name in row.packing)
        extents = [packing.extent(packing.sizes(call)) for packing in packings]
        return max(size for extent in extents for size in extent) <= self.features.max_texture2d

    def choose(self, call: Call, whole: Call | None = None) -> Shader:
        """The module that the host takes among those that there are; UnknownOperatorError if there is none for it."""
        row = self.row(call.op)
        if row is None or not row.shaders:
            raise UnknownOperatorError(call.op.name, "no row says how modules of another build are called")
        refused = None if row.refuses is None else row.refuses(call)
        if refused is not None:
            raise UnknownOperatorError(call.op.name, refused)
        wanted = self.ranked(call, whole)
        found = next((shader for shader in wanted if self.has(shader.name)), None)
        if found is None:
            names = " or ".join(shader.name for shader in wanted)
            raise UnknownOperatorError(
                call.op.name, "no module computes it", need=names or "another device, or no forced variant"
            )
        return found

    def release(self, op: OpSpec, later: bool | None = None) -> ModuleCall:
        """The row of the release that the modules are from: the last that they show, or as ``later`` says."""
        row = self.row(op)
        assert row is not None
        said = later if self.features.later is None else self.features.later
        if said is not None:
            return row.later[-1] if row.later and said else row
        return next((later for later in reversed(row.later) if self._is_from(row, later)), row)

    def _is_from(self, row: ModuleCall, later: ModuleCall) -> bool:
        if later.told_by:
            teller = OPS[later.told_by]
            return self.release(teller) is not self.row(teller)
        if later.came_with:
            return self.available is not None and later.came_with in self.available
        declared = (self.declared(shader.name) for shader in row.shaders)
        return any(module is not None and module.push_bytes >= 4 * len(later.push) for module in declared)


def _k_per_group(call: Call) -> int:
    weight = call.consts.get("weight")
    return 0 if weight is None else weight.shape[-1]
