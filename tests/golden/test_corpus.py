"""The corpus itself: undamaged, without holes, as its rules make it, and equal on every executor.

REFSIM_GOLDEN=all checks every digest here; otherwise every seventh, and without the long tests every fourteenth.
Hard cases and chains are always checked, and by `refsim golden verify` all.
"""

from __future__ import annotations

import os

import pytest
from needed import needs_device

from refsim.exec.factory import executor_named
from refsim.golden import coverage, route_coverage, rules, verify
from refsim.golden.chain import CHAINS
from refsim.golden.store import Corpus, default_root
from refsim.ops.base.registry import OPS

CORPUS = Corpus(default_root())
EVERY = 1 if os.environ.get("REFSIM_GOLDEN") == "all" else 7


def test_files_are_as_listed() -> None:
    assert CORPUS.damaged() == []


def test_every_operator_has_a_rule_and_cases() -> None:
    assert sorted(OPS) == sorted(rules.RULES) == CORPUS.operators()


@pytest.mark.long
def test_there_are_no_holes() -> None:
    table = coverage.count(entry.case for op in CORPUS.operators() for entry in CORPUS.entries(op))
    assert [hole for row in table.values() for hole in row.holes()] == []
    hard = (
        e.case for op in CORPUS.operators() for e in CORPUS.entries(op) if e.number >= rules.RULES[op].spread
    )
    assert route_coverage.count(hard).holes() == []
    assert sum(row.cases for row in table.values()) >= 20_000
    assert sum(len(CORPUS.stored_names(op)) for op in CORPUS.operators()) >= 500


def test_it_stays_small() -> None:
    assert sum(path.stat().st_size for path in CORPUS.root.rglob("*") if path.is_file()) <= 25 << 20


@pytest.mark.parametrize("op", list(OPS))
def test_the_rules_still_make_it(op: str) -> None:
    count = 0
    for entry in CORPUS.entries(op):
        count += 1
        if entry.number % EVERY == 0:
            assert entry.case == rules.case(op, entry.number), entry.name
    assert count == rules.RULES[op].count


def check_all(executors: list[str], every: int = EVERY) -> None:
    def only(name: str) -> bool:
        op, _, number = name.rpartition("/")
        return (
            op == CHAINS
            or name.endswith(".bytes")
            or int(number) % every == 0
            or int(number) >= rules.RULES[op].spread
        )

    results = [
        r
        for rows in verify.run(CORPUS, verify.tasks(CORPUS, None, only), verify.Conditions(executors, 2))
        for r in rows
    ]
    failed = verify.failures(results)
    assert not failed, "\n".join(str(r.as_json()) for r in failed[:10])
    assert len(results) >= (1 + len(executors)) * 21_000 // every


def test_some_cases_on_the_cpu() -> None:
    check_all(["cpu", "cpu:emulated"], 14)


@pytest.mark.long
def test_every_case_on_the_cpu() -> None:
    check_all(["cpu", "cpu:emulated"])


@pytest.mark.long
def test_every_case_on_the_gpu_as_on_the_cpu() -> None:
    with needs_device():
        executor_named("gpu")
    check_all(["cpu", "gpu"])
