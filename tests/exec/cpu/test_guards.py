"""Writes beside scratch, beside buffers between jobs, and into inputs are errors, not luck."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from refsim.core import doing
from refsim.core.buffer import GUARD, PackedBuffer
from refsim.core.errors import GuardError, ParameterError
from refsim.exec.cpu import compiled
from refsim.exec.cpu.args import KERNEL_PARAMS, ArgLayout
from refsim.exec.cpu.conv_problem import conv_problem
from refsim.exec.cpu.executor import NativeExecutor
from refsim.exec.cpu.ir import F32, ModuleText, vec
from refsim.exec.cpu.job import Arguments
from refsim.exec.cpu.narrow import narrow
from refsim.exec.cpu.thread_pool import JobList, _guard_of, scratch_for
from refsim.exec.emulated import EmulatedExecutor
from refsim.golden import rules
from refsim.golden.check import ERROR, run
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.spec import Call


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
    with pytest.raises(GuardError, match=f"here: wrote behind its scratch; got a write to byte {byte} "):
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
    with pytest.raises(GuardError, match=f"wrote beside buffer {name} between its jobs"):
        executor.run_call(bound.call, bound.inputs)


@pytest.mark.parametrize(
    ("tasks", "scratch", "temps", "what"),
    [(-1, 0, (), "tasks"), (1, -8, (), "scratch"), (1, 0, (("between", -4),), "buffer between")],
)
def test_a_job_that_cannot_be_one_is_refused_where_it_is_made(
    tasks: int, scratch: int, temps: tuple[tuple[str, int], ...], what: str
) -> None:
    args = Arguments()
    block = args.block(ArgLayout("count"), {}, count=1)
    assert args.job("x", 0, block, 1, 8, (("between", 4),)).tasks == 1
    with pytest.raises(ParameterError, match=f"job x: {what} is no count; got -"):
        args.job("x", 0, block, tasks, scratch, temps)
    with pytest.raises(ParameterError, match="job x: no argument block"):
        args.job("x", 0, 3, 1)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="job: no name and entry point; got 0 and 'x'"):
        args.job(0, "x", block, 1)  # type: ignore[arg-type]


def test_an_error_in_preparation_says_of_what(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own text may be about a number in a table: the operator, its tensors and the route stand in a note."""

    def fails(*arguments: object) -> None:
        raise ValueError("negative dimensions are not allowed")

    bound = bind(rules.case("q8ta_relu", 3))
    choice = NativeExecutor().choose(Prepared(bound.call))
    assert choice.rule is not None
    failing = replace(choice, rule=replace(choice.rule, lower=fails))
    with pytest.raises(ValueError, match="negative dimensions") as caught:
        failing.jobs()
    (note,) = doing.notes(caught.value)
    assert note.startswith("while q8ta_relu (x ") and note.endswith(f"for the native route {choice.route}")


def test_an_error_in_a_kernels_code_says_in_which() -> None:
    def kernel(module: object, name: str, *, lanes: int) -> None:
        raise IndexError("list index out of range")

    with pytest.raises(IndexError) as caught:
        compiled.address(kernel, lanes=3)
    assert doing.notes(caught.value) == [f"while the native kernel kernel_lanes3 was written ({__name__})"]


def test_what_llvm_refuses_says_which_functions_wrote_it() -> None:
    def kernel(module: ModuleText, name: str) -> None:
        with module.function(name, KERNEL_PARAMS) as fn:
            narrow(fn, [fn.const(0, vec(F32, 4))] * 4, packs=True)

    def unknown(module: ModuleText, name: str) -> None:
        with module.function(name, KERNEL_PARAMS) as fn:
            fn.i64(1).splat(-1)

    for build, function in ((kernel, "narrow.py: narrow"), (unknown, "ir.py: splat")):
        with pytest.raises(RuntimeError) as caught:
            compiled.address(build)
        line, *_, last = doing.notes(caught.value)
        assert " was written by refsim/exec/cpu/" in line and function in line and line.startswith("`%v")
        assert last == f"while the native kernel {build.__name__} was written ({__name__})"


def test_a_write_outside_says_which_kernel_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = bind(rules.case("q8ta_relu", 3))

    def broken(self: PackedBuffer, where: str) -> None:
        raise GuardError(where, "wrote behind the buffer")

    monkeypatch.setattr(PackedBuffer, "check_guards", broken)
    for runner, file in ((EmulatedExecutor(), "ops/q8ta_relu"), (NativeExecutor(), "exec/cpu/elementwise/")):
        with pytest.raises(GuardError) as caught:
            runner.run_call(bound.call, bound.inputs)
        (note,) = doing.notes(caught.value)
        assert note.startswith(f"after kernel of refsim/{file}") and note.endswith(" ran")


@pytest.mark.parametrize("name", ["stride", "dilation", "input_dilation"])
def test_a_window_that_cannot_be_one_is_refused_where_it_is_made(name: str) -> None:
    conv = conv_problem(bind(rules.case("q8ta_conv2d_pw", 0)).call)
    with pytest.raises(ParameterError, match=f"convolution problem: {name} is no distance; got \\(1, 0\\)"):
        replace(conv, **{name: (1, 0)})
    with pytest.raises(ParameterError, match="no sum for each output channel"):
        replace(conv, sums=conv.sums[1:])


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
    """Leaves the right output, and changes an input, or what lies behind it, on the way."""

    def __init__(self, beside: bool) -> None:
        self.beside = beside

    def run_call(self, call: Call, inputs: dict[str, PackedBuffer]) -> PackedBuffer:  # type: ignore[override]
        out, given = super().run_call(call, inputs), next(iter(inputs.values()))
        given.memory[-1 if self.beside else given.memory.size // 2] ^= 1
        return out


@pytest.mark.parametrize(
    ("beside", "said"), [(False, "input x was written to"), (True, "wrote behind the buffer")]
)
def test_golden_verify_sees_what_happens_to_inputs(beside: bool, said: str) -> None:
    bound = bind(rules.case("q8ta_relu", 3))
    result = run("q8ta_relu/0003", "x", Writes(beside), bound, bound.call.expected(bound.inputs))
    assert result.status == ERROR and said in result.message
