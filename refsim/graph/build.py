"""From a serialized `VkGraph` (refsim.formats.vkgraph) to a graph: layouts resolved, operators bound, all checked.

Constants are laid out once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np

from refsim.aten import bridge
from refsim.core.dtypes import BY_DELEGATE_CODE
from refsim.core.errors import GraphError, RefsimError
from refsim.core.layout import (
    BY_SCHEMA_VALUE,
    DEFAULT_LAYOUT_VALUE,
    PACKED_4C1W,
    PACKED_4W,
    PACKED_CONV2D,
    WIDTH_PACKED,
    Layout,
)
from refsim.core.tensor import TensorDesc
from refsim.formats.literals import Int, Null
from refsim.formats.vkgraph.read import Blob
from refsim.formats.vkgraph.schema import (
    DATATYPES,
    STORAGES,
    OperatorCall,
    SymInt,
    Value,
    ValueList,
    VkGraph,
    VkTensor,
)
from refsim.graph import order
from refsim.graph.graph import Graph, Node, Ref, Tensor
from refsim.graph.shapes import SYMBOLS, at_bound
from refsim.graph.values import by_name_of, params_of, plain
from refsim.ops.base.arg import Kind
from refsim.ops.base.meaning import meaning
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import OpSpec
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family


def build(
    blob: Blob, where: str, target: Target | None = None, runs: bool = True, of: Graph | None = None
) -> Graph:
    """Turn a decoded delegate into a graph: resolve layouts, bind operators, check everything.

    ``runs``: it will be run here, where every value has bytes of its own; without it a value may also be read that was
    written under another name of its memory. ``of``: the graph at the bound, if the blob is a copy at other shapes.
    Errors name the delegate, the node and the argument.
    """
    graph = bound(blob, where, target)
    if of is not None:
        graph = _noted(replace(graph, bound=of))
    order.check(graph, runs)
    return graph


def _noted(graph: Graph) -> Graph:
    """A copy at other shapes whose nodes say what upstream gets wrong about these."""
    said = {node.number: row.note for node, row in graph.misshaped()}
    nodes = (replace(n, notes=(*n.notes, said[n.number])) if n.number in said else n for n in graph.nodes)
    return replace(graph, nodes=tuple(nodes))


def bound(blob: Blob, where: str, target: Target | None = None) -> Graph:
    """As `build`, without asking whether values are written before they are read: a runtime does not ask either."""
    target = target or Target()
    source = at_bound(blob, where).graph
    layouts = resolve_layouts(source, target, where)
    indices = _indices(source)

    def tensor_of(number: int, value: VkTensor) -> Tensor:
        return make_tensor(blob, number, value, layouts.get(number), where, number in indices)

    return assembled(source, where, target, tensor_of, _nodes)


#: The nodes of a serialized operator: of a graph with these tensors, from this number on.
NodesOf = Callable[[VkGraph, dict[int, Tensor], int, OperatorCall, Target], list[Node]]


def assembled(
    source: VkGraph,
    where: str,
    target: Target,
    tensor_of: Callable[[int, VkTensor], Tensor],
    nodes_of: NodesOf,
) -> Graph:
    """The graph of a delegate of these tensors and nodes; errors about a node name it."""
    tensors = {
        number: tensor_of(number, value)
        for number, value in enumerate(source.values)
        if isinstance(value, VkTensor)
    }
    tensors |= _output_numbers(source)
    nodes: list[Node] = []
    for operator in source.chain:
        with _placed(where, len(nodes), operator):
            nodes += nodes_of(source, tensors, len(nodes), operator, target)
    return Graph(where, tensors, tuple(nodes), source.input_ids, source.output_ids, target)


def nodes_of_calls(blob: Blob, target: Target | None = None) -> list[list[Node]]:
    """The nodes of every serialized operator, in order; of one that does not bind, whatever is wrong with it, none."""
    target = target or Target()
    try:
        source = at_bound(blob, "").graph
        layouts = resolve_layouts(source, target)
    except RefsimError:
        return [[] for _ in blob.graph.chain]
    tensors: dict[int, Tensor] = {}
    indices = _indices(source)
    for number, value in enumerate(source.values):
        if isinstance(value, VkTensor):
            with suppress(RefsimError):
                tensors[number] = make_tensor(blob, number, value, layouts.get(number), "", number in indices)
    found: list[list[Node]] = []
    count = 0
    for operator in blob.graph.chain:
        if operator.name in SYMBOLS:
            found.append([])
            continue
        try:
            nodes = _nodes(source, tensors, count, operator, target)
        except RefsimError:
            nodes = []
        count += len(nodes) or 1
        found.append(nodes)
    return found


@contextmanager
def _placed(where: str, number: int, operator: OperatorCall) -> Iterator[None]:
    """Errors raised inside name the delegate and the node too."""
    try:
        yield
    except RefsimError as error:
        place = f"{where}: node {number} {operator.name}: {error.where}"
        raise type(error)(place, error.what, got=error.got, need=error.need) from error


# --- layouts ---------------------------------------------------------------------------------------------


def resolve_layouts(graph: VkGraph, target: Target, where: str = "graph") -> dict[int, Layout]:
    """The layout of every tensor value, with the dynamic convolution layout replaced by a concrete one.

    1. q8ta_conv2d makes its input 4C if it will use im2col, else 4C1W; q8ta_conv2d_dw makes it 4C1W.
    2. In each operator, the first int8 tensor with a concrete layout gives it to the tensors that have none yet.
    3. Any other tensor becomes 4C1W.

    An int8 tensor in a plain layout becomes 4W where an operator takes it so (`Arg.plain`).
    """
    layouts = {
        number: _layout(value.memory_layout, number)
        for number, value in enumerate(graph.values)
        if isinstance(value, VkTensor)
    }

    def dynamic(number: int) -> bool:
        return layouts[number] is PACKED_CONV2D

    for number, operator in enumerate(graph.chain):
        op = OPS.serialized(operator.name)
        if op is None or op.input_layout is None or len(operator.args) != len(op.args):
            continue
        source, x, out = operator.args[0], graph.values[operator.args[0]], graph.values[operator.args[-1]]
        if not (_is_image(x) and _is_image(out)):
            continue  # `build` refuses the node
        if dynamic(source):
            with _placed(where, number, operator):
                params = params_of(op, graph, operator)
            layouts[source] = op.input_layout(params, x.dims, out.dims, target)
    for operator in graph.chain:
        tensors = [a for a in operator.args if isinstance(graph.values[a], VkTensor)]
        known = [layouts[a] for a in tensors if layouts[a].packed_int8 and not dynamic(a)]
        for number in tensors:
            if known and dynamic(number):
                layouts[number] = known[0]
    for number in _plain_int8(graph):
        if layouts[number] is WIDTH_PACKED:
            layouts[number] = PACKED_4W
    return {number: PACKED_4C1W if dynamic(number) else row for number, row in layouts.items()}


def _plain_int8(graph: VkGraph) -> Iterator[int]:
    """Activations of int8 that q8ta operators read or write in a plain layout."""
    for operator in graph.chain:
        op = OPS.serialized(operator.name)
        if op is None or not operator.args:
            continue
        *_, last = operator.args
        result = graph.values[last]
        outputs = result.items if isinstance(result, ValueList) else (last,)
        written = [(OPS[name].output, v) for name, v in zip((op.name, *op.siblings), outputs, strict=False)]
        for arg, number in (*zip(op.args, operator.args, strict=False), *written):
            value = graph.values[number]
            if not arg.plain or not isinstance(value, VkTensor) or value.is_constant:
                continue
            if BY_DELEGATE_CODE[value.datatype].name == "int8":
                yield number


def _layout(value: int, number: int) -> Layout:
    if value == DEFAULT_LAYOUT_VALUE:
        return WIDTH_PACKED
    if value not in BY_SCHEMA_VALUE:
        raise GraphError(f"value {number}", "unknown memory layout", got=value, need=sorted(BY_SCHEMA_VALUE))
    return BY_SCHEMA_VALUE[value]


def _is_image(value: Value) -> TypeGuard[VkTensor]:
    return isinstance(value, VkTensor) and len(value.dims) >= 3


# --- values ----------------------------------------------------------------------------------------------


def _indices(graph: VkGraph) -> set[int]:
    """The values that operators' kernels read as indices."""
    found = set()
    for operator in graph.chain:
        op = OPS.serialized(operator.name)
        for arg, value in zip(op.args if op else (), operator.args, strict=False):
            if arg.kind is Kind.INPUT and arg.dtype is np.int32:
                found.add(value)
    return found


