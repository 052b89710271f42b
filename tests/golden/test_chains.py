"""The chains of the corpus: as their rules make them, joined where they must be, and noticed where a step is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from refsim.core.layout import C, W
from refsim.core.qmath import PROFILES
from refsim.exec.cpu import EmulatedExecutor, NativeExecutor, fusion
from refsim.exec.cpu.isa import cpu
from refsim.exec.cpu.plan import Stretch
from refsim.exec.cpu.pool import prepack as pool
from refsim.exec.executor import Executor
from refsim.golden import chain, chain_rules
from refsim.golden.chain import ChainEntry
from refsim.golden.chain_check import JOINED, check_chain
from refsim.golden.check import Checked
from refsim.golden.store import Corpus, default_root
from refsim.graph import bytewise
from refsim.graph.interpreter import logical

ENTRIES = list(Corpus(default_root()).chains())


def failed(executor: Executor, entries: list[ChainEntry] = ENTRIES) -> list[Checked]:
    found = [result for entry in entries for result in check_chain(entry, {executor.name: executor})]
    return [result for result in found if result.status != "same"]


def of_kind(name: str) -> list[ChainEntry]:
    return [entry for entry in ENTRIES if entry.chain.kind == name]


def test_the_rules_still_make_them() -> None:
    assert [entry.chain for entry in ENTRIES] == list(chain_rules.chains())
    assert [entry.number for entry in ENTRIES] == list(range(chain_rules.COUNT))
    assert all(len(of_kind(kind.name)) == kind.count for kind in chain_rules.KINDS)


def test_a_line_says_all_of_a_chain() -> None:
    for entry in ENTRIES:
        assert chain.parse(entry.line, "line") == entry


@pytest.mark.parametrize("kind", chain_rules.KINDS, ids=lambda kind: kind.name)
def test_the_plan_joins_what_it_may(kind: chain_rules.ChainKind) -> None:
    joined = {}
    for entry in of_kind(kind.name):
        plan = NativeExecutor().session(entry.chain.graph(entry.name))
        joined[entry.name] = any(len(step.nodes) > 1 for step in plan.steps)
    may = True if kind.looks_up and cpu().isa.lookup else kind.joined
    assert set(joined.values()) == ({True, False} if may is None else {may}), joined


def test_means_lie_on_ties() -> None:
    """Where a tie rounds to shows only there: a tenth of all means at least."""
    tied, count = 0, 0
    for entry in of_kind("mean ties"):
        graph = entry.chain.graph(entry.name)
        _, values = chain.defined(graph, entry.chain.data())
        quantize = graph.nodes[3]
        (value,) = quantize.reads
        assert quantize.call is not None and graph.nodes[2].name == chain_rules.MEAN
        steps = logical(graph, values, value).astype(np.float64) / quantize.call.params.scale
        tied, count = tied + int((steps % 1 == 0.5).sum()), count + steps.size
    assert tied > count // 10 > 10


def test_floats_lie_along_channels_too() -> None:
    graphs = [entry.chain.graph(entry.name) for entry in of_kind("float")]
    floats = [(graph, node) for graph in graphs for node in graph.nodes if node.is_float]
    for name in (chain_rules.AVERAGE, chain_rules.GROUP_NORM, chain_rules.SUM, chain_rules.BILINEAR):
        assert {graph.place(node).packed for graph, node in floats if node.name == name} == {W, C}
    depths = {node.args[4] // node.args[6] % 4 for _, node in floats if node.name == chain_rules.GROUP_NORM}
    assert 3 in depths


def test_values_are_not_all_alike() -> None:
    several = 0
    for entry in ENTRIES:
        outputs, _ = chain.defined(entry.chain.graph(entry.name), entry.chain.data())
        several += min(len(np.unique(array)) for array in outputs) > 4
    assert several >= len(ENTRIES) * 4 // 5


def test_threads_change_no_byte() -> None:
    """One thread and the emulated kernels are tried with the rest of the corpus."""
    executor = NativeExecutor(3)
    assert failed(executor) == []
    last = of_kind("residual")[-1]
    plan = executor.session(last.chain.graph(last.name))
    assert max(part.threads for part in plan._parts if isinstance(part, Stretch)) == 3


def test_another_profile_is_compared_with_its_own_definition() -> None:
    executor = NativeExecutor()
    some = [entry for kind in chain_rules.KINDS for entry in of_kind(kind.name)[:1]]
    for entry in some:
        results = list(check_chain(entry, {"cpu": executor}, PROFILES["nvidia"]))
        assert [result.status for result in results] == ["same", "same"], results


@pytest.mark.long
def test_a_wrong_step_is_found_only_in_the_run_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_map_is_identity", lambda x, out: True)
    found = failed(NativeExecutor(), of_kind("max pool"))
    assert found and all(JOINED in result.message for result in found)
    assert all(
        "the route pool, kernel of refsim/exec/cpu/pool/kernel.py" in result.message for result in found
    )
    assert all(len(result.nodes) > 1 and result.pattern for result in found)
    monkeypatch.undo()
    right = bytewise.tables

    def tables(*given: Any) -> dict[int, bytewise.ByteTable]:
        return {at: replace(table, values=np.roll(table.values, 1)) for at, table in right(*given).items()}

    # which of the two is taken depends on the processor
    monkeypatch.setattr(bytewise, "tables", tables)
    monkeypatch.setitem(fusion.CLAMPS, chain_rules.HARDTANH, lambda args: (args[0], args[0]))
    assert failed(NativeExecutor(), of_kind("clamp"))


class Wrong(EmulatedExecutor):
    """Gives the words of int8 operators one place further, or another bit in the first float."""

    name = "wrong"

    def __init__(self, floats: bool) -> None:
        super().__init__()
        self.floats = floats

    def run_prepared(self, prepared, inputs):  # type: ignore[no-untyped-def]
        out = super().run_prepared(prepared, inputs)
        if self.floats and not out.desc.is_int8:
            out.raw[0] ^= 1
        elif not self.floats and out.desc.is_int8 and not prepared.call.op.takes_floats:
            out.raw[:] = np.roll(out.raw, 4)
        return out


def test_a_wrong_operator_is_named() -> None:
    (result,) = failed(Wrong(floats=False), of_kind("residual")[:1])
    assert (result.operator, result.nodes) == ("q8ta_conv2d_pw", (1,))
    assert result.differing > 100 and result.causes[0].name == "write out of bounds"


def test_a_wrong_float_operator_is_named() -> None:
    (result,) = failed(Wrong(floats=True), of_kind("clamp")[:1])
    assert (result.operator, result.differing) == ("q8ta_dequantize", 1)
    assert result.pattern and result.nodes == (1,)


def test_a_changed_digest_is_a_failure_of_the_definition() -> None:
    entry = ENTRIES[0]
    changed = ChainEntry(entry.number, entry.chain, "0" * 64)
    (result,) = check_chain(changed, {})
    assert (result.status, result.digest) == ("different", entry.sha256)


@pytest.mark.long
def test_a_smaller_shape_runs_in_memory_of_the_bound() -> None:
    entries = of_kind("two shapes")
    assert {entry.chain.smaller < entry.chain.shape for entry in entries} == {True}
    for entry in entries:
        (_, whole), (small, graph) = entry.chain.shapes(entry.name)
        assert graph.root is whole and small.shape == entry.chain.smaller == small.data().shape
        outputs, _ = chain.defined(whole, entry.chain.data())
        assert chain.digest(outputs) != entry.sha256

    class Stale(EmulatedExecutor):
        """Gives at every shape what lay in the memory of the first."""

        name = "stale"

        def run_prepared(self, prepared, inputs):  # type: ignore[no-untyped-def]
            out = super().run_prepared(prepared, inputs)
            key = (prepared.call.op.name, prepared.call.params)
            kept = self.__dict__.setdefault("kept", {}).setdefault(key, out)
            size = min(out.raw.size, kept.raw.size)
            if size < kept.raw.size:
                out.raw[:size] = kept.raw[:size]
            return out

    found = failed(Stale(), entries)
    for entry, result in zip(entries, found, strict=True):
        assert f"at {'x'.join(map(str, entry.chain.smaller))}" in result.message
