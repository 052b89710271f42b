"""The serialized graph (``VK00``) as data: the frozen classes that hold it, one for each table.

`refsim.formats.flatbuffer.schema` says how fields are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from refsim.core.dtypes import BY_DELEGATE_CODE
from refsim.formats.flatbuffer.schema import At, FileSchema, members, named, wrapper
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

    value: Annotated[int, At(0, "int", 0)]


@dataclass(frozen=True, slots=True)
class ValueList:
    """Ids of other values of the same graph."""

    items: Annotated[tuple[int, ...], At(0, "[int]")]


@dataclass(frozen=True, slots=True)
class VkTensor:
    """A tensor: ``dims`` outermost first; ``constant_id`` and ``mem_obj_id`` are -1 where there is none."""

    datatype: Annotated[int, At(0, "byte", 0)]
    dims: Annotated[tuple[int, ...], At(1, "[uint]")]
    constant_id: Annotated[int, At(2, "int", 0)] = -1
    mem_obj_id: Annotated[int, At(3, "int", 0)] = -1
    storage_type: Annotated[int, At(4, "ubyte", DEFAULT_STORAGE)] = DEFAULT_STORAGE
    memory_layout: Annotated[int, At(5, "ubyte", DEFAULT_LAYOUT)] = DEFAULT_LAYOUT
    staging_datatype: Annotated[int, At(6, "byte", UNSET_DATATYPE)] = UNSET_DATATYPE

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
    Null | Int | Double | Bool | VkTensor | IntList | DoubleList | BoolList | ValueList | String | SymInt
)


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One operator of the chain; ``args`` are value ids, the output's last."""

    node_id: Annotated[int, At(0, "uint", 0)]
    name: Annotated[str, At(1, "string")]
    args: Annotated[tuple[int, ...], At(2, "[int]")]


@dataclass(frozen=True, slots=True)
class VkBytes:
    """A byte range of the constants region, or (``offset == NAMED_OFFSET``) a blob found by its key."""

    offset: Annotated[int, At(0, "ulong", 0)]
    length: Annotated[int, At(1, "ulong", 0)]
    named_key: Annotated[str, At(2, "string")] = ""


@dataclass(frozen=True, slots=True)
class VkGraph:
    version: Annotated[str, At(0, "string")]
    chain: Annotated[tuple[OperatorCall, ...], At(1, "[OperatorCall]")]
    values: Annotated[tuple[Value, ...], At(2, "[VkValue]")]
    input_ids: Annotated[tuple[int, ...], At(3, "[uint]")]
    output_ids: Annotated[tuple[int, ...], At(4, "[uint]")]
    constants: Annotated[tuple[VkBytes, ...], At(5, "[VkBytes]")] = ()
    shaders: Annotated[tuple[VkBytes, ...], At(6, "[VkBytes]")] = ()
    storage_type_override: Annotated[int, At(7, "ubyte", DEFAULT_STORAGE)] = DEFAULT_STORAGE
    memory_layout_override: Annotated[int, At(8, "ubyte", DEFAULT_LAYOUT)] = DEFAULT_LAYOUT


_TABLES = {
    **COMMON_TABLES,
    **named(
        ValueList, SymInt, VkTensor, OperatorCall, VkBytes, VkGraph, VkValue=wrapper(1, "value", "GraphTypes")
    ),
}
VKGRAPH = FileSchema(b"VK00", "VkGraph", _TABLES, {"GraphTypes": members(_TABLES, Value)})
