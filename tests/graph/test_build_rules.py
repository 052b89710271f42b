"""What a serialized delegate becomes, value by value and operator by operator: each rule by itself, on small graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from delegates import FLOAT32, INT8, INT32, ROWS, WIDTH, Builder, blob_of, convolution, graph_of

from refsim.core.errors import GraphError, RefsimError
from refsim.core.layout import PACKED_4W, WIDTH_PACKED
from refsim.core.qmath import LAVAPIPE
from refsim.formats.literals import Bool, Double, DoubleList, Int, IntList, Null, String
from refsim.formats.vkgraph.read import Blob, read_blob
from refsim.formats.vkgraph.schema import OperatorCall, SymInt, Value, ValueList, VkGraph, VkTensor
from refsim.graph.build import bound, build, nodes_of_calls, resolve_layouts
from refsim.graph.graph import Graph, Node, Ref, Tensor
from refsim.ops.base.arg import Kind
from refsim.ops.base.target import Target

# --- values ----------------------------------------------------------------------------------------------

ENCODER = blob_of("groups/encoder.pte")


def test_a_plain_int8_tensor_is_one_that_an_operator_takes_so() -> None:
    """The zero points of rows lie four to a word; weights, scales and what float operators write do not."""
    graph = build(ENCODER, "encoder")
    (linear, *_) = [node for node in graph.nodes if node.operator == "linear_dq8ca_q4gsw"]
    zps = {node.inputs["zp"] for node in graph.nodes if node.operator == "linear_dq8ca_q4gsw"}
    assert {n for n, t in graph.tensors.items() if t.layout is PACKED_4W} == zps and len(zps) == 8
    x, scale, zp = (graph.tensors[linear.inputs[name]] for name in ("x", "scale", "zp"))
    assert [t.dtype for t in (x, scale, zp)] == [np.float32, np.float32, np.int8]
    call = next(c for c in ENCODER.graph.chain if c.name == linear.name)
    lone = replace(
        ENCODER.graph, chain=(call,), input_ids=(x.id, scale.id, zp.id), output_ids=(call.args[-1],)
    )
    (node,) = build(Blob(lone, ENCODER.constants), "lone").nodes  # read by it alone, and written by nobody
    assert node.call is not None and node.call.descs["zp"].layout is PACKED_4W
    stored = list(lone.values)
    stored[zp.id] = replace(stored[zp.id], constant_id=0)
    assert resolve_layouts(replace(lone, values=tuple(stored)), Target())[zp.id] is WIDTH_PACKED
    stored[zp.id] = replace(lone.values[zp.id], datatype=FLOAT32)
    assert resolve_layouts(replace(lone, values=tuple(stored)), Target())[zp.id] is WIDTH_PACKED
    stored[zp.id] = Null()
    assert zp.id not in resolve_layouts(replace(lone, values=tuple(stored)), Target())


def test_a_plain_int8_tensor_is_one_that_an_operator_writes_so() -> None:
    """Read by no operator that is known."""
    call = next(c for c in ENCODER.graph.chain if "choose_qparams" in c.name)
    lone = replace(ENCODER.graph, chain=(call,), input_ids=call.args[:1], output_ids=(65,))
    layouts = resolve_layouts(lone, Target())
    assert layouts[65] is PACKED_4W and layouts[64] is layouts[51] is WIDTH_PACKED
    assert [node.outputs for node in build(Blob(lone, ENCODER.constants), "lone").nodes] == [(64,), (65,)]


@pytest.mark.parametrize(
    "path", ["groups/encoder.pte", "models/linear_head.pte", "ops/embedding_q4gsw_04.pte"]
)
def test_indices_are_what_a_kernel_reads_as_such(path: str) -> None:
    """Not every tensor of int32, such as the sums of weights."""
    graph = build(blob_of(path), path)
    read = [node.call for node in graph.nodes if node.call is not None]
    wanted = {
        node.inputs[arg.name]
        for node in graph.nodes if node.call is not None
        for arg in node.call.op.of_kind(Kind.INPUT) if arg.dtype is np.int32
    }  # fmt: skip
    assert {n for n, t in graph.tensors.items() if t.index} == wanted and read
    assert bool(wanted) == ("embedding" in path)


def test_a_tensor_has_what_the_file_says() -> None:
    made = Builder()
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = made.add(VkTensor(FLOAT32, (3, 4), memory_layout=WIDTH, mem_obj_id=5, storage_type=0))
    w = made.constant(weight)
    out = made.call(
        "aten.add.Tensor", x, w, made.add(VkTensor(FLOAT32, (3, 4), memory_layout=2, storage_type=1))
    )
    tensors = graph_of(made.blob((x,), out)).tensors
    assert tensors[x] == Tensor(x, (3, 4), np.dtype(np.float32), WIDTH_PACKED, 5, None, True, False)
    assert (tensors[out].buffer, tensors[out].mem_obj_id, tensors[out].index) == (False, -1, False)
    assert tensors[out].layout is not None and tensors[out].layout.name == "TENSOR_CHANNELS_PACKED"
    data = tensors[w].data
    assert data is not None and data.dtype == np.float32 and np.array_equal(data, weight)


def test_a_constant_is_as_long_as_its_tensor() -> None:
    made = Builder()
    x, w = made.activation((3, 4)), made.constant(np.arange(12, dtype=np.float32).reshape(3, 4))
    out = made.call("aten.add.Tensor", x, w, made.activation((3, 4)))
    blob = read_blob(made.blob((x,), out), "test")
    for dims, held in (((3, 4), 12), ((3, 3), 9)):  # what follows is passed over
        values = list(blob.graph.values)
        values[w] = replace(values[w], dims=dims)
        data = bound(replace(blob, graph=replace(blob.graph, values=tuple(values))), "test").tensors[w].data
        assert data is not None and data.ravel().tolist() == list(range(held))
    values[w] = replace(values[w], dims=(13,))
    with pytest.raises(GraphError, match=r"^test: value 1: constant too short; got 48 bytes, need 52$"):
        bound(replace(blob, graph=replace(blob.graph, values=tuple(values))), "test")


def test_a_type_that_nothing_is_computed_with() -> None:
    values = (VkTensor(FLOAT32, (4,)), VkTensor(127, (4,)))
    graph = VkGraph("", (OperatorCall(0, "any.thing.default", (0, 1)),), values, (0,), (1,))
    known = "BOOL, UINT8, INT8, INT32, INT64, FLOAT16, FLOAT32, FLOAT64"
    with pytest.raises(GraphError) as caught:
        build(Blob(graph, ()), "test")  # type: ignore[arg-type]
    said, _, need = str(caught.value).partition(", need ")
    assert said == "test: value 1: tensor without a datatype; got UNSET"
    assert sorted(need.split(", ")) == sorted(known.split(", "))


# --- nodes -----------------------------------------------------------------------------------------------


def test_arguments_are_plain_values() -> None:
    made = Builder()
    a, b = made.activation((2, 4)), made.activation((2, 4))
    inner = made.add(ValueList((b, made.add(Null()))))
    given = (
        made.add(ValueList((a, inner))), made.add(Null()), made.add(Int(3)), made.add(Double(0.5)),
        made.add(Bool(True)), made.add(String("none")), made.add(IntList((1, -2))), made.add(DoubleList((0.25,))),
        made.add(SymInt(7)),
    )  # fmt: skip
    one, two = made.activation((2, 4)), made.activation((2, 4))
    made.call("any.thing.default", *given, made.add(ValueList((one, two))))
    (node,) = graph_of(made.blob((a, b), two)).nodes
    args = ((Ref(a), (Ref(b), None)), None, 3, 0.5, True, "none", (1, -2), (0.25,), 7)
    assert node == Node(0, 0, "any.thing.default", args, (one, two))


def test_nodes_are_numbered_in_order_with_one_for_each_output() -> None:
    """``node_id`` is the file's: it stays one for a call of several outputs."""
    values, chain = ENCODER.graph.values, list(ENCODER.graph.chain)
    chain[5] = replace(chain[5], node_id=105)
    graph = build(replace(ENCODER, graph=replace(ENCODER.graph, chain=tuple(chain))), "encoder")
    assert [node.number for node in graph.nodes] == list(range(len(graph.nodes)))
    scale, zp, linear = graph.nodes[5:8]
    assert (scale.node_id, zp.node_id, linear.node_id) == (105, 105, 6)
    outputs = values[chain[5].args[-1]]
    assert isinstance(outputs, ValueList) and (*scale.outputs, *zp.outputs) == outputs.items
    assert [scale.operator, zp.operator] == ["choose_qparams_affine", "choose_qparams_affine_zp"]
    assert scale.args == zp.args == (Ref(51), "ASYMMETRIC", (1, 64), None, -128, 127, None, None, None, False)
    assert linear.args == (*map(Ref, (51, 64, 65, 13, 7, 14)), 32, Ref(12))
    assert linear.inputs == {"x": 51, "scale": 64, "zp": 65} and linear.outputs == (68,)
    assert linear.call is not None and linear.call.params.group == 32
    for name, value in (("weight", 13), ("weight_sums", 7), ("weight_scales", 14), ("bias", 12)):
        assert np.array_equal(linear.call.consts[name], graph.tensors[value].data), name


