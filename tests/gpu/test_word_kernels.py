"""Truth values and int32 on the device: comparisons, choices, indices, and what the host makes of them between."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from float_graphs import IMAGE, LAYOUTS, SPECIAL, THIRD, X, Y, numbers, unlike

from refsim.core.errors import GraphError
from refsim.exec.emulated import EmulatedExecutor
from refsim.graph.graph import Graph, Node, Ref, Tensor
from refsim.graph.interpreter import Event, Observer, run_nodes
from refsim.ops.base.target import Target
from refsim_gpu import word_kernels
from refsim_gpu.executor import KomputeExecutor
from refsim_gpu.kompute import Device

INDEX = int(os.environ.get("REFSIM_DEVICE", "0"))
F, B, I = (np.dtype(kind) for kind in (np.float32, np.bool_, np.int32))  # noqa: E741
ROW = (5, 1, 7)

#: Name, (shape, dtype) of the inputs, arguments, the same of the output.
CASES: tuple[tuple[str, tuple[Any, ...], tuple[Any, ...], Any], ...] = (
    ("aten.eq.Tensor", ((IMAGE, F), (IMAGE, F)), (X, Y), (IMAGE, B)),
    ("aten.eq.Tensor", ((IMAGE, I), (ROW, I)), (X, Y), (IMAGE, B)),
    ("aten.eq.Scalar", ((IMAGE, F),), (X, float("-inf")), (IMAGE, B)),
    ("aten.ne.Tensor", ((IMAGE, F), (ROW, F)), (X, Y), (IMAGE, B)),
    ("aten.ne.Tensor", ((IMAGE, B), (IMAGE, B)), (X, Y), (IMAGE, B)),
    ("aten.lt.Tensor", ((IMAGE, F), (IMAGE, F)), (X, Y), (IMAGE, B)),
    ("aten.le.Tensor", ((IMAGE, F), (IMAGE, F)), (X, Y), (IMAGE, B)),
    ("aten.gt.Tensor", ((IMAGE, F), (IMAGE, F)), (X, Y), (IMAGE, B)),
    ("aten.gt.Scalar", ((IMAGE, F),), (X, 0), (IMAGE, B)),
    ("aten.ge.Scalar", ((IMAGE, F),), (X, -1e-45), (IMAGE, B)),
    ("aten.logical_not.default", ((IMAGE, B),), (X,), (IMAGE, B)),
    ("aten.logical_and.default", ((IMAGE, B), (ROW, B)), (X, Y), (IMAGE, B)),
    ("aten.logical_or.default", ((IMAGE, B), (IMAGE, B)), (X, Y), (IMAGE, B)),
    ("aten.where.self", ((IMAGE, B), (IMAGE, F), (IMAGE, F)), (X, Y, THIRD), (IMAGE, F)),
    ("aten.where.self", (((2, 5, 6, 1), B), (IMAGE, F), ((), F)), (X, Y, THIRD), (IMAGE, F)),
    ("aten.where.self", ((IMAGE, B), (IMAGE, I), (ROW, I)), (X, Y, THIRD), (IMAGE, I)),
    ("aten._to_copy.default", ((IMAGE, B),), (X,), (IMAGE, F)),
    ("dim_order_ops._to_dim_order_copy.default", ((IMAGE, I),), (X, 6), (IMAGE, F)),
    ("aten.add.Tensor", ((ROW, I), (IMAGE, I)), (X, Y, 3), (IMAGE, I)),
    ("aten.sub.Tensor", (((), I), (IMAGE, I)), (X, Y), (IMAGE, I)),
    ("aten.view_copy.default", ((IMAGE, B),), (X, (10, 42)), ((10, 42), B)),
    ("aten.permute_copy.default", ((IMAGE, I),), (X, (0, 2, 3, 1)), ((2, 6, 7, 5), I)),
    ("aten.index.Tensor", ((IMAGE, F), ((9,), I)), (X, (None, None, None, Y)), ((2, 5, 6, 9), F)),
    ("aten.index.Tensor", ((IMAGE, F), ((3, 4), I)), (X, (None, Y, None, None)), ((2, 3, 4, 6, 7), F)),
    ("aten.index.Tensor", ((IMAGE, I), ((4,), I)), (X, (Y,)), ((4, 5, 6, 7), I)),
    ("aten.index_select.default", ((IMAGE, B), ((3,), I)), (X, -2, Y), ((2, 5, 3, 7), B)),
    ("aten.embedding.default", (((11, 6), F), ((2, 3), I)), (X, Y, -1), ((2, 3, 6), F)),
)  # fmt: skip


def tensor(number: int, shape: tuple[int, ...], dtype: Any, turn: int = 0) -> Tensor:
    layout = LAYOUTS[(turn + number) % len(LAYOUTS)] if dtype == F else None
    return Tensor(number, shape, np.dtype(dtype), layout)


def words(shape: tuple[int, ...], dtype: Any, seed: int, most: int) -> np.ndarray:
    """Numbers of a dtype; integers from -``most`` to ``most`` - 1."""
    rng = np.random.default_rng(seed)
    if dtype == F:
        return numbers(shape, seed, SPECIAL)
    return rng.random(shape) < 0.5 if dtype == B else rng.integers(-most, most, shape, I)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return not unlike(a, b).size if a.dtype == F else bool((a == b).all())


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1][0][1]} {case[2][1:]}")
def test_the_words_of_the_reference(executor: KomputeExecutor, case: tuple[Any, ...]) -> None:
    name, given, args, made = case
    for turn in range(len(LAYOUTS)):
        tensors = {n: tensor(n, *kind, turn) for n, kind in enumerate((*given, made))}
        node = Node(0, 0, name, args, (len(given),))
        graph = Graph("one node", tensors, (node,), tuple(range(len(given))), (len(given),), Target())
        inputs = [words(*kind, seed, 2) for seed, kind in enumerate(given)]
        if name.startswith("aten.eq") and given == ((IMAGE, F), (IMAGE, F)):  # some a little apart
            near = inputs[0] + np.float32(4e-6) * np.arange(-3, 4, dtype=F)
            inputs[1] = np.where(np.isfinite(inputs[1]), near, inputs[1])
        with np.errstate(all="ignore"):
            (expected,) = run_nodes(graph, inputs, EmulatedExecutor())
        assert executor.session(graph).plan.why_host == {}
        for watched in (frozenset(), frozenset(graph.outputs)):
            (found,) = executor.session(graph, watched).run(inputs)
            assert same(found, expected), (turn, watched)


def test_every_row_of_words_has_a_case() -> None:
    tried = {".".join(name.split(".")[1:]) for name, *_ in CASES} | {name.split(".")[1] for name, *_ in CASES}
    assert set(word_kernels.ROWS) - tried == set()


def mixed() -> Graph:
    """A truth value that the device makes and the host turns round, a choice by it, and places that follow from it."""
    kinds = [
        (IMAGE, F),
        (IMAGE, F),
        (IMAGE, B),
        (IMAGE, B),
        (IMAGE, F),
        ((7,), I),
        ((7,), I),
        (IMAGE, F),
        (IMAGE, F),
    ]
    nodes = (
        Node(0, 0, "aten.gt.Tensor", (X, Y), (2,)),
        Node(1, 0, "aten.flip.default", (Ref(2), (3,)), (3,)),
        Node(2, 0, "aten.where.self", (Ref(3), X, Y), (4,)),
        Node(3, 0, "aten.sub.Tensor", (Ref(5), Ref(5), 2), (6,)),
        Node(4, 0, "aten.index.Tensor", (Ref(4), (None, None, None, Ref(6))), (7,)),
        Node(5, 0, "aten.full_like.default", (Ref(7), 2.5), (8,)),
    )
    tensors = {n: tensor(n, *kind) for n, kind in enumerate(kinds)}
    return Graph("mixed", tensors, nodes, (0, 1, 5), (7, 3, 6, 8), Target())


def test_words_go_to_the_host_and_come_back(device: Device) -> None:
    graph = mixed()
    inputs = [numbers(IMAGE, 1), numbers(IMAGE, 2), np.arange(-3, 4, dtype=I)]
    expected, seen = run_nodes(graph, inputs, EmulatedExecutor()), dict[int, Any]()
    with KomputeExecutor(INDEX) as executor:
        session = executor.session(graph)
        assert session.plan.why_host == {1: "no kernel of the device's"} and set(session.plan.folded) == {8}
        for _ in range(2):
            assert all(map(same, session.run(inputs), expected))
        every = frozenset((2, 3, 4, 6, 7, 8))
        watch = Observer(lambda event: seen.update(event.outputs), lambda *_: True)
        executor.session(graph, every).run(inputs, 0, watch)
    assert set(seen) == set(every) and seen[2].dtype == B and seen[6].dtype == I
    assert np.array_equal(seen[2], inputs[0] > inputs[1]) and np.array_equal(seen[6], -inputs[2])


@pytest.mark.parametrize("where", ["given", "made here", "made by the host", "constant"])
@pytest.mark.parametrize("wrong", [7, -8])
def test_an_index_out_of_range_is_an_error_here_too(
    executor: KomputeExecutor, where: str, wrong: int
) -> None:
    """The device reads another element in its stead, never another tensor; the run says what is wrong."""
    start = np.array([0, 6, wrong, -7], I)
    kinds = [(IMAGE, F), ((4,), I), ((4,), I), ((2, 5, 6, 4), F)]
    tensors = {n: tensor(n, *kind) for n, kind in enumerate(kinds)}
    before = {
        "made here": Node(0, 0, "aten.add.Tensor", (Ref(1), Ref(1), 0), (2,)),
        "made by the host": Node(0, 0, "aten.flip.default", (Ref(1), (0,)), (2,)),
    }
    places = Ref(2 if where in before else 1)
    nodes = [before[where]] if where in before else []
    nodes.append(Node(len(nodes), 0, "aten.index.Tensor", (X, (None, None, None, places)), (3,)))
    inputs, given = (0, 1), [numbers(IMAGE, 1), start]
    if where == "constant":
        tensors[1] = Tensor(1, (4,), I, None, data=start)
        inputs, given = (0,), given[:1]
    graph = Graph("one index", tensors, tuple(nodes), inputs, (3,), Target())
    with pytest.raises(GraphError):
        run_nodes(graph, given, EmulatedExecutor())
    with pytest.raises(GraphError, match=rf"index.Tensor: .*{wrong}"):
        executor.session(graph).run(given)


def test_observed_events_name_no_host(executor: KomputeExecutor) -> None:
    """A fold of what needs only a shape is no node of the host's."""
    graph, events = mixed(), list[Event]()
    inputs = [numbers(IMAGE, 1), numbers(IMAGE, 2), np.zeros(7, I)]
    executor.session(graph).run(inputs, 0, Observer(events.append, lambda *_: False))
    assert [event.nodes[-1].number for event in events] == [0, 1, 2, 3, 4, 5]
