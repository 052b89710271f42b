"""A bug of one lane, border, sign or workgroup alone is named with its region; what does not fit is called weak."""

from __future__ import annotations

from dataclasses import replace
from html import unescape
from typing import Any

import numpy as np
import pytest
from seeded import CONV, EXCHANGED, FOLDED_TWICE, TRUNCATED, UNFOLDED, UNSIGNED
from wrong import Edit

from refsim.bytediff import Cause, Report, diff
from refsim.bytediff.consensus import agreed
from refsim.bytediff.evidence import Evidence
from refsim.bytediff.html import render
from refsim.bytediff.invocations import coordinates
from refsim.bytediff.within import regions
from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.ops.base.binding import bind

BOUND = bind(
    replace(
        CONV, inputs={"x": ((2, 8, 9, 7), "4W4C")}, features={"out_channels": 16, "bias": True},
        params={**CONV.params, "activation": "none", "out_scale": 4.0},
    )
)  # fmt: skip
EXPECTED = BOUND.call.expected(BOUND.inputs)
VALUES = EXPECTED.kinds() == ByteKind.VALUE
N, C, H, W = coordinates(EXPECTED.desc)
CELLS = np.arange(len(EXPECTED.data))
LANE_3 = CELLS % 4 == 3
#: An edit in a region is found after those of whole buffers.
pytestmark = pytest.mark.search(10)


def with_cells(mask: np.ndarray, cells: np.ndarray) -> PackedBuffer:
    """The right buffer, but for the elements in a region."""
    made = PackedBuffer.from_raw(EXPECTED.raw.tobytes(), EXPECTED.desc.shape, EXPECTED.desc.layout)
    made.data[mask & VALUES] = cells[mask & VALUES]
    return made


def explained(mask: np.ndarray, edit: Edit = UNFOLDED) -> tuple[Report, list[Cause]]:
    """The report on a kernel that has a bug in a region alone, and the causes that are named for it."""
    report = diff(EXPECTED, with_cells(mask, edit.wrong(BOUND).data), call=BOUND, limit=2)
    return report, [cause for cause in report.causes if cause.name == edit.cause]


@pytest.mark.long
@pytest.mark.parametrize(
    ("edit", "where", "mask"),
    [
        (UNFOLDED, ["only in lane 3"], LANE_3),
        (FOLDED_TWICE, ["only at h = 0"], H == 0),
        (UNSIGNED, ["only where the right value is negative"], EXPECTED.data < 0),
        (EXCHANGED, ["only at c >= 12"], C >= 12),
        (UNFOLDED, ["only at n = 1"], N == 1),
        (TRUNCATED, ["only where w % 2 is 1"], W % 2 == 1),
        (UNFOLDED, ["lane 3", "h = 0"], LANE_3 & (H == 0)),
        # Another row of each image is right, as where a scratch is written at a wrong row.
        (UNFOLDED, [f"only in {2 * int(H.max())} of {2 * int(H.max() + 1)} rows of an image"],
         ~np.isin(H + 100 * N, (1, 103))),
    ],
    ids=["lane", "border", "sign", "channels", "batch", "phase", "two at once", "rows that no rule gives"],
)  # fmt: skip
def test_a_cause_holds_in_a_region_alone(edit: Edit, where: list[str], mask: np.ndarray) -> None:
    report, named = explained(mask, edit)
    assert report.differing >= 8
    assert named and named[0].exact and named[0] in report.causes[:3], str(report)
    told = report.as_json()["causes"][report.causes.index(named[0])]["where"]
    for text in (named[0].where, told, str(report), unescape(render(report))):
        assert all(part in text for part in where), str(report)


@pytest.mark.long
def test_slabs_of_few_elements_say_nothing() -> None:
    """Where right and wrong elements are mixed in every row, no choice of rows explains the wrong ones."""
    _, named = explained(CELLS % 7 != 3)
    assert all("of an image" not in cause.where for cause in named)


@pytest.mark.long
def test_random_bytes_have_no_cause_but_facts() -> None:
    noise = np.random.default_rng(4).integers(-128, 128, len(CELLS)).astype(np.int8)
    report = diff(EXPECTED, with_cells(CELLS % 4 == 1, noise), call=BOUND, limit=2)
    assert not report.known and "likely cause: unknown, but" in str(report)
    for text in ("only in lane 1", "steps in the middle"):
        assert any(text in line for line in report.facts)
    assert "unknown, but" in render(report) and report.as_json()["facts"] == list(report.facts)


@pytest.mark.parametrize(
    ("changes", "weak"),
    [
        ({}, False),
        ({"contradicted": 20}, True),
        ({"explained": 2, "differing": 2, "fitted": True}, True),
        ({"explained": 2, "differing": 2, "where": "only in lane 3"}, True),
        ({"explained": 3, "differing": 3}, True),
        ({"explained": 4, "differing": 4}, False),
    ],
)
def test_what_right_bytes_contradict_is_weak(changes: dict[str, Any], weak: bool) -> None:
    cause = replace(Cause("a", "b", 50, 100, 0), **changes)
    assert cause.weak == weak == ("weak" in str(cause))


def test_tiny_cases_never_decide_alone() -> None:
    """One element fits many causes; a larger case that fits another one counts more."""
    tiny = Cause("block transposed", "x", 1, 1, 0, whole=True)
    both = replace(tiny, name="zero point not folded")
    report = diff(EXPECTED, EXPECTED)
    named = (tiny, both), (tiny, both), (replace(both, explained=90, differing=90),)
    found = agreed([replace(report, causes=causes) for causes in named])
    assert [row.name for row in found] == ["zero point not folded", "block transposed"]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_few_differences_have_no_region(count: int) -> None:
    made = with_cells(np.isin(CELLS, np.flatnonzero(VALUES)[:count]), EXPECTED.data ^ 1)
    assert regions(Evidence(EXPECTED, made, np.ones(len(CELLS), bool), BOUND)) == []


def test_facts_say_a_region_once_and_in_plain_words() -> None:
    rng = np.random.default_rng(1)
    values, wrong = rng.integers(-128, 128, (2, 1, 16, 16, 16), np.int8)
    wrong[..., 1:-1, 1:-1] = values[..., 1:-1, 1:-1]
    lines = diff(PackedBuffer.pack(values, "4W4C"), PackedBuffer.pack(wrong, "4W4C")).facts
    assert sum("only in the first or last row or column of the image" in line for line in lines) == 1