def _output_numbers(graph: VkGraph) -> dict[int, Tensor]:
    """The numbers that a graph gives as outputs: they were SymInts."""
    return {
        number: Tensor(number, (), np.dtype(np.int64), None, -1, np.array(value.value))
        for number in graph.output_ids
        if isinstance(value := graph.values[number], Int)
    }


def make_tensor(
    blob: Blob, number: int, value: VkTensor, layout: Layout | None, where: str, index: bool
) -> Tensor:
    row = BY_DELEGATE_CODE[value.datatype]
    if not row.computed:
        known = ", ".join(DATATYPES[code][0] for code, row in BY_DELEGATE_CODE.items() if row.computed)
        raise GraphError(
            f"{where}: value {number}",
            "tensor without a datatype",
            got=DATATYPES[value.datatype][0],
            need=known,
        )
    dtype = row.numpy
    data = None
    if value.is_constant:
        raw = blob.constants[value.constant_id]
        if len(raw) < value.nbytes:
            raise GraphError(
                f"{where}: value {number}", "constant too short", got=f"{len(raw)} bytes", need=value.nbytes
            )
        data = np.frombuffer(raw[: value.nbytes], dtype).reshape(value.dims)
    buffer = STORAGES.get(value.storage_type) == "BUFFER"
    return Tensor(number, value.dims, dtype, layout, value.mem_obj_id, data, buffer, index)


