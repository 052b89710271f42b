"""A part of a delegate's operators as a delegate of its own.

What the part reads and does not write becomes an input, and what it writes and nobody reads an output. Runtimes neither
take nor give packed int8 tensors, so such an input is quantized from floats, and such an output dequantized.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from refsim.core.dtypes import BY_DELEGATE_CODE
from refsim.core.errors import GraphError
from refsim.core.layout import BY_SCHEMA_VALUE
from refsim.formats.vkgraph.edit import PREPACK, GraphEditor
from refsim.formats.vkgraph.read import Blob
from refsim.formats.vkgraph.schema import OperatorCall, SymInt, ValueList, VkGraph, VkTensor
from refsim.formats.vkgraph.write import compacted
from refsim.graph.memory import overlapping
from refsim.graph.shapes import SYMBOLS
from refsim.graph.values import flat
from refsim.ops.base.registry import OPS
from refsim.ops.base.traits import Family

QUANTIZE, DEQUANTIZE = (
    next(op.serialized for op in OPS.values() if op.family is family)
    for family in (Family.QUANTIZE, Family.DEQUANTIZE)
)
#: Brings the inputs that `Model.random_inputs` draws, from -1 to 1, to all values of int8.
SCALE = 1 / 128
_BYTES = (SCALE, 0, -128, 127)
#: What goes with operators that need it, and is none that a reader would count.
_HELPERS = {PREPACK, *SYMBOLS}


@dataclass(frozen=True)
class Port:
    """A tensor at the border. ``place``: its place among the arguments of the whole delegate; None for a new one."""

    place: int | None
    dtype: str
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """A delegate that was cut out, and its border."""

    blob: bytes
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def operators(graph: VkGraph) -> list[int]:
    """The places of the operators in the chain, without those that only bring constants and sizes to others."""
    return [number for number, call in enumerate(graph.chain) if call.name not in _HELPERS]


def cut(blob: Blob, kept: Collection[int], merged: bool, where: str) -> Piece:
    """These operators of a delegate, by their places in the chain.

    ``merged``: new packed inputs of equal dims become one. Tensors share memory as they did, but for those that
    would now be needed at the same time. GraphError for a part that gives nothing.
    """
    graph = blob.graph
    chain = _with_helpers(graph, kept)
    missing, read, written = _border(graph, chain)
    _, wanted, _ = _border(graph, graph.chain)
    own = [n for n in graph.input_ids if n in missing]
    new = [n for n in missing if n not in own]
    bare = replace(graph, chain=tuple(chain), input_ids=(), output_ids=())
    editor = GraphEditor(replace(blob, graph=bare), where)
    same: dict[int, int] = {}
    first: dict[tuple[int, ...], int] = {}
    inputs = [_port(graph, n, graph.input_ids.index(n)) for n in own]
    for number in own:
        editor.input(number)
    for number in new:
        held = graph.values[number]
        if not isinstance(held, VkTensor):
            raise GraphError(f"{where}: value {number}", "is computed by an operator that was left out")
        if _packed(held):
            stands = first.setdefault(held.dims, number)
            if merged and stands != number:
                same[number] = stands
                continue
            floats = editor.tensor("float32", held.dims)
            editor.call(QUANTIZE, floats, *map(editor.literal, (*_BYTES, None)), number, before=0)
        inputs.append(Port(None, "float32", held.dims) if _packed(held) else _port(graph, number, None))
        editor.input(floats if _packed(held) else number)
    outputs = []
    for number in written:
        held = graph.values[number]
        place = None
        if number in graph.output_ids:
            place = len(graph.input_ids) + graph.output_ids.index(number)
        elif number not in wanted - read or not isinstance(held, VkTensor):
            continue
        elif _packed(held):
            floats = editor.tensor("float32", held.dims)
            editor.output(
                editor.call(DEQUANTIZE, number, *map(editor.literal, (*_BYTES, None, None)), floats)
            )
            outputs.append(Port(None, "float32", held.dims))
            continue
        editor.output(number)
        outputs.append(_port(graph, number, place))
    if not outputs:
        raise GraphError(where, "has no operator left that gives something")
    whole = _apart(_with_same(editor.graph(), same), graph)
    return Piece(compacted(Blob(whole, blob.constants), where), tuple(inputs), tuple(outputs))


def _with_helpers(graph: VkGraph, kept: Collection[int]) -> list[OperatorCall]:
    """The operators, with those before them that bring constants and sizes to them."""
    wanted: set[int] = set()
    found: list[OperatorCall] = []
    for number in reversed(range(len(graph.chain))):
        call = graph.chain[number]
        helps = call.name in _HELPERS and not wanted.isdisjoint(flat(graph, call.args[-1:]))
        if number in kept or helps:
            found.append(call)
            wanted.update(flat(graph, call.args[:-1]))
    return found[::-1]


def _border(
    graph: VkGraph, chain: Collection[OperatorCall]
) -> tuple[dict[int, None], set[int], dict[int, None]]:
    """(What is read before it is written, what is read, what is written), in order."""
    missing: dict[int, None] = {}
    read: set[int] = set()
    written: dict[int, None] = {}
    for call in chain:
        for number in _computed(graph, call.args[:-1]):
            read.add(number)
            if number not in written:
                missing.setdefault(number)
        written |= dict.fromkeys(_computed(graph, call.args[-1:]))
    return missing, read, written


def _computed(graph: VkGraph, ids: tuple[int, ...]) -> Iterator[int]:
    """The tensors without data and the SymInts among values."""
    for number in flat(graph, ids):
        held = graph.values[number]
        if isinstance(held, SymInt) or (isinstance(held, VkTensor) and not held.is_constant):
            yield number


def _packed(held: VkTensor) -> bool:
    row = BY_SCHEMA_VALUE.get(held.memory_layout)
    return row is not None and row.packed_int8 and BY_DELEGATE_CODE[held.datatype].name == "int8"


def _port(graph: VkGraph, number: int, place: int | None) -> Port:
    held = graph.values[number]
    if isinstance(held, VkTensor):
        return Port(place, BY_DELEGATE_CODE[held.datatype].name, held.dims)
    return Port(place, "int64", ())


def _with_same(graph: VkGraph, same: dict[int, int]) -> VkGraph:
    """The graph with values in place of others."""
    if not same:
        return graph

    def swapped(ids: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(same.get(number, number) for number in ids)

    chain = tuple(replace(call, args=(*swapped(call.args[:-1]), call.args[-1])) for call in graph.chain)
    values = tuple(ValueList(swapped(v.items)) if isinstance(v, ValueList) else v for v in graph.values)
    return replace(graph, chain=chain, values=values)


def _apart(graph: VkGraph, source: VkGraph) -> VkGraph:
    """Give memory of its own to what is needed with another of its memory object, unless the source has it so."""
    before = {frozenset(pair) for _, *pair in overlapping(source)}
    while found := next((pair for _, *pair in overlapping(graph) if frozenset(pair) not in before), None):
        number = found[1]
        held = graph.values[number]
        assert isinstance(held, VkTensor)
        values = (*graph.values[:number], replace(held, mem_obj_id=-1), *graph.values[number + 1 :])
        graph = replace(graph, values=values)
    return graph
