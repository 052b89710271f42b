"""What a `VkGraph` must satisfy beyond its schema. The reader and the writer make the same checks."""

from __future__ import annotations

from refsim.core.counted import counted
from refsim.core.errors import FormatError
from refsim.formats.file import quote
from refsim.formats.limits import LIMITS, Limits, check_code, check_ids, check_size
from refsim.formats.vkgraph.schema import (
    DATATYPES,
    NAMED_OFFSET,
    STORAGES,
    UNSET_DATATYPE,
    ValueList,
    VkBytes,
    VkGraph,
    VkTensor,
)


def check_graph(graph: VkGraph, raw_size: int, where: str, limits: Limits = LIMITS) -> None:
    """Raise FormatError or LimitError unless every reference in ``graph`` leads somewhere.

    ``raw_size`` is the size of the constants region in bytes.
    """
    count = len(graph.values)
    for number, call in enumerate(graph.chain):
        place = f"{where}: chain[{number}] {quote(call.name)}"
        if not call.args:
            raise FormatError(place, "operator without arguments", got=0, need="at least 1 value id")
        check_ids(f"{place}.args", call.args, count)
    check_ids(f"{where}: input_ids", graph.input_ids, count)
    check_ids(f"{where}: output_ids", graph.output_ids, count)
    for kind in ("constants", "shaders"):
        for number, part in enumerate(getattr(graph, kind)):
            _check_bytes(f"{where}: {kind}[{number}]", part, raw_size)
    check_code(f"{where}: storage_type_override", graph.storage_type_override, STORAGES)
    total = 0
    for number, value in enumerate(graph.values):
        if isinstance(value, VkTensor):
            _check_tensor(f"{where}: values[{number}]", value, graph, limits)
            total += 0 if value.is_constant else value.nbytes
        elif isinstance(value, ValueList):
            check_ids(f"{where}: values[{number}].items", value.items, count)
    limits.check(f"{where}: values", "total_bytes", total)
    _check_lists(graph, where, limits)


def _check_bytes(place: str, part: VkBytes, raw_size: int) -> None:
    if part.offset == NAMED_OFFSET:
        if not part.named_key:
            raise FormatError(place, "named data without a key", got="''", need="a key")
    elif part.offset + part.length > raw_size:
        raise FormatError(
            place,
            "byte range leaves the constants",
            got=f"offset {part.offset}, length {part.length}",
            need=f"an end of at most {raw_size}",
        )


def _check_tensor(place: str, tensor: VkTensor, graph: VkGraph, limits: Limits) -> None:
    check_code(f"{place}.datatype", tensor.datatype, DATATYPES)
    check_code(f"{place}.staging_datatype", tensor.staging_datatype, DATATYPES)
    check_code(f"{place}.storage_type", tensor.storage_type, STORAGES)
    nbytes = check_size(place, tensor.dims, DATATYPES[tensor.datatype][1], limits)
    if tensor.is_constant:
        check_ids(f"{place}.constant_id", (tensor.constant_id,), len(graph.constants))
        stored = graph.constants[tensor.constant_id].length
        if tensor.datatype != UNSET_DATATYPE and stored < nbytes:
            raise FormatError(
                f"{place}", "constant too short for its dims", got=stored, need=counted(nbytes, "byte")
            )


def _check_lists(graph: VkGraph, where: str, limits: Limits) -> None:
    """No ValueList contains itself, and none stands for an absurd number of values."""
    done: dict[int, tuple[int, int]] = {}
    open_ids: set[int] = set()

    def extent(number: int, depth: int) -> tuple[int, int]:
        """(values it stands for, lists nested in it and itself)."""
        value = graph.values[number]
        if not isinstance(value, ValueList):
            return 1, 0
        place = f"{where}: values[{number}]"
        if number in open_ids:
            raise FormatError(place, "ValueList contains itself", got=number, need="no cycle")
        if number not in done:
            limits.check(place, "list_depth", depth)
            open_ids.add(number)
            total, height = 0, 1
            for item in value.items:
                inner, levels = extent(item, depth + 1)
                total, height = total + inner, max(height, levels + 1)
                limits.check(place, "list_items", total)
            open_ids.discard(number)
            limits.check(place, "list_depth", height)
            done[number] = total, height
        return done[number]

    for number in range(len(graph.values)):
        extent(number, 1)
