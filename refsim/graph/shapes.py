"""A delegate at other shapes: the copy of its blob with other dims, and with numbers instead of SymInts.

ET-VK loads a blob at its bound: layouts and kernels are chosen for the dims that the blob says. A run at other shapes
changes the sizes of tensors alone, operator by operator (docs/dynamic.md). So a copy has other dims, and keeps what was
chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from refsim.aten import bridge
from refsim.core.errors import GraphError, RefsimError, ShapeError
from refsim.core.layout import BY_SCHEMA_VALUE
from refsim.core.resize import Resize
from refsim.core.tensor import TensorDesc
from refsim.formats.literals import Int
from refsim.formats.vkgraph.read import Blob
from refsim.formats.vkgraph.schema import OperatorCall, SymInt, Value, ValueList, VkGraph, VkTensor
from refsim.graph.graph import Graph, Node
from refsim.graph.values import flat, plain
from refsim.ops.base.spec import Call

#: The operator that takes a SymInt out of an input, so that its numbers count.
SELECTED = "et_vk.select_as_symint.default"
#: Operators that compute a SymInt, by their serialized names.
SYMBOLS: Mapping[str, Callable[..., int]] = {
    "sym_size.int": lambda x, dim: x.shape[dim],
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: int(a) // int(b),  # of NumPy's numbers, one by 0 is 0 and a warning
    SELECTED: lambda x, dim, index: int(np.take(x, index, dim).reshape(-1)[0]),
}
#: How people write them; an argument is a value such as v12, or a number.
_FORMULAS: Mapping[str, str] = {
    "sym_size.int": "size({}, {})",
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "floordiv": "{} // {}",
    SELECTED: "element({}, {}, {})",
}
_INT32 = range(-(2**31), 2**31)
#: Values of a run whose numbers nobody looks at: tensors as zeros of their shapes, SymInts as numbers.
Sizes = dict[int, Any]


def zeros(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """A tensor of which only the shape counts; it takes no memory."""
    return np.broadcast_to(np.zeros((), dtype), tuple(shape))


@dataclass(frozen=True)
class Number:
    """A SymInt of a delegate: its value's id, what it is computed from, and what it is at some shapes."""

    value: int
    formula: str
    number: int

    def __str__(self) -> str:
        return f"v{self.value} = {self.formula} = {self.number}"


def numbers(blob: Blob, copy: Blob) -> list[Number]:
    """The SymInts that a blob computes, in their order, as they are in a copy of it."""

    def name(number: int) -> str:
        held = blob.graph.values[number]
        return f"v{number}" if isinstance(held, VkTensor | SymInt) else str(plain(blob.graph, number))

    found = []
    for call in blob.graph.chain:
        held = copy.graph.values[call.args[-1]]
        if call.name in SYMBOLS and isinstance(held, Int):
            formula = _FORMULAS[call.name].format(*map(name, call.args[:-1]))
            found.append(Number(call.args[-1], formula, held.value))
    return found


def at_bound(blob: Blob, where: str) -> Blob:
    """The blob with the numbers that its SymInts have at its own dims."""
    if not any(isinstance(value, SymInt) for value in blob.graph.values):
        return blob
    sizes: Sizes = {
        number: zeros(value.dims, np.int32)
        for number, value in enumerate(blob.graph.values)
        if isinstance(value, VkTensor)
    }
    for number, call in enumerate(blob.graph.chain):
        if call.name in SYMBOLS:
            sizes[call.args[-1]] = _symbol(blob.graph, sizes, call, f"{where}: node {number} {call.name}")
    return replace(blob, graph=_with(blob.graph, sizes, None, {}))


def at_shapes(
    blob: Blob, bound: Graph, given: Sequence[Any], where: str, frozen: Mapping[int, Resize] | None = None
) -> tuple[Blob, list[Any]]:
    """The blob at the shapes of these inputs (arrays, or numbers for SymInts), and its outputs in the same form.

    ``bound`` is the graph of `at_bound`. ``frozen``: what upstream does to values whose sizes do not follow from their
    operators. GraphError or ShapeError, which name the operator, where one does not take the sizes that come to it.
    """
    source = blob.graph
    sizes: Sizes = {t.id: t.data for t in bound.tensors.values() if t.data is not None}
    frozen = frozen or {}
    for value, left in frozen.items():
        if left.keeps:
            sizes[value] = zeros(bound.tensors[value].shape, bound.tensors[value].dtype)
    for number, array in zip(source.input_ids, given, strict=True):
        held = source.values[number]
        if not isinstance(held, VkTensor):
            sizes[number] = _number(array, where)
        elif len(held.dims) != array.ndim:
            place = f"{where}: value {number}"
            raise ShapeError(place, "another number of dims", got=list(array.shape), need=list(held.dims))
        else:
            sizes[number] = array
    nodes = {output: node for node in bound.nodes for output in node.outputs}
    kept: dict[int, str] = {}
    for number, call in enumerate(source.chain):
        place = f"{where}: node {number} {call.name}"
        if call.name in SYMBOLS:
            sizes[call.args[-1]] = _symbol(source, sizes, call, place)
            continue
        for output in flat(source, call.args[-1:]):
            if output in sizes or (node := nodes.get(output)) is None:
                continue
            if bound.target.runtime.flat and bridge.takes_prefix(node.name):
                shapes = [_viewed(bound.tensors[output].shape, sizes[node.reads[0]].size, place)]
            else:
                shapes = _shapes(source, bound, sizes, call, node, place)
            if (
                frozen
                and node.call is not None
                and node.call.op.upstream.beyond is not None
                and len(node.inputs) > 1
            ):
                shapes = [tuple(map(max, *(sizes[n].shape for n in node.inputs.values())))]  # whatever fits
            if (resize := frozen.get(output)) is not None and resize.shape is not None:
                shapes = [resize.shape(bound.tensors[output].shape, shape) for shape in shapes]
            sizes |= {n: zeros(s, bound.tensors[n].dtype) for n, s in zip(node.outputs, shapes, strict=False)}
            if node.call is not None and (name := _kept(node.call, sizes, node)) is not None:
                kept[number] = name
    outputs = [sizes.get(number) for number in source.output_ids]
    return replace(blob, graph=_with(source, sizes, bound, kept)), outputs


