"""Two causes that predict the same bytes are both said, with a case that tells them apart."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from refsim.bytediff import diff
from refsim.bytediff.consensus import Agreed
from refsim.bytediff.rank import Cause
from refsim.bytediff.report import Report
from refsim.bytediff.text import MOST_CAUSES
from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.core.result import Command
from refsim.golden.apart import Apart, KernelCauses, Predicted, Rival, Rivals, apart, rivals, told
from refsim.golden.rules import case
from refsim.golden.telling import TellingCase
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.spec import Call

#: Square windows: the exchange of rows and columns has several readings.
OP = "q8ta_conv2d_general"


def doubled(bound: BoundCase) -> PackedBuffer:
    """The buffer if the weight sums are left out: where the input's zero point is 0 twice as much is the same."""
    sums = 0 * np.asarray(bound.call.consts["weight_sums"])
    call = replace(bound.call, consts={**bound.call.consts, "weight_sums": sums})
    return call.expected(bound.inputs)


@cache
def shown() -> tuple[BoundCase, Report, Cause]:
    """A case that shows it, what a diff says of that, and the cause that is right."""
    for number in range(5, 1000, 37):
        bound = bind(case(OP, number))
        actual, expected = doubled(bound), bound.call.expected(bound.inputs)
        if np.count_nonzero(actual.raw != expected.raw) > 20:
            report = diff(expected, actual, call=bound)
            return bound, report, next(c for c in report.causes if c.name == "zero point not folded")
    raise AssertionError("no case shows it")


def twice(first: Cause) -> Cause:
    """The cause that predicts the same bytes where the input's zero point is as it is there."""
    detail = "weight_sums negated: the zero point is added"
    return replace(first, name="zero point folded twice", detail=detail)


def named(name: str) -> BoundCase:
    """The case of the corpus with that name."""
    return bind(case(OP, int(name.rpartition("/")[2])))


def test_two_exact_causes_are_told_apart_by_another_case() -> None:
    _, report, first = shown()
    assert first.exact
    both = replace(report, causes=(first, twice(first)))
    found = apart(both)
    assert found is not None and found.case.startswith(f"{OP}/")
    text, meaning = found.lines("refsim replay {case} -x cpu")
    assert "predict the same bytes here" in text and isinstance(text, Command)
    assert text.endswith(f"refsim replay {found.case} -x cpu")
    assert found.causes[1].name == "zero point folded twice"
    assert meaning == found.meaning and found.why == ""


def test_what_each_outcome_of_the_telling_case_means_is_what_the_causes_predict_there() -> None:
    _, report, first = shown()
    both = replace(report, causes=(first, twice(first)))
    found = apart(both)
    assert found is not None
    there = named(found.case)
    one, other = found.outcomes
    wrong = np.count_nonzero(there.call.expected(there.inputs).raw != doubled(there).raw)
    assert one.wrong == wrong and one.rivals == (Rival(first.name, first.detail),)
    text = (
        f'by "{first.name}" {wrong} bytes differ there; '
        f'by "zero point folded twice" {other.wrong} bytes differ there'
    )
    assert found.meaning == text and other.wrong not in (0, wrong)


def test_each_outcome_names_those_that_predict_it() -> None:
    a, b, c, d = (Rival(name, "") for name in "abcd")
    two = Rivals(OP, (a, b, c, d))
    found = Apart(two, "x/1", (Predicted((a, c), 3), Predicted((b,), 0)))
    assert found.meaning == (
        'by "a" and "c" 3 bytes differ there; by "b" 0 bytes differ there; "d" says nothing of that case'
    )
    found = Apart(Rivals(OP, (a, b)), "x/1", (Predicted((a,), 1), Predicted((b,), 1)), unit="element")
    assert found.meaning == 'by "a" 1 element differs there; by "b" 1 element differs there, and others'


@pytest.mark.long
@pytest.mark.search(1)
def test_a_fitted_cause_is_named_and_foretells_nothing() -> None:
    """Lanes of padding hold 0: what was read off these bytes foretells no other case."""
    fitted = "padding leaked"
    bound = bind(case("q8ta_conv2d_pw", 3))
    expected = bound.call.expected(bound.inputs)
    lanes = expected.kinds() == ByteKind.LANE
    raw = np.where(lanes, 0, expected.raw)
    actual = PackedBuffer.from_raw(raw.astype(np.uint8), expected.desc.shape, expected.desc.layout)
    report = diff(expected, actual, call=bound)
    found = apart(report)
    assert found is not None and found.case
    listed = [cause.name for cause in report.causes[:MOST_CAUSES] if cause.exact]
    assert [cause.name for cause in found.rivals.causes] == listed and fitted in listed
    line, meaning = found.lines("{case}")
    assert isinstance(line, Command) and line.endswith(f'; to tell apart all but "{fitted}": {found.case}')
    assert meaning.endswith(f'"{fitted}" says nothing of that case')
    assert not any(cause.fitted for one in found.outcomes for cause in one.rivals)


