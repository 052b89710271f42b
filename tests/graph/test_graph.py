"""Graphs from delegates: layouts resolved, operators bound, and everything that is wrong with one refused by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from delegates import CHANNELS, DEFAULT, FLOAT32, INT8, OPEN, TILES, WIDTH, blob_of, convolution

from refsim.core.errors import (
    GraphError,
    LayoutError,
    ParameterError,
    RefsimError,
    ShapeError,
    UnknownOperatorError,
)
from refsim.core.layout import PACKED_4C, PACKED_4C1W, PACKED_4W4C, PACKED_CONV2D, WIDTH_PACKED, Layout
from refsim.exec.cpu import EmulatedExecutor
from refsim.exec.executor import run_graph
from refsim.formats.literals import Double, Int, IntList, Null, String
from refsim.formats.vkgraph.read import Blob
from refsim.formats.vkgraph.schema import OperatorCall, VkGraph, VkTensor
from refsim.graph.build import build, nodes_of_calls, resolve_layouts
from refsim.ops.base.target import Target

LINEAR, MIXED = blob_of("models/linear_head.pte"), blob_of("models/mixed_ops.pte")


def changed(blob: Blob, **fields: object) -> Blob:
    return replace(blob, graph=replace(blob.graph, **fields))


def with_value(blob: Blob, number: int, value: object) -> Blob:
    values = list(blob.graph.values)
    values[number] = value
    return changed(blob, values=tuple(values))


def find(blob: Blob, name: str) -> OperatorCall:
    return next(c for c in blob.graph.chain if c.name == name)


# --- resolution of PACKED_INT8_CONV2D --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "out", "groups", "mali", "need"),
    [
        ((1, 8, 64, 64), (64, 64), 1, False, PACKED_4C),  # 4096 outputs: im2col
        ((1, 8, 65, 65), (65, 65), 1, False, PACKED_4C1W),  # more, and fewer than 32 channels: general
        ((1, 8, 128, 64), (64, 32), 1, False, PACKED_4C),  # outputs count, not inputs
        ((1, 32, 65, 65), (65, 65), 1, False, PACKED_4C),
        ((1, 28, 65, 65), (65, 65), 1, False, PACKED_4C1W),
        ((1, 8, 65, 65), (65, 65), 1, True, PACKED_4C),
        ((1, 6, 8, 8), (8, 8), 1, True, PACKED_4C1W),  # channels that fill no words: general everywhere
        ((1, 64, 8, 8), (8, 8), 2, False, PACKED_4C1W),  # grouped: general, except on Mali
        ((1, 64, 8, 8), (8, 8), 2, True, PACKED_4C),
        ((8, 64, 64), (64, 64), 1, False, PACKED_4C),
    ],
)
def test_a_convolution_chooses_its_layout(
    x: tuple[int, ...], out: tuple[int, int], groups: int, mali: bool, need: object
) -> None:
    stride = x[-1] // out[-1]
    layouts = resolve_layouts(convolution(x, (*x[:-2], *out), stride, groups), Target(mali=mali))
    assert layouts[0] is need
    assert layouts[15] is need  # the second pass hands it on


def test_unknown_layout_is_refused() -> None:
    graph = VkGraph("", (), (VkTensor(FLOAT32, (4,), memory_layout=7),), (0,), (0,))
    with pytest.raises(GraphError, match="value 0: unknown memory layout; got 7"):
        resolve_layouts(graph, Target())


def test_a_built_graph_has_no_open_layout() -> None:
    graph = build(MIXED, "mixed")
    assert PACKED_CONV2D not in {tensor.layout for tensor in graph.tensors.values()}


# --- refusals: each names the delegate, the node and the argument ------------------------------------------

Q = "et_vk.q8ta_linear.default"
first_linear = find(LINEAR, Q)
x, scale, zp, weight = first_linear.args[:4]
out = first_linear.args[-1]
tensor = LINEAR.graph.values[x]

REFUSED: dict[str, tuple[Blob, type[RefsimError], str]] = {
    "scale out of range": (with_value(LINEAR, scale, Double(0.0)), ParameterError, "scale is out of range; got 0.0"),
    "scale of another type": (with_value(LINEAR, scale, String("0.1")), ParameterError, "scale has the wrong type"),
    "scale missing": (with_value(LINEAR, scale, Null()), ParameterError, "a parameter is missing; need scale"),
    "zero point out of range": (with_value(LINEAR, zp, Int(-129)), ParameterError, "zp is out of range; got -129"),
    "zero point of another type": (with_value(LINEAR, zp, Double(0.5)), ParameterError, "zp has the wrong type"),
    "weight is an activation": (
        with_value(LINEAR, weight, replace(LINEAR.graph.values[weight], constant_id=-1)),
        GraphError, "weight: not a constant",
    ),
    "input is float": (with_value(LINEAR, x, replace(tensor, datatype=FLOAT32)), GraphError, "not an int8 or float32"),
    "input in another layout": (with_value(LINEAR, x, replace(tensor, memory_layout=5)), LayoutError, "x has a layout"),
    "input of another size": (
        with_value(LINEAR, x, replace(tensor, dims=(6, tensor.dims[1] - 4))), ShapeError, "shape",
    ),
    "output of another size": (
        with_value(LINEAR, out, replace(LINEAR.graph.values[out], dims=(5, 5))), ShapeError, "shape",
    ),
    "an argument too few": (
        changed(LINEAR, chain=(LINEAR.graph.chain[0], replace(first_linear, args=first_linear.args[1:]))),
        GraphError, "arguments: wrong number",
    ),
    "written twice": (
        changed(LINEAR, chain=(*LINEAR.graph.chain[:2], *LINEAR.graph.chain[1:])), GraphError, "writes a value again",
    ),
    "never written": (changed(LINEAR, chain=LINEAR.graph.chain[1:]), GraphError, "reads a value that nothing wrote"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str) -> None:
    blob, error, match = REFUSED[what]
    with pytest.raises(error) as caught:
        build(blob, "delegate")
    text = str(caught.value)
    assert match in text
    assert text.startswith("delegate: node ")
    assert "quantize_per_tensor" in text or Q in text


def test_interface_is_checked() -> None:
    constant = weight
    for blob, match in (
        (changed(LINEAR, input_ids=(scale,)), "input: not a tensor"),
        (changed(LINEAR, output_ids=(scale,)), "output: not a tensor"),
        (changed(LINEAR, input_ids=(*LINEAR.graph.input_ids, constant)), "input: is a constant"),
        (changed(LINEAR, input_ids=LINEAR.graph.input_ids * 2), "input: given twice"),
    ):
        with pytest.raises(GraphError, match=match):
            build(blob, "delegate")


def test_unknown_operator_names_itself_and_the_node() -> None:
    chain = list(LINEAR.graph.chain)
    chain[1] = replace(chain[1], name="my_ops.mystery.default")
    graph = build(changed(LINEAR, chain=tuple(chain)), "delegate")
    inputs = [np.zeros(graph.tensors[i].shape, graph.tensors[i].dtype) for i in graph.inputs]
    with pytest.raises(UnknownOperatorError, match=r"delegate: node 1 my_ops\.mystery\.default"):
        run_graph(graph, inputs, EmulatedExecutor())


def test_a_zero_point_may_arrive_as_a_double() -> None:
    """Upstream's serializer shares equal scalars: 6 and 6.0 are one value."""
    graph = build(with_value(LINEAR, zp, Double(3.0)), "delegate")
    node = next(graph.q8ta_nodes())
    assert node.call is not None
    assert any(n.call.params.in_zp == 3 for n in graph.q8ta_nodes() if n.call and n.name == Q)


