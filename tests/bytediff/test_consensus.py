"""Several wrong buffers of one kernel: the cause that holds in all of them comes first."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from seeded import CONV, EXCHANGED, UNBORDERED
from wrong import Edit

from refsim.bytediff import Cause, Report, diff
from refsim.bytediff.consensus import Agreed, agreed, decided, reordered
from refsim.bytediff.search.words import Place
from refsim.core.plain import plain
from refsim.ops.base.binding import bind

ONE = Cause("one", "", explained=9, differing=9, contradicted=0)


@dataclass
class Named:
    causes: list[Cause]


def of(*causes: list[Cause]) -> list[Agreed]:
    return agreed([Named(each) for each in causes])


def wrong(seed: int, edit: Edit) -> Report:
    bound = bind(replace(CONV, seed=seed))
    return diff(bound.call.expected(bound.inputs), edit.wrong(bound), call=bound, device=True, limit=1)


@pytest.mark.long
def test_one_case_may_fit_several_causes_and_all_together_fit_one() -> None:
    """A window whose sides are exchanged: some data fits more than that."""
    first, *others = agreed([wrong(seed, EXCHANGED) for seed in (1, 2, 3)])
    assert (first.name, first.exact, first.seen, first.of) == ("H and W exchanged", 3, 3, 3)
    assert "predicts 3 of 3 wrong cases" in str(first)
    strong = [row for row in others if not row.cause.weak]
    assert strong == sorted(strong, key=lambda r: (-r.exact, -r.score))


@pytest.mark.long
def test_a_cause_that_holds_once_comes_after_one_that_holds_always() -> None:
    report, other = wrong(1, UNBORDERED), wrong(2, UNBORDERED)
    lucky = replace(report.causes[0], name="luck", whole=True)
    tied = replace(report, causes=(lucky, *report.causes))
    found = agreed([tied, other])
    again = reordered(tied, found).causes
    assert not decided(tied) and found[0].exact == 2
    assert found[0].name == again[0].name == "border padded with 0" and again[-1] in tied.causes


def test_one_edit_for_all_buffers_comes_before_another_edit_in_each() -> None:
    """Though their class is named first in each of them; numbers in their words may differ."""
    each = replace(ONE, place=Place("kernel", "refsim/ops/kernel.py", 1, "low for high"))
    details = ("low for high", "2 for 1"), ("no clamp", "7 for 1"), ("low for low", "8 for 3")
    found = of(*([replace(each, detail=a), replace(each, name="all", detail=b)] for a, b in details))
    assert [(row.name, row.exact, len(row.forms)) for row in found] == [("all", 3, 1), ("one", 3, 3)]


def test_of_edits_with_the_same_bytes_the_one_is_told_that_gives_most_buffers() -> None:
    low, high, one, two = (Place("kernel", "kernel.py", line, f"{line} for 0") for line in (1, 2, 3, 4))

    def cause(first: Place, *alike: Place) -> list[Cause]:
        others = tuple(f"{each.edit} ({each})" for each in alike)
        return [replace(ONE, detail=first.edit, place=replace(first, alike=alike, others=others))]

    (row,) = of(cause(low, high, one), cause(two, high), cause(high))
    assert (row.detail, row.exact, len(row.forms)) == (high.edit, 3, 1)
    assert row.place is not None and row.place.key == high.key
    assert row.place.others == ("1 for 0 (kernel.py:1)", "3 for 0 (kernel.py:3)")


@pytest.mark.parametrize("others", range(4))
def test_a_cause_of_less_than_half_of_the_buffers_is_weak(others: int) -> None:
    (row,) = of([ONE], *[[replace(ONE, explained=8)]] * others)
    assert row.few == (others > 1) and str(row).endswith(", weak)") == row.few, str(row)


@pytest.mark.search(1)
def test_a_single_case_reads_as_the_diff_does() -> None:
    report = wrong(1, UNBORDERED)
    found, first = agreed([report]), report.causes[0]
    assert list(map(str, found)) == list(
        map(str, sorted(report.causes, key=lambda c: (not c.exact, -c.score, c.fitted)))
    )
    told = plain(found[0])
    assert first.place is not None and told.pop("place")["edit"] == first.place.edit
    assert told == {
        "name": "border padded with 0", "detail": first.detail, "exact": 1, "seen": 1, "of": 1,
        "forms": [{"detail": first.detail, "exact": 1}],
    }  # fmt: skip
    assert agreed([]) == []
