"""The program of a .pte file (``ET12``) as data: the frozen classes that hold it, and the rows of its tables.

Only the fields that running a program needs are listed; the reader skips the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from refsim.core.dtypes import BY_PROGRAM_CODE
from refsim.formats.flatbuffer.schema import FileSchema, table
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

    items: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorList:
    """Ids of tensors of the same plan."""

    items: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OptionalTensorList:
    """Like TensorList; -1 stands for a missing tensor."""

    items: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Allocation:
    """A planned place: byte ``offset`` into the arena ``memory_id``."""

    memory_id: int = 0
    offset_low: int = 0
    offset_high: int = 0

    @property
    def offset(self) -> int:
        return self.offset_high << 32 | self.offset_low


@dataclass(frozen=True, slots=True)
class ExtraTensorInfo:
    mutable_segment: int = 0
    fully_qualified_name: str = ""
    location: int = IN_SEGMENT


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a plan: ``sizes`` outermost first, ``dim_order`` the same dims from slowest to fastest.

    ``data_index`` 0 means no stored data; with data and without ``allocation`` it is a constant. ``requires_grad`` and
    ``strided`` (the format's ``layout``) are kept for files that are written again.
    """

    scalar_type: int
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...]
    data_index: int = 0
    allocation: Allocation | None = None
    storage_offset: int = 0
    shape_dynamism: int = 0
    extra: ExtraTensorInfo | None = None
    requires_grad: bool = False
    strided: int = 0

    @property
    def dtype_name(self) -> str:
        return SCALAR_TYPES[self.scalar_type][0]

    @property
    def is_constant(self) -> bool:
        external = self.extra is not None and self.extra.location == EXTERNAL
        return self.allocation is None and (self.data_index > 0 or external)


EValue: TypeAlias = (
    "Null | Int | Bool | Double | Tensor | String | IntIdList | DoubleList | BoolList | TensorList"
    " | OptionalTensorList"
)


@dataclass(frozen=True, slots=True)
class Operator:
    """A kernel's name, ``aten::mean`` and overload, ``out``."""

    name: str
    overload: str

    def __str__(self) -> str:
        return f"{self.name}.{self.overload}" if self.overload else self.name


@dataclass(frozen=True, slots=True)
class KernelCall:
    op_index: int
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DelegateCall:
    delegate_index: int
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MoveCall:
    move_from: int
    move_to: int


@dataclass(frozen=True, slots=True)
class JumpFalseCall:
    """Continue at instruction ``destination`` of the chain if the Bool value ``condition`` is false."""

    condition: int
    destination: int


@dataclass(frozen=True, slots=True)
class FreeCall:
    value_index: int


Instruction: TypeAlias = "KernelCall | DelegateCall | MoveCall | JumpFalseCall | FreeCall"


@dataclass(frozen=True, slots=True)
class DelegateData:
    """``index`` into Program.inline_delegates or Program.segments, as ``location`` says."""

    location: int = DELEGATE_INLINE
    index: int = 0


@dataclass(frozen=True, slots=True)
class CompileSpec:
    key: str
    value: memoryview


