"""The serialized graph (``VK00``) as data: the frozen classes that hold it, and the rows of its tables.

`refsim.formats.flatbuffer.schema` says how rows are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from refsim.core.dtypes import BY_DELEGATE_CODE
from refsim.formats.flatbuffer.schema import FileSchema, table
from refsim.formats.literals import (
    COMMON_TABLES,
    Bool,
    BoolList,
    Double,
    DoubleList,
    Int,
    IntList,
    Null,
    String,
)

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
class SymInt:
    """An int32 that may change between runs; ``value`` is the one at export."""

    value: int


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


VKGRAPH = FileSchema(
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