# --- layouts that a file leaves open ---


ADD = "et_vk.q8ta_add.default"


def add_of(a: int, b: int, out: int, *more: OperatorCall) -> VkGraph:
    """An addition of three tensors in these layouts; further calls may name them."""
    tensors = tuple(VkTensor(INT8, (1, 8, 4, 4), memory_layout=layout) for layout in (a, b, out))
    rest = (Double(0.5), Int(0), Double(0.5), Int(0), Double(0.5), Int(0), Double(1.0))
    call = OperatorCall(0, ADD, (0, 1, *range(3, 10), 2))
    return VkGraph("", (call, *more), (*tensors, *rest), (0, 1), (2,))


@pytest.mark.parametrize(
    "given, wanted",
    [
        ((OPEN, TILES, OPEN), (PACKED_4W4C,) * 3),
        ((TILES, OPEN, OPEN), (PACKED_4W4C,) * 3),
        ((OPEN, OPEN, TILES), (PACKED_4W4C,) * 3),
        ((TILES, CHANNELS, OPEN), (PACKED_4W4C, PACKED_4C, PACKED_4W4C)),  # the first has it
        ((CHANNELS, TILES, OPEN), (PACKED_4C, PACKED_4W4C, PACKED_4C)),
        ((OPEN, OPEN, OPEN), (PACKED_4C1W,) * 3),
    ],
)
def test_the_first_concrete_layout_is_handed_on(
    given: tuple[int, int, int], wanted: tuple[Layout, ...]
) -> None:
    layouts = resolve_layouts(add_of(*given), Target())
    assert tuple(layouts[n] for n in range(3)) == wanted and set(layouts) == {0, 1, 2}