@dataclass(frozen=True, slots=True)
class Delegate:
    """A part of the plan that a backend runs, such as ``VulkanBackend``."""

    id: str
    processed: DelegateData | None
    compile_specs: tuple[CompileSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class Chain:
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class ContainerMetadata:
    """How inputs and outputs nest, as pytree text; kept for runtimes, not read here."""

    inputs: str = ""
    outputs: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """One method: ids in ``inputs``, ``outputs`` and instructions refer to ``values``."""

    name: str
    values: tuple[EValue, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    chains: tuple[Chain, ...]
    operators: tuple[Operator, ...]
    delegates: tuple[Delegate, ...]
    arena_sizes: tuple[int, ...] = ()
    container: ContainerMetadata | None = None

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

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class SegmentOffsets:
    """Where each tensor's data starts in one segment, in bytes."""

    segment_index: int = 0
    offsets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NamedData:
    key: str
    segment_index: int


@dataclass(frozen=True, slots=True)
class Program:
    version: int
    plans: tuple[Plan, ...]
    constant_buffers: tuple[memoryview, ...] = ()
    inline_delegates: tuple[memoryview, ...] = ()
    segments: tuple[DataSegment, ...] = ()
    constant_segment: SegmentOffsets | None = None
    mutable_segments: tuple[SegmentOffsets, ...] = ()
    named_data: tuple[NamedData, ...] = ()


PROGRAM = FileSchema(
    identifier=b"ET12",
    root="Program",
    tables={
        **COMMON_TABLES,
        "IntList": table(IntIdList, (0, "items", "[long]")),
        "TensorList": table(TensorList, (0, "items", "[int]")),
        "OptionalTensorList": table(OptionalTensorList, (0, "items", "[int]")),
        "AllocationDetails": table(
            Allocation,
            (0, "memory_id", "uint", 0),
            (1, "offset_low", "uint", 0),
            (2, "offset_high", "uint", 0),
        ),
        "ExtraTensorInfo": table(
            ExtraTensorInfo,
            (0, "mutable_segment", "ulong", 0),
            (1, "fully_qualified_name", "string"),
            (2, "location", "byte", IN_SEGMENT),
        ),
        "Tensor": table(
            Tensor,
            (0, "scalar_type", "byte", 0),
            (1, "storage_offset", "int", 0),
            (2, "sizes", "[int]"),
            (3, "dim_order", "[ubyte]"),
            (4, "requires_grad", "bool", False),
            (5, "data_index", "uint", 0),
            (6, "allocation", "AllocationDetails"),
            (7, "strided", "byte", 0),
            (8, "shape_dynamism", "byte", 0),
            (9, "extra", "ExtraTensorInfo"),
        ),
        "EValue": table(None, (1, "value", "KernelTypes")),
        "Operator": table(Operator, (0, "name", "string"), (1, "overload", "string")),
        "KernelCall": table(KernelCall, (0, "op_index", "int", 0), (1, "args", "[int]")),
        "DelegateCall": table(DelegateCall, (0, "delegate_index", "int", 0), (1, "args", "[int]")),
        "MoveCall": table(MoveCall, (0, "move_from", "int", 0), (1, "move_to", "int", 0)),
        "JumpFalseCall": table(JumpFalseCall, (0, "condition", "int", 0), (1, "destination", "int", 0)),
        "FreeCall": table(FreeCall, (0, "value_index", "int", 0)),
        "Instruction": table(None, (1, "call", "InstructionArguments")),
        "BackendDelegateDataReference": table(
            DelegateData, (0, "location", "byte", DELEGATE_INLINE), (1, "index", "uint", 0)
        ),
        "CompileSpec": table(CompileSpec, (0, "key", "string"), (1, "value", "bytes")),
        "BackendDelegate": table(
            Delegate,
            (0, "id", "string"),
            (1, "processed", "BackendDelegateDataReference"),
            (2, "compile_specs", "[CompileSpec]"),
        ),
        "ContainerMetadata": table(ContainerMetadata, (0, "inputs", "string"), (1, "outputs", "string")),
        "Chain": table(
            Chain, (0, "inputs", "[int]"), (1, "outputs", "[int]"), (2, "instructions", "[Instruction]")
        ),
        "ExecutionPlan": table(
            Plan,
            (0, "name", "string"),
            (1, "container", "ContainerMetadata"),
            (2, "values", "[EValue]"),
            (3, "inputs", "[int]"),
            (4, "outputs", "[int]"),
            (5, "chains", "[Chain]"),
            (6, "operators", "[Operator]"),
            (7, "delegates", "[BackendDelegate]"),
            (8, "arena_sizes", "[long]"),
        ),
        "Buffer": table(None, (0, "storage", "bytes")),
        "BackendDelegateInlineData": table(None, (0, "data", "bytes")),
        "DataSegment": table(DataSegment, (0, "offset", "ulong", 0), (1, "size", "ulong", 0)),
        "SubsegmentOffsets": table(
            SegmentOffsets, (0, "segment_index", "uint", 0), (1, "offsets", "[ulong]")
        ),
        "NamedData": table(NamedData, (0, "key", "string"), (1, "segment_index", "uint", 0)),
        "Program": table(
            Program,
            (0, "version", "uint", 0),
            (1, "plans", "[ExecutionPlan]"),
            (2, "constant_buffers", "[Buffer]"),
            (3, "inline_delegates", "[BackendDelegateInlineData]"),
            (4, "segments", "[DataSegment]"),
            (5, "constant_segment", "SubsegmentOffsets"),
            (6, "mutable_segments", "[SubsegmentOffsets]"),
            (7, "named_data", "[NamedData]"),
        ),
    },
    unions={
        "KernelTypes": (
            "Null",
            "Int",
            "Bool",
            "Double",
            "Tensor",
            "String",
            "IntList",
            "DoubleList",
            "BoolList",
            "TensorList",
            "OptionalTensorList",
        ),
        "InstructionArguments": (
            "KernelCall",
            "DelegateCall",
            "MoveCall",
            "JumpFalseCall",
            "FreeCall",
        ),
    },
)