def test_nodes_of_calls_are_those_of_the_graph() -> None:
    """Of a call that does not bind there are none; its number stays free, so that others keep theirs."""
    target = Target(LAVAPIPE, mali=True)
    wanted, found = bound(ENCODER, "encoder", target), nodes_of_calls(ENCODER, target)
    assert [(n.number, n.outputs, n.operator) for nodes in found for n in nodes] == [
        (n.number, n.outputs, n.operator) for n in wanted.nodes
    ]
    assert [len(nodes) for nodes in found[:8]] == [1, 1, 1, 1, 1, 2, 1, 1]
    assert {n.call.target for nodes in found for n in nodes if n.call is not None} == {target}
    assert {n.call.target for nodes in nodes_of_calls(ENCODER) for n in nodes if n.call is not None} == {
        Target()
    }
    values = list(ENCODER.graph.values)
    values[13] = Null()  # the weight of the first linear operator
    broken = nodes_of_calls(replace(ENCODER, graph=replace(ENCODER.graph, values=tuple(values))), target)
    assert broken[6] == [] and [[n.number for n in nodes] for nodes in broken if nodes] == [
        [n.number for n in nodes] for k, nodes in enumerate(found) if k != 6
    ]
    values = list(ENCODER.graph.values)
    values[48] = replace(values[48], memory_layout=7)  # no layout
    every = nodes_of_calls(replace(ENCODER, graph=replace(ENCODER.graph, values=tuple(values))), target)
    assert every == [[] for _ in ENCODER.graph.chain]


