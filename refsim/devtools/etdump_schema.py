"""The rows of an ETDump (devtools/etdump/etdump_schema_flatcc.fbs of ExecuTorch 1.5.1).

Numbers that are arguments of operators are left out: only tensors are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from refsim.formats.flatbuffer.schema import At, FileSchema, table, wrapper


@dataclass(frozen=True, slots=True)
class DumpedTensor:
    """A tensor in the debug buffer: ``offset`` in bytes, ``strides`` in elements, ``scalar_type`` as in a program."""

    scalar_type: Annotated[int, At(0, "byte", 0)]
    sizes: Annotated[tuple[int, ...], At(1, "[long]")]
    strides: Annotated[tuple[int, ...], At(2, "[long]")]
    offset: Annotated[int, At(3, "long", 0)]


@dataclass(frozen=True, slots=True)
class DumpedValue:
    """A value of an event: a tensor, a list of tensors, or something else, as ``kind`` says.

    ``is_output``: it is one of the whole program.
    """

    kind: Annotated[int, At(0, "byte", 0)]
    tensor: Annotated[DumpedTensor | None, At(1, "Tensor")] = None
    tensors: Annotated[tuple[DumpedTensor, ...] | None, At(2, "TensorList")] = None
    is_output: Annotated[bool | None, At(7, "Bool")] = None


@dataclass(frozen=True, slots=True)
class DebugEvent:
    """A value that an instruction read or wrote. ``chain`` is 2^64 - 1 for outputs of the program."""

    chain: Annotated[int, At(0, "ulong", 0)]
    instruction: Annotated[int, At(1, "int", -1)]
    value: Annotated[DumpedValue | None, At(2, "Value")]
    name: Annotated[str, At(5, "string")] = ""


@dataclass(frozen=True, slots=True)
class ProfileEvent:
    """What ran. Times are in the units of the device's clock. ``delegate_id`` is what a delegate calls its operator."""

    name: Annotated[str, At(0, "string")]
    chain: Annotated[int, At(1, "int", 0)]
    instruction: Annotated[int, At(2, "int", -1)]
    delegate_id: Annotated[int, At(3, "int", -1)] = -1
    delegate_name: Annotated[str, At(4, "string")] = ""
    start: Annotated[int, At(6, "ulong", 0)] = 0
    end: Annotated[int, At(7, "ulong", 0)] = 0


@dataclass(frozen=True, slots=True)
class DumpEvent:
    """Exactly one of the two, or neither for what is not read: allocations."""

    profile: Annotated[ProfileEvent | None, At(0, "ProfileEvent")] = None
    debug: Annotated[DebugEvent | None, At(2, "DebugEvent")] = None


@dataclass(frozen=True, slots=True)
class Run:
    """One call of the runtime: loading, or a run of the program."""

    name: Annotated[str, At(0, "string")]
    events: Annotated[tuple[DumpEvent, ...], At(3, "[Event]")]


@dataclass(frozen=True, slots=True)
class EtDump:
    version: Annotated[int, At(0, "uint", 0)]
    runs: Annotated[tuple[Run, ...], At(1, "[RunData]")]


ETDUMP = FileSchema(
    identifier=b"ED00",
    root="ETDump",
    tables={
        "Tensor": table(DumpedTensor),
        "Bool": wrapper(0, "bool_val", "bool", False),
        "TensorList": wrapper(0, "tensors", "[Tensor]"),
        "Value": table(DumpedValue),
        "DebugEvent": table(DebugEvent),
        "ProfileEvent": table(ProfileEvent),
        "Event": table(DumpEvent),
        "RunData": table(Run),
        "ETDump": table(EtDump),
    },
    unions={},
)