# --- nodes -----------------------------------------------------------------------------------------------


def _nodes(
    graph: VkGraph, tensors: dict[int, Tensor], number: int, operator: OperatorCall, target: Target
) -> list[Node]:
    """The nodes of a serialized operator: one, or one for each output where several operators compute them."""
    op = OPS.serialized(operator.name)
    if not operator.args:
        raise GraphError("arguments", "there are none", need="at least an output")
    result = plain(graph, operator.args[-1])
    outputs = tuple(
        ref.id for ref in (result if isinstance(result, tuple) else (result,)) if isinstance(ref, Ref)
    )
    if op is None or not _takes(op, tensors, operator):
        _check_written(graph, operator.args[-1])
        args = tuple(plain(graph, a) for a in operator.args[:-1])
        wrong = bridge.defects(operator.name, [_shape(tensors, arg) for arg in args])
        return [Node(number, operator.node_id, operator.name, args, outputs, notes=wrong)]
    computed = [op, *(OPS[name] for name in op.siblings)]
    if not outputs:
        raise GraphError("output", "not an int8 or float32 tensor", got=f"value {operator.args[-1]}")
    if len(outputs) != len(computed):
        raise GraphError("outputs", "wrong number", got=len(outputs), need=len(computed))
    return [
        _node(graph, tensors, number + at, operator, one, value, target)
        for at, (one, value) in enumerate(zip(computed, outputs, strict=True))
    ]


def _shape(tensors: dict[int, Tensor], arg: Any) -> Any:
    """The shape of a tensor; another argument as it is."""
    return tensors[arg.id].shape if isinstance(arg, Ref) and arg.id in tensors else arg


def _check_written(graph: VkGraph, number: int) -> None:
    """A float operator writes tensors without data, or a size."""
    result = graph.values[number]
    for output in result.items if isinstance(result, ValueList) else (number,):
        value = graph.values[output]
        if not isinstance(value, VkTensor | SymInt) or (isinstance(value, VkTensor) and value.is_constant):
            got = f"value {output}, {'a constant' if isinstance(value, VkTensor) else type(value).__name__}"
            raise GraphError("output", "nothing can be written to it", got=got, need="a tensor without data")


