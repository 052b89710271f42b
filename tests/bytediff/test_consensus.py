"""Several wrong buffers of one kernel: the cause that holds in all of them comes first."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from seeded import CONV, EXCHANGED, UNBORDERED
from wrong import Edit

from refsim.bytediff import Cause, Report, diff
from refsim.bytediff.consensus import agreed, decided, reordered
from refsim.bytediff.search.words import Place
from refsim.core.plain import plain
from refsim.ops.base.binding import bind


def wrong(seed: int, edit: Edit) -> Report:
    bound = bind(replace(CONV, seed=seed))
    return diff(bound.call.expected(bound.inputs), edit.wrong(bound), call=bound, device=True, limit=1)


@pytest.mark.long
def test_one_case_may_fit_several_causes_and_all_together_fit_one() -> None:
    """A window whose sides are exchanged: some data fits more than that."""
    reports = [wrong(seed, EXCHANGED) for seed in (1, 2, 3)]
    found = agreed(reports)
    assert found[0].name == "H and W exchanged" and (found[0].exact, found[0].seen, found[0].of) == (3, 3, 3)
    assert "predicts 3 of 3 wrong cases" in str(found[0])
    others = [row for row in found[1:] if not row.cause.weak]
    assert others == sorted(others, key=lambda r: (-r.exact, -r.score))


@pytest.mark.long
def test_a_cause_that_holds_once_comes_after_one_that_holds_always() -> None:
    report, other = wrong(1, UNBORDERED), wrong(2, UNBORDERED)
    lucky = replace(report.causes[0], name="luck", whole=True)
    tied = replace(report, causes=(lucky, *report.causes))
    assert not decided(tied)
    found = agreed([tied, other])
    assert found[0].name == "border padded with 0" and found[0].exact == 2
    assert reordered(tied, found).causes[0].name == "border padded with 0"
    assert reordered(tied, found).causes[-1] in tied.causes


def test_one_edit_for_all_buffers_comes_before_another_edit_in_each() -> None:
    """Though their class is named first in each of them; numbers in their words may differ."""
    place = Place("kernel", "refsim/ops/kernel.py", 1, "low for high")
    cause = Cause("one", "", explained=9, differing=9, contradicted=0, place=place)
    details = ("low for high", "2 for 1"), ("no clamp", "7 for 1"), ("low for low", "8 for 3")
    found = agreed([Named([replace(cause, detail=own), replace(cause, name="all", detail=same)])
                    for own, same in details])  # fmt: skip
    assert [(row.name, row.exact, len(row.forms)) for row in found] == [("all", 3, 1), ("one", 3, 3)]


def test_of_edits_with_the_same_bytes_the_one_is_told_that_gives_most_buffers() -> None:
    low, high, one, two = (Place("kernel", "kernel.py", line, f"{line} for 0") for line in (1, 2, 3, 4))

    def cause(first: Place, *alike: Place) -> Cause:
        others = tuple(f"{each.edit} ({each})" for each in alike)
        place = replace(first, alike=alike, others=others)
        return Cause("address", place.edit, explained=9, differing=9, contradicted=0, place=place)

    reports = [Named([cause(low, high, one)]), Named([cause(two, high)]), Named([cause(high)])]
    (row,) = agreed(reports)
    assert (row.detail, row.exact, len(row.forms)) == (high.edit, 3, 1)
    assert row.place is not None and row.place.key == high.key
    assert row.place.others == ("1 for 0 (kernel.py:1)", "3 for 0 (kernel.py:3)")


def test_a_cause_of_less_than_half_of_the_buffers_is_weak() -> None:
    cause = Cause("one", "", explained=9, differing=9, contradicted=0)
    part = replace(cause, explained=8)
    for others in range(4):
        (row,) = agreed([Named([cause]), *[Named([part])] * others])
        assert row.few == (others > 1) and str(row).endswith(", weak)") == row.few, str(row)


@dataclass
class Named:
    causes: list[Cause]


@pytest.mark.search(1)
def test_a_single_case_reads_as_the_diff_does() -> None:
    report = wrong(1, UNBORDERED)
    found = agreed([report])
    assert [str(row) for row in found] == list(map(str, found_in_order(report)))
    detail = report.causes[0].detail
    told, place = plain(found[0]), report.causes[0].place
    assert place is not None and told.pop("place")["edit"] == place.edit
    assert told == {
        "name": "border padded with 0", "detail": detail, "exact": 1, "seen": 1, "of": 1,
        "forms": [{"detail": detail, "exact": 1}],
    }  # fmt: skip
    assert agreed([]) == []


def found_in_order(report: Report) -> list[object]:
    return sorted(report.causes, key=lambda c: (not c.exact, -c.score, c.fitted))
