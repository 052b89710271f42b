"""Float operators on the device: the bits of the CPU reference, whatever the layouts; and which fall to the host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from float_graphs import IMAGE, LAYOUTS, ODD, SPECIAL, THIRD, X, Y, numbers, of_one_node, unlike

from refsim.exec.emulated import EmulatedExecutor
from refsim.graph.graph import refs
from refsim.graph.interpreter import run_nodes
from refsim_gpu import float_kernels, word_kernels
from refsim_gpu.executor import KomputeExecutor
from refsim_gpu.kompute import Device

INDEX = int(os.environ.get("REFSIM_DEVICE", "0"))
#: Arguments of convolutions.
CONVOLVED = (X, Y, THIRD, (1, 2), (1, 2), (2, 3), False, (0, 0), 1)
POINTWISE = (X, Y, None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1)
LINE = (X, Y, THIRD, (2,), (1,), (1,), False, (0,), 1)


def square(stride: int, groups: int) -> tuple[Any, ...]:
    return X, Y, THIRD, (stride, stride), (1, 1), (1, 1), False, (0, 0), groups


#: Name, shapes of the inputs, arguments, shapes of the outputs.
CASES: tuple[tuple[str, tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]], ...] = (
    ("aten.relu.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.relu6.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.hardtanh.default", (IMAGE,), (X, -2.0, 0.5), (IMAGE,)),
    ("aten.hardtanh.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.clamp.default", (IMAGE,), (X, None, 0.25), (IMAGE,)),
    ("aten.clamp.default", (IMAGE,), (X, -0.5), (IMAGE,)),
    ("aten.hardswish.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.hardsigmoid.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.leaky_relu.default", (IMAGE,), (X, 0.3), (IMAGE,)),
    ("aten.abs.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.neg.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.add.Tensor", (IMAGE, IMAGE), (X, Y), (IMAGE,)),
    ("aten.add.Tensor", (IMAGE, (5, 1, 7)), (X, Y, 0.3), (IMAGE,)),
    ("aten.add.Scalar", (IMAGE,), (X, 0.1), (IMAGE,)),
    ("aten.sub.Tensor", ((5, 1, 7), IMAGE), (X, Y, 3), (IMAGE,)),
    ("aten.mul.Tensor", (IMAGE, (2, 5, 1, 1)), (X, Y), (IMAGE,)),
    ("aten.mul.Tensor", (IMAGE, ()), (X, Y), (IMAGE,)),
    ("aten.div.Tensor", (IMAGE, IMAGE), (X, Y), (IMAGE,)),
    ("aten.div.Tensor", (IMAGE,), (X, 3.0), (IMAGE,)),
    ("aten.minimum.default", (IMAGE, IMAGE), (X, Y), (IMAGE,)),
    ("aten.maximum.default", (IMAGE, IMAGE), (X, Y), (IMAGE,)),
    ("aten.clone.default", (IMAGE,), (X, None), (IMAGE,)),
    ("aten.view_copy.default", (IMAGE,), (X, (2, 210)), ((2, 210),)),
    ("aten.view_copy.default", (IMAGE,), (X, (10, 42)), ((10, 42),)),
    ("aten.view_copy.default", ((2, 210),), (X, IMAGE), (IMAGE,)),
    ("aten.view_copy.default", ((2, 3, 2, 2, 5),), (X, (6, 20)), ((6, 20),)),
    ("aten.unsqueeze_copy.default", ((5, 6),), (X, 1), ((5, 1, 6),)),
    ("aten.squeeze_copy.dims", ((2, 1, 6, 1),), (X, (1, 3)), ((2, 6),)),
    ("aten.permute_copy.default", (IMAGE,), (X, (0, 2, 3, 1)), ((2, 6, 7, 5),)),
    ("aten.permute_copy.default", ((2, 3, 4, 2, 3),), (X, (4, 0, 3, 1, 2)), ((3, 2, 2, 3, 4),)),
    ("aten.transpose.int", (IMAGE,), (X, 1, -1), ((2, 7, 6, 5),)),
    ("aten.t.default", ((5, 6),), (X,), ((6, 5),)),
    ("aten.slice_copy.Tensor", (IMAGE,), (X, -1, 1, 6, 2), ((2, 5, 6, 3),)),
    ("aten.select_copy.int", (IMAGE,), (X, 1, -2), ((2, 6, 7),)),
    ("aten.expand_copy.default", ((5, 1, 7),), (X, (2, -1, 6, 7)), (IMAGE,)),
    ("aten.cat.default", (IMAGE, (2, 3, 6, 7), (2, 1, 6, 7)), ((X, Y, THIRD), 1), ((2, 9, 6, 7),)),
    ("aten.split_with_sizes_copy.default", (IMAGE,), (X, (1, 4), 1), ((2, 1, 6, 7), (2, 4, 6, 7))),
    ("aten.pixel_shuffle.default", ((2, 12, 3, 5),), (X, 2), ((2, 3, 6, 10),)),
    ("aten.mean.dim", (IMAGE,), (X, (-1, -2), True), ((2, 5, 1, 1),)),
    ("aten.mean.dim", (IMAGE,), (X, (2, 3)), ((2, 5),)),
    ("aten.mean.dim", ((3, 150),), (X, -1), ((3,),)),
    ("aten.mean.dim", ((1, 19, 3, 2),), (X, (1,), True), ((1, 1, 3, 2),)),
    ("aten.sum.dim_IntList", (IMAGE,), (X, (0,)), ((5, 6, 7),)),
    ("aten.amax.default", (IMAGE,), (X, (1, 3)), ((2, 6),)),
    ("aten.amin.default", (IMAGE,), (X, (2,), True), ((2, 5, 1, 7),)),
    ("aten.adaptive_avg_pool2d.default", (IMAGE,), (X, (1, 1)), ((2, 5, 1, 1),)),
    ("aten.max_pool2d.default", (IMAGE,), (X, (3, 2), (2, 1), (1, 0)), ((2, 5, 3, 6),)),
    ("aten.max_pool2d.default", (IMAGE,), (X, 2, 2, 0, 2, True), ((2, 5, 3, 3),)),
    ("aten.avg_pool2d.default", (IMAGE,), (X, (3, 3), (2, 2), (1, 1)), ((2, 5, 3, 4),)),
    ("aten.avg_pool2d.default", (IMAGE,), (X, 3, 2, 1, True, False), ((2, 5, 4, 4),)),
    ("aten.avg_pool2d.default", (IMAGE,), (X, 3, 2, 1, False, True, 7), ((2, 5, 3, 4),)),
    ("aten.mm.default", ((5, 9), (9, 6)), (X, Y), ((5, 6),)),
    ("aten.bmm.default", ((3, 5, 9), (3, 9, 6)), (X, Y), ((3, 5, 6),)),
    ("aten.matmul.default", ((2, 3, 5, 9), (9, 6)), (X, Y), ((2, 3, 5, 6),)),
    ("aten.linear.default", ((2, 5, 9), (6, 9)), (X, Y), ((2, 5, 6),)),
    ("aten.linear.default", ((5, 9), (6, 9), (6,)), (X, Y, THIRD), ((5, 6),)),
    ("aten.addmm.default", ((6,), (5, 9), (9, 6)), (X, Y, THIRD), ((5, 6),)),
    ("aten.convolution.default", (IMAGE, (8, 5, 3, 2), (8,)), CONVOLVED, ((2, 8, 4, 4),)),
    ("aten.convolution.default", (IMAGE, (130, 5, 3, 2), (130,)), CONVOLVED, ((2, 130, 4, 4),)),
    ("aten.convolution.default", (IMAGE, (130, 5, 3, 3), (130,)), square(1, 1), ((2, 130, 6, 7),)),
    ("aten.convolution.default", (IMAGE, (3, 5, 1, 1)), POINTWISE, ((2, 3, 6, 7),)),
    ("aten.convolution.default", ((2, 6, 5, 7), (6, 1, 3, 3), (6,)), square(1, 6), ((2, 6, 5, 7),)),
    ("aten.convolution.default", ((2, 6, 5, 7), (6, 1, 3, 3), (6,)), square(2, 6), ((2, 6, 3, 4),)),
    ("aten.convolution.default", ((2, 6, 5, 7), (4, 3, 3, 3), (4,)), square(1, 2), ((2, 4, 5, 7),)),
    ("aten.convolution.default", ((2, 5, 11), (4, 5, 3), (4,)), LINE, ((2, 4, 6),)),
    ("et_vk.conv_with_clamp.default", (IMAGE, (8, 5, 3, 2), (8,)), (*CONVOLVED, -1.0, 2.0), ((2, 8, 4, 4),)),
    ("et_vk.conv_with_clamp.default", (IMAGE, (8, 5, 3, 2), (8,)), (*CONVOLVED, None, 0.5), ((2, 8, 4, 4),)),
    ("et_vk.conv_with_clamp.default", (IMAGE, (8, 5, 3, 2), (8,)), (*CONVOLVED, 0.0, 1e39), ((2, 8, 4, 4),)),
    ("aten.conv2d.default", (IMAGE, (4, 5, 2, 2)), (X, Y, None, 2), ((2, 4, 3, 3),)),
    ("aten.upsample_nearest2d.vec", (IMAGE,), (X, None, (2.0, 3.0)), ((2, 5, 12, 21),)),
    ("aten.upsample_bilinear2d.vec", (IMAGE,), (X, (11, 16), False, None), ((2, 5, 11, 16),)),
    ("aten.upsample_bilinear2d.vec", (IMAGE,), (X, (11, 16), True, None), ((2, 5, 11, 16),)),
    ("aten.upsample_bilinear2d.vec", (IMAGE,), (X, (4, 7), False, None), ((2, 5, 4, 7),)),
    ("aten.upsample_bilinear2d.default", (IMAGE,), (X, (3, 1), True), ((2, 5, 3, 1),)),
    ("aten.exp.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.sigmoid.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.silu.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.tanh.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.gelu.default", (IMAGE,), (X, "none"), (IMAGE,)),
    ("aten.gelu.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.sqrt.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.rsqrt.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.reciprocal.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.pow.Tensor_Scalar", (IMAGE,), (X, 0.5), (IMAGE,)),
    ("aten._softmax.default", (IMAGE,), (X, -1, False), (IMAGE,)),
    ("aten._softmax.default", (IMAGE,), (X, 1, False), (IMAGE,)),
    ("aten._softmax.default", (IMAGE,), (X, 2, False), (IMAGE,)),
    ("aten._softmax.default", (IMAGE,), (X, 0, False), (IMAGE,)),
    ("aten._softmax.default", ((3, 150),), (X, -1, False), ((3, 150),)),
    ("aten.log.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten._log_softmax.default", (IMAGE,), (X, -1, False), (IMAGE,)),
    ("aten._log_softmax.default", (IMAGE,), (X, 1, False), (IMAGE,)),
    ("aten._softmax.default", ((150, 3),), (X, 0, False), ((150, 3),)),
    ("aten.native_layer_norm.default", ((2, 5, 70), (70,), (70,)), (X, (70,), Y, THIRD, 1e-5), (
        (2, 5, 70), (2, 5, 1), (2, 5, 1))),
    ("aten.native_layer_norm.default", ((9, 7), (7,)), (X, (7,), Y, None, 1e-5), ((9, 7), (9, 1), (9, 1))),
    ("aten.native_layer_norm.default", ((3, 2, 17, 6),), (X, (6,), None, None, 0.0), (
        (3, 2, 17, 6), (3, 2, 17, 1), (3, 2, 17, 1))),
    ("aten.native_group_norm.default", ((2, 18, 5, 7), (18,), (18,)), (X, Y, THIRD, 2, 18, 35, 3, 1e-5), (
        (2, 18, 5, 7), (2, 3), (2, 3))),
    ("aten.native_group_norm.default", ((2, 8, 5, 2),), (X, None, None, 2, 8, 10, 2, 1e-5), (
        (2, 8, 5, 2), (2, 2), (2, 2))),
)  # fmt: skip


@pytest.fixture(scope="module", params=[None, True], ids=["as the device needs", "spelled out"])
def executor(request: pytest.FixtureRequest, device: Device) -> Iterator[KomputeExecutor]:
    """What denormals need is spelled out on devices that flush them; these kernels run everywhere."""
    with KomputeExecutor(INDEX, spelled_out=request.param) as opened:
        yield opened


@pytest.mark.few(50)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[2][1:]}")
def test_the_bits_of_the_reference(executor: KomputeExecutor, case: tuple[Any, ...]) -> None:
    for turn, odd in product(range(len(LAYOUTS)), (ODD, SPECIAL)):
        graph = of_one_node(case, turn, buffer=turn == 1)
        inputs = [numbers(shape, seed, odd) for seed, shape in enumerate(case[1])]
        with np.errstate(all="ignore"):
            expected = run_nodes(graph, inputs, EmulatedExecutor())
        plan = executor.session(graph).plan
        if not case[0].startswith("aten.view"):  # a view may need an order that no strides describe
            assert plan.why_host == {}
        for watched in (frozenset(), frozenset(graph.outputs)):
            found = executor.session(graph, watched).run(inputs)
            for a, b in zip(found, expected, strict=True):
                assert not (other := unlike(a, b)).size, (turn, watched, other)


@pytest.mark.parametrize(
    "name", ["exp", "sigmoid", "silu", "tanh", "gelu", "sqrt", "rsqrt", "pow", "reciprocal"]
)
def test_functions_have_the_bits_of_the_reference(executor: KomputeExecutor, name: str) -> None:
    """Of any bits at all, and of numbers where the function is neither 0 nor infinite."""
    count, rng = 1 << 17, np.random.default_rng(5)
    any_bits = rng.integers(0, 1 << 32, count, np.uint32).view(np.float32)
    usual = (rng.standard_normal(count) * np.exp(rng.uniform(-12, 4.5, count))).astype(np.float32)
    case = "aten.pow.Tensor_Scalar" if name == "pow" else f"aten.{name}.default"
    shape = ((count,),)
    graph = of_one_node((case, shape, (X, 0.5) if name == "pow" else (X,), shape), 0, False)
    usual[0] = 0.011794382706284523  # binary64 rounds its logarithm to a tie
    for x in (any_bits, usual, np.abs(usual)):
        with np.errstate(all="ignore"):
            (expected,) = run_nodes(graph, [x], EmulatedExecutor())
        (found,) = executor.session(graph).run([x])
        other = unlike(found, expected)
        assert not other.size, (x[other[:5]], found[other[:5]], expected[other[:5]])


def test_every_row_has_a_case() -> None:
    """A row is named by its first name. Those of words have cases of their own."""
    tried = {".".join(name.split(".")[1:]) for name, *_ in CASES} | {name.split(".")[1] for name, *_ in CASES}
    rows = {
        id(row): [n for n, other in float_kernels.ROWS.items() if other is row]
        for row in float_kernels.ROWS.values()
    }
    assert [
        names for names in rows.values() if not (tried | {*word_kernels.ROWS, "_to_copy"}) & set(names)
    ] == []


@pytest.mark.parametrize(
    ("name", "args", "shape", "why"),
    [
        ("aten.sin.default", (X,), IMAGE, "a function that devices do not compute exactly"),
        ("aten.pow.Tensor_Scalar", (X, 3.0), IMAGE, "a power of 3.0"),
        ("aten.cumsum.default", (X, 1), IMAGE, "no kernel of the device's"),
        ("aten.mean.dim", (X, (0, 2, 3)), (5,), "a reduction of 3 dims"),
        ("aten.div.Tensor_mode", (X, 2.0, "floor"), IMAGE, "arguments ['floor']"),
    ],
)
def test_the_host_computes_the_rest(
    executor: KomputeExecutor, name: str, args: tuple[Any, ...], shape: tuple[int, ...], why: str
) -> None:
    graph = of_one_node((name, (IMAGE,), args, (shape,)), 0, False)
    inputs = [numbers(IMAGE, 1)]
    assert executor.session(graph).plan.why_host == {0: why}
    assert list(refs(graph.nodes[0].args)) == [0]
    (found,), (expected,) = executor.session(graph).run(inputs), run_nodes(graph, inputs, EmulatedExecutor())
    assert np.array_equal(found, expected, equal_nan=True)
