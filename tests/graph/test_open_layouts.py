"""Layouts that a file leaves open: which operators choose one, and how it is handed on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from delegates import CHANNELS, DEFAULT, FLOAT32, INT8, OPEN, TILES, WIDTH, convolution

from refsim.core.errors import RefsimError
from refsim.core.layout import PACKED_4C, PACKED_4C1W, PACKED_4W4C, WIDTH_PACKED, Layout
from refsim.formats.literals import Double, Int, IntList
from refsim.formats.vkgraph.read import Blob
from refsim.formats.vkgraph.schema import OperatorCall, VkGraph, VkTensor
from refsim.graph.build import nodes_of_calls, resolve_layouts
from refsim.ops.base.target import Target

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


def test_a_convolution_chooses_by_the_size_of_its_output() -> None:
    assert resolve_layouts(convolution(), Target())[0] is PACKED_4C
    large = convolution((1, 8, 128, 64), (1, 8, 128, 64), 1)
    assert resolve_layouts(large, Target())[0] is PACKED_4C1W


@pytest.mark.parametrize("dims", [(8, 64, 64), (1, 8, 64, 64)])
def test_an_image_has_three_dims_or_four(dims: tuple[int, ...]) -> None:
    assert resolve_layouts(convolution(dims, dims, 1), Target())[0] is PACKED_4C


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
