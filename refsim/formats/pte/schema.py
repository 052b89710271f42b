"""The program of a .pte file (``ET12``) as data: the frozen classes that hold it, one for each table.

Only the fields that running a program needs are listed; the reader skips the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from refsim.core.dtypes import BY_PROGRAM_CODE
from refsim.formats.flatbuffer.schema import At, FileSchema, members, named, wrapper
from refsim.formats.literals import COMMON_TABLES, Bool, BoolList, Double, DoubleList, Int, Null, String

#: Tensor.scalar_type -> (name, bytes per element). Quantized and sub-byte types are never executed here,
#: but files may carry them; a size of 0 marks types without whole bytes.
SCALAR_TYPES: Mapping[int, tuple[str, int]] = {
    code: (row.program[1], row.nbytes) for code, row in sorted(BY_PROGRAM_CODE.items()) if row.program
}
#: Tensor.extra.location and DelegateData.location.
IN_SEGMENT, EXTERNAL = 0, 1
DELEGATE_INLINE, DELEGATE_SEGMENT = 0, 1
#: Tensor.shape_dynamism.
SHAPE_DYNAMISM: Mapping[int, str] = {0: "STATIC", 1: "DYNAMIC_BOUND", 2: "DYNAMIC_UNBOUND"}


@dataclass(frozen=True, slots=True)
class IntIdList:
    """A list of ints, each given as the id of an Int value of the same plan (so that it can be computed)."""

    items: Annotated[tuple[int, ...], At(0, "[long]")]


@dataclass(frozen=True, slots=True)
class TensorList:
    """Ids of tensors of the same plan."""

    items: Annotated[tuple[int, ...], At(0, "[int]")]


@dataclass(frozen=True, slots=True)
class OptionalTensorList:
    """Like TensorList; -1 stands for a missing tensor."""

    items: Annotated[tuple[int, ...], At(0, "[int]")]


@dataclass(frozen=True, slots=True)
class Allocation:
    """A planned place: byte ``offset`` into the arena ``memory_id``."""

    memory_id: Annotated[int, At(0, "uint", 0)] = 0
    offset_low: Annotated[int, At(1, "uint", 0)] = 0
    offset_high: Annotated[int, At(2, "uint", 0)] = 0

    @property
    def offset(self) -> int:
        return self.offset_high << 32 | self.offset_low


@dataclass(frozen=True, slots=True)
class ExtraTensorInfo:
    mutable_segment: Annotated[int, At(0, "ulong", 0)] = 0
    fully_qualified_name: Annotated[str, At(1, "string")] = ""
    location: Annotated[int, At(2, "byte", IN_SEGMENT)] = IN_SEGMENT


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a plan: ``sizes`` outermost first, ``dim_order`` the same dims from slowest to fastest.

    ``data_index`` 0 means no stored data; with data and without ``allocation`` it is a constant. ``requires_grad`` and
    ``strided`` (the format's ``layout``) are kept for files that are written again.
    """

    scalar_type: Annotated[int, At(0, "byte", 0)]
    sizes: Annotated[tuple[int, ...], At(2, "[int]")]
    dim_order: Annotated[tuple[int, ...], At(3, "[ubyte]")]
    data_index: Annotated[int, At(5, "uint", 0)] = 0
    allocation: Annotated[Allocation | None, At(6, "AllocationDetails")] = None
    storage_offset: Annotated[int, At(1, "int", 0)] = 0
    shape_dynamism: Annotated[int, At(8, "byte", 0)] = 0
    extra: Annotated[ExtraTensorInfo | None, At(9, "ExtraTensorInfo")] = None
    requires_grad: Annotated[bool, At(4, "bool", False)] = False
    strided: Annotated[int, At(7, "byte", 0)] = 0

    @property
    def dtype_name(self) -> str:
        return SCALAR_TYPES[self.scalar_type][0]

    @property
    def is_constant(self) -> bool:
        external = self.extra is not None and self.extra.location == EXTERNAL
        return self.allocation is None and (self.data_index > 0 or external)


