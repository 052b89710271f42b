"""What may be one step: each precondition is needed, and a view behind a pooling must move no bytes."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace

import numpy as np
import pytest
from builder import F32, Builder
from test_two_inputs import Two

from refsim.core.errors import ShapeError
from refsim.core.layout import PACKED_4C, PACKED_4W, WIDTH_PACKED, Layout, layout
from refsim.core.qmath import LAVAPIPE
from refsim.core.rng import Rng
from refsim.exec.cpu import EmulatedExecutor, NativeExecutor, fusion
from refsim.exec.executor import run_graph
from refsim.graph.graph import Graph, Ref
from refsim.graph.interpreter import Observer
from refsim.ops.base.target import Target

MAXPOOL, MEAN, VIEW = "aten.max_pool2d_with_indices.default", "aten.mean.dim", "aten.view_copy.default"
CLAMP = "aten.hardtanh.default"
SHAPE = (2, 8, 6, 6)
BEFORE, AFTER = (0.05, 3), (0.04, 7)


class Pooled(Builder):
    """A quantized image and what a dequantize makes of it."""

    def __init__(
        self, shape: tuple[int, ...] = SHAPE, target: Target | None = None, layout: Layout = PACKED_4C
    ) -> None:
        super().__init__(target)
        self.int8 = self.convert("q8ta_quantize", self.tensor(shape, F32, WIDTH_PACKED), BEFORE, layout)
        self.real = self.convert("q8ta_dequantize", self.int8, BEFORE, WIDTH_PACKED)

    def pool(self, x: int, size: int = 2) -> int:
        """Windows of ``size`` x ``size``, side by side."""
        n, c, h, w = self.tensors[x].shape
        window = ([size, size], [size, size], [0, 0], [1, 1], False)
        return self.float(MAXPOOL, (Ref(x), *window), *[(n, c, h // size, w // size)] * 2)

    def view(self, x: int, shape: tuple[int, ...]) -> int:
        return self.float(VIEW, (Ref(x), list(shape)), shape)

    def end(self, x: int, *others: int, layout: Layout | None = None) -> Graph:
        """Quantized and dequantized again; the graph, with these outputs as well."""
        layout = layout or (PACKED_4C if len(self.tensors[x].shape) == 4 else PACKED_4W)
        out = self.convert(
            "q8ta_dequantize", self.convert("q8ta_quantize", x, AFTER, layout), AFTER, WIDTH_PACKED
        )
        return self.graph((out, *others))


def right(graph: Graph, watched: Set[int] = frozenset()) -> bool:
    """Whether the outputs, and each value that is watched, are those of the nodes one by one."""
    given = [Rng(1).uniform(-6.0, 6.0, graph.tensors[v].shape).astype(np.float32) for v in graph.inputs]

    def seen(executor: EmulatedExecutor | NativeExecutor) -> list[bytes]:
        held: list[bytes] = []
        look = Observer(
            lambda event: held.extend(getattr(x, "raw", x).tobytes() for x in event.outputs.values()),
            lambda _, value: value in watched,
        )
        try:
            outputs = run_graph(graph, given, executor, observe=look if watched else None)
        except ShapeError:
            return [b"refused"]
        return held + [x.tobytes() for x in outputs]

    want = seen(EmulatedExecutor())
    try:
        return all(seen(NativeExecutor(threads)) == want for threads in (1, 2))
    except (KeyError, ValueError):  # a value is read that no step makes
        return False


def steps(graph: Graph) -> list[int]:
    """How many nodes each step of a run that nobody watches has."""
    return [len(step.nodes) for step in NativeExecutor().session(graph).steps]


# --- a view ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "size", "view", "joined"),
    [
        ((1, 16, 4, 4), 2, (1, 64), False),
        ((1, 16, 4, 4), 2, (64,), False),
        ((2, 8, 6, 6), 2, (2, 72), False),
        ((1, 16, 4, 4), 2, (1, 4, 16), False),
        ((1, 4, 4, 4), 2, (1, 4, 2, 2), True),
        ((1, 16, 2, 2), 2, (1, 16), True),
        ((3, 8, 3, 3), 3, (3, 8), True),
        ((3, 6, 3, 3), 3, (3, 6), True),
        ((3, 6, 3, 3), 3, (1, 18), False),
        ((3, 8, 3, 3), 3, (6, 4), True),
    ],
    ids=str,
)  # fmt: skip
def test_a_pooling_and_a_view(shape: tuple[int, ...], size: int, view: tuple[int, ...], joined: bool) -> None:
    b = Pooled(shape)
    graph = b.end(b.view(b.pool(b.real, size), view))
    assert right(graph)
    assert (4 in steps(graph)) == joined


@pytest.mark.parametrize("pooled", [(2, 8, 1, 1), (2, 8)], ids=str)
@pytest.mark.parametrize("view", [(2, 8), (1, 16), (16,), (4, 4), (8, 2)], ids=str)
def test_a_mean_and_a_view(pooled: tuple[int, ...], view: tuple[int, ...]) -> None:
    b = Pooled()
    x = b.float(MEAN, (Ref(b.real), [2, 3], len(pooled) == 4), pooled)
    assert right(b.end(b.view(x, view)))


@pytest.mark.parametrize("after", ["4W4C", "4H4W", "4W", "4C", "4C1W"])
@pytest.mark.parametrize("before", ["4H4W", "4W", "4C"])
def test_a_pooling_between_any_layouts(before: str, after: str) -> None:
    """In its own layout a value that packs W is as dense as one that packs C."""
    b = Pooled(layout=layout(before))
    assert right(b.end(b.pool(b.real), layout=layout(after)))
    b = Pooled(layout=layout(before))
    x = b.float(MEAN, (Ref(b.real), [2, 3], True), (2, 8, 1, 1))
    assert right(b.end(x, layout=layout(after)))


# --- preconditions ---------------------------------------------------------------------------------------


def _read_between() -> Graph:
    b = Pooled()
    clamped = b.float(CLAMP, (Ref(b.real), -1.0, 1.0), SHAPE)
    return b.end(b.pool(clamped), clamped)


def _indices_read() -> Graph:
    b = Pooled()
    x = b.pool(b.real)
    return b.end(x, x + 1)


def _no_float() -> Graph:
    b = Pooled()
    x = b.float(MEAN, (Ref(b.real), [2, 3], True), (2, 8, 1, 1))
    b.tensors[x] = replace(b.tensors[x], dtype=np.dtype(np.int32))
    return b.end(b.view(x, (2, 8)))


def _other_profile() -> Graph:
    """A value beyond all integers becomes the least one there."""
    b = Pooled(target=Target(LAVAPIPE))
    return b.end(b.pool(b.float(CLAMP, (Ref(b.real), 1e12, 2e12), SHAPE)))


def _multiplied() -> Graph:
    b = Two()
    graph = b.end("aten.add.Tensor")
    nodes = (replace(n, args=(*n.args, 2)) if n.name == "aten.add.Tensor" else n for n in graph.nodes)
    return replace(graph, nodes=tuple(nodes))


def _viewed() -> Graph:
    b = Pooled()
    return b.end(b.view(b.pool(b.real), (2, 72)))


def _watched() -> Graph:
    b = Pooled()
    return b.end(b.pool(b.real))


def _other_shape() -> Graph:
    """More rows than the pooling has: its kernel would read behind the image."""
    b = Pooled()
    x = b.pool(b.real)
    for value in (x, x + 1):
        b.tensors[value] = replace(b.tensors[value], shape=(2, 8, 5, 3))
    return b.end(x)


#: For each precondition, a graph of which it keeps a step from being made.
BROKEN: dict[str, Callable[[], Graph]] = {
    "others read a value between": _read_between,
    "others read a further result": _indices_read,
    "a value between is watched": _watched,
    "a value between is no float32": _no_float,
    "the profile is not canonical": _other_profile,
    "the second term is multiplied": _multiplied,
    "an operator refuses its arguments, or gives another shape": _other_shape,
    "the view moves bytes": _viewed,
}


def test_every_precondition_has_a_graph() -> None:
    assert [row.unless for row in fusion.PRECONDITIONS] == list(BROKEN)


@pytest.mark.parametrize("unless", BROKEN)
def test_without_a_precondition_bytes_are_wrong(unless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = BROKEN[unless]()
    pooled = next(node for node in graph.nodes if node.is_float)
    watched = frozenset(pooled.outputs if BROKEN[unless] is _watched else ())
    assert right(graph, watched)
    left = tuple(row for row in fusion.PRECONDITIONS if row.unless != unless)
    monkeypatch.setattr(fusion, "PRECONDITIONS", left)
    assert not right(graph, watched)


def test_a_further_result_that_is_watched_is_told() -> None:
    b = Pooled()
    x = b.pool(b.real)
    assert right(b.end(x), frozenset([x + 1]))


@pytest.mark.parametrize(
    "bounds", [(float("nan"), 1.0), (-1.0, float("nan")), (None, 1.0), (-1.0, None)], ids=str
)
def test_bounds_that_are_no_numbers(bounds: tuple[float | None, ...]) -> None:
    b = Pooled()
    assert right(b.end(b.pool(b.float(CLAMP, (Ref(b.real), *bounds), SHAPE))))


def test_a_dequantize_that_others_read_runs_beside_the_step() -> None:
    b = Pooled()
    graph = b.end(b.pool(b.real), b.real)
    assert right(graph) and right(graph, frozenset([b.real]))
    assert 2 in steps(graph)
