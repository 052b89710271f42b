"""What becomes of a changed source: how it is judged, and how the verdicts are kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mutants import objects, page, record, tree, verb
from mutants.generated import naming, reports, sample, trial
from mutants.generated.change import Change
from mutants.tree import CHECKOUT
from refsim.exec.cpu import compiled
from refsim.exec.cpu.job import parts
from refsim.exec.process import ProcessError
from refsim.golden.chain import defined
from refsim.golden.store import Corpus
from refsim.graph.interpreter import logical


def test_machine_code_is_shared_where_the_text_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, made = compiled._object, list[str]()

    def counted(name: str, *rest: Any) -> bytes:
        made.append(name)
        return plain(name, *rest)

    monkeypatch.setenv(objects.FOLDER, str(tmp_path))
    monkeypatch.setattr(compiled, "_object", counted)
    objects.install()
    first = compiled._object("parts", parts, {})
    assert compiled._object("parts", parts, {}) == first and made == ["parts"]
    compiled._object("others", parts, {})
    assert made == ["parts", "others"] and len(list(tmp_path.iterdir())) == 2


@pytest.mark.long
def test_a_wrong_lane_is_noticed_and_named_at_its_place() -> None:
    lanes = (each for each in sample.every("emulated").values() if each.file == "refsim/core/lanes.py")
    change = next(each for each in lanes if each.scope == "lane" and each.kind == "operator")
    found = trial.run("emulated", change)
    assert found.verdict == trial.CORPUS and found.by and found.noticed, found
    assert found.cause and found.place == naming.RIGHT, found


@pytest.mark.long
def test_a_program_that_cannot_run_does_not_count() -> None:
    source = Path(__file__).parents[2] / "refsim/ops/q8ta_relu.py"
    text = source.read_text()
    at = text.index("push[", text.index("def kernel("))
    change = Change("refsim/ops/q8ta_relu.py", text, at, at + 4, "pusch", "index", "kernel", "push")
    found = trial.run("emulated", change)
    assert found.verdict == trial.INVALID and not found.noticed, found


#: What was said in a run whose checkout others worked in, and of what it says nothing.
_LACKING = {
    "exit status 1: /opt/python3: No module named mutants.runner": "mutants.runner",
    f"exit status 1: line 17 | ImportError: cannot import name 'objects' from 'mutants' ({CHECKOUT}/tests)": "mutants",
    f"FormatError: {CHECKOUT}/golden/digests/q8ta_add.jsonl: cannot be read; got no such file": (
        "golden/digests/q8ta_add.jsonl"
    ),
    "exit status 4: ERROR: file or directory not found: tests/ops/test_launches.py": "tests/ops/test_launches.py",
    "ModuleNotFoundError: No module named 'refsim.graph.aliases'": "refsim.graph.aliases",
    # of the change itself, or of the machine
    "ImportError: cannot import name 'ALIGN' from 'refsim.core.lifetimes'": "",
    "ModuleNotFoundError: No module named 'torch'": "",
    "FormatError: /tmp/dump/5.bin: cannot be read; got no such file": "",
    "AssertionError: assert 'no such file' in 'tests/data/net.pte: too short'": "",
    "12 differ": "",
}


@pytest.mark.parametrize("said, lacks", _LACKING.items())
def test_what_the_checkout_lacks_is_told_from_what_a_change_does(said: str, lacks: str) -> None:
    assert tree.lacking(said) == lacks


@pytest.mark.parametrize("times", [1, 2])
def test_without_the_files_of_the_checkout_nothing_is_said_of_a_change(
    monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """It is tried once more, and then it is an error of the run."""
    area, change = sample.drawn(1, 1, ("graph",))[0]
    said = ["exit status 1: /opt/python3: No module named mutants.runner"] * times
    failed = [trial.Verdict(change.id, area, "", trial.CORPUS, said=each) for each in said]
    right = trial.Verdict(change.id, area, "", trial.LIVES)
    rest = iter([*failed, right])
    monkeypatch.setattr(trial._Trial, "verdict", lambda *_: next(rest))
    if times == 1:
        assert trial.run(area, change).verdict == trial.LIVES
    else:
        with pytest.raises(ProcessError, match="for want of a file of the checkout"):
            trial.run(area, change)
    assert len(list(rest)) == (0 if times == 1 else 1)


def test_the_first_wrong_value_of_a_chain_is_explained(tmp_path: Path) -> None:
    """A chain's digest says that its outputs are wrong; the report says which operator's bytes are, and how."""
    entry = next(entry for entry in Corpus(CHECKOUT / "golden").chains() if len(entry.chain.links) > 3)
    graph, data = entry.chain.graph(entry.name), entry.chain.data()
    values = {0: data, **defined(graph, data)[1]}
    node = next(node for node in graph.nodes if node.call is not None and node.call.out.is_int8)
    for value in values:
        array = logical(graph, values, value)
        if value >= node.outputs[0]:  # what reads it is wrong as well
            array = np.zeros_like(array)
        np.save(tmp_path / f"value-{value}.npy", array)
    report = reports.of_chain(tmp_path, entry.name)
    assert (
        report is not None and report.title == f"value {node.outputs[0]} of node {node.number}, {node.name}"
    )
    assert report.evidence.bound is not None and report.causes and report.causes[0].exact
    np.save(tmp_path / f"value-{node.outputs[0]}.npy", logical(graph, values, node.outputs[0]))
    later = reports.of_chain(tmp_path, entry.name)
    assert later is not None and later.title != report.title


def test_verdicts_are_kept_and_read_again(tmp_path: Path) -> None:
    rows = [
        trial.Verdict("a", "native", "what", trial.CORPUS, causes=("x",)),
        trial.Verdict("b", "graph", "w", "survived"),
        trial.Verdict("c", "emulated", "w", trial.TESTS),
        *(
            trial.Verdict(
                str(k), "emulated", "w", trial.CORPUS, cause="x" * (k < 2), place=place, reports=(k, 10.0 - k)
            )
            for k, place in enumerate((naming.RIGHT, naming.AMONG_EQUALS, naming.BY_REPAIR, naming.UNTOLD))
        ),
    ]
    path = tmp_path / "verdicts"
    path.write_text("".join(json.dumps(vars(each)) + "\n" for each in rows))
    assert record.read_verdicts(path) == rows
    totals = {total.area: total for total in record.totals(rows)}
    assert (page.meant(totals["all"]), totals["all"].noticed, totals["native"].noticed) == (7, 6, 1)
    emulated = totals["emulated"]
    assert (emulated.noticed, emulated.reported, emulated.named) == (5, 4, 2)
    assert (emulated.placed, emulated.among_equals, emulated.repaired, emulated.places) == (1, 2, 3, 4)
    assert (emulated.seconds, totals["native"].seconds) == ((7.0, 10.0), None)


def test_what_only_a_choice_shows_is_counted_apart() -> None:
    """The records of plans and launches notice any other choice, which says less than a wrong byte."""
    rows = [
        trial.Verdict("a", "native", "what", trial.TESTS, f"{record.CHOICES[0]}::test_x[avx2-1]"),
        trial.Verdict("b", "native", "what", trial.TESTS, "tests/exec/cpu/test_runner.py::test_y"),
        trial.Verdict("c", "graph", "what", trial.CORPUS, "q8ta_add/0001"),
    ]
    assert (record.total("all", rows).noticed, record.by_choice(rows)) == (3, 1)
    assert "1 changed nothing but a choice" in page.choices(rows) and "2 of 2" in page.choices(rows)
    assert all((CHECKOUT / test.partition("::")[0]).is_file() for test in record.CHOICES)


def test_a_line_that_was_cut_off_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "verdicts"
    first, second = (trial.Verdict(id, "native", "what", trial.CORPUS) for id in "ab")
    record.append(path, first)
    path.write_text(path.read_text() + '{"id": "b", "ar')
    assert record.read_verdicts(path) == [first]
    record.append(path, second)
    assert record.read_verdicts(path) == [first, second]


@pytest.mark.long
def test_what_fails_here_stops_no_other_change(tmp_path: Path) -> None:
    """Verdicts are kept as they are found, and a second run tries only the others."""
    path = tmp_path / "verdicts"
    good = [row for row in sample.drawn(12, 3, ("emulated",)) if row[1].file.startswith("refsim/ops/q8ta_")][
        :2
    ]
    stale = replace(good[0][1], source=good[0][1].source + "# not what the file holds\n", kind="removed")
    stale = replace(stale, begin=len(stale.source) - 4, end=len(stale.source) - 1)
    rows = [("emulated", stale), *good]
    with pytest.raises(ProcessError, match=f"1 changes could not be tried.*{stale.id}"):
        list(verb._verdicts(rows, 2, str(path), tests=False))
    kept = {each.id for each in record.read_verdicts(path)}
    assert kept == {change.id for _, change in good}
    assert [each.id for each in verb._verdicts(good, 2, str(path), tests=False)] == [c.id for _, c in good]
    assert len(record.read_verdicts(path)) == len(good)