def test_a_layout_goes_on_in_the_order_of_the_calls() -> None:
    """From what an addition makes to what reads it, not back to what came before."""
    graph = add_of(OPEN, OPEN, OPEN, OperatorCall(1, "aten.clone.default", (2, 10)))
    for layout, wanted in ((TILES, PACKED_4C1W), (OPEN, PACKED_4C1W)):
        values = (*graph.values, VkTensor(INT8, (1, 8, 4, 4), memory_layout=layout))
        layouts = resolve_layouts(replace(graph, values=values), Target())
        assert layouts[0] is wanted and layouts[2] is (PACKED_4W4C if layout == TILES else wanted)
    values = (*add_of(TILES, OPEN, OPEN).values, VkTensor(INT8, (1, 8, 4, 4), memory_layout=OPEN))
    assert set(resolve_layouts(replace(graph, values=values), Target()).values()) == {PACKED_4W4C}


@pytest.mark.parametrize("layout", [WIDTH, DEFAULT])
def test_floats_have_no_layout_to_hand_on(layout: int) -> None:
    values = (
        VkTensor(FLOAT32, (1, 8, 4, 4), memory_layout=layout),
        VkTensor(INT8, (1, 8, 4, 4), memory_layout=OPEN),
    )
    graph = VkGraph("", (OperatorCall(0, "any.quantize.default", (0, 1)),), values, (0,), (1,))
    assert resolve_layouts(graph, Target()) == {0: WIDTH_PACKED, 1: PACKED_4C1W}


def test_calls_that_are_no_operators_leave_layouts_alone() -> None:
    graph = add_of(TILES, OPEN, OPEN, OperatorCall(1, ADD, ()), OperatorCall(2, "any.thing.default", ()))
    assert set(resolve_layouts(graph, Target()).values()) == {PACKED_4W4C}
    (plain,) = nodes_of_calls(Blob(replace(graph, chain=graph.chain[1:2]), ()))  # type: ignore[arg-type]
    assert plain == []


def test_what_has_no_dims_is_no_image() -> None:
    graph = convolution()
    for place in (0, 15):
        values = list(graph.values)
        values[place] = IntList((1, 8, 4, 4))
        layouts = resolve_layouts(replace(graph, values=tuple(values)), Target())
        assert layouts[15 - place] is PACKED_4C1W


def test_a_convolution_of_other_arguments_chooses_nothing() -> None:
    """That they are wrong is said where the operator is bound."""
    graph = convolution()
    call = graph.chain[0]
    for args in (call.args[1:], call.args[:1], (0, 0, *call.args[1:])):
        layouts = resolve_layouts(replace(graph, chain=(replace(call, args=args),)), Target())
        assert layouts[0] is PACKED_4C1W


def test_a_wrong_parameter_names_the_node_while_layouts_are_chosen() -> None:
    graph = convolution()
    chain = (OperatorCall(0, "any.thing.default", (15,)), replace(graph.chain[0], node_id=7))
    values = (*graph.values[:13], Int(0), *graph.values[14:])
    with pytest.raises(RefsimError, match=r"^here: node 1 et_vk\.q8ta_conv2d\.default: .*groups"):
        resolve_layouts(replace(graph, chain=chain, values=values), Target(), "here")
