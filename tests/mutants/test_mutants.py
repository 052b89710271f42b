"""The seeded bugs still apply and cover every kind; their record is complete, and its page is made of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from examples import LINEAR, UNARY

from mutants import cases, outcome, page, record
from mutants.bugs import BUGS, EXECUTORS, PLACES
from mutants.mutant import CASES, Mutant, edit
from mutants.run import run
from mutants.seeded import ALL, emulated, shaders
from mutants.tree import CHECKOUT, check, copy
from refsim.core.errors import FormatError
from refsim.golden.rules import RULES
from refsim.ops.base.registry import OPS
from refsim.ops.base.traits import Family

RELU = ALL["cpu-N5-relu"]
EMULATED = "refsim/exec/emulated.py"


def test_all_apply() -> None:
    for mutant in ALL.values():
        check(mutant)
        assert mutant.bug in BUGS and mutant.causes, mutant.id
        assert all(change.anchor != change.replacement for change in mutant.edits), mutant.id
        assert mutant.stage != CASES or mutant.subject in RULES, mutant.id


def test_every_kind_is_seeded_wherever_it_can_be() -> None:
    seeded = {(mutant.bug, mutant.place) for mutant in ALL.values()}
    assert seeded == {(bug.id, place) for bug in BUGS.values() for place in bug.places}
    for bug in BUGS.values():
        assert set(bug.places) <= set(PLACES)
        assert bool(bug.elsewhere) == (not set(EXECUTORS) <= set(bug.places)), bug


def test_a_new_operator_gets_the_bugs_that_follow_from_what_it_says() -> None:
    new = (
        replace(LINEAR, name="q8ta_attention", family=Family.SHUFFLE),  # a family that had no such sums
        replace(LINEAR, name="q8ta_deconv", transposed=True),
        replace(LINEAR, name="q8ta_row", one_row=True),  # stands back behind one that takes more rows
    )
    here = {mutant.id for mutant in emulated.derived(OPS.values())}
    assert {mutant.id for mutant in emulated.derived((*OPS.values(), *new))} - here == {
        "cpu-I1-q8ta_attention",
        "cpu-N6-q8ta_attention",
        "cpu-I1-q8ta_deconv",
    }
    device = {mutant.id for mutant in shaders.derived((*OPS.values(), *new))}
    assert device - {mutant.id for mutant in shaders.derived(OPS.values())} == {"gpu-N6-attention"}
    # what quotes a kernel's own source is seeded where the kernel is written like the others
    assert not emulated.derived([replace(UNARY, name="q8ta_no_such_file")])


@pytest.mark.parametrize(("anchor", "found"), [("no such line", "0 times"), ("import", "times")])
def test_an_edit_that_does_not_apply_is_an_error(anchor: str, found: str) -> None:
    with pytest.raises(FormatError, match=found):
        run(replace(RELU, edits=(edit(EMULATED, anchor, ""),)))
    with pytest.raises(FormatError, match="no such file"):
        check(replace(RELU, edits=(edit("refsim/nothing.py", anchor, ""),)))


def test_a_copy_differs_in_the_edit_alone(tmp_path: Path) -> None:
    copy(RELU, tmp_path)
    (change,) = RELU.edits
    changed = (tmp_path / change.file).read_text()
    assert changed == (CHECKOUT / change.file).read_text().replace(change.anchor, change.replacement)
    assert change.replacement in changed
    for name in ("refsim/core/qmath.py", "shaders/q8ta_add.comp"):
        assert (tmp_path / name).read_bytes() == (CHECKOUT / name).read_bytes()


def test_cases_are_spread() -> None:
    for op in {mutant.subject for mutant in ALL.values() if mutant.stage == CASES}:
        few = cases.chosen(op)[: cases.FEW]
        assert len({name for name, _ in few}) == cases.FEW
        assert len({case.style for _, case in few}) == 5


# --- what becomes of a mutant ----------------------------------------------------------------------------


def seeded(anchor: str, replacement: str, file: str = EMULATED) -> outcome.Outcome:
    mutant = Mutant("test", "N5", UNARY.name, ("on purpose",), (edit(file, anchor, replacement),))
    return run(mutant, count=2)


@pytest.mark.long
@pytest.mark.search(1)
def test_different_bytes_kill() -> None:
    found = run(RELU)
    assert found.how == outcome.KILLED and found.named and found.case.startswith(f"{UNARY.name}/")


@pytest.mark.long
def test_what_changes_nothing_survives() -> None:
    found = seeded("        x, y, z = launch.reached\n", "        x, y, z = tuple(launch.reached)\n")
    assert not found.killed and found.tried == len(cases.chosen(UNARY.name, 2)) and found.rank is None


def test_a_typed_error_kills_and_names_the_cause() -> None:
    found = seeded(
        "        x, y, z = launch.reached\n",
        "        from refsim.core.errors import ShapeError\n        raise ShapeError('here', 'on purpose')\n",
    )
    assert (
        found.how == outcome.REFUSED and found.rank == 1 and "ShapeError: here: on purpose" in found.message
    )


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("import os; os._exit(9)", "exit status 9"),
        ("import os; os.abort()", "signal 6"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_crash_kills_the_copy_alone(end: str, said: str) -> None:
    found = seeded("        x, y, z = launch.reached\n", f"        {end}\n        x, y, z = 1, 1, 1\n")
    assert found.how == outcome.CRASHED and found.rank is None
    assert said in found.message


# --- the record ------------------------------------------------------------------------------------------


def test_the_record_is_of_these_mutants() -> None:
    rows = record.read()
    stale = [name for name, mutant in ALL.items() if rows.get(name, {}).get("digest") != mutant.digest]
    fix = " ".join(f"--id {name}" for name in stale)
    assert list(rows) == list(ALL) and not stale, f"fix: refsim mutate --record {fix}"


def test_the_page_shows_the_record() -> None:
    rows = list(record.read().values())
    assert page.path().read_text() == page.page(rows), "fix: refsim mutate --record"


def test_every_mutant_was_killed_and_nine_in_ten_named() -> None:
    for place, mutants, killed, named in page.counts(list(record.read().values())):
        assert killed == mutants > 0 and 10 * named >= 9 * killed, place
