"""For which arguments ET-VK's float convolutions are wrong, and damaged arguments, of which nothing is said."""

from __future__ import annotations

import pytest

from refsim.aten import bridge
from refsim.aten.convolution import DEFECTS

IGNORED, MIXED = (row.note for row in DEFECTS)
NAME = "aten.convolution.default"


def said(weight: tuple[int, ...], groups: int, transposed: bool = False, rank: int = 4) -> tuple[str, ...]:
    pairs = ((1, 1), (0, 0), (1, 1))
    args = ((1, 8, 6, 6)[:rank], weight, None, *pairs, transposed, (0, 0), groups)
    clamped = bridge.defects("et_vk.conv_with_clamp.default", (*args, 0.0, 6.0))
    assert bridge.defects(NAME, args) == clamped
    return clamped


@pytest.mark.parametrize(
    ("weight", "groups", "transposed", "notes"),
    [
        ((8, 4, 1, 1), 2, False, (IGNORED,)),
        ((8, 2, 1, 1), 4, False, (IGNORED,)),
        ((8, 4, 3, 3), 2, True, (IGNORED,)),
        ((8, 1, 3, 3), 8, True, (IGNORED,)),
        ((8, 2, 3, 3), 4, False, (MIXED,)),
        ((12, 4, 3, 3), 2, False, (MIXED,)),
        ((16, 1, 3, 3), 8, False, (MIXED,)),
        ((16, 4, 1, 3), 4, False, ()),
        ((8, 4, 3, 3), 2, False, ()),
        ((8, 1, 3, 3), 8, False, ()),
        ((8, 1, 1, 1), 8, False, ()),
        ((7, 5, 3, 3), 1, False, ()),
        ((8, 8, 3, 3), 1, True, ()),
    ],
)
def test_groups(weight: tuple[int, ...], groups: int, transposed: bool, notes: tuple[str, ...]) -> None:
    assert said(weight, groups, transposed) == notes


def test_convolutions_over_one_dim_are_right() -> None:
    assert said((8, 2, 3), 4, rank=3) == ()


@pytest.mark.parametrize(
    "args",
    [(), (None,) * 9, ((), (), None, 1, 1, 1, False, 0, 2), ((1, 8, 6, 6), (), None, 1, 1, 1, False, 0, "2")],
)
def test_nothing_is_said_of_damaged_arguments(args: tuple[object, ...]) -> None:
    assert bridge.defects(NAME, args) == ()
    assert bridge.defects("no name", args) == bridge.defects("aten.relu.default", args) == ()
