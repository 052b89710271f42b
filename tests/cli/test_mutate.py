"""mutate: what it runs, lists, records and refuses."""

from __future__ import annotations

import pytest
from examples import UNARY
from mutants import page, record, run, verb
from mutants.generated import sample
from mutants.mutant import Mutant, edit
from mutants.seeded import ALL

import refsim as package

CHEAP = ("cpu-N7-add", "cpu-N5-relu")
SAME = edit("refsim/exec/emulated.py", '    name = "cpu:emulated"', '    name = str("cpu:emulated")')
NOTHING = Mutant("test-nothing", "N5", UNARY.name, ("relu bound",), (SAME,))


@pytest.fixture
def survivor(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(ALL, NOTHING.id, NOTHING)
    return NOTHING.id


@pytest.mark.long
def test_two_mutants_end_to_end(refsim) -> None:
    done = refsim("mutate", *(f"--id={name}" for name in CHEAP), "--json")
    assert done.status == 0 and done.json["same"]
    found = {row["id"]: row for row in done.json["mutants"]}
    assert set(found) == set(CHEAP) and done.json["survived"] == done.json["unnamed"] == []
    for row in found.values():
        assert row["killed"] and row["how"] == "killed" and row["rank"] == 1
        assert row["causes"][0].startswith(row["true_causes"][0])
        assert row["case"].startswith(f"{row['subject']}/") and row["files"]


@pytest.mark.long
def test_a_survivor_is_listed_with_the_line_that_repeats_it(refsim, survivor: str) -> None:
    done = refsim(f"mutate --id {survivor} --id cpu-N7-add")
    assert done.status == 1
    assert f"survived: {survivor}\n  refsim mutate --id {survivor}\n" in done.out
    assert "1 of 2 killed; true cause among the first three of 1" in done.out
    assert done.err.endswith(f"rerun: refsim mutate --id {survivor} --id cpu-N7-add\n")


def test_list(refsim) -> None:
    done = refsim("mutate --list --json")
    assert [row["mutant"] for row in done.json["mutants"]] == list(ALL)
    text = refsim("mutate --list --bug N7 -x gpu")
    assert text.status == 0 and len(text.out.splitlines()) == 2
    row = "gpu-N7-add N7 gpu q8ta_add shaders/q8ta_add.comp"
    assert text.out.splitlines()[1].split() == row.split()


@pytest.mark.long
def test_what_cannot_run_here_is_left_out_aloud_unless_it_was_asked_for(refsim, monkeypatch) -> None:
    only = {name: ALL[name] for name in ("cpu-N7-add", "gpu-N7-add")}
    monkeypatch.setattr(verb, "ALL", only)
    monkeypatch.setattr(run, "missing", lambda place: "no device" if place == "gpu" else None)
    done = refsim("mutate --bug N7")
    assert done.status == 0 and "left out: mutants of gpu: no device" in done.out
    assert "1 of 1 killed" in done.out
    refsim("mutate -x gpu").refused("no device", status=3)
    monkeypatch.delitem(only, "cpu-N7-add")
    refsim("mutate --bug N7").refused("mutate: gpu: no device", status=3)


def test_what_needs_torch_names_the_command_that_installs_it(refsim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "find_spec", lambda name: None)
    refsim("mutate --bug G5").refused("torch is not installed (pip install 'refsim[torch]')", status=3)


@pytest.mark.long
def test_no_change_that_can_run_here_is_no_success(refsim, monkeypatch: pytest.MonkeyPatch) -> None:
    shaders = [row for row in sample.drawn(40, 0) if row[0] == "shaders"]
    monkeypatch.setattr(sample, "drawn", lambda *given: shaders)
    monkeypatch.setattr(run, "missing", lambda place: "no device")
    refsim("mutate --random", len(shaders)).refused("mutate: no device", status=3)


@pytest.mark.long
def test_recording(refsim, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(record, "seeded_path", lambda: tmp_path / "mutants.jsonl")
    monkeypatch.setattr(page, "path", lambda: tmp_path / "mutants.md")
    refsim("mutate --id cpu-N7-add --record")
    refsim("mutate --id cpu-N5-relu --record")
    rows = record.read()
    assert list(rows) == [name for name in ALL if name in CHEAP]
    assert "| CPU | 2 of 2 | 2 of 2 (100 %) |" in (tmp_path / "mutants.md").read_text()


def test_an_installed_package_says_that_it_needs_a_checkout(refsim, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(package, "__file__", str(tmp_path / "refsim" / "__init__.py"))
    refsim("mutate --list").refused("needs a checkout of the sources")
    assert refsim("mutate --help").status == 0
