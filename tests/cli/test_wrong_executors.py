"""Executors whose kernel writes outside of its buffer, or of which no kernel ran: every verb that compares says so."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from examples import UNARY

from refsim.core.buffer import GUARD_WORDS, PackedBuffer
from refsim.core.errors import GuardError, IncompleteError, RawBufferError
from refsim.exec.emulated import EmulatedExecutor
from refsim.exec.executor import OURS, YOURS, Executor, Source
from refsim.exec.factory import executor_named
from refsim.exec.plugin import PluginExecutor
from refsim.golden.check import check_stored
from refsim.golden.named import open_case
from refsim.golden.store import Corpus, default_root
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call

CASE = f"{UNARY.name}/0003"


def two_dispatches() -> str:
    """A stored case of the first operator whose calls take two dispatches."""
    corpus = Corpus(default_root())
    for op in OPS:
        for name in corpus.stored_names(op)[:1]:
            if len(corpus.stored_case(name).bound.call.dispatches()) == 2:
                return name
    raise AssertionError


@pytest.fixture
def writing(miscomputed) -> Callable[..., None]:
    """Lets a kernel write a word outside of its output, and perhaps reverse its bytes."""

    def let(shader: str, at: int, reverse: bool = False) -> None:
        def spoil(out: PackedBuffer) -> None:
            if reverse:
                out.words.byteswap(inplace=True)
            out.memory[at] = 7
            out.check_guards(shader)

        miscomputed(shader, spoil)

    return let


@pytest.fixture
def broken(writing) -> None:
    writing(UNARY.name, -GUARD_WORDS + 2, reverse=True)


def test_replay_reports_both(broken, refsim) -> None:
    done = refsim(f"replay {CASE} -x cpu:emulated")
    assert done.status == 1
    assert "wrote behind the buffer" in done.out and "byte order: output bytes reversed" in done.out
    found = refsim(f"replay {CASE} -x cpu:emulated --json").json
    row = found["executors"]["cpu:emulated"]
    assert found["same"] is False and "wrote behind" in row["guard"] and row["report"]["causes"]


def test_golden_check_reports_both(broken) -> None:
    stored = open_case(CASE)
    _, result = check_stored(stored, None, {"cpu:emulated": EmulatedExecutor()})
    assert result.status == "error" and "wrote behind the buffer" in result.message
    assert result.differing > 0
    assert any(cause.name == "byte order" for cause in result.causes)


def test_compare_goes_on_and_reports_both(broken, refsim, mixed: str) -> None:
    done = refsim(f"compare {mixed} -x cpu,cpu:emulated")
    assert done.status == 1 and f"{UNARY.name}: wrote behind the buffer" in done.out
    assert "14 buffers on" in done.out and "byte order: output bytes reversed" in done.out
    content = refsim(f"compare {mixed} -x cpu,cpu:emulated --json").json
    assert content["same"] is False and len(content["guards"]) == 1 and content["first"]


def test_a_write_outside_alone_is_a_difference(refsim, mixed: str, writing) -> None:
    writing(UNARY.name, 0)
    done = refsim(f"compare {mixed} -x cpu,cpu:emulated --json")
    assert done.status == 1 and done.json["first"] is None and "wrote before" in done.json["guards"][0]
    done = refsim(f"replay {CASE} -x cpu:emulated --json")
    assert done.status == 1 and done.json["same"] is False


def test_the_second_dispatch_runs_though_the_first_wrote_outside(writing) -> None:
    stored = open_case(two_dispatches())
    first = stored.bound.call.dispatches()[0].launch.shader
    writing(first, -1)
    with pytest.raises(GuardError, match=f"{first}: wrote behind") as raised:
        EmulatedExecutor().run_call(stored.bound.call, stored.bound.inputs)
    assert raised.value.buffer == stored.expected


def test_the_error_travels_with_its_buffer() -> None:
    buffer = PackedBuffer.pack(np.ones((1, 4, 2, 2), np.int8), "4W4C")
    buffer.memory[0] = 1
    with pytest.raises(RawBufferError) as raised:
        buffer.check_guards("kernel")
    again = pickle.loads(pickle.dumps(raised.value))
    assert type(again) is GuardError and str(again) == str(raised.value) and again.buffer == buffer


# --- none of its kernels ran -----------------------------------------------------------------------------

NAME = "vendor"
HEAD = Path(__file__).parents[1] / "data" / "models" / "linear_head.pte"
VERBS = {
    "sweep": "sweep q8ta_linear -n 4 --workers 0 --failures new",
    "sweep beside another": "sweep q8ta_linear -n 4 --workers 0 --failures new -x cpu",
    "bisect": f"bisect {HEAD} --random 0",
    "repeat": f"repeat {HEAD} --random 0 -n 2",
    "compare": f"compare {HEAD} --random 0 -x cpu",
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
    assert refsim(f"{line} --json").json["kernels"][NAME] == dict(yours=3, ours=2, why=["no such kernel"])


def test_a_sweep_counts_what_it_does_not_compute_as_refused(refsim: Callable, opened: Callable) -> None:
    opened("q8ta_linear")
    given = "sweep q8ta_linear q8ta_relu -n 8 --workers 0 --failures new -x vendor --json"
    found = refsim(given).json
    rows = {row["operator"]: row for row in found["counts"]}
    refused, right = (rows[name]["statuses"] for name in ("q8ta_relu", "q8ta_linear"))
    assert refused["refused"] == rows["q8ta_relu"]["configurations"] > 0
    assert right["same"] == rows["q8ta_linear"]["configurations"] > 0
    assert found["refused"] == {"no such kernel": refused["refused"]} and found["status"] == 0
