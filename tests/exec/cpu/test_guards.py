"""Writes beside scratch, beside buffers between jobs, and into inputs are errors, not luck."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from refsim.core.buffer import GUARD, PackedBuffer
from refsim.core.errors import RawBufferError
from refsim.exec.cpu.executor import NativeExecutor
from refsim.exec.cpu.job import Arguments
from refsim.exec.cpu.thread_pool import JobList, _guard_of, scratch_for
from refsim.exec.emulated import EmulatedExecutor
from refsim.golden import rules
from refsim.golden.check import ERROR, run
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.spec import Call, Prepared


def composite() -> BoundCase:
    """A call of several jobs, with a buffer between them."""
    return bind(rules.case("linear_q8ta_q8csw", 3))


@pytest.mark.parametrize("byte", [0, 255])
def test_a_write_behind_scratch_is_an_error(byte: int) -> None:
    jobs = NativeExecutor().choose(Prepared(composite().call)).jobs()
    assert jobs
    scratch = scratch_for(jobs, 2)
    listed = JobList(jobs, 2, scratch=scratch)
    listed.check_scratch("here")
    _guard_of(scratch[0])[byte] ^= 1
    with pytest.raises(RawBufferError, match=f"here: wrote behind its scratch; got a write to byte {byte} "):
        listed.check_scratch("here")


@pytest.mark.parametrize("word", [-1, -1000])
def test_a_write_beside_a_buffer_between_jobs_is_an_error(word: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bound, real = composite(), JobList.run
    (name, _), *_ = [
        temp for job in NativeExecutor().choose(Prepared(bound.call)).jobs() or () for temp in job.temps
    ]

    def scribbles(self: JobList) -> None:
        real(self)
        at = next(int(r.block[r.word]) for r in self._relocations if r.buffer == name)
        ctypes.c_int32.from_address(at + 4 * word).value ^= 1

    executor = NativeExecutor()
    assert executor.run_call(bound.call, bound.inputs) == bound.call.expected(bound.inputs)
    monkeypatch.setattr(JobList, "run", scribbles)
    with pytest.raises(RawBufferError, match=f"wrote beside buffer {name} between its jobs"):
        executor.run_call(bound.call, bound.inputs)


def test_constants_lie_among_guard_words() -> None:
    bound = composite()
    prepared = Prepared(bound.call)
    for name in prepared.constants:
        words = prepared.words(name)
        before = np.frombuffer((ctypes.c_char * 64).from_address(words.ctypes.data - 64), np.int32)
        assert (before == GUARD).all() and np.array_equal(words, bound.call.words(name))
    args = Arguments()
    args.address(np.arange(5, dtype=np.int32))
    behind = np.frombuffer((ctypes.c_char * 64).from_address(args.owned[0].ctypes.data + 20), np.int32)
    assert (behind == GUARD).all()


class Writes(EmulatedExecutor):
    """Leaves the right output, and changes an input on the way."""

    def run_call(self, call: Call, inputs: dict[str, PackedBuffer]) -> PackedBuffer:  # type: ignore[override]
        out = super().run_call(call, inputs)
        next(iter(inputs.values())).raw[0] ^= 1
        return out


class WritesBeside(EmulatedExecutor):
    def run_call(self, call: Call, inputs: dict[str, PackedBuffer]) -> PackedBuffer:  # type: ignore[override]
        out = super().run_call(call, inputs)
        next(iter(inputs.values())).memory[-1] ^= 1
        return out


@pytest.mark.parametrize(
    ("executor", "said"), [(Writes(), "input x was written to"), (WritesBeside(), "wrote behind the buffer")]
)
def test_golden_verify_sees_what_happens_to_inputs(executor: EmulatedExecutor, said: str) -> None:
    bound = bind(rules.case("q8ta_relu", 3))
    result = run("q8ta_relu/0003", "x", executor, bound, bound.call.expected(bound.inputs))
    assert result.status == ERROR and said in result.detail["message"]
