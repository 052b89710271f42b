"""The rows of an ETDump (devtools/etdump/etdump_schema_flatcc.fbs of ExecuTorch 1.5.1).

Numbers that are arguments of operators are left out: only tensors are compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from refsim.formats.flatbuffer.schema import FileSchema, table


@dataclass(frozen=True, slots=True)
class DumpedTensor:
    """A tensor in the debug buffer: ``offset`` in bytes, ``strides`` in elements, ``scalar_type`` as in a program."""

    scalar_type: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class DumpedValue:
    """A value of an event: a tensor, a list of tensors, or something else, as ``kind`` says.

    ``is_output``: it is one of the whole program.
    """

    kind: int
    tensor: DumpedTensor | None = None
    tensors: tuple[DumpedTensor, ...] | None = None
    is_output: bool | None = None


@dataclass(frozen=True, slots=True)
class DebugEvent:
    """A value that an instruction read or wrote. ``chain`` is 2^64 - 1 for outputs of the program."""

    chain: int
    instruction: int
    value: DumpedValue | None
    name: str = ""


@dataclass(frozen=True, slots=True)
class ProfileEvent:
    """What ran. Times are in the units of the device's clock. ``delegate_id`` is what a delegate calls its operator."""

    name: str
    chain: int
    instruction: int
    delegate_id: int = -1
    delegate_name: str = ""
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class DumpEvent:
    """Exactly one of the two, or neither for what is not read: allocations."""

    profile: ProfileEvent | None = None
    debug: DebugEvent | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One call of the runtime: loading, or a run of the program."""

    name: str
    events: tuple[DumpEvent, ...]


@dataclass(frozen=True, slots=True)
class EtDump:
    version: int
    runs: tuple[Run, ...]


ETDUMP = FileSchema(
    identifier=b"ED00",
    root="ETDump",
    tables={
        "Tensor": table(
            DumpedTensor,
            (0, "scalar_type", "byte", 0),
            (1, "sizes", "[long]"),
            (2, "strides", "[long]"),
            (3, "offset", "long", 0),
        ),
        "Bool": table(None, (0, "bool_val", "bool", False)),
        "TensorList": table(None, (0, "tensors", "[Tensor]")),
        "Value": table(
            DumpedValue,
            (0, "kind", "byte", 0),
            (1, "tensor", "Tensor"),
            (2, "tensors", "TensorList"),
            (7, "is_output", "Bool"),
        ),
        "DebugEvent": table(
            DebugEvent,
            (0, "chain", "ulong", 0),
            (1, "instruction", "int", -1),
            (2, "value", "Value"),
            (5, "name", "string"),
        ),
        "ProfileEvent": table(
            ProfileEvent,
            (0, "name", "string"),
            (1, "chain", "int", 0),
            (2, "instruction", "int", -1),
            (3, "delegate_id", "int", -1),
            (4, "delegate_name", "string"),
            (6, "start", "ulong", 0),
            (7, "end", "ulong", 0),
        ),
        "Event": table(DumpEvent, (0, "profile", "ProfileEvent"), (2, "debug", "DebugEvent")),
        "RunData": table(Run, (0, "name", "string"), (3, "events", "[Event]")),
        "ETDump": table(EtDump, (0, "version", "uint", 0), (1, "runs", "[RunData]")),
    },
    unions={},
)