def _number(given: Any, where: str) -> int:
    """What a SymInt is given: a number, or a tensor with one element."""
    array = np.asarray(given)
    if array.size != 1 or array.dtype.kind not in "iub" or int(array.reshape(-1)[0]) not in _INT32:
        raise GraphError(where, "not a SymInt", got=f"{array.dtype} {list(array.shape)}", need="one int32")
    return int(array.reshape(-1)[0])


def _symbol(graph: VkGraph, sizes: Sizes, call: OperatorCall, place: str) -> int:
    args = [_argument(graph, sizes, number) for number in call.args[:-1]]
    try:
        found = int(SYMBOLS[call.name](*args))
    except (TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        raise GraphError(place, f"no SymInt: {error}") from error
    if found not in _INT32:
        raise GraphError(place, "a SymInt is no int32", got=found)
    return found


def _argument(graph: VkGraph, sizes: Sizes, number: int) -> Any:
    if number in sizes:
        return sizes[number]
    value = graph.values[number]
    if isinstance(value, ValueList):
        return tuple(_argument(graph, sizes, item) for item in value.items)
    if isinstance(value, VkTensor):
        return zeros(value.dims, np.int32)
    return plain(graph, number)


def _shapes(
    graph: VkGraph, bound: Graph, sizes: Sizes, call: OperatorCall, node: Node, place: str
) -> list[tuple[int, ...]]:
    """The shapes of a node's outputs."""
    held = bound.asked(node, flat=True) or node.meaning
    if held is None:
        args = [_argument(graph, sizes, number) for number in call.args[:-1]]
        return [result.shape for result in bridge.find(call.name, place).outlined(args, place)]
    declared = graph.values[node.outputs[0]]
    assert isinstance(declared, VkTensor)
    try:
        given = {name: _array(sizes, value) for name, value in bound.inputs_of(node).items()}
        shapes = {name: array.shape for name, array in given.items()}
        return [tuple(held.op.out_shape(held.params, shapes, held.consts or given, declared.dims))]
    except RefsimError as error:
        raise type(error)(f"{place}: {error.where}", error.what, got=error.got, need=error.need) from error


def _viewed(most: tuple[int, ...], count: int, place: str) -> tuple[int, ...]:
    """The shape of a view with so many elements where the runtime takes it from the bound's: one dim is another."""
    whole = prod(most)
    if count == whole:
        return most
    for dim, size in enumerate(most if count < whole else ()):
        if count % (whole // size) == 0:
            return (*most[:dim], count * size // whole, *most[dim + 1 :])
    raise GraphError(
        place, "the runtime finds no shape for its view", got=count, need=f"a part of {list(most)}"
    )


def _array(sizes: Sizes, value: int) -> np.ndarray:
    found = sizes.get(value)
    if not isinstance(found, np.ndarray):
        raise GraphError(f"value {value}", "no tensor that a node before it writes")
    return found


def _kept(call: Call, sizes: Sizes, node: Node) -> str | None:
    """The name of the operator that was chosen at the bound, where another would be chosen now."""
    if not call.op.picks or call.op.expand is None:
        return None
    descs = {
        name: TensorDesc(sizes[value].shape, call.descs[name].layout) for name, value in node.inputs.items()
    }
    out = TensorDesc(sizes[node.outputs[0]].shape, call.out.layout)
    expand = call.op.expand
    chosen, now = (expand(c)[0].call.op for c in (call, replace(call, descs=descs, out=out)))
    return None if chosen is now else chosen.serialized


def _with(graph: VkGraph, sizes: Sizes, bound: Graph | None, kept: Mapping[int, str]) -> VkGraph:
    """The graph with these sizes and numbers, without the operators that computed numbers; ``kept``: other names of
    operators, by their place in the chain."""

    def value(number: int, held: Value) -> Value:
        if isinstance(held, SymInt):
            return Int(int(sizes.get(number, held.value)))
        if bound is None or not isinstance(held, VkTensor) or held.is_constant:
            return held
        row, chosen = BY_SCHEMA_VALUE.get(held.memory_layout), bound.tensors[number].layout
        layout = held.memory_layout
        if row is not None and row.is_dynamic and chosen is not None:
            layout = chosen.schema_value
        dims = sizes[number].shape if number in sizes else held.dims
        return replace(held, dims=tuple(map(int, dims)), memory_layout=layout)

    chain = tuple(
        replace(call, name=kept.get(number, call.name))
        for number, call in enumerate(graph.chain)
        if call.name not in SYMBOLS
    )
    return replace(graph, chain=chain, values=tuple(value(n, held) for n, held in enumerate(graph.values)))
