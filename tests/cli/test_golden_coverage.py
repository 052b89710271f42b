"""golden coverage and export: what the corpus has, and which of it goes to a device."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from refsim.core.result import MOST_SHOWN
from refsim.exec.cpu.isa import ISAS
from refsim.golden import coverage, route_coverage, rules
from refsim.ops.base.case import Case


@pytest.mark.long
def test_a_hole_fails(small: Path, refsim) -> None:
    done, text = (refsim(f"golden coverage --root {small}", *form) for form in (["--json"], []))
    holes = len(done.json["holes"])
    assert text.out.count("\nhole: ") == MOST_SHOWN < holes
    assert f"\n... and {holes - MOST_SHOWN} more (--json lists all)\n" in text.out
    assert done.status == 1 and "q8ta_add 4W4C 4W4C -> 4W4C: no case" in done.json["holes"]
    full = refsim("golden coverage --json")
    assert full.status == 0 and full.json["holes"] == []


@cache
def _cases(op: str) -> tuple[Case, ...]:
    return tuple(rules.cases(op))


@pytest.mark.few(10)
@pytest.mark.parametrize("feature", coverage.FEATURES, ids=lambda f: f.name)
def test_every_feature_would_be_missed(feature: coverage.Feature) -> None:
    """Without the cases that have it, some operator has a hole: no feature is vacuous."""
    ops = [name for name, op in rules.OPS.items() if feature.applies(op)]
    assert ops
    some = ops[0]
    kept = [case for case in _cases(some) if not feature.has(case)]
    assert len(kept) < rules.RULES[some].count
    holes = coverage.count(kept).holes()
    assert any(hole.startswith(some) and hole.endswith((feature.name, "no case")) for hole in holes)


@pytest.fixture(scope="module")
def table() -> route_coverage.RouteTable:
    hard = (rules.case(op, n) for op, rule in rules.RULES.items() for n in range(rule.spread, rule.count))
    return route_coverage.count(hard)


@pytest.mark.long
@pytest.mark.parametrize("feature", route_coverage.FEATURES, ids=lambda f: f.name)
def test_every_feature_would_be_missed_on_a_route(
    feature: route_coverage.RouteFeature, table: route_coverage.RouteTable
) -> None:
    left = Counter({key: n for key, n in table.found.items() if feature.name not in key[2]})
    holes = route_coverage.RouteTable(table.routes, left).holes()
    assert {hole.partition(":")[0] for hole in holes} == {
        f"{route} on {isa.name}"
        for isa in ISAS
        for route in route_coverage.ROUTES
        if route_coverage.has(isa, route)
        and any(feature.name in wanted for wanted in route_coverage.WANTED[route])
    }


@pytest.mark.long
def test_a_route_that_no_case_takes_is_a_hole(table: route_coverage.RouteTable) -> None:
    """Every native route of products, on each instruction set that has it."""
    for isa in ISAS:
        for route in route_coverage.ROUTES:
            taken = table.routes[isa.name, route]
            assert (taken >= 20) is route_coverage.has(isa, route), (isa.name, route, taken)
    left = Counter({key: n for key, n in table.found.items() if key[1] != "amx"})
    assert len(route_coverage.RouteTable(table.routes, left).holes()) == len(route_coverage.WANTED["amx"])
