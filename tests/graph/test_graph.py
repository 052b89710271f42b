"""Graphs from delegates: layouts resolved, operators bound, and everything that is wrong with one refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from refsim.core.errors import (
    GraphError,
    LayoutError,
    ParameterError,
    RefsimError,
    ShapeError,
    UnknownOperatorError,
)
from refsim.core.layout import PACKED_4C, PACKED_4C1W, PACKED_CONV2D
from refsim.exec.cpu import EmulatedExecutor
from refsim.exec.executor import run_graph
from refsim.formats.literals import Double, Int, IntList, Null, String
from refsim.formats.pte import read as pte
from refsim.formats.vkgraph.read import Blob
from refsim.formats.vkgraph.schema import OperatorCall, VkGraph, VkTensor
from refsim.graph.build import build, resolve_layouts
from refsim.ops.base.target import Target

MODELS = Path(__file__).parents[1] / "data" / "models"
INT8, FLOAT32 = 2, 5


def blob_of(name: str, number: int = 0) -> Blob:
    container = pte.load(MODELS / f"{name}.pte")
    return dict(container.blobs(container.plan()))[number]


LINEAR, MIXED = blob_of("linear_head"), blob_of("mixed_ops")


def changed(blob: Blob, **fields: object) -> Blob:
    return replace(blob, graph=replace(blob.graph, **fields))


def with_value(blob: Blob, number: int, value: object) -> Blob:
    values = list(blob.graph.values)
    values[number] = value
    return changed(blob, values=tuple(values))


def find(blob: Blob, name: str) -> OperatorCall:
    return next(c for c in blob.graph.chain if c.name == name)


# --- resolution of PACKED_INT8_CONV2D --------------------------------------------------------------------


def conv_graph(
    channels: int,
    size: int,
    groups: int = 1,
    layouts: tuple[int, int] = (9, 9),
    name: str = "et_vk.q8ta_conv2d.default",
) -> VkGraph:
    """One 1x1 convolution; only what resolution looks at."""
    values = (
        VkTensor(INT8, (1, channels, size, size), memory_layout=layouts[0]),
        Double(0.1), Int(0), Null(), Null(), Null(), Double(0.1), Int(0), Null(),
        IntList((1, 1)), IntList((1, 1)), IntList((0, 0)), IntList((1, 1)), Int(groups), String("none"),
        VkTensor(INT8, (1, channels, size, size), memory_layout=layouts[1]),
    )  # fmt: skip
    return VkGraph("", (OperatorCall(0, name, tuple(range(16))),), values, (0,), (15,))


@pytest.mark.parametrize(
    ("channels", "size", "groups", "mali", "need"),
    [
        (8, 64, 1, False, PACKED_4C),  # 4096 outputs: im2col
        (8, 65, 1, False, PACKED_4C1W),  # more, and fewer than 32 channels: general
        (32, 65, 1, False, PACKED_4C),
        (28, 65, 1, False, PACKED_4C1W),
        (8, 65, 1, True, PACKED_4C),
        (6, 8, 1, True, PACKED_4C1W),  # channels that fill no words: general everywhere
        (64, 8, 2, False, PACKED_4C1W),  # grouped: general, except on Mali
        (64, 8, 2, True, PACKED_4C),
    ],
)
def test_first_pass(channels: int, size: int, groups: int, mali: bool, need: object) -> None:
    layouts = resolve_layouts(conv_graph(channels, size, groups), Target(mali=mali))
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
