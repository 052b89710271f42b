"""What an operator is: its named arguments, meaning, kernel and padding; and a call of it, bound and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from refsim.core.buffer import ByteKind, PackedBuffer, byte_kinds
from refsim.core.errors import LayoutError, ShapeError
from refsim.core.launch import Launch, Triple
from refsim.core.layout import Layout, layout
from refsim.core.push import PushWords, SpecWords
from refsim.core.qmath import Profile, inv_scale
from refsim.core.resize import Resize
from refsim.core.rng import Rng
from refsim.core.tensor import TensorDesc
from refsim.ops.base.arg import Arg, Arrays, Kind, Shapes
from refsim.ops.base.case import Case
from refsim.ops.base.case_rule import CaseRule
from refsim.ops.base.defect import Defect
from refsim.ops.base.host.row import ModuleCall
from refsim.ops.base.int4 import GroupedWeight
from refsim.ops.base.padding import OnDevice, Padding
from refsim.ops.base.param_types import make_params
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Affine, Epilogue, Family, MatrixProblem, Variant


@dataclass(frozen=True)
class Dispatch:
    """One kernel to run for a call: its launch, and the names of the buffers that it reads and writes."""

    launch: Launch
    inputs: tuple[str, ...]
    output: str = "out"


@dataclass(frozen=True)
class Call:
    """An operator bound to parameters, tensor descriptions and constants. `OpSpec.bind` makes it and checks it.

    ``bounds``: the least and the greatest byte that its kernel gives, where an executor lets the kernel do a clamp that
    follows; the emulated kernels and the shaders know them (`OpSpec.bounded`).
    """

    op: OpSpec
    params: Any
    descs: Mapping[str, TensorDesc]
    consts: Mapping[str, np.ndarray | None]
    out: TensorDesc
    target: Target = field(default_factory=Target)
    bounds: tuple[int, int] | None = None

    def define(self, arrays: Arrays) -> np.ndarray:
        """The operator's meaning on logical NCHW arrays."""
        # infinities and NaNs are values like others here: what becomes of them is defined, and no reason to warn
        with np.errstate(all="ignore"):
            found = self.op.define(self.params, self.target, **arrays, **self.consts)
        return found if self.bounds is None else np.clip(found, *self.bounds)

    def inverse(self, scale: float) -> np.float32:
        """1 / scale as the runtime's host computes it for its kernels."""
        return inv_scale(scale)

    def given(self, *names: str) -> tuple[np.ndarray, ...]:
        """Constants of these names, which no call of the operator lacks."""
        found = tuple(value for name in names if (value := self.consts[name]) is not None)
        assert len(found) == len(names)
        return found

    @property
    def padding(self) -> Padding:
        return self.op.padding(self)

    @property
    def tensors(self) -> dict[str, TensorDesc]:
        """Inputs and output by their arguments' names."""
        return {**self.descs, "out": self.out}

    def launched(
        self, global_size: Triple, local: Triple, tile: Triple = (1, 1, 1), variant: str = "",
        spec: Mapping[str, object] | None = None, **push: object,
    ) -> Launch:  # fmt: skip
        """A launch of the operator's kernel. ``spec`` and ``push`` are its words by name; those of tensors follow."""
        kernel = self.op.kernel
        assert kernel is not None
        return Launch(
            shader=self.op.name,
            out=self.out,
            spec=kernel.spec.pack(self.tensors, **(spec or {})),
            push=kernel.push.pack(self.tensors, **push),
            global_size=global_size,
            local=local,
            tile=tile,
            variant=variant,
        )

    def under(self, profile: Profile) -> Call:
        """The same call with other numerics."""
        return replace(self, target=replace(self.target, profile=profile))

    def expected(self, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        """The output buffer by definition: `define` of the unpacked inputs, packed, with the declared padding."""
        return self.stored(self.define({name: buffer.unpack() for name, buffer in inputs.items()}), inputs)

    def stored(self, values: np.ndarray, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        """Logical values as the output buffer, with the declared padding. RawBufferError for another dtype."""
        padding = self.padding
        buffer = PackedBuffer.pack(values, self.out.layout, lane=padding.lane.value, word=padding.word.value)
        if padding.copied:
            (source,) = inputs.values()
            spare = buffer.kinds() != ByteKind.VALUE
            buffer.raw[spare] = source.raw[spare]
        return buffer

    def settle(
        self, buffer: PackedBuffer, inputs: Mapping[str, PackedBuffer], chance: np.ndarray | None = None
    ) -> PackedBuffer:
        """A device's output, in which padding that its kernel leaves to chance gets its declared bytes.

        ``chance`` says which bytes these are; else they are those of upstream's kernel.
        """
        chance = ~self.device_defined() if chance is None else chance
        if chance.any():
            padding = self.padding
            if padding.copied:
                (source,) = inputs.values()
                declared = source.raw
            else:
                table = np.array([0, padding.lane.value, padding.word.value], np.int8).view(np.uint8)
                declared = table[buffer.kinds()]
            buffer.raw[chance] = declared[chance]
        return buffer

    def device_defined(self) -> np.ndarray:
        """One bool per byte of the output: whether a buffer from a device must have the same byte there."""
        if not self.out.is_int8:
            return np.ones(self.out.nbytes, bool)
        padding = self.padding
        written = OnDevice.WRITTEN
        table = np.array([True, padding.lane.on_device is written, padding.word.on_device is written])
        return table[byte_kinds(self.out)]

    @property
    def defects(self) -> tuple[Defect, ...]:
        """What the kernel of the target's runtime is known to do wrong here."""
        return tuple(row for row in self.op.defects_on(self.target) if row.applies(self))

    def dispatches(self) -> list[Dispatch]:
        """The dispatches that compute the call, in order."""
        if self.op.expand is not None:
            return [step for part in self.op.expand(self) for step in part.call_dispatches()]
        assert self.op.kernel is not None
        names = tuple(a.name for a in self.op.args if a.kind in (Kind.INPUT, Kind.CONST))
        return [Dispatch(self.op.kernel.launch(self), names)]

    def words(self, name: str) -> np.ndarray:
        """Lay out a constant as the kernels read it (int32 words); an absent one is a single 0."""
        value = self.consts[name]
        return np.zeros(1, np.int32) if value is None else self.op.prepack(self, name, value)

    def const_words(self) -> dict[str, np.ndarray]:
        """All constants as the kernels read them."""
        return {name: self.words(name) for name in self.consts}


@dataclass(frozen=True)
class Part:
    """One operator call within a composite operator: the call, and where its buffers come from and go."""

    call: Call
    inputs: Mapping[str, str]  # the part's argument -> buffer name in the composite
    output: str = "out"

    def call_dispatches(self) -> list[Dispatch]:
        return [
            Dispatch(
                step.launch,
                tuple(self.inputs.get(name, name) for name in step.inputs),
                self.output if step.output == "out" else step.output,
            )
            for step in self.call.dispatches()
        ]


def _words_of(call: Call, name: str, value: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(value).view(np.int32)


@dataclass(frozen=True)
class KernelSpec:
    """The emulated kernel: how a call is launched on words, and what its invocations do."""

    run: Callable[..., None]  # (reached, spec, push, *words, out): all work items of one `Launch`
    launch: Callable[[Call], Launch]
    push: PushWords  # the names of the launch's words
    spec: SpecWords
    #: (launch, word, w, h, c, n): the work item (x, y, z) that writes a word; the word begins at that coordinate
    work_item: Callable[..., tuple[Any, Any, Any]]
    variants: Sequence[Variant] = ()  # the builds of its shader beside the plain one


@dataclass(frozen=True)
class Upstream:
    """What ET-VK does with the operator, where that is more or other than what the operator means."""

    #: how its host calls its kernel, for executors that run modules of another build
    module: ModuleCall | None = None
    #: what its kernel is known to do wrong for calls that kernels here take
    defects: Sequence[Defect] = ()
    #: what its kernel does for input shapes that `define` knows and no kernel here takes
    beyond: Callable[[Shapes], str | None] | None = None
    #: what it does with an int8 input, which `define` knows, where the kernels take floats
    if_quantized: str | None = None
    #: what it gets wrong about the output's shape in a run with another shape than the bound one
    resize: Resize | None = None
    resizes: bool = False  # shapes may change between runs
    exported: bool = True  # ExecuTorch's exporter writes the operator; some are known to the runtime alone


@dataclass(frozen=True)
class OpSpec:
    """One operator: its arguments, what it means, and what others ask for instead of its name."""

    name: str
    serialized: str  # its name in graphs
    family: Family  # what it does with its elements
    args: tuple[Arg, ...]  # in serialized order
    params: type  # the dataclass of its scalar arguments

    # what it computes: `define` means it, `kernel` does it on words
    define: Callable[..., np.ndarray]  # (params, target, **arrays) on NCHW arrays
    #: (params, shapes, consts, declared): the shape of the output; ``declared`` is what a graph says, or None
    out_shape: Callable[[Any, Shapes, Mapping[str, Any], Any], tuple[int, ...]]
    padding: Callable[[Call], Padding]
    cases: CaseRule
    kernel: KernelSpec | None = None
    expand: Callable[[Call], Sequence[Part]] | None = None  # what a composite has instead: the calls in it
    upstream: Upstream = Upstream()

    # what it takes
    check: Callable[[Call], None] | None = None  # raises where arguments do not fit each other
    prepack: Callable[[Call, str, np.ndarray], np.ndarray] = _words_of  # a constant as kernels read it
    sync: tuple[str, ...] = ()  # tensors whose PackedDimInfo must be equal
    #: (params, in, out, target): what an unresolved input layout becomes
    input_layout: Callable[[Any, tuple[int, ...], tuple[int, ...], Target], Layout] | None = None
    channel_dim: int = -3  # the dim of the output for which constants have one entry each
    min_rank: int = 1
    max_rank: int = 4
    aliases: tuple[str, ...] = ()  # other names under which graphs hold it
    siblings: tuple[str, ...] = ()  # the operators that compute the later outputs, from the same arguments

    # what others ask for
    epilogue: Epilogue | None = None  # how it ends an integer sum
    #: the arithmetic of an operator from int8 to int8; None for parameters with which bytes only move
    affine: Callable[[Any], Affine | None] | None = None
    int4: GroupedWeight | None = None  # how it uses 4-bit weights
    #: a call as one matrix product, for devices that multiply matrices
    matrix: Callable[[Call], MatrixProblem] | None = None
    clamps: bool = False  # its kernel clamps to `Call.bounds` though it has no epilogue
    picks: bool = False  # a composite that stands for one of several operators, chosen for each call
    transposed: bool = False  # a convolution that spreads its input
    one_tap: bool = False  # a convolution whose window is always a single tap
    one_row: bool = False  # a linear operator that refuses more than one row
    any_channels: bool = True  # the number of channels need not be a multiple of anything

    def of_kind(self, kind: Kind) -> tuple[Arg, ...]:
        return tuple(a for a in self.args if a.kind is kind)

    def defects_on(self, target: Target) -> tuple[Defect, ...]:
        """Its defects that the runtime of a target has."""
        ended = target.runtime.ended
        return tuple(row for row in self.upstream.defects if f"{row.name}:{self.name}" not in ended)

    @property
    def output(self) -> Arg:
        return self.of_kind(Kind.OUTPUT)[0]

    @property
    def bounded(self) -> bool:
        """Whether its kernels clamp their bytes to `Call.bounds`."""
        return self.clamps or (self.epilogue is not None and self.output.layouts[0].packed_int8)

    @property
    def takes_floats(self) -> bool:
        """Whether its first input holds floats."""
        return not self.of_kind(Kind.INPUT)[0].layouts[0].packed_int8

    @cached_property
    def layouts(self) -> tuple[tuple[Layout, ...], ...]:
        """Every legal combination of layouts: those of the inputs, then the output's."""
        tensors = [*self.of_kind(Kind.INPUT), self.output]
        return tuple(
            rows
            for rows in product(*(arg.layouts for arg in tensors))
            if len(
                {row.packed_dim_info for arg, row in zip(tensors, rows, strict=True) if arg.name in self.sync}
            )
            <= 1
        )

    @property
    def variants(self) -> Sequence[Variant]:
        """The builds of its shader beside the plain one."""
        return () if self.kernel is None else self.kernel.variants

    def sample(self, rng: Rng) -> Case:
        """A random legal case."""
        return self.cases.draw(self.name, self.layouts, self.max_rank, rng)

    def make_params(self, values: Mapping[str, Any]) -> Any:
        """`Params` from named values; ParameterError for one that is unknown, missing or of another type."""
        return make_params(self.name, self.params, values)

    def bind(
        self,
        params: Any,
        inputs: Mapping[str, TensorDesc],
        consts: Mapping[str, np.ndarray | None],
        out_layout: Layout | str,
        *,
        out_shape: Sequence[int] | None = None,
        target: Target | None = None,
    ) -> Call:
        """Check the arguments and return a `Call`.

        ``out_shape`` is the shape that a graph declares; it must be the one that the operator computes. Raises
        LayoutError, ShapeError or ParameterError; the message names the argument.
        """
        self.check_inputs(inputs)
        for arg in self.of_kind(Kind.CONST):
            arg.check_const(self.name, consts.get(arg.name))
        self.output.check_layout(self.name, layout(out_layout))
        shapes = {name: desc.shape for name, desc in inputs.items()}
        declared = None if out_shape is None else tuple(out_shape)
        shape = tuple(self.out_shape(params, shapes, consts, declared))
        if declared is not None and declared != shape:
            raise ShapeError(
                self.name, "the declared output shape is wrong", got=list(declared), need=list(shape)
            )
        trimmed = {
            arg.name: arg.trim(self.name, consts.get(arg.name), shape[self.channel_dim])
            for arg in self.of_kind(Kind.CONST)
        }
        call = Call(
            self, params, dict(inputs), trimmed, TensorDesc(shape, layout(out_layout)), target or Target()
        )
        self._check_sync(call)
        if self.check is not None:
            self.check(call)
        return call

    def check_inputs(self, inputs: Mapping[str, TensorDesc]) -> None:
        """ShapeError, LayoutError or ParameterError unless each input is there, in a layout, dtype and rank that the
        operator takes. Their sizes are another matter."""
        for arg in self.of_kind(Kind.INPUT):
            if arg.name not in inputs:
                raise ShapeError(self.name, f"input {arg.name} is missing")
            arg.check_layout(self.name, inputs[arg.name].layout)
            arg.check_dtype(self.name, inputs[arg.name].dtype)
            self._check_rank(arg, len(inputs[arg.name].shape))

    def _check_rank(self, arg: Arg, rank: int) -> None:
        if not self.min_rank <= rank <= self.max_rank:
            few_or_many = "few" if rank < self.min_rank else "many"
            raise ShapeError(
                self.name,
                f"{arg.name} has too {few_or_many} dims",
                got=rank,
                need=f"{self.min_rank} to {self.max_rank}",
            )

    def _check_sync(self, call: Call) -> None:
        descs = {**call.descs, "out": call.out}
        infos = {name: descs[name].layout.packed_dim_info for name in self.sync}
        if len(set(infos.values())) > 1:
            raise LayoutError(
                self.name,
                "tensors pack different dims",
                got=", ".join(f"{name} in {descs[name].layout}" for name in self.sync),
                need="equal packed dim and block size",
            )
