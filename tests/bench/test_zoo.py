"""The zoo's harness: limits, what is kept and taken up again, what a row means, reasons, the page. Without torch."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.zoo import __main__ as command
from bench.zoo import limited, results, stages
from bench.zoo.catalogue import MODELS, choose
from bench.zoo.harness import one
from bench.zoo.limited import Limits
from bench.zoo.model import SCHEMES
from bench.zoo.page import COLUMNS, PAGE, cells, page, summary
from bench.zoo.reasons import REASONS, Reason, stale, unexplained

MODEL = MODELS["espcn"]
DATA = Path(__file__).parents[1] / "data" / "models"
FILE = {
    "error": None,
    "torch": [],
    "nodes": 3,
    "operators": ["a", "b"],
    "delegates": 1,
    "outputs": [{"steps": 0.5}],
}


def row(name: str = MODEL.name, **parts: Any) -> dict[str, Any]:
    """A row of a model in which all is well."""
    return {
        "name": name, "family": MODELS[name].family, "scheme": "static int8", "seconds": 1.0,
        "made": {}, "executorch": {"error": None}, "lower": {"error": None, "graph": None},
        "theirs": FILE, "ours": FILE, **parts,
    }  # fmt: skip


# --- the catalogue ---------------------------------------------------------------------------------------


def test_catalogue() -> None:
    assert len(MODELS) >= 80
    for name, model in MODELS.items():
        assert (model.name, model.scheme in SCHEMES) == (name, True)
        assert name.replace("_", "").isalnum(), "it names a folder"


def test_models_are_chosen_by_name_or_family() -> None:
    assert [m.name for m in choose(["espcn"])] == ["espcn"]
    assert {m.family for m in choose(["audio", "det*"])} == {"audio", "detection"}
    assert [m.name for m in choose(["unet", "dscnn", "un*t"])] == ["unet", "dscnn"], (
        "in the order of the patterns"
    )
    assert [m.name for m in choose([])] == list(MODELS)
    with pytest.raises(ValueError, match="no model matches 'nothing'; families are"):
        choose(["audio", "nothing"])


# --- limits ----------------------------------------------------------------------------------------------


def sleeps() -> dict[str, Any]:
    time.sleep(60)
    return {}


def dies() -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGSEGV)
    return {}


def takes(megabytes: int) -> dict[str, Any]:
    return {"bytes": np.ones(megabytes << 20, np.uint8).nbytes}


def fails() -> dict[str, Any]:
    try:
        raise ValueError("this\n is wrong")
    except ValueError as error:
        raise RuntimeError("somewhere") from error


def sees_torch() -> dict[str, Any]:
    try:
        import torch  # noqa: F401
    except ImportError:
        return {"torch": False}
    return {"torch": True}


def test_a_process_that_takes_too_long_is_ended() -> None:
    assert limited.call(Limits(seconds=1), False, sleeps) == {"error": "Silent: no answer within 1 s"}


def test_a_process_that_dies_is_told() -> None:
    assert limited.call(Limits(), False, dies) == {"error": "Ended: signal 11"}


def test_memory_is_limited() -> None:
    assert limited.call(Limits(megabytes=2000), False, takes, 10) == {"bytes": 10 << 20}
    (error,) = limited.call(Limits(megabytes=2000), False, takes, 4000).values()
    assert error.startswith("MemoryError: more than 2000 MB")


def test_an_exception_is_one_line_with_its_place() -> None:
    (error,) = limited.call(Limits(), False, fails).values()
    assert error.startswith("ValueError: this is wrong (test_zoo.py:")


def test_torch_is_out_of_reach() -> None:
    assert limited.call(Limits(), False, sees_torch) == {"torch": False}


# --- one model -------------------------------------------------------------------------------------------


class Stages:
    """Stands in for the processes: answers by stage, and what was called."""

    def __init__(self, **answers: Any) -> None:
        self.answers, self.called = answers, []

    def __call__(self, limits: Limits, torch: bool, function: Any, *arguments: Any) -> dict[str, Any]:
        name = function.__name__
        self.called.append((name, torch))
        answer = self.answers.get(name, {"error": None} if name == "export" else {})
        if name in ("make", "export") and not answer.get("error"):
            folder = arguments[-1]
            (folder / (stages.MADE if name == "make" else stages.EXPORTED)).write_text(json.dumps(answer))
            (folder / (stages.OURS if name == "make" else stages.THEIRS)).touch()
        if name == "run" and "error" not in answer:
            return {file: answer.get(torch, FILE) for file in arguments[-1]}
        return answer


def test_what_was_made_is_used_again(tmp_path: Path) -> None:
    first, second, third = Stages(), Stages(), Stages()
    assert not results.wrong(one(MODEL, tmp_path, Limits(), call=first))
    assert not results.wrong(one(MODEL, tmp_path, Limits(), call=second))
    one(MODEL, tmp_path, Limits(), again=True, call=third)
    rest = [("lower", True), ("run", False)]
    assert first.called == third.called == [("make", True), ("export", True), *rest]
    assert second.called == rest


def test_torch_is_tried_where_an_operator_needs_it(tmp_path: Path) -> None:
    without = {**FILE, "error": "UnknownOperatorError", "torch": ["aten.sort"], "outputs": []}
    done = one(MODEL, tmp_path, Limits(), call=(fake := Stages(run={False: without, True: FILE})))
    assert fake.called[-2:] == [("run", False), ("run", True)]
    assert results.wrong(done) == {"torch": "aten.sort"}
    assert cells(done)[3:5] == ("no", "0.5")


def test_stages_that_fail(tmp_path: Path) -> None:
    done = one(MODEL, tmp_path / "a", Limits(), call=Stages(make={"error": "Silent"}))
    assert results.wrong(done) == {"made": "Silent"}
    done = one(MODEL, tmp_path / "b", Limits(), call=Stages(run={"error": "Ended: signal 11"}))
    assert results.wrong(done)["run"] == "Ended: signal 11"
    done = one(MODEL, tmp_path / "d", Limits(), call=Stages(export={"error": "AssertionError"}))
    assert results.wrong(done) == {"executorch": "AssertionError"} and done["theirs"] is None
    done = one(MODEL, tmp_path / "c", Limits(), call=Stages(lower={"error": "GraphError"}))
    assert results.wrong(done) == {"lower": "GraphError"}


def test_an_output_that_is_off_has_every_operator_checked(tmp_path: Path) -> None:
    off = {**FILE, "outputs": [{"steps": 7.0}]}
    done = one(MODEL, tmp_path, Limits(), call=(fake := Stages(run={False: off}, check={"wrong": []})))
    assert fake.called[-1] == ("check", True) and done["check"] == {"wrong": []}
    assert cells({**done, "check": {"outputs": [{"steps": 0.25}]}})[4:6] == ("7", "0.25")
    assert one(MODEL, tmp_path, Limits(), call=Stages())["check"] is None


def test_a_real_file_runs_and_is_compared(tmp_path: Path) -> None:
    with np.load(DATA / "linear_head.io.npz") as io:
        arrays = {"in0": io["in0"], "out0": io["torch0"]}
    np.savez(tmp_path / stages.DATA, **arrays)
    (tmp_path / stages.MADE).write_text(json.dumps({"scales": [None]}))
    (tmp_path / stages.THEIRS).write_bytes((DATA / "linear_head.pte").read_bytes())
    (tmp_path / stages.OURS).write_bytes(b"no file")
    found = limited.call(Limits(), False, stages.run, tmp_path, [stages.THEIRS, stages.OURS])
    theirs, ours = found[stages.THEIRS], found[stages.OURS]
    assert (theirs["error"], theirs["nodes"], theirs["torch"]) == (None, 5, [])
    assert [(each["steps"], each["same"]) for each in theirs["outputs"]] == [(0.0, True)]
    assert ours["error"].startswith("FormatError") and ours["error_typed"]


# --- steps -----------------------------------------------------------------------------------------------


def test_steps() -> None:
    torchs = np.array([0.0, 1.0, 2.0, 5.1], np.float32)
    ours = torchs + np.array([0, 0.5, 0, 0], np.float32)
    assert stages.compare(ours, torchs, 0.25) == {"kind": "int8", "steps": 2.0, "differ": 0.25, "same": False}
    assert stages.compare(ours, torchs, None)["steps"] == pytest.approx(0.5 / (5.1 / 255), rel=1e-6)
    assert stages.compare(torchs, torchs, None) == {
        "kind": "float",
        "steps": 0.0,
        "differ": 0.0,
        "same": True,
    }
    assert stages.compare(np.array([3]), np.array([5]), None)["steps"] == 2
    assert stages.compare(ours[:2], torchs, None)["steps"] is None
    for same, steps in ((np.nan, 0.0), (np.inf, None)):
        assert stages.compare(np.array([same, 1]), np.array([np.nan, 1]), None)["steps"] == steps


# --- results ---------------------------------------------------------------------------------------------


def test_the_last_row_of_a_model_counts_and_half_a_line_none(tmp_path: Path) -> None:
    path = tmp_path / "out" / "zoo.jsonl"
    assert results.read(path) == {}
    results.append(path, row(seconds=1.0))
    results.append(path, row(seconds=2.0))
    with path.open("a") as file:
        file.write('{"name": "uns')
    results.append(path, row("dscnn"))
    assert {name: each["seconds"] for name, each in results.read(path).items()} == {
        "espcn": 2.0,
        "dscnn": 1.0,
    }


def test_what_falls_short() -> None:
    off = {**FILE, "outputs": [{"steps": 0.0}, {"steps": 7.0}]}
    assert results.wrong(row()) == {}
    assert results.wrong(row(theirs=off)) == {"steps": "output 1: 7 steps"}
    assert results.wrong(row(ours=off)) == {"own file": "output 1: 7 steps"}
    crash = {"executorch": "AssertionError"}
    failed = {"executorch": {"error": "AssertionError"}, "theirs": None}
    assert results.wrong(row(**failed)) == crash
    assert results.wrong(row(**failed, ours=off)) == {**crash, "steps": "output 1: 7 steps"}
    assert results.wrong(row(lower={"error": None, "graph": "1 relu"})) == {"graph": "1 relu"}


def test_reasons() -> None:
    rows = {"espcn": row(), "dscnn": row("dscnn", lower={"error": None, "graph": "1 relu"})}
    reasons = (Reason("graph", "a relu", "dscnn"), Reason("steps", "ties", "espcn"))
    assert list(unexplained(rows, ())) == ["dscnn: graph: 1 relu"]
    assert list(unexplained(rows, reasons)) == []
    assert list(stale(rows, reasons)) == ["espcn: the reason for 'steps' no longer applies"]


def test_the_table_of_reasons_names_what_there_is() -> None:
    for reason in REASONS:
        assert reason.aspect in results.ASPECTS
        assert set(reason.names()) <= set(MODELS)


# --- the command and the page ----------------------------------------------------------------------------


def test_the_command_takes_up_where_it_was_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, ran = tmp_path / "zoo.jsonl", []

    def fake(model: Any, folder: Path, limits: Limits, again: bool) -> dict[str, Any]:
        ran.append((model.name, limits.seconds, again))
        return row(model.name, lower={"error": None, "graph": "1 relu" if model.name == "m5" else None})

    monkeypatch.setattr(command, "one", fake)
    given = ["--results", str(path), "--seconds", "9", "--only", "dscnn", "m5"]
    results.append(path, row("dscnn"))
    assert command.main(given) == 0
    assert command.main([*given, "--only-failed"]) == 0
    assert command.main([*given, "--again"]) == 0
    assert ran == [("m5", 9, False), ("m5", 9, False), ("dscnn", 9, True), ("m5", 9, True)]
    assert command.main([*given, "--check"]) == 1
    assert "m5: graph: 1 relu" in capsys.readouterr().out
    assert command.main([*given, "--renew", "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["dscnn", "m5"]
    with pytest.raises(SystemExit):
        command.main(["--only", "nothing"])


def test_page() -> None:
    rows = {"dscnn": row("dscnn", lower={"error": None, "graph": "1 relu"}), "espcn": row(theirs=None)}
    text = page(rows, (Reason("graph", "a relu stays", "dscnn"),))
    assert "| dscnn | 3 | 2 | yes | 0.5 |  | no |" in text
    assert "| espcn | 3 | 2 | yes | 0.5 |  | - |" in text
    assert "| dscnn | graph | a relu stays |" in text
    assert dict(summary(list(rows.values())))["the same graph as ExecuTorch's"] == "0 of 1 (0 %)"
    assert "no reason is known" in page(rows, ())


@pytest.mark.skipif(not PAGE.exists(), reason="docs/zoo.md was not written yet")
def test_the_committed_page_has_no_model_that_there_is_not() -> None:
    lines = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    tables = [[cell.strip("| ") for cell in line] for line in lines if len(line) == len(COLUMNS)]
    names = {line[0] for line in tables} - {"model", "---"}
    assert names <= set(MODELS)
    assert "no reason is known" not in PAGE.read_text()
