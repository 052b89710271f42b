"""A failed test says which functions of the sources made what it compares."""

from __future__ import annotations

import json
from collections.abc import Callable

import asked
import pytest

from refsim.core import counted, qmath
from refsim.core.lanes import lane
from refsim.core.tensor import TensorDesc
from refsim.exec.cpu.amx import tiles


def at_once() -> None:
    assert counted.counted(1, "word") == "2 words"


def by_a_name() -> None:
    first = lane(0x0201, 1)
    other = qmath.inv_scale(1.0)
    second = first + 1
    assert second == 5, other


def by_a_method() -> None:
    desc = TensorDesc((1, 2, 3, 4), "4C")  # type: ignore[arg-type]
    for _ in range(2):
        size = desc.nbytes
        assert size == 3


def of_what_is_kept() -> None:
    assert tiles.refused.__wrapped__() == 7


def of_nothing() -> None:
    found = sum([1, 2])
    assert found == 4


def in_the_sources() -> None:
    raise AssertionError


def other_error() -> None:
    lane("a", 1)


def by_an_item_that_is_missing() -> None:
    sizes = {lane(0x0201, 1): "one"}
    assert sizes[7]


def by_another_number_of_them() -> None:
    (one,) = [counted.counted(n, "word") for n in (1, 2)]
    assert one


def by_an_error_of_elsewhere() -> None:
    json.loads("{" * lane(0x0201, 1))


LANE, COUNTED, TENSOR = (
    "refsim/core/lanes.py: lane", "refsim/core/counted.py: counted", "refsim/core/tensor.py: TensorDesc",
)  # fmt: skip


@pytest.mark.parametrize(
    ("test", "wanted"),
    [
        (at_once, f"asked of {COUNTED}"),
        (by_a_name, f"asked of refsim/core/qmath.py: inv_scale, {LANE}"),
        (by_a_method, f"asked of {TENSOR}"),
        (of_what_is_kept, "asked of refsim/exec/cpu/amx/tiles.py: refused"),
        (of_nothing, ""),
        (in_the_sources, ""),
        (other_error, ""),
        (by_an_item_that_is_missing, f"asked of {LANE}"),
        (by_another_number_of_them, f"asked of {COUNTED}"),
        (by_an_error_of_elsewhere, ""),
    ],
)
def test_what_was_asked(test: Callable[[], None], wanted: str) -> None:
    with pytest.raises((AssertionError, TypeError, KeyError, ValueError)) as raised:
        test()
    assert asked.told(raised.value) == wanted
