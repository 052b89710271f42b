"""A sum or product of two dequantized tensors, quantized again, without leaving the bytes: gates of all kinds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builder import F32, Builder, Quantization
from watching import check_each

from refsim.core.layout import LAYOUTS, PACKED_4C, PACKED_4W, PACKED_4W4C, PACKED_CONV2D, WIDTH_PACKED, Layout
from refsim.exec.cpu import EmulatedExecutor, NativeExecutor
from refsim.exec.cpu.step import PlanStep
from refsim.exec.executor import run_graph
from refsim.graph.graph import Graph, Ref

X, GATE, AFTER = (0.031, -11), (1 / 256, -128), (0.017, 5)
SHAPE = (2, 8, 6, 7)


class Two(Builder):
    """Two inputs, both quantized, an operator on both; ``real``: what the dequantizes give."""

    def __init__(
        self,
        shapes: tuple[tuple[int, ...], tuple[int, ...]] = (SHAPE, SHAPE),
        layout: Layout = PACKED_4W4C,
        scales: tuple[Quantization, Quantization] = (X, GATE),
    ) -> None:
        super().__init__()
        self.layout = layout
        self.given = [self.tensor(shape, F32, WIDTH_PACKED) for shape in shapes]
        pairs = zip(self.given, scales, strict=True)
        self.int8 = [self.convert("q8ta_quantize", x, q, layout) for x, q in pairs]
        pairs = zip(self.int8, scales, strict=True)
        self.real = [self.convert("q8ta_dequantize", x, q, WIDTH_PACKED) for x, q in pairs]

    def end(self, name: str = "aten.mul.Tensor", *others: int, after: Quantization = AFTER) -> Graph:
        shape = np.broadcast_shapes(*(self.tensors[x].shape for x in self.real))
        made = self.float(name, tuple(Ref(x) for x in self.real), shape)
        packed = self.convert("q8ta_quantize", made, after, self.layout)
        out = self.convert("q8ta_dequantize", packed, after, WIDTH_PACKED)
        graph = self.graph((out, *others))
        return Graph(graph.where, graph.tensors, graph.nodes, tuple(self.given), graph.outputs, graph.target)


def check(graph: Graph, number: int = 0) -> list[PlanStep]:
    """The same outputs as node by node, on 1 to 3 threads; the steps that compute on two tensors."""
    rng = np.random.default_rng(number)
    given = [rng.uniform(-6, 6, graph.tensors[x].shape).astype(np.float32) for x in graph.inputs]
    expected = [a.tobytes() for a in run_graph(graph, given, EmulatedExecutor())]
    steps: list[PlanStep] = []
    for threads in (1, 2, 3):
        executor = NativeExecutor(threads)
        assert [a.tobytes() for a in run_graph(graph, given, executor)] == expected
        steps = [step for step in executor.session(graph).steps if len(step.reads) == 2 and step.is_native]
    return steps


@pytest.mark.parametrize("name", ["aten.mul.Tensor", "aten.add.Tensor"])
@pytest.mark.parametrize(
    "layout", [x for x in LAYOUTS.values() if x.packed_int8 and x is not PACKED_CONV2D], ids=str
)
def test_layouts(name: str, layout: Layout) -> None:
    for shape in (SHAPE, (1, 5, 3, 9), (1, 64, 4, 4)):
        joined = [len(step.nodes) for step in check(Two((shape, shape), layout).end(name))]
        assert joined == [4]


def test_every_pair_of_bytes() -> None:
    """With scales whose products lie on ties, and that saturate."""
    every = np.arange(-128, 128)
    for scales, after in (
        ((0.5, 0.25), 0.125),
        ((0.03, 0.07), 0.0021),
        ((2.0**40, 3.0), 1.0),
        ((2.0**-60, 2.0**-60), 2.0**-60),
    ):
        a, b = ((scale, zp) for scale, zp in zip(scales, (3, -128), strict=True))
        graph = Two(((1, 4, 128, 128),) * 2, PACKED_4C, (a, b)).end(after=(after, -7))
        x, y = (q.reshape(1, 4, 128, 128) for q in (np.repeat(every, 256), np.tile(every, 256)))
        given = [((q - zp) * scale).astype(np.float32) for q, (scale, zp) in ((x, a), (y, b))]
        expected = run_graph(graph, given, EmulatedExecutor())[0]
        assert run_graph(graph, given, NativeExecutor())[0].tobytes() == expected.tobytes()
        assert any(len(step.reads) == 2 and step.is_native for step in NativeExecutor().session(graph).steps)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("shape", [(1, 8, 6, 7), (3, 20, 5, 4), (1, 260, 3, 3)], ids=str)
def test_a_gate_of_one_pixel(shape: tuple[int, ...], first: int) -> None:
    shapes: list[tuple[int, ...]] = [shape, (1, shape[1], 1, 1)]
    shapes = shapes[::-1] if first else shapes
    (step,) = check(Two((shapes[0], shapes[1])).end())
    assert len(step.nodes) == 4 and step.route == "linear"


def test_a_gate_of_one_pixel_beside_an_image_that_packs_columns() -> None:
    """Of as many columns as channels: a row looks like a pixel."""
    b = Builder()
    shape, gate = (1, 4, 3, 4), (1, 4, 1, 1)
    given = [b.tensor(sizes, F32, WIDTH_PACKED) for sizes in (shape, gate)]
    int8 = [
        b.convert("q8ta_quantize", x, q, at)
        for x, q, at in zip(given, (X, GATE), (PACKED_4W, PACKED_4C), strict=True)
    ]
    real = [b.convert("q8ta_dequantize", x, q, WIDTH_PACKED) for x, q in zip(int8, (X, GATE), strict=True)]
    made = b.float("aten.mul.Tensor", tuple(map(Ref, real)), shape)
    packed = b.convert("q8ta_quantize", made, AFTER, PACKED_4W)
    check(replace(b.graph((b.convert("q8ta_dequantize", packed, AFTER, WIDTH_PACKED),)), inputs=tuple(given)))


@pytest.mark.parametrize(("shape", "tasks"), [((1, 8, 64, 64), 16), ((1, 2052, 3, 2), 6)], ids=str)
def test_tasks_of_a_gate_take_512_words_or_a_pixel(shape: tuple[int, ...], tasks: int) -> None:
    (step,) = check(Two((shape, (1, shape[1], 1, 1))).end())
    assert [job.tasks for job in step.jobs] == [tasks]


@pytest.mark.parametrize("shape", [(1, 10, 6, 7), (2, 8, 3, 3)], ids=str)
def test_other_gates_are_left_to_numpy(shape: tuple[int, ...]) -> None:
    """Padding behind the channels; a pixel for each image."""
    gate = (shape[0], shape[1], 1, 1)
    assert not check(Two((shape, gate)).end())


@pytest.mark.parametrize("threads", [1, 2])
def test_what_an_observer_asks_for_is_made_all_the_same(threads: int) -> None:
    given = [np.random.default_rng(n).uniform(-6, 6, SHAPE).astype(np.float32) for n in range(2)]
    check_each(Two().end(), given, threads)


def test_what_others_read_is_made_all_the_same() -> None:
    b = Two()
    (step,) = check(b.end("aten.mul.Tensor", b.real[0]))
    assert len(step.nodes) == 3


def test_products_that_may_be_no_numbers_are_left_to_numpy() -> None:
    huge = ((2.0**60, 0), (2.0**59, 0))
    graph = Two(scales=huge).end(after=(2.0**60, 0))
    assert not [s for s in NativeExecutor().session(graph).steps if len(s.reads) == 2 and s.is_native]
