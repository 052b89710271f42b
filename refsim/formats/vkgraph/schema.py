"""The serialized graph (``VK00``) as data: one row per field, and the frozen classes that hold it in memory.

A row is ``(slot, name, type)`` or ``(slot, name, type, default)``. Types are the flatbuffer scalars,
``string``, ``[scalar]``, ``bytes`` (a ``[ubyte]`` kept as a view of the file), a table, ``[table]``, or a
union; a union takes two slots, its type byte in ``slot - 1`` and its table in ``slot``. The reader and the
writer know no field beyond these rows. The rows of ``ET12`` are in `refsim.formats.pte.program`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from refsim.core.dtypes import BY_DELEGATE_CODE

#: VkTensor.datatype -> (name, bytes per element); 127 means "not set" and has no size.
DATATYPES: Mapping[int, tuple[str, int]] = {
    code: (row.name.upper(), row.nbytes) for code, row in sorted(BY_DELEGATE_CODE.items())
}
UNSET_DATATYPE = 127

#: VkTensor.storage_type -> name.
STORAGES: Mapping[int, str] = {0: "BUFFER", 1: "TEXTURE_3D", 2: "TEXTURE_2D", 255: "DEFAULT"}
DEFAULT_STORAGE = 255
#: VkTensor.memory_layout when the file leaves it open; the names of layouts live in `refsim.core.layout`.
DEFAULT_LAYOUT = 255
#: VkBytes.offset when the bytes are found by ``named_key`` instead.
NAMED_OFFSET = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Null:
    """No value: an argument that was left out."""


@dataclass(frozen=True, slots=True)
class Int:
    value: int


@dataclass(frozen=True, slots=True)
class Double:
    value: float


@dataclass(frozen=True, slots=True)
class Bool:
    value: bool


@dataclass(frozen=True, slots=True)
class String:
    value: str


@dataclass(frozen=True, slots=True)
class SymInt:
    """An int32 that may change between runs; ``value`` is the one at export."""

    value: int


@dataclass(frozen=True, slots=True)
class IntList:
    items: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DoubleList:
    items: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BoolList:
    items: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class ValueList:
    """Ids of other values of the same graph."""

    items: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VkTensor:
    """A tensor: ``dims`` outermost first; ``constant_id`` and ``mem_obj_id`` are -1 where there is none."""

    datatype: int
    dims: tuple[int, ...]
    constant_id: int = -1
    mem_obj_id: int = -1
    storage_type: int = DEFAULT_STORAGE
    memory_layout: int = DEFAULT_LAYOUT
    staging_datatype: int = UNSET_DATATYPE

    @property
    def is_constant(self) -> bool:
        return self.constant_id >= 0

    @property
    def numel(self) -> int:
        """Number of logical elements; 1 without dims."""
        count = 1
        for size in self.dims:
            count *= size
        return count

    @property
    def nbytes(self) -> int:
        """Bytes of the logical elements, contiguous and unpadded; 0 when the datatype is not set."""
        return self.numel * DATATYPES[self.datatype][1]


Value: TypeAlias = (
    "Null | Int | Double | Bool | VkTensor | IntList | DoubleList | BoolList | ValueList | String | SymInt"
)


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One operator of the chain; ``args`` are value ids, the output's last."""

    node_id: int
    name: str
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VkBytes:
    """A byte range of the constants region, or (``offset == NAMED_OFFSET``) a blob found by its key."""

    offset: int
    length: int
    named_key: str = ""


@dataclass(frozen=True, slots=True)
class VkGraph:
    version: str
    chain: tuple[OperatorCall, ...]
    values: tuple[Value, ...]
    input_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    constants: tuple[VkBytes, ...] = ()
    shaders: tuple[VkBytes, ...] = ()
    storage_type_override: int = DEFAULT_STORAGE
    memory_layout_override: int = DEFAULT_LAYOUT


class Field(NamedTuple):
    slot: int
    name: str
    type: str
    default: Any = None


@dataclass(frozen=True)
class Table:
    """A flatbuffer table: the class that holds it, and its rows.

    ``cls`` None means that the table only wraps its single field, whose value then stands for it.
    """

    cls: type | None
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Schema:
    """A file format: 4-byte identifier, root table, tables and unions (member 1 first; 0 is "none")."""

    identifier: bytes
    root: str
    tables: Mapping[str, Table]
    unions: Mapping[str, tuple[str, ...]]
    union_of: Mapping[tuple[str, type], int] = field(init=False)

    def __post_init__(self) -> None:
        kinds = {
            (union, cls): code
            for union, members in self.unions.items()
            for code, name in enumerate(members, 1)
            if (cls := self.tables[name].cls) is not None
        }
        object.__setattr__(self, "union_of", kinds)


def table(cls: type | None, *rows: tuple[Any, ...]) -> Table:
    """A `Table` from plain rows."""
    return Table(cls, tuple(Field(*row) for row in rows))


#: Tables that both formats define alike.
COMMON_TABLES: Mapping[str, Table] = {
    "Null": table(Null),
    "Int": table(Int, (0, "value", "long", 0)),
    "Bool": table(Bool, (0, "value", "bool", False)),
    "Double": table(Double, (0, "value", "double", 0.0)),
    "String": table(String, (0, "value", "string")),
    "IntList": table(IntList, (0, "items", "[long]")),
    "DoubleList": table(DoubleList, (0, "items", "[double]")),
    "BoolList": table(BoolList, (0, "items", "[bool]")),
}

VKGRAPH = Schema(
    identifier=b"VK00",
    root="VkGraph",
    tables={
        **COMMON_TABLES,
        "ValueList": table(ValueList, (0, "items", "[int]")),
        "SymInt": table(SymInt, (0, "value", "int", 0)),
        "VkTensor": table(
            VkTensor,
            (0, "datatype", "byte", 0),
            (1, "dims", "[uint]"),
            (2, "constant_id", "int", 0),
            (3, "mem_obj_id", "int", 0),
            (4, "storage_type", "ubyte", DEFAULT_STORAGE),
            (5, "memory_layout", "ubyte", DEFAULT_LAYOUT),
            (6, "staging_datatype", "byte", UNSET_DATATYPE),
        ),
        "VkValue": table(None, (1, "value", "GraphTypes")),
        "OperatorCall": table(
            OperatorCall,
            (0, "node_id", "uint", 0),
            (1, "name", "string"),
            (2, "args", "[int]"),
        ),
        "VkBytes": table(
            VkBytes,
            (0, "offset", "ulong", 0),
            (1, "length", "ulong", 0),
            (2, "named_key", "string"),
        ),
        "VkGraph": table(
            VkGraph,
            (0, "version", "string"),
            (1, "chain", "[OperatorCall]"),
            (2, "values", "[VkValue]"),
            (3, "input_ids", "[uint]"),
            (4, "output_ids", "[uint]"),
            (5, "constants", "[VkBytes]"),
            (6, "shaders", "[VkBytes]"),
            (7, "storage_type_override", "ubyte", DEFAULT_STORAGE),
            (8, "memory_layout_override", "ubyte", DEFAULT_LAYOUT),
        ),
    },
    unions={
        "GraphTypes": (
            "Null",
            "Int",
            "Double",
            "Bool",
            "VkTensor",
            "IntList",
            "DoubleList",
            "BoolList",
            "ValueList",
            "String",
            "SymInt",
        )
    },
)
