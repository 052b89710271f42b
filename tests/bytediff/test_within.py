"""A bug of one lane, border, sign or workgroup alone is named with its region; what does not fit is called weak."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from seeded import CONV, EXCHANGED, FOLDED_TWICE, TRUNCATED, UNFOLDED, UNSIGNED
from wrong import Edit

from refsim.bytediff import Cause, Report, diff
from refsim.bytediff.consensus import agreed
from refsim.bytediff.evidence import Evidence
from refsim.bytediff.html import render
from refsim.bytediff.invocations import coordinates
from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.ops.base.binding import bind

LARGE = replace(
    CONV, inputs={"x": ((2, 8, 9, 7), "4W4C")}, features={"out_channels": 16, "bias": True},
    params={**CONV.params, "activation": "none", "out_scale": 4.0},
)  # fmt: skip
BOUND = bind(LARGE)
EXPECTED = BOUND.call.expected(BOUND.inputs)
N, C, H, W = coordinates(EXPECTED.desc)
CELLS = np.arange(len(EXPECTED.data))

#: An edit in a region is found after those of whole buffers.
pytestmark = pytest.mark.search(10)
Row = tuple[Edit, str, str, np.ndarray]
ROWS: list[Row] = [
    (UNFOLDED, "only in lane 3", "lane", CELLS % 4 == 3),
    (FOLDED_TWICE, "only at h = 0", "border", H == 0),
    (UNSIGNED, "only where the right value is negative", "sign", EXPECTED.data < 0),
    (EXCHANGED, "only at c >= 12", "channels", C >= 12),
    (UNFOLDED, "only at n = 1", "batch", N == 1),
    (TRUNCATED, "only where w % 2 is 1", "phase", W % 2 == 1),
]  # fmt: skip


def partly(mask: np.ndarray, edit: Edit = UNFOLDED) -> PackedBuffer:
    """The buffer of a kernel that has a bug in a region alone."""
    wrong = edit.wrong(BOUND)
    made = PackedBuffer.from_raw(EXPECTED.raw.tobytes(), EXPECTED.desc.shape, EXPECTED.desc.layout)
    chosen = mask & (EXPECTED.kinds() == ByteKind.VALUE)
    made.data[chosen] = wrong.data[chosen]
    return made


def report_of(actual: PackedBuffer) -> Report:
    return diff(EXPECTED, actual, call=BOUND, limit=2)


@pytest.mark.long
@pytest.mark.parametrize(("edit", "where", "_", "mask"), ROWS, ids=[f"{r[0].cause} {r[2]}" for r in ROWS])
def test_a_cause_holds_in_a_region_alone(edit: Edit, where: str, _: str, mask: np.ndarray) -> None:
    report = report_of(partly(mask, edit))
    assert report.differing >= 8
    named = [cause for cause in report.causes[:3] if cause.name == edit.cause]
    assert named and named[0].exact, str(report)
    assert where in str(named[0]) or named[0].where, str(report)


@pytest.mark.long
def test_a_cause_holds_in_rows_that_no_rule_gives() -> None:
    """Another row of each image is right, as where a scratch is written at a wrong row."""
    right = np.isin(H + 100 * N, (1, 103))
    (cause,) = [c for c in report_of(partly(~right)).causes if c.name == "zero point not folded"]
    rows = int(H.max() + 1) * 2
    assert cause.exact and f"only in {rows - 2} of {rows} rows of an image" in str(cause), str(cause)


@pytest.mark.long
def test_slabs_of_few_elements_say_nothing() -> None:
    """Where right and wrong elements are mixed in every row, no choice of rows explains the wrong ones."""
    right = CELLS % 7 == 3
    found = [c for c in report_of(partly(~right)).causes if c.name == "zero point not folded"]
    assert all("of an image" not in cause.where for cause in found)


@pytest.mark.long
def test_the_region_is_printed() -> None:
    report = report_of(partly(CELLS % 4 == 3))
    assert report.causes[0].name == "zero point not folded" and report.causes[0].exact
    assert report.as_json()["causes"][0]["where"] == "only in lane 3"
    assert "only in lane 3" in render(report)


@pytest.mark.long
def test_two_regions_at_once() -> None:
    report = report_of(partly((CELLS % 4 == 3) & (H == 0)))
    first = next(cause for cause in report.causes if cause.name == "zero point not folded")
    assert first.exact and "lane 3" in first.where and "h = 0" in first.where


@pytest.mark.long
def test_random_bytes_have_no_cause_but_facts() -> None:
    made = PackedBuffer.from_raw(EXPECTED.raw.tobytes(), EXPECTED.desc.shape, EXPECTED.desc.layout)
    chosen = (CELLS % 4 == 1) & (EXPECTED.kinds() == ByteKind.VALUE)
    made.data[chosen] = np.random.default_rng(4).integers(-128, 128, int(chosen.sum()))
    report = report_of(made)
    assert not report.known and "likely cause: unknown, but" in str(report)
    assert any("only in lane 1" in line for line in report.facts)
    assert any("steps in the middle" in line for line in report.facts)
    assert "unknown, but" in render(report) and report.as_json()["facts"] == list(report.facts)


def test_what_right_bytes_contradict_is_weak_and_comes_last() -> None:
    def cause(**changes: int | bool | str) -> Cause:
        return replace(Cause("a", "b", 50, 100, 0), **changes)  # type: ignore[arg-type]

    assert not cause().weak
    assert cause(contradicted=20).weak and "weak" in str(cause(contradicted=20))
    assert cause(explained=2, differing=2, fitted=True).weak
    assert cause(explained=2, differing=2, where="only in lane 3").weak
    assert cause(explained=3, differing=3).weak and not cause(explained=4, differing=4).weak


@pytest.mark.long
def test_tiny_cases_never_decide_alone() -> None:
    """One element fits many causes; a larger case that fits another one counts more."""
    tiny = Cause("block transposed", "x", 1, 1, 0, whole=True)
    both = Cause("zero point not folded", "y", 1, 1, 0, whole=True)
    large = Cause("zero point not folded", "y", 90, 90, 0, whole=True)
    other = report_of(partly(H == 0))
    reports = [
        replace(other, causes=(tiny, both)),
        replace(other, causes=(tiny, both)),
        replace(other, causes=(large,)),
    ]
    assert [row.name for row in agreed(reports)] == ["zero point not folded", "block transposed"]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_few_differences_have_no_region(count: int) -> None:
    from refsim.bytediff.within import regions

    made = PackedBuffer.from_raw(EXPECTED.raw.tobytes(), EXPECTED.desc.shape, EXPECTED.desc.layout)
    made.data[np.flatnonzero(EXPECTED.kinds() == ByteKind.VALUE)[:count]] ^= 1
    assert regions(Evidence(EXPECTED, made, np.ones(len(CELLS), bool), BOUND)) == []


def test_facts_say_a_region_once_and_in_plain_words() -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(-128, 128, (1, 16, 16, 16), np.int8)
    good = PackedBuffer.pack(values, "4W4C")
    wrong = values.copy()
    for place in (np.s_[:, :, 0], np.s_[:, :, -1], np.s_[:, :, :, 0], np.s_[:, :, :, -1]):
        wrong[place] = rng.integers(-128, 128, wrong[place].shape, np.int8)
    lines = diff(good, PackedBuffer.pack(wrong, "4W4C")).facts
    assert sum("only in the first or last row or column of the image" in line for line in lines) == 1
