"""Kernels on trial: the verdict of each case, and what is said of a kernel that gets some of them wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from refsim.check.runtime import runtime
from refsim.core.buffer import FILL, ByteKind, PackedBuffer
from refsim.core.errors import DeviceError, GuardError
from refsim.core.qmath import CANONICAL, LAVAPIPE, NVIDIA
from refsim.exec.emulated import EmulatedExecutor
from refsim.golden import judge
from refsim.golden.rules import RULES
from refsim.golden.telling import TellingCase, ordered
from refsim.modules import inventory
from refsim.modules.trial import FAILED, ModuleTrial, in_turn
from refsim.modules.verification import ALL, FIRST, FIRST_WORD, FolderOutcome, Verification, stages
from refsim.ops.base.binding import BoundCase
from refsim.ops.base.spec import Call

GOLDEN = Path(__file__).parents[2] / "golden" / "upstream"
COUNT = 32


class Wrong(EmulatedExecutor):
    """An executor that changes what comes out."""

    def __init__(self, change: Callable[[BoundCase, PackedBuffer], object]) -> None:
        super().__init__()
        self.change, self.runs = change, 0

    def run_call(self, call, inputs):
        out = super().run_call(call, inputs)
        self.runs += 1
        self.change(BoundCase(None, call, inputs), out)  # type: ignore[arg-type]
        return out


def first_wrong(trial: ModuleTrial, op: str) -> tuple[int, TellingCase, object, object]:
    supply = ordered(op, COUNT, GOLDEN)
    for number, candidate in enumerate(supply, 1):
        tried = trial.run(candidate)
        if tried.bad:
            return number, candidate, tried, supply
    raise AssertionError("nothing was wrong")


def test_the_first_cases_come_at_once() -> None:
    """One of each operator, and only of as many operators as were asked for."""
    begun: list[str] = []

    def supplied(op: str) -> Iterator[TellingCase]:
        begun.append(op)
        yield from ordered(op, COUNT, GOLDEN)

    first = list(islice(in_turn({op: supplied(op) for op in RULES}), len(RULES) // 2))
    assert len({one.op for one in first}) == len(first)
    assert len(begun) <= len(first) + 1


def test_operators_of_newer_modules_go_first() -> None:
    """An operator is as old as the newest module that computes a part of it, or packs its weights."""
    operators = ["q8ta_relu", "q8ta_add", "q8ta_conv2d_general", "q8ta_conv2d"]
    ages = {
        "q8ta_relu_buffer": 1,
        "q8ta_conv2d_float": 3,
        "q8ta_conv2d_fallback_float": 0,
        "q8ta_add_buffer": 2,
    }
    packs = {"pack_q8_conv2d_weights_buffer": 9}
    assert inventory.by_age(ages, operators) == [
        "q8ta_conv2d_general",
        "q8ta_conv2d",
        "q8ta_add",
        "q8ta_relu",
    ]
    windows = ["q8ta_conv2d_general", "q8ta_conv2d", "q8ta_relu", "q8ta_add"]
    assert inventory.by_age(dict.fromkeys(ages, 7) | packs, operators) == windows


def test_a_first_word_on_all_comes_before_the_rest_of_any() -> None:
    order = [(stage.operators, stage.skip, stage.most, stage.name) for stage in stages(["a"], ["b", "c"])]
    assert order == [
        (("a",), 0, FIRST_WORD, FIRST),
        (("b", "c"), 0, FIRST_WORD, FIRST),
        (("a",), FIRST_WORD, None, ALL),
        (("b", "c"), FIRST_WORD, None, ALL),
    ]
    assert len(list(stages(["a"], []))) == 2


def test_stages_run_each_case_once_and_add_up() -> None:
    """Cases that no module computes are neither run nor counted as a first word."""
    found, whole = (
        FolderOutcome(),
        Verification(ModuleTrial(EmulatedExecutor()), 8, refusal=even).run(["q8ta_relu"]),
    )
    verification = Verification(ModuleTrial(EmulatedExecutor()), 8, refusal=even)
    for stage in stages(["q8ta_relu"], []):
        verification.run(stage.operators, skip=stage.skip, most=stage.most, before=found)
        assert stage.name == ALL or found.cases == FIRST_WORD
    assert (found.operators, found.skipped) == (whole.operators, whole.skipped)
    assert found.skipped["q8ta_relu"]["even"]


def even(call: Call) -> str | None:
    return None if call.out.shape[-1] % 2 else "even"


@pytest.mark.long
def test_a_bad_case_is_told_before_its_cause_is_sought() -> None:
    executor = Wrong(lambda bound, out: out.raw.__ixor__(np.uint8(1)))
    runs: list[int] = []
    outcome = Verification(ModuleTrial(executor), 8).run(
        ["q8ta_relu"], found=lambda tried: runs.append(executor.runs)
    )
    assert runs == [1] and executor.runs > 1 and len(outcome.wrong) == 1


# --- verdicts --------------------------------------------------------------------------------------------


def test_right_kernels_are_right() -> None:
    trial = ModuleTrial(EmulatedExecutor())
    tried = [trial.run(one) for op in ("q8ta_relu", "q8ta_add") for one in ordered(op, 8, GOLDEN)]
    assert {row.verdict for row in tried if not row.candidate.hidden} == {judge.SAME}
    assert len([row for row in tried if row.candidate.recorded is not None]) == 26 + 32  # those that bind


def batch_0_only(bound: BoundCase, out: PackedBuffer) -> None:
    """As upstream's convolutions: the other batches keep what was in the buffer."""
    if len(out.desc.shape) == 4 and out.desc.shape[0] > 1:
        values = out.unpack()
        values[1:] = FILL
        elements = out.kinds() == ByteKind.VALUE
        out.raw[elements] = PackedBuffer.pack(values, out.desc.layout).raw[elements]


