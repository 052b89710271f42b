"""Changes are drawn alike everywhere, apply, and have cases and tests that reach them."""

from __future__ import annotations

import ast
import json

import pytest

from mutants import runner
from mutants.generated import own_tests, sample, targets, trial
from mutants.generated.targets import AREAS, Area, subjects
from mutants.mutant import Mutant
from mutants.tree import CHECKOUT, check
from refsim.cli import main
from refsim.core.errors import ParameterError
from refsim.exec.cpu.routes import RULES as RULES_OF_ROUTES
from refsim.golden.rules import RULES, case
from refsim.ops.base.binding import bind


@pytest.mark.long
def test_a_draw_repeats_and_has_every_part() -> None:
    drawn = sample.drawn(60, 7)
    assert drawn == sample.drawn(60, 7) and len(drawn) == 60
    assert {area for area, _ in drawn} == set(AREAS)
    assert [change.id for _, change in drawn] != [change.id for _, change in sample.drawn(60, 8)]
    for area, change in drawn:
        check(Mutant(change.id, change.kind, "", (), (change.edit,)))
        assert set(subjects(change, AREAS[area])) <= set(RULES)
        assert sample.named(change.id) == (area, change)


def test_what_draws_cases_is_no_kernel() -> None:
    """A function that is given random numbers makes the inputs of a case: another input is no bug."""
    found = {(change.file, change.scope) for change in sample.every("emulated").values()}
    for file in {file for file, _ in found}:
        for node in ast.walk(ast.parse((CHECKOUT / file).read_text())):
            if isinstance(node, ast.FunctionDef) and any(arg.arg == "rng" for arg in node.args.args):
                assert (file, node.name) not in found, node.name


def test_a_larger_draw_holds_the_smaller_one() -> None:
    few = {change.id for _, change in sample.drawn(20, 3, ("graph",))}
    assert few <= {change.id for _, change in sample.drawn(40, 3, ("graph",))}


def test_changes_that_are_known_to_be_equivalent_have_a_reason() -> None:
    for id, reason in trial.equivalent().items():
        assert len(reason) > 20 and id == id.strip(), id


@pytest.mark.parametrize("area", AREAS.values(), ids=AREAS)
def test_every_file_has_tests_and_its_own_come_first(area: Area) -> None:
    for source in area.files():
        file = str(source.relative_to(CHECKOUT))
        rows = own_tests.tests(area, file)
        assert rows, file
        for path, only in ((CHECKOUT / row.partition(" ")[0], row.partition(" ")[2]) for row in rows):
            files = path.rglob("*.py") if path.is_dir() else [path]
            held = [f"{part.name} {part.read_text()}" for part in files]
            words = set(only.split()) - {"and", "or", "not"}
            assert held and all(any(word in text for text in held) for word in words), (path, only)
    first = own_tests.tests(AREAS["native"], "refsim/exec/cpu/elementwise/lut.py")
    assert first.index("tests/exec/cpu/test_sums.py") < first.index("tests/exec/test_recorded_outputs.py")


def test_an_unknown_id_is_an_error() -> None:
    with pytest.raises(ParameterError, match="no such change"):
        sample.named("kernel-constant-00000000")


def test_forced_routes_are_routes_of_the_changed_file() -> None:
    known = {rule.route for rule in RULES_OF_ROUTES}
    for prefix, routes in targets._FORCED:
        assert set(routes) <= known and list((CHECKOUT / "refsim/exec/cpu").glob(f"{prefix}*")), prefix
    area, change = next(row for row in sample.drawn(60, 1, ("native",)) if "/amx/" in row[1].file)
    first, *rest = targets.conditions(change, AREAS[area])
    assert first.route == "amx_emulated" and tuple(rest) == AREAS[area].also


def test_cases_that_cannot_take_the_forced_route_are_left_out() -> None:
    runner_ = runner._opened("cpu", 1, "repack")
    calls = {op: bind(case(op, 0)).call for op in ("q8ta_clone", "q8ta_linear")}
    assert not runner._takes(runner_, calls["q8ta_linear"])
    assert all(runner._takes(runner._opened("cpu", 1, ""), call) for call in calls.values())
    taken = [runner._takes(runner_, bind(case("q8ta_clone", number)).call) for number in range(40)]
    assert any(taken) and not all(taken)


def test_the_command_lists_what_a_seed_draws(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutate", "--random", "4", "--seed", "5", "--area", "graph", "--list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["random"]
    assert len(rows) == 4 and all(row["area"] == "graph" and row["line"] > 0 for row in rows)
    assert main(["mutate", "--random", "4", "--part", "4/4", "--list"]) == 2
    assert [
        main(["mutate", *more, "--list"]) for more in (["--first", "2"], ["--no-tests"], ["--area", "graph"])
    ] == [2, 2, 2]