HEAD = blob_of("heads/head_07.pte")


def head(**changes: Any) -> Graph:
    """The first head of a file with other values at the places of its call."""
    (call,) = (call for call in HEAD.graph.chain if "linear_q8ta_q8csw" in call.name)
    values = list(HEAD.graph.values)
    for place, value in changes.items():
        number = call.args[int(place.removeprefix("at"))]
        values[number] = value(values[number])
    return build(replace(HEAD, graph=replace(HEAD.graph, values=tuple(values))), "head")


def test_a_head_has_int8_or_floats_and_gives_floats() -> None:
    for code, dtype in ((FLOAT32, np.float32), (INT8, np.float32)):
        graph = head(at7=lambda value, code=code: replace(value, datatype=code))
        (node,) = (node for node in graph.nodes if "linear_q8ta_q8csw" in node.name)
        (tensor,) = (graph.tensors[value] for value in node.outputs)
        assert tensor.dtype == dtype and tensor.desc is not None and tensor.desc.dtype == "float32"
    for place, said in (
        ("at0", "x: not an int8 or float32 activation"),
        ("at7", "output: not an int8 or float32 tensor"),
    ):
        with pytest.raises(GraphError, match=rf"{said}; got value \d+$"):
            head(**{place: lambda value: replace(value, datatype=INT32)})


def vector(numbers: int, channels: int = 6) -> tuple[Builder, int, int]:
    """A linear layer of so many outputs, with a bias of so many numbers; its input and output."""
    made = Builder()
    x = made.add(VkTensor(INT8, (2, 8), memory_layout=ROWS))
    weight = np.ones((channels, 8), np.int8)
    consts = (
        made.constant(weight), made.constant(weight.astype(np.int32).sum(1).astype(np.int32)),
        made.constant(np.ones(channels, np.float32)),
    )  # fmt: skip
    bias = made.constant(np.arange(numbers, dtype=np.float32))
    q, r = made.quantization(0.5, 1), made.quantization(0.25, -2)
    out = made.add(VkTensor(INT8, (2, channels), memory_layout=ROWS))
    made.call("et_vk.q8ta_linear.default", x, *q, *consts, *r, bias, made.add(String("none")), out)
    return made, x, out


