"""The order of an operator's cases: what says most about a kernel comes first, what hides it last."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from refsim.golden import coverage
from refsim.golden.rules import RULES, TELLING
from refsim.golden.telling import SMALL, matching, ordered
from refsim.ops.base.registry import OPS

GOLDEN = Path(__file__).parents[2] / "golden" / "upstream"
COUNT = 32
WITH_RECORDINGS = sorted(path.stem for path in GOLDEN.glob("*.zip"))


@pytest.mark.few(9)
@pytest.mark.parametrize("op", sorted(RULES))
def test_order(op: str) -> None:
    found = list(ordered(op, COUNT, GOLDEN))
    names = [one.name for one in found]
    assert len(set(names)) == len(names)
    told = {f"{op}/{number:04d}" for number in TELLING[op]}
    clean = [one for one in found if not one.hidden]
    early = {one.name for one in clean[: len(told)]}
    assert told - early <= {one.name for one in found if one.hidden}
    assert clean == found[: len(clean)]
    assert all(one.elements <= SMALL for one in found[len(told) : COUNT // 2])
    rows = {coverage.layouts(one.case) for one in found[:COUNT] if one.case is not None}
    assert len(rows) >= min(len(OPS[op].layouts), COUNT // 2)


def test_the_first_cases_show_tails_and_zero_points() -> None:
    first = list(islice(ordered("q8ta_relu", COUNT), 12))
    widths = {coverage.shape4(one.case)[3] % 4 for one in first if one.case is not None}
    assert widths == {0, 1, 2, 3}
    assert len({one.case.params["in_zp"] for one in first if one.case is not None}) >= 4


def test_recordings_are_among_them() -> None:
    found = [one for op in WITH_RECORDINGS for one in ordered(op, 0, GOLDEN) if one.recording is not None]
    assert len(found) == 481 - 11  # the others are refused
    assert not [one for one in ordered("q8ta_add", 4) if one.recording is not None]


@pytest.mark.parametrize(
    ("pattern", "least", "beginning"),
    [
        ("q8ta_relu/0656", 1, "q8ta_relu/0656"),
        ("q8ta_relu/00?1", 10, "q8ta_relu/00"),
        ("upstream/*relu*", 20, "upstream/"),
    ],
)
def test_cases_by_pattern(pattern: str, least: int, beginning: str) -> None:
    found = matching("q8ta_relu", pattern, GOLDEN)
    assert len(found) >= least and all(one.name.startswith(beginning) for one in found)
    assert not matching("q8ta_relu", "q8ta_add/*", GOLDEN)