@pytest.mark.parametrize("op", ["q8ta_conv2d_pw", "q8ta_im2col"])
def test_a_known_defect_is_no_failure(op: str) -> None:
    trial = ModuleTrial(Wrong(batch_0_only))
    found = [trial.run(one) for one in ordered(op, COUNT, GOLDEN)]
    assert not [row for row in found if row.bad]
    known = [row for row in found if row.verdict == judge.KNOWN_DEFECT]
    assert len(known) >= 5 and all(row.judged.defect == "first-batch" for row in known)
    assert not any(row.candidate.hidden for row in found if row.verdict == judge.SAME and row.candidate.case)


def test_a_defect_that_a_runtime_no_longer_has_is_a_failure() -> None:
    later = runtime("1.5.1").behaviour
    verification = Verification(
        ModuleTrial(Wrong(batch_0_only)), 8, pattern="q8ta_conv2d_pw/*0", runtime=later
    )
    assert verification.run(["q8ta_conv2d_pw"]).bad


def test_a_known_defect_excuses_nothing_else() -> None:
    def change(bound: BoundCase, out: PackedBuffer) -> None:
        batch_0_only(bound, out)
        out.raw[0] ^= 1

    trial = ModuleTrial(Wrong(change))
    hidden = [one for one in ordered("q8ta_conv2d_pw", COUNT) if one.hidden]
    assert hidden and all(trial.run(one).verdict == judge.WRONG for one in hidden)


def test_exempt_padding_is_not_compared() -> None:
    def change(bound: BoundCase, out: PackedBuffer) -> None:
        out.raw[~bound.call.device_defined()] ^= 0x55

    trial = ModuleTrial(Wrong(change))
    found = [trial.run(one) for one in islice(ordered("q8ta_quantize", COUNT), 20)]
    assert any(not one.candidate.bound.call.device_defined().all() for one in found)
    assert {row.verdict for row in found} == {judge.SAME}


def test_profiles() -> None:
    """Fused arithmetic is legal where the device may fuse, and wrong elsewhere."""

    def fused(bound: BoundCase, out: PackedBuffer) -> None:
        out.raw[:] = bound.call.under(NVIDIA).expected(bound.inputs).raw

    def verdicts(profiles) -> set[str]:
        trial = ModuleTrial(Wrong(fused), profiles)
        return {trial.run(one).verdict for one in ordered("q8ta_add", COUNT) if not one.hidden}

    assert verdicts((CANONICAL, NVIDIA)) == {judge.SAME, judge.LEGAL}
    assert verdicts((CANONICAL, LAVAPIPE)) == {judge.SAME, judge.WRONG}


def test_a_case_that_cannot_run() -> None:
    def change(bound: BoundCase, out: PackedBuffer) -> None:
        raise DeviceError("gpu:0", "the driver ended the worker process during run", got="signal 11")

    trial = ModuleTrial(Wrong(change))
    tried = trial.run(next(ordered("q8ta_relu", 4)))
    assert tried.verdict == FAILED and "signal 11" in tried.message and tried.actual is None


def test_a_case_that_writes_out_of_bounds_has_a_diff_of_its_output() -> None:
    def change(bound: BoundCase, out: PackedBuffer) -> None:
        out.raw[out.kinds() == ByteKind.VALUE] ^= np.uint8(wrong)
        error = GuardError("gpu:0", "wrote behind the buffer of out")
        error.buffer = out
        raise error

    for wrong in (1, 0):
        trial = ModuleTrial(Wrong(change))
        tried = trial.run(next(ordered("q8ta_relu", 4)))
        assert tried.verdict == FAILED and tried.message.startswith(
            "write out of bounds: gpu:0: wrote behind"
        )
        assert trial.gives_wrong(tried) is bool(wrong)
        if wrong:
            found = trial.explain(tried, ())
            assert found.report.differing == found.report.desc.numel and found.distinct == 1


# --- causes ----------------------------------------------------------------------------------------------


def zero_point_missing(bound: BoundCase, out: PackedBuffer) -> None:
    values = out.unpack().astype(np.int32)
    fresh = np.clip(values - bound.call.params.out_zp, -128, 127).astype(np.int8)
    elements = out.kinds() == ByteKind.VALUE
    out.raw[elements] = PackedBuffer.pack(fresh, out.desc.layout).raw[elements]


@pytest.mark.long
@pytest.mark.search(10)
def test_the_cause_that_holds_in_all_wrong_cases() -> None:
    trial = ModuleTrial(Wrong(zero_point_missing))
    number, _, tried, rest = first_wrong(trial, "q8ta_conv2d_general")
    found = trial.explain(tried, rest)  # type: ignore[arg-type]
    assert number <= 3
    assert found.kernel.causes[0].name == found.report.causes[0].name == "zero point not folded"
    assert found.kernel.causes[0].of == len(found.cases) and (found.distinct, found.runs) == (1, 3)


def test_results_that_flip() -> None:
    flips = iter(range(1000))

    def change(bound: BoundCase, out: PackedBuffer) -> None:
        out.raw[0] ^= 1 + next(flips) % 7

    trial = ModuleTrial(Wrong(change))
    _, _, tried, rest = first_wrong(trial, "q8ta_relu")
    found = trial.explain(tried, rest)  # type: ignore[arg-type]
    assert found.distinct == 3 and found.cases == (found.tried.candidate.name,)