@pytest.mark.parametrize("numbers, odd", [(6, False), (8, False), (9, True), (12, True)])
def test_a_bias_of_more_channels_is_told(numbers: int, odd: bool) -> None:
    made, x, out = vector(numbers)
    (node,) = graph_of(made.blob((x,), out)).nodes
    said = f"bias has {numbers} values for 6 outputs: the kernel takes the first, which are right for the first slice "
    assert node.notes == ((f"{said}of a layer only",) if odd else ())
    assert node.upstream == (node.notes[0] if odd else None)
    assert node.call is not None and node.call.consts["bias"].tolist() == [0, 1, 2, 3, 4, 5]


def test_a_tensor_of_one_dim_has_channels_too() -> None:
    made = Builder()
    x, out = made.activation((8,)), made.activation((6,))
    consts = (
        made.constant(np.ones((6, 8), np.int8)), made.constant(np.full(6, 8, np.int32)),
        made.constant(np.ones(6, np.float32)), made.constant(np.ones(12, np.float32)),
    )  # fmt: skip
    made.call("et_vk.linear_q8ta_q8csw.default", x, *made.quantization(0.5, 1), *consts, out)
    (node,) = graph_of(made.blob((x,), out)).nodes
    assert len(node.notes) == 1 and "12 values for 6 outputs" in node.notes[0]


def test_an_output_of_too_few_dims_has_no_channels() -> None:
    graph = convolution()
    consts = (np.ones((8, 4), np.int8), np.ones(8, np.int32), np.ones(8, np.float32), np.ones(8, np.float32))
    made = Builder()
    made.values = list(graph.values)
    made.values[15] = VkTensor(INT8, (64, 32), memory_layout=ROWS)
    args = list(graph.chain[0].args)
    for place, array in zip((3, 4, 5, 8), consts, strict=True):
        args[place] = made.constant(array)
    made.call(graph.chain[0].name, *args)
    with pytest.raises(RefsimError, match=r"^test: node 0 et_vk\.q8ta_conv2d\.default: q8ta_conv2d: "):
        graph_of(made.blob((0,), 15))


@pytest.mark.parametrize("path", ["heads/head_31.pte", "heads/int8_head.pte"])
def test_a_node_without_a_kernel_has_both_numbers(path: str) -> None:
    blob = blob_of(path)
    chain = tuple(replace(call, node_id=100 + call.node_id) for call in blob.graph.chain)
    graph = build(replace(blob, graph=replace(blob.graph, chain=chain)), path)
    (node,) = (node for node in graph.nodes if node.meaning is not None)
    assert (node.number, node.node_id) == (node.number, chain[node.number].node_id)
    assert node.number < 100 <= node.node_id


