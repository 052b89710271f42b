"""A kernel that writes outside of its buffer: that is reported, and what it wrote inside is compared all the same."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from examples import UNARY

from refsim.core.buffer import GUARD_WORDS, PackedBuffer
from refsim.core.errors import GuardError, RawBufferError
from refsim.exec.emulated import EmulatedExecutor
from refsim.golden.named import open_case
from refsim.golden.store import Corpus, default_root
from refsim.ops.base.registry import OPS

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
def broken(monkeypatch: pytest.MonkeyPatch):
    """The emulated executor: one kernel reverses bytes and writes a word behind its output."""
    honest = EmulatedExecutor.run

    def run(self, launch, inputs, names=(UNARY.name,)):
        out = honest(self, launch, inputs)
        if launch.shader in names:
            out.words.byteswap(inplace=True)
            out.memory[-GUARD_WORDS + 2] = 7
            out.check_guards(launch.shader)
        return out

    monkeypatch.setattr(EmulatedExecutor, "run", run)


def test_replay_reports_both(broken, refsim) -> None:
    done = refsim("replay", CASE, "-x", "cpu:emulated")
    assert done.status == 1
    assert "wrote behind the buffer" in done.out and "byte order: output bytes reversed" in done.out
    done = refsim("replay", CASE, "-x", "cpu:emulated", "--json")
    assert done.json["same"] is False and "wrote behind" in done.json["executors"]["cpu:emulated"]["guard"]
    assert done.json["executors"]["cpu:emulated"]["report"]["causes"]


def test_golden_check_reports_both(broken) -> None:
    from refsim.golden.check import check_stored

    stored = open_case(CASE)
    _, result = check_stored(stored, None, {"cpu:emulated": EmulatedExecutor()})
    assert result.status == "error" and "wrote behind the buffer" in result.detail["message"]
    assert result.detail["differing"] > 0
    assert any(cause["name"] == "byte order" for cause in result.detail["causes"])


def test_compare_goes_on_and_reports_both(broken, refsim, models) -> None:
    given = (models / "mixed_ops.pte", "-i", models / "mixed_ops.io.npz", "-x", "cpu,cpu:emulated")
    done = refsim("compare", *given)
    assert done.status == 1 and f"{UNARY.name}: wrote behind the buffer" in done.out
    assert "14 buffers on" in done.out and "byte order: output bytes reversed" in done.out
    content = refsim("compare", *given, "--json").json
    assert content["same"] is False and len(content["guards"]) == 1 and content["first"]


def test_a_write_outside_alone_is_a_difference(refsim, models, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = EmulatedExecutor.run

    def run(self, launch, inputs):
        out = honest(self, launch, inputs)
        if launch.shader == UNARY.name:
            out.memory[0] = 7
            out.check_guards(launch.shader)
        return out

    monkeypatch.setattr(EmulatedExecutor, "run", run)
    given = (models / "mixed_ops.pte", "-i", models / "mixed_ops.io.npz", "-x", "cpu,cpu:emulated", "--json")
    done = refsim("compare", *given)
    assert done.status == 1 and done.json["first"] is None and "wrote before" in done.json["guards"][0]
    done = refsim("replay", CASE, "-x", "cpu:emulated", "--json")
    assert done.status == 1 and done.json["same"] is False


def test_the_second_dispatch_runs_though_the_first_wrote_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = open_case(two_dispatches())
    first = stored.bound.call.dispatches()[0].launch.shader
    honest = EmulatedExecutor.run

    def run(self, launch, inputs):
        out = honest(self, launch, inputs)
        if launch.shader == first:
            out.memory[-1] = 7
            out.check_guards(launch.shader)
        return out

    monkeypatch.setattr(EmulatedExecutor, "run", run)
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
