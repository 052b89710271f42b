"""A sum or product of two dequantized tensors, quantized again, without leaving the bytes: gates of all kinds."""

from __future__ import annotations

import numpy as np
import pytest
from builder import PACKED, Builder, Quantization, Shape, check, check_each, drawn

from refsim.core.layout import PACKED_4C, PACKED_4W, PACKED_4W4C, Layout
from refsim.exec.cpu.step import PlanStep
from refsim.graph.graph import Graph, Ref

X, GATE, AFTER = (0.031, -11), (1 / 256, -128), (0.017, 5)
SHAPE = (2, 8, 6, 7)


def two(
    shapes: tuple[Shape, Shape] = (SHAPE, SHAPE),
    layouts: tuple[Layout, Layout] = (PACKED_4W4C, PACKED_4W4C),
    scales: tuple[Quantization, Quantization] = (X, GATE),
    after: Quantization = AFTER,
    name: str = "mul.Tensor",
    is_read: bool = False,
) -> Graph:
    """Two inputs, both quantized and dequantized, an operator on both; the first may be read by others, too."""
    b = Builder()
    real = [b.entered(*row) for row in zip(shapes, scales, layouts, strict=True)]
    made = b.float(name, tuple(map(Ref, real)), np.broadcast_shapes(*shapes))
    return b.graph(b.through(made, after, layouts[0]), *real[:1] * is_read)


def joined(graph: Graph, given: list[np.ndarray] | None = None) -> list[PlanStep]:
    """The steps that compute on two tensors; the outputs are right."""
    return [step for step in check(graph, given) if len(step.reads) == 2 and step.is_native]


@pytest.mark.parametrize("name", ["mul.Tensor", "add.Tensor"])
@pytest.mark.parametrize("layout", PACKED, ids=str)
def test_layouts(name: str, layout: Layout) -> None:
    for shape in (SHAPE, (1, 5, 3, 9), (1, 64, 4, 4)):
        (step,) = joined(two((shape, shape), (layout, layout), name=name))
        assert len(step.nodes) == 4


@pytest.mark.parametrize(
    ("scales", "after"),
    [((0.5, 0.25), 0.125), ((0.03, 0.07), 0.0021), ((2.0**40, 3.0), 1.0), ((2.0**-60,) * 2, 2.0**-60)],
)
def test_every_pair_of_bytes(scales: tuple[float, float], after: float) -> None:
    """With scales whose products lie on ties, and that saturate."""
    every, sides = np.arange(-128, 128), ((scales[0], 3), (scales[1], -128))
    graph = two(((1, 4, 128, 128),) * 2, (PACKED_4C,) * 2, sides, (after, -7))
    bytes_ = (q.reshape(1, 4, 128, 128) for q in (np.repeat(every, 256), np.tile(every, 256)))
    given = [((q - zp) * scale).astype(np.float32) for q, (scale, zp) in zip(bytes_, sides, strict=True)]
    assert joined(graph, given)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("shape", [(1, 8, 6, 7), (3, 20, 5, 4), (1, 260, 3, 3)], ids=str)
def test_a_gate_of_one_pixel(shape: Shape, first: int) -> None:
    gate = (1, shape[1], 1, 1)
    (step,) = joined(two((gate, shape) if first else (shape, gate)))
    assert len(step.nodes) == 4 and step.route == "linear"


def test_a_gate_of_one_pixel_beside_an_image_that_packs_columns() -> None:
    """Of as many columns as channels: a row looks like a pixel."""
    check(two(((1, 4, 3, 4), (1, 4, 1, 1)), (PACKED_4W, PACKED_4C)))


@pytest.mark.parametrize(("shape", "tasks"), [((1, 8, 64, 64), 16), ((1, 2052, 3, 2), 6)], ids=str)
def test_tasks_of_a_gate_take_512_words_or_a_pixel(shape: Shape, tasks: int) -> None:
    (step,) = joined(two((shape, (1, shape[1], 1, 1))))
    assert [job.tasks for job in step.jobs] == [tasks]


@pytest.mark.parametrize("shape", [(1, 10, 6, 7), (2, 8, 3, 3)], ids=str)
def test_other_gates_are_left_to_numpy(shape: Shape) -> None:
    """Padding behind the channels; a pixel for each image."""
    assert not joined(two((shape, (*shape[:2], 1, 1))))


@pytest.mark.parametrize("threads", [1, 2])
def test_what_an_observer_asks_for_is_made_all_the_same(threads: int) -> None:
    graph = two()
    check_each(graph, drawn(graph), threads)


def test_what_others_read_is_made_all_the_same() -> None:
    (step,) = joined(two(is_read=True))
    assert len(step.nodes) == 3


def test_products_that_may_be_no_numbers_are_left_to_numpy() -> None:
    assert not joined(two(scales=((2.0**60, 0), (2.0**59, 0)), after=(2.0**60, 0)))
