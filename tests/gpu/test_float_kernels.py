"""Floats, truth values and int32 on the device: the bits of the CPU reference; and what falls to the host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from float_cases import (
    CASES,
    IMAGE,
    LAYOUTS,
    ODD,
    SPECIAL,
    B,
    F,
    I,
    X,
    Y,
    kinds,
    numbers,
    of_one_node,
    tensor,
    unlike,
    words,
)

from refsim.core.errors import GraphError
from refsim.exec.emulated import EmulatedExecutor
from refsim.graph.graph import Graph, Node, Ref, Tensor, refs
from refsim.graph.interpreter import Event, Observer, run_nodes
from refsim.ops.base.target import Target
from refsim_gpu import float_kernels, word_kernels
from refsim_gpu.executor import KomputeExecutor
from refsim_gpu.kompute import Device

INDEX = int(os.environ.get("REFSIM_DEVICE", "0"))


@pytest.fixture(scope="module", params=[None, True], ids=["as the device needs", "spelled out"])
def executor(request: pytest.FixtureRequest, device: Device) -> Iterator[KomputeExecutor]:
    """What denormals need is spelled out on devices that flush them; these kernels run everywhere."""
    with KomputeExecutor(INDEX, spelled_out=request.param) as opened:
        yield opened


def node_by_node(graph: Graph, inputs: list[np.ndarray]) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        return run_nodes(graph, inputs, EmulatedExecutor())


def compare(executor: KomputeExecutor, graph: Graph, inputs: list[np.ndarray]) -> None:
    """Watched or not, every bit is that of the reference, and nothing falls to the host."""
    expected = node_by_node(graph, inputs)
    if not graph.nodes[0].name.startswith("aten.view"):  # a view may need an order that no strides describe
        assert executor.session(graph).plan.why_host == {}
    for watched in (frozenset(), frozenset(graph.outputs)):
        found = executor.session(graph, watched).run(inputs)
        for a, b in zip(found, expected, strict=True):
            assert not (other := unlike(a, b)).size, (watched, other, a.reshape(-1)[other[:5]])


@pytest.mark.few(90)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[2][1:]}")
def test_the_bits_of_the_reference(executor: KomputeExecutor, case: tuple[Any, ...]) -> None:
    given = kinds(case[1])
    for turn, odd in product(range(len(LAYOUTS)), (ODD, SPECIAL)):
        inputs = [words(*kind, seed, odd) for seed, kind in enumerate(given)]
        if case[0] == "aten.eq.Tensor" and given[0][1] == F:  # some a little apart
            near = inputs[0] + np.float32(4e-6) * np.arange(-3, 4, dtype=F)
            inputs[1] = np.where(np.isfinite(inputs[1]), near, inputs[1])
        compare(executor, of_one_node(case, turn, turn == 1), inputs)


@pytest.mark.parametrize(
    "name", ["exp", "sigmoid", "silu", "tanh", "gelu", "sqrt", "rsqrt", "pow", "reciprocal"]
)
def test_functions_have_the_bits_of_the_reference(executor: KomputeExecutor, name: str) -> None:
    """Of any bits at all, and of numbers where the function is neither 0 nor infinite."""
    count, rng = 1 << 17, np.random.default_rng(5)
    any_bits = rng.integers(0, 1 << 32, count, np.uint32).view(np.float32)
    usual = (rng.standard_normal(count) * np.exp(rng.uniform(-12, 4.5, count))).astype(np.float32)
    node = ("aten.pow.Tensor_Scalar", (X, 0.5)) if name == "pow" else (f"aten.{name}.default", (X,))
    graph = of_one_node((node[0], [(count,)], node[1]))
    usual[0] = 0.011794382706284523  # binary64 rounds its logarithm to a tie
    for x in (any_bits, usual, np.abs(usual)):
        compare(executor, graph, [x])


def test_every_row_has_a_case() -> None:
    """A row is named by its first name."""
    named = [name.split(".") for name, *_ in CASES]
    tried = {".".join(name[1:]) for name in named} | {name[1] for name in named}
    with_one = {id(row) for name, row in float_kernels.ROWS.items() if name in tried}
    assert not [name for name, row in float_kernels.ROWS.items() if id(row) not in with_one]
    assert not word_kernels.ROWS.keys() - tried


@pytest.mark.parametrize(
    ("name", "args", "why"),
    [
        ("aten.sin.default", (X,), "a function that devices do not compute exactly"),
        ("aten.pow.Tensor_Scalar", (X, 3.0), "a power of 3.0"),
        ("aten.cumsum.default", (X, 1), "no kernel of the device's"),
        ("aten.mean.dim", (X, (0, 2, 3)), "a reduction of 3 dims"),
        ("aten.div.Tensor_mode", (X, 2.0, "floor"), "arguments ['floor']"),
    ],
)
def test_the_host_computes_the_rest(
    executor: KomputeExecutor, name: str, args: tuple[Any, ...], why: str
) -> None:
    graph = of_one_node((name, [IMAGE], args))
    inputs = [numbers(IMAGE, 1)]
    assert executor.session(graph).plan.why_host == {0: why}
    assert list(refs(graph.nodes[0].args)) == [0]
    (found,), (expected,) = executor.session(graph).run(inputs), run_nodes(graph, inputs, EmulatedExecutor())
    assert np.array_equal(found, expected, equal_nan=True)


def mixed() -> Graph:
    """A truth value that the device makes and the host turns round, a choice by it, and places that follow from it."""
    kinds = [(IMAGE, F)] * 2 + [(IMAGE, B)] * 2 + [(IMAGE, F)] + [((7,), I)] * 2 + [(IMAGE, F)] * 2
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
            assert not [a for a, b in zip(session.run(inputs), expected, strict=True) if unlike(a, b).size]
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
