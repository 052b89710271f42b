"""Two causes that predict the same bytes are both said, with a case that tells them apart."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from refsim.bytediff import diff
from refsim.bytediff.consensus import Agreed
from refsim.bytediff.rank import Cause
from refsim.core.buffer import PackedBuffer
from refsim.golden import apart as apart_module
from refsim.golden.apart import apart, rivals, told
from refsim.golden.rules import case
from refsim.golden.telling import Candidate
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.spec import Call

#: Square windows: the exchange of rows and columns has several readings.
OP = "q8ta_conv2d_general"


def doubled(bound: BoundCase) -> PackedBuffer:
    """The buffer if the weight sums are left out: where the input's zero point is 0 twice as much is the same."""
    sums = 0 * np.asarray(bound.call.consts["weight_sums"])
    call = replace(bound.call, consts={**bound.call.consts, "weight_sums": sums})
    return call.expected(bound.inputs)


def first_wrong() -> tuple[BoundCase, PackedBuffer]:
    for number in range(5, 1000, 37):
        bound = bind(case(OP, number))
        actual = doubled(bound)
        expected = bound.call.expected(bound.inputs)
        if np.count_nonzero(actual.raw != expected.raw) > 20:
            return bound, actual
    raise AssertionError("no case shows it")


def test_two_exact_causes_are_told_apart_by_another_case() -> None:
    bound, actual = first_wrong()
    report = diff(bound.call.expected(bound.inputs), actual, call=bound)
    first = next(cause for cause in report.causes if cause.name == "zero point not folded")
    assert first.exact
    other = Cause(
        "zero point folded twice", "the input's zero point is added instead of subtracted", 30, 30, 0, True
    )
    both = replace(report, causes=(first, other))
    found = apart(both)
    assert found is not None and found.case.startswith(f"{OP}/")
    text = found.text("refsim replay {case} -x cpu")
    assert "predict the same bytes here" in text and f"refsim replay {found.case} -x cpu" in text
    assert found.as_json()["causes"][1]["name"] == "zero point folded twice"


def test_a_cause_that_fewer_cases_bear_out_is_no_rival() -> None:
    bound, actual = first_wrong()
    report = diff(bound.call.expected(bound.inputs), actual, call=bound)
    first = next(cause for cause in report.causes if cause.name == "zero point not folded")
    lucky = replace(first, name="luck")
    both = replace(report, causes=(lucky, first))
    assert rivals(both) is not None
    counts = [Agreed(first, 3, 3, 3, 3.0), Agreed(lucky, 1, 1, 3, 1.0)]
    assert rivals(both, counts) is None
    assert rivals(both, [replace(row, exact=2) for row in counts]) is not None


@pytest.mark.parametrize("count", [0, 1])
def test_one_cause_needs_no_other_case(count: int) -> None:
    bound, actual = first_wrong()
    report = diff(bound.call.expected(bound.inputs), actual, call=bound)
    exact = [cause for cause in report.causes if cause.exact and not cause.where and not cause.fitted]
    assert apart(replace(report, causes=tuple(exact[:count]))) is None


def test_only_cases_that_the_kernel_takes_are_named() -> None:
    bound, actual = first_wrong()
    report = diff(bound.call.expected(bound.inputs), actual, call=bound)
    first = next(cause for cause in report.causes if cause.name == "zero point not folded")
    other = replace(
        first, name="zero point folded twice", detail="the input's zero point is added instead of subtracted"
    )
    both = replace(report, causes=(first, other))
    open_to_all = apart(both)
    assert open_to_all is not None
    layout = str(bind(case(OP, int(open_to_all.case.rpartition("/")[2]))).call.out.layout)
    asked: list[str] = []

    def runs(call: Call) -> bool:
        asked.append(str(call.out.layout))
        return asked[-1] != layout

    found = apart(both, runs=runs)
    assert found is not None and found.case and layout in asked
    assert str(bind(case(OP, int(found.case.rpartition("/")[2]))).call.out.layout) != layout
    assert apart(both, runs=lambda call: False) == replace(found, case="")


def test_a_case_of_like_sizes_is_named_first() -> None:
    """A kernel that is wrong in its tails is right where there are none, and that tells nothing."""
    bound, actual = first_wrong()
    report = diff(bound.call.expected(bound.inputs), actual, call=bound)
    first = next(cause for cause in report.causes if cause.name == "zero point not folded")
    detail = "the input's zero point is added instead of subtracted"
    two = rivals(
        replace(report, causes=(first, replace(first, name="zero point folded twice", detail=detail)))
    )
    assert two is not None
    pool = [Candidate(f"{OP}/{number:04d}", OP, case(OP, number)) for number in range(200)]
    assert told(two, pool).case != told(two, pool, like=bound).case

    def channels(name: str) -> int:
        return bind(case(OP, int(name.rpartition("/")[2]))).call.out.sizes_whcn[2] % 4

    assert channels(told(two, pool, like=bound).case) == bound.call.out.sizes_whcn[2] % 4


def test_where_no_case_is_left_both_are_said() -> None:
    bound, actual = first_wrong()
    report = diff(bound.call.expected(bound.inputs), actual, call=bound)
    causes = (report.causes[0], replace(report.causes[0], name="luck"))
    found = apart(replace(report, causes=causes), candidates=())
    assert (
        found is not None
        and found.case == ""
        and found.text("x {case}").endswith("predict the same bytes here")
    )


def test_two_exact_causes_of_which_one_is_fitted_are_said_not_to_be_told_apart() -> None:
    def report(*fitted: bool, bound: object = "a call") -> Any:
        causes = [
            SimpleNamespace(name=n, exact=True, fitted=f, where="")
            for n, f in zip("ab", fitted, strict=False)
        ]
        call = SimpleNamespace(op=SimpleNamespace(name="q8ta_add"))
        rows = [SimpleNamespace(detail="", **vars(cause)) for cause in causes]
        return SimpleNamespace(causes=rows, evidence=SimpleNamespace(bound=bound, call=call))

    same = (
        '"a" and "b" predict the same bytes here; no case of the corpus tells them apart, since "b" is fitted'
    )
    assert apart_module.untold(report(False, True)).startswith(same)
    assert apart_module.untold(report(False, False)) == "", "a case tells these apart"
    assert apart_module.untold(report(True)) == ""
    assert apart_module.untold(report(False, True, bound=None)) == ""
