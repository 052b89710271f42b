"""Random graphs: what is drawn, and that what runs is what is compared."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from refsim.core.qmath import CANONICAL, PROFILES
from refsim.exec.cpu import NativeExecutor
from refsim.exec.cpu.plan import CpuPlan
from refsim.exec.executor import run_graph
from refsim.golden.chain import ChainCase, ChainEntry, defined, parse
from refsim.golden.check import DIFFERENT
from refsim.graph.graph import Graph
from refsim.sweep.chunk import ChunkRunner
from refsim.sweep.draft import NAMES, ONE, TWO
from refsim.sweep.executors import Executors
from refsim.sweep.graphs import LEAST, cut, draw
from refsim.sweep.plan import GRAPHS, Chunk, SweepVariant


@pytest.fixture(scope="module")
def chains() -> list[ChainCase]:
    return [draw(seed) for seed in range(60)]


def test_a_graph_follows_from_its_seed_and_can_be_written_down(chains: list[ChainCase]) -> None:
    for seed, chain in enumerate(chains[:8]):
        assert draw(seed) == chain
        text = ChainEntry(seed, chain, "").line
        again = parse(text, "test").chain
        given = [chain.data()]
        outputs = [run_graph(c.graph("test"), given, NativeExecutor()) for c in (chain, again)]
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*outputs, strict=True))


def test_graphs_hold_every_kind_of_operator_and_readers_of_one_value(chains: list[ChainCase]) -> None:
    links = [link for chain in chains for link in chain.links]
    names = {link.op for link in links}
    assert len(names & {*ONE, *TWO}) > len({*ONE, *TWO}) * 3 // 4
    assert {"q8ta_add", "q8ta_clone", "q8ta_conv2d_pw", "q8ta_linear", "aten.cat.default"} <= names
    assert set(NAMES) == set(ONE)
    readers = [
        Counter(v for link in chain.links for v in link.inputs).most_common(1)[0][1] for chain in chains
    ]
    assert sum(count > 1 for count in readers) > 20
    assert all(len(chain.links) >= LEAST - 1 for chain in chains)


def test_half_of_the_graphs_have_a_smaller_shape(chains: list[ChainCase]) -> None:
    smaller = [chain for chain in chains if chain.smaller]
    assert len(smaller) >= 20
    for chain in smaller[:8]:
        (_, whole), (small, graph) = chain.shapes("test")
        assert graph.root is whole and small.shape == chain.smaller != chain.shape
        assert all(a <= b for a, b in zip(chain.smaller, chain.shape, strict=True))
        (outputs, values), more = defined(graph, small.data()), defined(whole, chain.data())[0]
        assert len(outputs) == len(more) and len(values) == len(graph.tensors)


def test_the_first_nodes_of_a_graph_are_graphs(chains: list[ChainCase]) -> None:
    for part in cut(chains[0]):
        (made,), values = defined(part.graph("test"), part.data())
        assert part.outputs[0] in values and made.size


@pytest.mark.few(1)
@pytest.mark.parametrize("profile", [None, *PROFILES])
def test_every_plan_of_a_graph_gives_the_bytes_of_the_definitions(profile: str | None) -> None:
    variants = (SweepVariant("cpu"), SweepVariant("cpu", 3))
    profiles = (CANONICAL if profile is None else PROFILES[profile],)
    for outcome in ChunkRunner().run(Chunk(GRAPHS, 0, 40 if profile is None else 6, 27, profiles, variants)):
        assert not outcome.failures and outcome.statuses["same"] == outcome.count


def test_a_plan_that_is_wrong_only_if_nobody_watches_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest part of the graph is told, and how it was run."""

    class Wrong(CpuPlan):
        def run(self, inputs, number=0, observe=None):  # type: ignore[no-untyped-def]
            outputs = super().run(inputs, number, observe)
            return outputs if observe is not None else [-array for array in outputs]

    def session(self: NativeExecutor, graph: Graph, watched: frozenset[int] = frozenset()) -> CpuPlan:
        return Wrong(graph, self.options, watched)

    monkeypatch.setattr(NativeExecutor, "session", session)
    (outcome,) = ChunkRunner().run(Chunk(GRAPHS, 0, 1, 27, (CANONICAL,), (SweepVariant("cpu"),)))
    (failure,) = outcome.failures
    assert failure.status == DIFFERENT and "nobody watches" in failure.message
    assert failure.case.count(">") == 1  # the input and its quantize


def test_threads_are_woken_for_graphs_of_any_size() -> None:
    executor = Executors()[SweepVariant("cpu", 3)]
    assert isinstance(executor, NativeExecutor) and executor.options.wake_always


def test_what_was_prepared_for_a_graph_is_given_up(chains: list[ChainCase]) -> None:
    executor = NativeExecutor()
    graph = chains[0].graph("test")
    plan = executor.session(graph)
    assert executor.session(graph) is plan
    executor.forget(graph)
    assert executor.session(graph) is not plan