def test_a_cause_that_holds_in_a_region_is_as_good_as_fitted() -> None:
    *_, first = shown()
    two = rivals(OP, (first, replace(first, name="luck", where="only at w >= 2")))
    assert two is not None and [cause.fitted for cause in two.causes] == [False, True]


@pytest.mark.long
def test_all_causes_that_predict_every_byte_are_named_and_told_apart() -> None:
    """One element may fit three readings of a kernel; the corpus has a case for each."""
    names = ("fused multiply-add", "zero point folded twice", "reduction too short")
    details = "True for flags & CONTRACT", "weight_sums negated: the zero point is added", "IC4 one too small"
    three = Rivals("q8ta_conv2d_pw", tuple(map(Rival, names, details)))
    found = told(three)
    assert [one.causes[0] for one in found.outcomes] == list(names)
    line, _ = found.lines("{case}")
    assert line.startswith(
        '"fused multiply-add", "zero point folded twice" and "reduction too short" predict the same'
    )


def test_a_cause_that_fewer_cases_bear_out_is_no_rival() -> None:
    *_, first = shown()
    lucky = replace(first, name="luck")
    both = (lucky, first)
    assert rivals(OP, both) is not None
    counts = [Agreed(first, 3, 3, 3, 3.0), Agreed(lucky, 1, 1, 3, 1.0)]
    assert rivals(OP, both, counts) is None
    third = twice(first)
    three = rivals(OP, (lucky, first, third), [*counts, Agreed(third, 3, 3, 3, 3.0)])
    assert three is not None and [cause.name for cause in three.causes] == [first.name, third.name]
    (line,) = Apart(three).lines("x {case}")
    assert line.endswith('; "luck" fits fewer of the wrong cases')
    assert rivals(OP, both, [replace(row, exact=2) for row in counts]) is not None


@pytest.mark.parametrize("count", [0, 1])
def test_one_cause_needs_no_other_case(count: int) -> None:
    _, report, _ = shown()
    exact = [cause for cause in report.causes if cause.exact and not cause.where and not cause.fitted]
    assert apart(replace(report, causes=tuple(exact[:count]))) is None


def test_only_cases_that_the_kernel_takes_are_named() -> None:
    _, report, first = shown()
    both = replace(report, causes=(first, twice(first)))
    open_to_all = apart(both)
    assert open_to_all is not None
    layout = str(named(open_to_all.case).call.out.layout)
    asked: list[str] = []

    def runs(call: Call) -> bool:
        asked.append(str(call.out.layout))
        return asked[-1] != layout

    found = apart(both, runs=runs)
    assert found is not None and found.case and layout in asked
    assert str(named(found.case).call.out.layout) != layout
    nothing = apart(both, runs=lambda call: False)
    assert nothing is not None and nothing.case == "" and nothing.outcomes == () and nothing.tried == 0


def test_a_case_of_like_sizes_is_named_first() -> None:
    """A kernel that is wrong in its tails is right where there are none, and that tells nothing."""
    bound, _, first = shown()
    two = rivals(OP, (first, twice(first)))
    assert two is not None
    pool = [TellingCase(f"{OP}/{number:04d}", OP, case(OP, number)) for number in range(200)]
    assert told(two, pool).case != told(two, pool, like=bound).case

    def channels(name: str) -> int:
        return named(name).call.out.sizes_whcn[2] % 4

    assert channels(told(two, pool, like=bound).case) == bound.call.out.sizes_whcn[2] % 4


def test_where_no_case_is_left_both_are_said() -> None:
    _, report, _ = shown()
    causes = (report.causes[0], replace(report.causes[0], name="luck"))
    found = apart(replace(report, causes=causes), candidates=())
    assert found is not None and found.case == ""
    (text,) = found.lines("x {case}")
    assert text.endswith("; no case of the corpus tells them apart, of 0 tried") and type(text) is str


@pytest.mark.parametrize(("sought", "said"), [(3, "no known cause fits"), (0, "none was looked for")])
def test_a_kernel_without_a_cause_says_so(sought: int, said: str) -> None:
    assert list(KernelCauses("q8ta_add", "cpu", 3, sought).rows) == [(f"0 of {sought}", said, "")]
