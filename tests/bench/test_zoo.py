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
from bench.zoo.catalogue import MODELS
from bench.zoo.harness import one
from bench.zoo.limited import Limits
from bench.zoo.page import cells

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


# --- limits ----------------------------------------------------------------------------------------------


def sleeps() -> dict[str, Any]:
    time.sleep(60)
    return {}


def dies() -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGSEGV)
    return {}


def takes(megabytes: int = 4000) -> dict[str, Any]:
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


@pytest.mark.parametrize(
    ("limits", "work", "said"),
    [
        (Limits(seconds=1), sleeps, "Silent: no answer within 1 s"),
        (Limits(), dies, "Ended: signal 11"),
        (Limits(megabytes=2000), takes, "MemoryError: more than 2000 MB"),
        (Limits(), fails, "ValueError: this is wrong (test_zoo.py:"),
    ],
)
def test_what_ends_a_process_is_one_line(limits: Limits, work: Any, said: str) -> None:
    (error,) = limited.call(limits, False, work).values()
    assert error.startswith(said)


def test_a_process_may_take_less_than_its_limit() -> None:
    assert limited.call(Limits(megabytes=2000), False, takes, 10) == {"bytes": 10 << 20}


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
