"""An executor of which no kernel ran is not right: every verb that compares says so, with status 2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from refsim.core.errors import IncompleteError
from refsim.exec.executor import OURS, YOURS, Executor, Source
from refsim.exec.factory import executor_named
from refsim.exec.plugin import PluginExecutor
from refsim.ops.base.spec import Call

NAME = "vendor"
HEAD = "tests/data/models/linear_head.pte"
ROOT = Path(__file__).parents[2]
VERBS = {
    "sweep": "sweep q8ta_linear -n 4 --workers 0 --failures new",
    "sweep beside another": "sweep q8ta_linear -n 4 --workers 0 --failures new -x cpu",
    "bisect": f"bisect {ROOT / HEAD} --random 0",
    "repeat": f"repeat {ROOT / HEAD} --random 0 -n 2",
    "compare": f"compare {ROOT / HEAD} --random 0 -x cpu",
    "replay": "replay q8ta_linear/17",
}


class Few(PluginExecutor):
    """Takes the operators ``taken``; refsim's kernels compute the rest in its place, as with a folder of modules."""

    def __init__(self, taken: str) -> None:
        self.taken = taken
        super().__init__(self, NAME)

    def run(self, call, inputs):  # type: ignore[override]
        raise AssertionError("replaced below")

    def source(self, call: Call) -> Source:
        if call.op.name == self.taken:
            return Source(YOURS, ("theirs",))
        return Source(OURS, (call.op.name,), "no such kernel")

    def refusal(self, call: Call) -> str | None:
        return None

    def run_prepared(self, prepared, inputs):
        return self.ours.run_prepared(prepared, inputs)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Makes the name an executor that takes one operator."""
    monkeypatch.chdir(tmp_path)

    def put(taken: str) -> None:
        def named(name: str, *more: int) -> Executor:
            return Few(taken) if name == NAME else executor_named(name, *more)

        verbs = ("bisect", "repeat", "compare", "replay", "sweep")
        for module in (*(f"cli.{verb}" for verb in verbs), "sweep.executors"):
            monkeypatch.setattr(f"refsim.{module}.executor_named", named)
        monkeypatch.setattr("refsim.cli.sweep.foreign", lambda names: {n: "" for n in names if n == NAME})

    return put


@pytest.mark.parametrize("verb", VERBS)
def test_none_of_its_kernels_ran(verb: str, refsim: Callable, opened: Callable) -> None:
    opened("")
    line = f"{VERBS[verb]} -x {NAME}"
    done = refsim(line)
    assert done.status == 2 and "no such kernel" in done.err and "right:" not in done.out
    found = refsim(f"{line} --json").json
    assert found["status"] == 2 and found["error"]["type"] == IncompleteError.__name__
    assert not found.get("same"), "nothing that it brought was compared"


@pytest.mark.parametrize("verb", ["bisect", "repeat", "compare"])
def test_some_of_its_kernels_ran(verb: str, refsim: Callable, opened: Callable) -> None:
    opened("q8ta_linear")
    line = f"{VERBS[verb]} -x {NAME}"
    done = refsim(line)
    assert done.status == 0
    assert f"{NAME}: 2 of 5 operators ran on refsim's own kernels: no such kernel" in done.out
    assert refsim(f"{line} --json").json["kernels"] == {
        NAME: {"yours": 3, "ours": 2, "why": ["no such kernel"]}
    }


def test_a_sweep_counts_what_it_does_not_compute_as_refused(refsim: Callable, opened: Callable) -> None:
    opened("q8ta_linear")
    given = "sweep q8ta_linear q8ta_relu -n 8 --workers 0 --failures new -x vendor --json"
    found = refsim(given).json
    rows = {row["operator"]: row for row in found["counts"]}
    refused, right = (rows[name]["statuses"] for name in ("q8ta_relu", "q8ta_linear"))
    assert refused["refused"] == rows["q8ta_relu"]["configurations"] > 0
    assert right["same"] == rows["q8ta_linear"]["configurations"] > 0
    assert found["refused"] == {"no such kernel": refused["refused"]} and found["status"] == 0
