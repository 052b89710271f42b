"""golden regen, new, coverage, list and show: the corpus written from its rules, and how cases are found."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from examples import LINEAR, SMALL_CORPUS, UNARY
from saved import contents

from refsim.cli._golden_cases import ASKED
from refsim.core.layout import layout
from refsim.core.result import MOST_SHOWN
from refsim.exec.cpu.isa import ISAS
from refsim.golden import coverage, regen, route_coverage, rules
from refsim.golden.named import open_case
from refsim.golden.rules import RULES, case
from refsim.golden.store import SUMS, Corpus, sums_of
from refsim.ops.base.case import Case

OP = UNARY.name
BOTH = " ".join(SMALL_CORPUS)
DIGESTS, STORED = f"digests/{OP}.jsonl", f"cases/{OP}.zip"


@pytest.fixture
def shrink(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """The rules give so many cases of each operator of the small corpus: first as many as it has."""

    def count(spread: int) -> None:
        for name in SMALL_CORPUS:
            monkeypatch.setitem(rules.RULES, name, replace(rules.RULES[name], spread=spread, hard=()))

    count(26)
    return count


def test_regen_shows_what_changes_and_notes_why(small: Path, refsim, shrink) -> None:
    shrink(30)
    dry = refsim(f"golden regen {OP} --root {small} --dry-run")
    assert dry.status == 1 and f"{OP}: 4 added: {OP}/0026" in dry.out
    assert Corpus(small).damaged() == []
    done = refsim(f"golden regen {OP} --root {small} --reason", "more of\nrelu")
    assert done.status == 0 and Corpus(small).damaged() == []
    assert len(list(Corpus(small).entries(OP))) == 30
    assert f": more of relu\n\n- {OP}: 4 added" in (small / regen.CHANGELOG).read_text()


def test_regen_tells_changed_bytes_from_redrawn_cases(small: Path, shrink) -> None:
    path = small / DIGESTS
    rows = [json.loads(text) for text in path.read_text().splitlines()]
    rows[2]["sha256"] = "0" * 64
    rows[4]["seed"] += 1
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    shrink(25)
    change = regen.plan(OP, Corpus(small)).change
    assert change.changed == [f"{OP}/0002"] and change.redrawn == [f"{OP}/0004"]
    assert change.removed == [f"{OP}/0025"] and change.added == []


def _another_sum(small: Path) -> None:
    rows = (small / "SHA256SUMS").read_text().splitlines()
    (small / "SHA256SUMS").write_text("\n".join([*rows[:-1], "0" * 64 + rows[-1][64:]]) + "\n")


def _behind_the_last_line(small: Path, data: bytes) -> None:
    (small / DIGESTS).write_bytes((small / DIGESTS).read_bytes() + data)


#: As after a regen that was killed between two files: the files and SHA256SUMS do not fit each other.
DAMAGE: dict[str, Callable[[Path], object]] = {
    "digests": lambda small: shutil.copy(small / f"digests/{LINEAR.name}.jsonl", small / DIGESTS),
    "line": lambda small: _behind_the_last_line(small, b"x"),
    "byte": lambda small: _behind_the_last_line(small, b"\xff"),
    "zip": lambda small: (small / STORED).write_bytes(b"PK"),
    "missing": lambda small: (small / STORED).unlink(),
    "sums": _another_sum,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_regen_repairs_what_verify_sees(damage: str, small: Path, refsim, shrink) -> None:
    good = {path: data for path, data in contents(small).items() if path.suffix != ".md"}
    DAMAGE[damage](small)
    assert Corpus(small).damaged()
    dry = refsim(f"golden regen {BOTH} --root {small} --dry-run")
    assert dry.status == 1
    if damage in ("line", "byte"):
        read = refsim(f"golden verify {OP} --root {small}")
        read.refused(f"need refsim golden regen {OP} --reason TEXT" if damage == "line" else DIGESTS)
        assert dry.out == f"{OP}: 1 damaged: {DIGESTS}:27: not a line of digests\n"
    done = refsim(f"golden regen {BOTH} --root {small} --reason repair")
    assert done.status == 0 and "nothing would change" not in done.out and Corpus(small).damaged() == []
    assert good == {path: path.read_bytes() for path in good}
    before = contents(small)
    again = refsim(f"golden regen {BOTH} --root {small} --reason nothing")
    assert (again.status, again.out) == (0, "nothing would change\n") and contents(small) == before


def test_regen_writes_no_digest_for_a_damaged_file_of_another(small: Path, refsim, shrink) -> None:
    other = small / "cases" / f"{LINEAR.name}.zip"
    other.write_bytes(other.read_bytes() + b"x")
    done = refsim(f"golden regen {OP} --root {small} --reason x")
    done.refused("other files do not match SHA256SUMS; got cases/q8ta_linear.zip: changed")
    (small / "stray.bin").write_bytes(b"1")
    done = refsim(f"golden regen {BOTH} --root {small} --reason x")
    assert "SHA256SUMS: stray.bin: not listed" in done.out and Corpus(small).damaged() == []


@pytest.mark.long
def test_a_regen_that_is_killed_is_done_or_not(small: Path, shrink) -> None:
    shrink(30)
    plans = [regen.plan(name, Corpus(small)) for name in SMALL_CORPUS]
    folder = small.parent / "again"
    seen = set()
    for turn in range(30):
        shutil.copytree(small, folder)
        child = os.fork()
        if child == 0:
            regen.write(folder, plans, "killed")
            os._exit(0)
        time.sleep(turn * 0.001)
        if turn < 29:  # the last one comes to its end
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        corpus = Corpus(folder)
        assert corpus.damaged() == []
        counts = {len(list(corpus.entries(name))) for name in SMALL_CORPUS}
        assert counts in ({26}, {30})
        seen |= counts
        regen.write(folder, plans, "again")
        assert Corpus(folder).damaged() == [] and not list(folder.glob(".*"))
        shutil.rmtree(folder)
    assert seen == {26, 30}


def test_a_mistyped_root_is_no_corpus(tmp_path: Path, refsim, shrink) -> None:
    typo = tmp_path / "goldne"
    refsim(f"golden regen {OP} --root {typo} --reason x").refused("no corpus there")
    refsim(f"golden new {OP} --root {typo}").refused("no corpus there")
    assert not typo.exists()
    assert refsim(f"golden regen {OP} --root {typo} --reason x --new").status == 0
    assert Corpus(typo).damaged() == []


def test_new_makes_a_missing_operator(small: Path, refsim, shrink) -> None:
    for name in (DIGESTS, STORED):
        (small / name).unlink()
    (small / SUMS).write_bytes(sums_of(small))
    assert refsim(f"golden new {OP} --root {small}").status == 0
    assert refsim(f"golden verify {OP} --root {small} --workers 1 --json").json["same"]


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
    holes = coverage.count(kept)[some].holes()
    assert any(hole.endswith((feature.name, "no case")) for hole in holes)


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
