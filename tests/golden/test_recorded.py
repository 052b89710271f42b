"""The recordings of ET-VK's own kernels, repeated on executors: each verdict, and executors that do something else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from refsim.core.buffer import FILL, PackedBuffer, offsets
from refsim.core.qmath import NVIDIA
from refsim.exec.cpu import NativeExecutor
from refsim.exec.executor import OURS, YOURS, Source
from refsim.golden import check as case_check
from refsim.golden import recorded, verify
from refsim.golden.check import ERROR, REFUSED, fails
from refsim.golden.judge import WRONG, judged
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call
from refsim.ops.base.target import Target


class Foreign(NativeExecutor):
    """Pretends that its kernels are of another build. A subclass changes what they write."""

    foreign = True

    def source(self, call: Call) -> Source:
        return Source(YOURS, (call.op.name,))

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        call = prepared.call
        case = Case(call.op.name, {}, {}, str(call.out.layout))
        return self.written(BoundCase(case, call, dict(inputs)))

    def written(self, bound: BoundCase) -> PackedBuffer:
        return bound.call.expected(bound.inputs)


class Nvidia(Foreign):
    """Computes under the profile nvidia, whatever it is asked for."""

    def written(self, bound: BoundCase) -> PackedBuffer:
        call = replace(bound.call, target=Target(NVIDIA))
        return call.expected(bound.inputs)


class FirstBatch(Foreign):
    """Writes the first of the outermost dim alone."""

    def written(self, bound: BoundCase) -> PackedBuffer:
        buffer = bound.call.expected(bound.inputs)
        whole = buffer.unpack()
        found = whole.copy()
        found[1:] = FILL
        other = PackedBuffer.pack(found, bound.call.out.layout)
        values = buffer.kinds() == 0
        buffer.raw[values] = other.raw[values]
        return buffer


class Wrong(Foreign):
    """The first element is wrong."""

    def written(self, bound: BoundCase) -> PackedBuffer:
        buffer = bound.call.expected(bound.inputs)
        array = buffer.unpack()
        array.reshape(-1)[0] += 1
        return PackedBuffer.pack(array, bound.call.out.layout)


def test_every_recording_is_repeated_on_the_cpu() -> None:
    found = list(recorded.check(NativeExecutor()))
    assert Counter(row.status for row in found) == {"same": 556, "refused": 16, "known": 8}
    assert len({row.case.partition(" ")[0] for row in found}) == 481 and not fails(found)
    (alpha,) = (row for row in found if "alpha" in row.case)
    assert (alpha.status, alpha.message) == ("known", "as defined; the recording shows: alpha")


def test_another_device_is_legal_where_it_was_recorded() -> None:
    rows = list(recorded.check(Nvidia(), only=lambda row: row.h200 is not None))
    assert len(rows) >= 26
    assert {row.status for row in rows} <= {"legal", "same", "known"}
    assert any(row.message == "as on an H200" for row in rows)
    strict = recorded.check(Nvidia(), only=lambda row: row.h200 is not None, target=Target(NVIDIA))
    assert {row.status for row in strict} <= {"same", "known"}
    held = recorded.check(NativeExecutor(), only=lambda row: row.h200 is not None, target=Target(NVIDIA))
    assert not fails(list(held)), "the CPU follows the profile"


def test_a_wrong_byte_is_found_and_placed() -> None:
    row, *_ = recorded.check(Wrong(), only=lambda row: row.op == "q8ta_relu")
    assert (row.status, row.message) == ("different", "1 byte differs, the first at byte 0") and fails([row])


def test_a_refused_call_and_an_error_are_verdicts() -> None:
    class Fails(Foreign):
        def written(self, bound: BoundCase) -> PackedBuffer:
            bound.call.expected(bound.inputs).memory[0] = 0
            PackedBuffer.from_raw(np.zeros(1, np.uint8), (4,), "4W")
            raise AssertionError

    rows = list(recorded.check(Fails(), only=lambda row: row.op == "q8ta_linear_gemv"))
    assert {row.status for row in rows} == {REFUSED, ERROR}
    assert all("wrong size" in row.message for row in rows if row.status == ERROR)


CASE = Case(
    "q8ta_conv2d_pw",
    {"in_scale": 0.02, "in_zp": 5, "out_scale": 0.03, "out_zp": -9, "kernel_size": (1, 1)},
    {"x": ((2, 8, 7, 9), "4W4C")},
    "4C1W",
    features={"out_channels": 12, "bias": True},
)


@pytest.mark.parametrize(("kernels", "verdict"), [(Foreign, "same"), (FirstBatch, "known"), (Wrong, "wrong")])
def test_the_judgement_names_the_defect(kernels: type[Foreign], verdict: str) -> None:
    bound = bind(CASE)
    found = judged(bound, kernels().run_call(bound.call, bound.inputs))
    assert found.verdict == verdict
    if verdict == "known":
        assert str(found) == "known defect of upstream: first-batch"


def test_defects_that_one_call_shows_at_once_are_known_together() -> None:
    """A kernel of upstream ignores alpha, and computes the first of what more than four dims hold."""
    bound = bind(OPS["q8ta_add"].cases.example.changed(a=(2, 2, 1, 3, 5), b=(2, 2, 1, 3, 5), alpha=0.5))
    out = replace(bound.call, params=replace(bound.call.params, alpha=1.0)).expected(bound.inputs)
    at = offsets(out.desc)
    out.raw[at[2:]] = FILL  # the two outer dims are one here
    assert str(judged(bound, out)) == "known defect of upstream: alpha and first-of-four-dims"
    out.raw[at[0, 0, 0, 0]] ^= 1
    assert judged(bound, out).verdict == WRONG


def test_a_case_is_known_or_legal_for_kernels_of_another_build_only() -> None:
    bound = bind(CASE)
    expected = bound.call.expected(bound.inputs)
    foreign, ours = FirstBatch(), FirstBatch()
    ours.foreign = False
    found = case_check.run("a", "spv", foreign, bound, expected)
    assert (found.status, found.message) == ("known", "known defect of upstream: first-batch")
    assert case_check.run("a", "cpu", ours, bound, expected).status == "different"
    legal = case_check.run("a", "spv", Nvidia(), special(), special_expected())
    assert (legal.status, legal.profiles) == ("legal", ("lavapipe", "nvidia"))
    assert case_check.run("a", "spv", Nvidia(), special(), special_expected(), NVIDIA).status == "same"
    assert verify.failures([found, legal]) == []


def test_a_case_that_ran_on_kernels_of_ours_says_so() -> None:
    """An executor of modules that lacks one is not seen to be right by what refsim's own kernel gives."""
    bound = bind(CASE)
    expected = bound.call.expected(bound.inputs)
    lacking = Foreign()
    lacking.source = lambda call: Source(OURS, ("q8ta_conv2d_pw",), "no module computes it")  # type: ignore[method-assign]
    rows = [
        case_check.run(name, "spv", kernels, bound, expected)
        for name, kernels in (("q8ta_conv2d_pw/0001", lacking), ("q8ta_conv2d_pw/0002", Foreign()))
    ]
    assert [row.status for row in rows] == ["same", "same"]
    assert verify.instead([*rows, rows[0]]) == {
        "spv": {"q8ta_conv2d_pw": verify.Instead(2, ["no module computes it"])}
    }


def special() -> BoundCase:
    case = Case("q8ta_quantize", {"scale": 0.05, "zp": 3}, {"x": ((4, 4), "W")}, "4W")
    bound = bind(case)
    values = np.full((4, 4), np.inf, np.float32)
    bound.inputs["x"] = PackedBuffer.pack(values, "W")
    return bound


def special_expected() -> PackedBuffer:
    bound = special()
    return bound.call.expected(bound.inputs)


def test_what_is_legal_under_two_profiles_at_once_is_wrong() -> None:
    def legal(case: str, *profiles: str) -> case_check.Checked:
        return case_check.Checked(case, "spv", "legal", profiles=profiles)

    rows = [
        legal("a", "nvidia"),
        legal("b", "nvidia", "lavapipe"),
        legal("c", "lavapipe"),
        legal("d", "nvidia"),
    ]
    assert verify.profiles(rows) == {"spv": "nvidia"}
    assert [row.case for row in verify.failures(rows)] == ["c"]
