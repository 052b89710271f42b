"""What may be one step: each precondition is needed, and a view behind a pooling must move no bytes."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace

import numpy as np
import pytest
from builder import Builder, Shape, check, drawn, ran
from test_two_inputs import two

from refsim.core.errors import ShapeError
from refsim.core.layout import PACKED_4C, PACKED_4W, Layout, layout
from refsim.core.qmath import LAVAPIPE
from refsim.exec.cpu import EmulatedExecutor, NativeExecutor, fusion, isa
from refsim.graph.graph import Graph, Ref
from refsim.ops.base.target import Target

SHAPE = (2, 8, 6, 6)
BEFORE, AFTER = (0.05, 3), (0.04, 7)


class Pooled(Builder):
    """An image's bytes, and the real values that a dequantize makes of them."""

    def __init__(
        self, shape: Shape = SHAPE, target: Target | None = None, layout: Layout = PACKED_4C
    ) -> None:
        super().__init__(target)
        self.real = self.entered(shape, BEFORE, layout)

    def pool(self, x: int, size: int = 2) -> int:
        """Windows of ``size`` x ``size``, side by side."""
        return self.max_pool(x, [size, size], [size, size], [0, 0], [1, 1], False)

    def end(self, x: int, *others: int, layout: Layout | None = None) -> Graph:
        """Quantized and dequantized again; the graph, with these outputs as well."""
        layout = layout or (PACKED_4C if len(self.tensors[x].shape) == 4 else PACKED_4W)
        return self.graph(self.through(x, AFTER, layout), *others)


def right(graph: Graph, watched: Set[int] = frozenset()) -> bool:
    """Whether the outputs, and each value that is watched, are those of the nodes one by one."""

    def seen(executor: EmulatedExecutor | NativeExecutor) -> object:
        try:
            return ran(graph, drawn(graph), executor, watched)
        except ShapeError:
            return "refused"

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
def test_a_pooling_and_a_view(shape: Shape, size: int, view: Shape, joined: bool) -> None:
    b = Pooled(shape)
    graph = b.end(b.view(b.pool(b.real, size), view))
    assert right(graph)
    assert (4 in steps(graph)) == joined


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("view", [(2, 8), (1, 16), (16,), (4, 4), (8, 2)], ids=str)
def test_a_mean_and_a_view(keep: bool, view: Shape) -> None:
    b = Pooled()
    assert right(b.end(b.view(b.mean(b.real, keep=keep), view)))


@pytest.mark.parametrize("after", ["4W4C", "4H4W", "4W", "4C", "4C1W"])
@pytest.mark.parametrize("before", ["4H4W", "4W", "4C"])
@pytest.mark.parametrize("pool", [Pooled.pool, Pooled.mean])
def test_a_pooling_between_any_layouts(pool: Callable[[Pooled, int], int], before: str, after: str) -> None:
    """In its own layout a value that packs W is as dense as one that packs C."""
    b = Pooled(layout=layout(before))
    assert right(b.end(pool(b, b.real), layout=layout(after)))


# --- steps over bytes ------------------------------------------------------------------------------------


def _one(name: str, *args: float) -> Callable[[Shape], Graph]:
    def graph(shape: Shape) -> Graph:
        b = Builder()
        real = b.entered(shape, BEFORE)
        return b.graph(b.through(b.float(name, (Ref(real), *args), shape), AFTER))

    return graph


@pytest.mark.parametrize("lookup", [True, False])
@pytest.mark.parametrize(
    "graph",
    [
        _one("hardswish.default"),
        _one("hardtanh.default", -0.5, 0.5),
        lambda shape: two((shape, shape), (PACKED_4C, PACKED_4C), name="add.Tensor"),
    ],
    ids=["a table", "a clamp", "a sum"],
)
def test_five_dims_are_fused_as_four_are(
    graph: Callable[[Shape], Graph], lookup: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those before the channels fold into the images."""
    here = isa.cpu()
    if lookup and not here.isa.lookup:
        pytest.skip(f"{here.name} cannot look up bytes in one instruction (avx512vbmi)")
    monkeypatch.setattr(fusion, "cpu", lambda: replace(here, isa=replace(here.isa, lookup=lookup)))
    (four,), (five,) = (check(graph(shape)) for shape in ((2, 8, 4, 4), (2, 1, 8, 4, 4)))
    assert four.route == five.route


# --- preconditions ---------------------------------------------------------------------------------------


def _read_between() -> Graph:
    b = Pooled()
    clamped = b.clamp(b.real, -1.0, 1.0)
    return b.end(b.pool(clamped), clamped)


def _indices_read() -> Graph:
    b = Pooled()
    x = b.pool(b.real)
    return b.end(x, x + 1)


def _no_float() -> Graph:
    b = Pooled()
    x = b.mean(b.real)
    b.tensors[x] = replace(b.tensors[x], dtype=np.dtype(np.int32))
    return b.end(b.view(x, (2, 8)))


def _other_profile() -> Graph:
    """A value beyond all integers becomes the least one there."""
    b = Pooled(target=Target(LAVAPIPE))
    return b.end(b.pool(b.clamp(b.real, 1e12, 2e12)))


def _multiplied() -> Graph:
    graph = two(name="add.Tensor")
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
    assert right(b.end(b.pool(b.clamp(b.real, *bounds))))


def test_a_dequantize_that_others_read_runs_beside_the_step() -> None:
    b = Pooled()
    graph = b.end(b.pool(b.real), b.real)
    assert right(graph) and right(graph, frozenset([b.real]))
    assert 2 in steps(graph)