REFUSED = {
    "a stored input": (0, VkTensor(INT8, (2, 8), constant_id=0, memory_layout=ROWS), "x: not an int8 or float32"),
    "an input that is no tensor": (0, Int(3), "x: not an int8 or float32 activation; got value 0"),
    "a plain input": (0, VkTensor(INT8, (2, 8), memory_layout=WIDTH), "x: not an int8 or float32 activation"),
    "a weight that is no tensor": (3, Int(3), "weight: not a constant; got value 1, need a tensor with stored data"),
    "an output that is no tensor": (10, Int(3), "output: not an int8 or float32 tensor"),
    "an output that is stored": (10, VkTensor(INT8, (2, 6), constant_id=0, memory_layout=ROWS), "output: not an int8"),
    "an output of whole numbers": (10, VkTensor(INT32, (2, 6), memory_layout=ROWS), "output: not an int8 or float32"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_an_int8_operator_does_not_take(what: str) -> None:
    place, value, said = REFUSED[what]
    made, x, out = vector(6)
    made.values[made.calls[0].args[place]] = value
    graph = read_blob(made.blob((x,), out), "test")
    with pytest.raises(GraphError, match=rf"^test: node 0 et_vk\.q8ta_linear\.default: {said}"):
        bound(graph, "test")


def test_a_clone_to_another_type_is_refused() -> None:
    made = Builder()
    x, out = made.activation((1, 4, 2, 2), "4C"), made.add(VkTensor(7, (1, 4, 2, 2), memory_layout=0))
    made.call("aten.clone.default", x, out)
    with pytest.raises(GraphError, match=f"output: not an int8 or float32 tensor; got value {out}$"):
        graph_of(made.blob((x,), out))


@pytest.mark.parametrize("storage", [(), (0,), (10,)])
def test_a_node_is_in_buffers_if_one_of_its_tensors_is(storage: tuple[int, ...]) -> None:
    made, x, out = vector(6)
    tensors = {0: x, 10: out}
    for place in storage:
        value = made.values[tensors[place]]
        assert isinstance(value, VkTensor)
        made.values[tensors[place]] = replace(value, storage_type=0)
    (node,) = graph_of(made.blob((x,), out)).nodes
    assert node.buffers == bool(storage)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_null_arguments_at_the_end_are_left_out(count: int) -> None:
    """A clone's memory format is one; what is not null is an argument too many."""
    made = Builder()
    x, out = made.activation((1, 4, 2, 2), "4C"), made.activation((1, 4, 2, 2), "4W4C")
    made.call("aten.clone.default", x, *(made.add(Null()) for _ in range(count)), out)
    (node,) = graph_of(made.blob((x,), out)).nodes
    assert node.operator == "q8ta_clone" and node.inputs == {"x": x}
    more = Builder()
    x, out = more.activation((1, 4, 2, 2), "4C"), more.activation((1, 4, 2, 2), "4W4C")
    more.call("aten.clone.default", x, *(more.add(Int(0)) for _ in range(count)), out)
    if count:
        with pytest.raises(GraphError, match=f"arguments: wrong number; got {count + 2}, need 2"):
            graph_of(more.blob((x,), out))


@pytest.mark.parametrize(
    "x, out, bound_to",
    [
        ("4C", "4W4C", "q8ta_clone"),
        (None, None, "aten.clone"),  # floats
        ("plain", "plain", "aten.clone"),
        (None, "4C", "aten.clone"),
        ("4C", "plain", "aten.clone"),
        ("plain", "4C", "aten.clone"),
    ],
)
def test_a_clone_is_the_int8_operator_between_packed_tensors(
    x: str | None, out: str | None, bound_to: str
) -> None:
    made = Builder()
    shape = (1, 4, 2, 2)
    values = [
        made.add(VkTensor(INT8, shape, memory_layout=0)) if name == "plain" else made.activation(shape, name)
        for name in (x, out)
    ]
    made.call("aten.clone.default", *values)
    (node,) = graph_of(made.blob((values[0],), values[1])).nodes
    assert node.operator == bound_to and node.is_float == (bound_to == "aten.clone")


@pytest.mark.parametrize(
    "value", [Null(), Int(3), VkTensor(FLOAT32, (2, 6), constant_id=0, memory_layout=WIDTH)], ids=str
)
@pytest.mark.parametrize("listed", [False, True])
def test_what_a_float_operator_cannot_write(value: Value, listed: bool) -> None:
    made = Builder()
    x, out = made.activation((2, 6)), made.add(value)
    made.constant(np.zeros((2, 6), np.float32))
    made.call("aten.relu.default", x, made.add(ValueList((made.activation((2, 6)), out))) if listed else out)
    with pytest.raises(GraphError) as raised:
        bound(read_blob(made.blob((x,), x), "test"), "test")
    assert raised.value.where == "test: node 0 aten.relu.default: output"


def test_an_operator_without_arguments_or_outputs_is_refused() -> None:
    made, x, out = vector(6)
    call, blob = made.calls[0], read_blob(made.blob((x,), out), "test")
    for args, said in (
        ((), "arguments: there are none; need at least an output"),
        ((*call.args[:-1], call.args[1]), f"output: not an int8 or float32 tensor; got value {call.args[1]}"),
        ((*call.args[:-1], made.add(ValueList((out, x)))), "outputs: wrong number; got 2, need 1"),
    ):
        graph = replace(blob.graph, chain=(replace(call, args=args),), values=tuple(made.values))
        with pytest.raises(GraphError, match=rf"^test: node 0 et_vk\.q8ta_linear\.default: {said}$"):
            build(replace(blob, graph=graph), "test")
