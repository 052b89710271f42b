"""golden coverage, list and show: what the corpus has, and how a case of it is found by what it is like."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from refsim.cli._golden_cases import ASKED
from refsim.core.layout import layout
from refsim.core.result import MOST_SHOWN
from refsim.exec.cpu.isa import ISAS
from refsim.golden import coverage, route_coverage, rules
from refsim.golden.named import open_case
from refsim.golden.rules import RULES, case
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


CONV = "q8ta_conv2d_dw"


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        (("--kernel", "3x3", "--stride", "2"), {"kernel_size": (3, 3), "stride": (2, 2)}),
        (("--stride", "2x1", "--dilation", "1"), {"stride": (2, 1), "dilation": (1, 1)}),
        (("--activation", "relu", "--where", "in_zp=-1"), {"activation": "relu", "in_zp": -1}),
        (("--where", "bias=true"), {"bias": True}),
    ],
)
def test_cases_are_listed_by_their_parameters(
    given: tuple[str, ...], fits: dict[str, object], refsim
) -> None:
    found = {row["case"] for row in refsim(f"golden list {CONV}", *given, "--json").json["cases"]}
    every = {f"{CONV}/{number:04}": case(CONV, number) for number in range(RULES[CONV].count)}
    assert found == {
        name for name, one in every.items() if fits.items() <= {**one.params, **one.features}.items()
    }
    assert found


def test_cases_are_listed_by_shape_layout_and_name(refsim) -> None:
    rows = refsim("golden list", "q8ta_add/00*", "-s", "*x8x*x*", "-l", "4C", "--json").json["cases"]
    assert rows and all(row["case"].startswith("q8ta_add/00") for row in rows)
    for row in rows:
        held = open_case(row["case"]).bound
        assert layout("4C") in {desc.layout for desc in held.call.tensors.values()}
        assert any(desc.shape[-3:-2] == (8,) for desc in held.call.descs.values())
        assert row["configuration"] == held.case.configuration


def test_a_long_list_is_cut(refsim) -> None:
    done = refsim("golden list --op q8ta_relu --limit 3")
    lines = [line for line in done.out.splitlines() if line.startswith("q8ta_relu/")]
    assert len(lines) == 3 and done.out.splitlines()[-1] == f"{RULES['q8ta_relu'].count} cases"
    refsim("golden list nonesuch").refused("golden list: no case fits; got nonesuch")
    refsim(f"golden list {CONV} --where x").refused("not NAME=VALUE")


def test_every_option_asks_for_a_parameter_of_some_operator() -> None:
    held = {name for op in RULES for name in case(op, 0).params}
    assert set(ASKED.values()) <= held


@pytest.mark.parametrize("verb", [("golden", "show"), ("inspect",)])
def test_a_case_is_shown(verb: tuple[str, ...], refsim) -> None:
    found = refsim(*verb, "q8ta_conv2d_pw/258", "--json").json
    one = case("q8ta_conv2d_pw", 258)
    assert found["call"]["configuration"] == one.configuration and found["call"]["data"]["seed"] == one.seed
    assert [row["name"] for row in found["call"]["tensors"]] == ["x", "out"]
    done = refsim(*verb, "q8ta_conv2d_pw/258")
    assert done.status == 0 and "run it: refsim replay q8ta_conv2d_pw/258" in done.out
    refsim(*verb, "q8ta_conv2d_pw/99999").refused("no such case")