EValue: TypeAlias = (
    Null | Int | Bool | Double | Tensor | String | IntIdList | DoubleList | BoolList | TensorList
    | OptionalTensorList
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operator:
    """A kernel's name, ``aten::mean`` and overload, ``out``."""

    name: Annotated[str, At(0, "string")]
    overload: Annotated[str, At(1, "string")]

    def __str__(self) -> str:
        return f"{self.name}.{self.overload}" if self.overload else self.name


@dataclass(frozen=True, slots=True)
class KernelCall:
    op_index: Annotated[int, At(0, "int", 0)]
    args: Annotated[tuple[int, ...], At(1, "[int]")]


@dataclass(frozen=True, slots=True)
class DelegateCall:
    delegate_index: Annotated[int, At(0, "int", 0)]
    args: Annotated[tuple[int, ...], At(1, "[int]")]


@dataclass(frozen=True, slots=True)
class MoveCall:
    move_from: Annotated[int, At(0, "int", 0)]
    move_to: Annotated[int, At(1, "int", 0)]


@dataclass(frozen=True, slots=True)
class JumpFalseCall:
    """Continue at instruction ``destination`` of the chain if the Bool value ``condition`` is false."""

    condition: Annotated[int, At(0, "int", 0)]
    destination: Annotated[int, At(1, "int", 0)]


@dataclass(frozen=True, slots=True)
class FreeCall:
    value_index: Annotated[int, At(0, "int", 0)]


Instruction: TypeAlias = KernelCall | DelegateCall | MoveCall | JumpFalseCall | FreeCall


@dataclass(frozen=True, slots=True)
class DelegateData:
    """``index`` into Program.inline_delegates or Program.segments, as ``location`` says."""

    location: Annotated[int, At(0, "byte", DELEGATE_INLINE)] = DELEGATE_INLINE
    index: Annotated[int, At(1, "uint", 0)] = 0


@dataclass(frozen=True, slots=True)
class CompileSpec:
    key: Annotated[str, At(0, "string")]
    value: Annotated[memoryview, At(1, "bytes")]


@dataclass(frozen=True, slots=True)
class Delegate:
    """A part of the plan that a backend runs, such as ``VulkanBackend``."""

    id: Annotated[str, At(0, "string")]
    processed: Annotated[DelegateData | None, At(1, "BackendDelegateDataReference")]
    compile_specs: Annotated[tuple[CompileSpec, ...], At(2, "[CompileSpec]")] = ()


@dataclass(frozen=True, slots=True)
class Chain:
    inputs: Annotated[tuple[int, ...], At(0, "[int]")]
    outputs: Annotated[tuple[int, ...], At(1, "[int]")]
    instructions: Annotated[tuple[Instruction, ...], At(2, "[Instruction]")]


@dataclass(frozen=True, slots=True)
class ContainerMetadata:
    """How inputs and outputs nest, as pytree text; kept for runtimes, not read here."""

    inputs: Annotated[str, At(0, "string")] = ""
    outputs: Annotated[str, At(1, "string")] = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """One method: ids in ``inputs``, ``outputs`` and instructions refer to ``values``."""

    name: Annotated[str, At(0, "string")]
    values: Annotated[tuple[EValue, ...], At(2, "[EValue]")]
    inputs: Annotated[tuple[int, ...], At(3, "[int]")]
    outputs: Annotated[tuple[int, ...], At(4, "[int]")]
    chains: Annotated[tuple[Chain, ...], At(5, "[Chain]")]
    operators: Annotated[tuple[Operator, ...], At(6, "[Operator]")]
    delegates: Annotated[tuple[Delegate, ...], At(7, "[BackendDelegate]")]
    arena_sizes: Annotated[tuple[int, ...], At(8, "[long]")] = ()
    container: Annotated[ContainerMetadata | None, At(1, "ContainerMetadata")] = None

    def literal(self, number: int) -> object:
        """Value ``number`` as a plain Python object: None, number, bool, str, or a tuple of them.

        Tensors and lists of tensors are returned as they are stored.
        """
        value = self.values[number]
        if isinstance(value, IntIdList):
            return tuple(self.literal(item) for item in value.items)
        if isinstance(value, (DoubleList, BoolList)):
            return value.items
        if isinstance(value, (Int, Bool, Double, String)):
            return value.value
        return None if isinstance(value, Null) else value


@dataclass(frozen=True, slots=True)
class DataSegment:
    """A byte range behind the program, relative to the segment base."""

    offset: Annotated[int, At(0, "ulong", 0)]
    size: Annotated[int, At(1, "ulong", 0)]


@dataclass(frozen=True, slots=True)
class SegmentOffsets:
    """Where each tensor's data starts in one segment, in bytes."""

    segment_index: Annotated[int, At(0, "uint", 0)] = 0
    offsets: Annotated[tuple[int, ...], At(1, "[ulong]")] = ()


@dataclass(frozen=True, slots=True)
class NamedData:
    key: Annotated[str, At(0, "string")]
    segment_index: Annotated[int, At(1, "uint", 0)]


@dataclass(frozen=True, slots=True)
class Program:
    version: Annotated[int, At(0, "uint", 0)]
    plans: Annotated[tuple[Plan, ...], At(1, "[ExecutionPlan]")]
    constant_buffers: Annotated[tuple[memoryview, ...], At(2, "[Buffer]")] = ()
    inline_delegates: Annotated[tuple[memoryview, ...], At(3, "[BackendDelegateInlineData]")] = ()
    segments: Annotated[tuple[DataSegment, ...], At(4, "[DataSegment]")] = ()
    constant_segment: Annotated[SegmentOffsets | None, At(5, "SubsegmentOffsets")] = None
    mutable_segments: Annotated[tuple[SegmentOffsets, ...], At(6, "[SubsegmentOffsets]")] = ()
    named_data: Annotated[tuple[NamedData, ...], At(7, "[NamedData]")] = ()


_TABLES = {
    **COMMON_TABLES,
    **named(
        TensorList, OptionalTensorList, ExtraTensorInfo, Tensor, Operator, KernelCall, DelegateCall, MoveCall,
        JumpFalseCall, FreeCall, CompileSpec, ContainerMetadata, Chain, DataSegment, NamedData, Program,
        IntList=IntIdList,
        AllocationDetails=Allocation,
        EValue=wrapper(1, "value", "KernelTypes"),
        Instruction=wrapper(1, "call", "InstructionArguments"),
        BackendDelegateDataReference=DelegateData,
        BackendDelegate=Delegate,
        ExecutionPlan=Plan,
        Buffer=wrapper(0, "storage", "bytes"),
        BackendDelegateInlineData=wrapper(0, "data", "bytes"),
        SubsegmentOffsets=SegmentOffsets,
    ),
}  # fmt: skip
PROGRAM = FileSchema(
    b"ET12",
    "Program",
    _TABLES,
    {"KernelTypes": members(_TABLES, EValue), "InstructionArguments": members(_TABLES, Instruction)},
)