def _node(
    graph: VkGraph,
    tensors: dict[int, Tensor],
    number: int,
    operator: OperatorCall,
    op: OpSpec,
    output: int,
    target: Target,
) -> Node:
    """The node that computes one output of a q8ta operator."""
    by_name, outputs = by_name_of(op, graph, operator), (output,)
    inputs = {a.name: by_name[a.name] for a in op.of_kind(Kind.INPUT)}
    descs = {}
    for name, value in inputs.items():
        desc = _activation(op, tensors.get(value))
        if desc is None:
            raise GraphError(name, "not an int8 or float32 activation", got=f"value {value}")
        descs[name] = desc
    consts = {a.name: _constant(graph, tensors, by_name[a.name], a.name) for a in op.of_kind(Kind.CONST)}
    if (
        output not in tensors or tensors[output].data is not None
    ):  # its layout is unknown, its dtype, or it is stored
        raise GraphError("output", "not an int8 or float32 tensor", got=f"value {output}")
    if op.upstream.if_quantized is not None and tensors[output].dtype == np.int8:
        # ExecuTorch gives the output the dtype of an activation that is quantized
        tensors[output] = replace(tensors[output], dtype=np.dtype(np.float32))
    out = tensors[output].desc
    if out is None:
        raise GraphError("output", "not an int8 or float32 tensor", got=f"value {output}")
    args = tuple(plain(graph, a) for a in operator.args[:-1])
    params = params_of(op, graph, operator)
    notes = tuple(_oddities(op, consts, out.shape))
    meant = meaning(op, params, descs, consts, out, target)
    if meant is not None:
        return Node(number, operator.node_id, operator.name, args, outputs, None, inputs, meant, notes=notes)
    call = op.bind(params, descs, consts, out.layout, out_shape=out.shape, target=target)
    buffers = any(tensors[value].buffer for value in (*inputs.values(), *outputs))
    return Node(
        number,
        operator.node_id,
        operator.name,
        args,
        outputs,
        Prepared(call),
        inputs,
        buffers=buffers,
        notes=notes,
    )


def _activation(op: OpSpec, tensor: Tensor | None) -> TensorDesc | None:
    """What describes an input, None if it is not one. Of int8 values that no kernel takes only the shape counts."""
    if tensor is None or tensor.data is not None:
        return None
    if op.upstream.if_quantized is not None and tensor.dtype == np.int8:
        return TensorDesc(tensor.shape, PACKED_4W)
    return tensor.desc


def _oddities(op: OpSpec, consts: Mapping[str, np.ndarray | None], out: tuple[int, ...]) -> Iterator[str]:
    """What a file has that no exporter should write, and that runs."""
    for arg in op.of_kind(Kind.CONST):
        value = consts[arg.name]
        if value is None or len(out) < -op.channel_dim:
            continue
        channels = out[op.channel_dim]
        if arg.longer(value, channels):
            yield (
                f"{arg.name} has {len(value)} values for {channels} outputs: the kernel takes the first, "
                "which are right for the first slice of a layer only"
            )


def _takes(op: OpSpec, tensors: dict[int, Tensor], operator: OperatorCall) -> bool:
    """Whether the int8 operator is meant: names such as aten.clone are used for float tensors too, and for int8 ones
    that are in no packed layout."""
    source, result = tensors.get(operator.args[0]), tensors.get(operator.args[-1])
    if source is None or op.takes_floats:
        return True
    plain = [t for t in (source, result) if t is not None and t.dtype == np.int8 and t.desc is None]
    return source.dtype == np.int8 and not (op.family is Family.RELAYOUT and plain)


def _constant(graph: VkGraph, tensors: dict[int, Tensor], number: int, name: str) -> np.ndarray | None:
    if isinstance(graph.values[number], Null):
        return None
    tensor = tensors.get(number)
    if tensor is None or tensor.data is None:
        raise GraphError(name, "not a constant", got=f"value {number}", need="a tensor with stored data")
    return tensor.data
