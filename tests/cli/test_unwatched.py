"""Verbs that keep buffers also run a file as users do, where nobody watches, and tell outputs that are others then."""

from __future__ import annotations

from pathlib import Path

import pytest

from refsim.exec.cpu import NativeExecutor
from refsim.exec.cpu.plan import CpuPlan


class Wrong(CpuPlan):
    """Right only if somebody watches."""

    def run(self, inputs, number=0, observe=None):  # type: ignore[no-untyped-def]
        outputs = super().run(inputs, number, observe)
        return outputs if observe is not None else [-array for array in outputs]


@pytest.fixture
def wrong_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    def session(self, graph, watched=frozenset()):  # type: ignore[no-untyped-def]
        return Wrong(graph, self.options, watched)

    monkeypatch.setattr(NativeExecutor, "session", session)
    monkeypatch.setattr(NativeExecutor, "keeps_sessions", False)


@pytest.fixture
def model(models: Path) -> Path:
    return models / "linear_head.pte"


def test_right_plans_are_told(refsim, model: Path) -> None:
    golden = model.with_name("linear_head.dump.zip")
    run = refsim("run", model, "-i", model.with_name("linear_head.io.npz"), "--golden", golden, "--json")
    assert run.status == 0 and run.json["unwatched"] == {"cpu": []}
    compared = refsim("compare", model, "--random", 0, "-x", "cpu", "-x", "cpu:emulated", "--json")
    assert compared.status == 0 and compared.json["unwatched"] == {"cpu": []}  # the other prepares no graphs
    assert refsim("run", model, "--random", 0, "--json").json["unwatched"] == {}


@pytest.mark.usefixtures("wrong_plans")
def test_wrong_plans_are_told(refsim, model: Path, tmp_path: Path) -> None:
    golden = model.with_name("linear_head.dump.zip")
    given = ("-i", model.with_name("linear_head.io.npz"))
    for words in (
        ("run", model, *given, "--golden", golden),
        ("run", model, *given, "--dump", "q8ta", tmp_path / "dumps"),
        ("compare", model, *given, "-x", "cpu", "-x", "cpu:emulated"),
    ):
        done = refsim(*words, "--json")
        assert (done.status, done.json["same"], done.json["unwatched"]) == (1, False, {"cpu": ["out0"]})
    assert refsim("demo").status == 1
    assert "DIFFERENT bits in out0" in refsim("run", model, *given, "--golden", golden).out
