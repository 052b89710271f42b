"""Tables for a sum are found wherever a shift fits, also where it just does: no byte shows one that was passed over."""

from __future__ import annotations

import numpy as np
import pytest

from refsim.exec.cpu.elementwise import lut

LOW, HIGH = lut.NARROW
#: What the other operand reaches, so that no sum saturates; the greatest and the least that make every sum do so.
MIDDLE, ALL_LOW, ALL_HIGH = (-20, 20), -128 - LOW - 1, 127 - HIGH


def fits(x: tuple[int, int], y: tuple[int, int], shift: int = 0) -> bool:
    first, second = (np.array(each, np.int16) for each in (x, y))
    (found,) = lut._fits(first, second, np.array([shift], np.int16), (LOW, HIGH))
    return bool(found)


@pytest.mark.parametrize("shift", [0, 5, -7])
def test_whole_numbers_may_end_where_the_table_does(shift: int) -> None:
    assert fits((LOW - shift, HIGH - shift), MIDDLE, shift)
    assert not fits((LOW - shift - 1, HIGH - shift), MIDDLE, shift)
    assert not fits((LOW - shift, HIGH - shift + 1), MIDDLE, shift)


@pytest.mark.parametrize("shift", [0, 5, -7])
def test_they_may_go_on_where_every_sum_saturates(shift: int) -> None:
    """Below the table with the greatest of the other operand and a carry, above it with the least and none."""
    below, above = (LOW - shift - 9, LOW - shift + 3), (HIGH - shift - 3, HIGH - shift + 9)
    assert fits(below, (ALL_LOW + shift - 30, ALL_LOW + shift), shift)
    assert not fits(below, (ALL_LOW + shift - 30, ALL_LOW + shift + 1), shift)
    assert fits(above, (ALL_HIGH + shift, ALL_HIGH + shift + 30), shift)
    assert not fits(above, (ALL_HIGH + shift - 1, ALL_HIGH + shift + 30), shift)


@pytest.mark.parametrize("seed", range(4))
def test_what_fits_gives_every_sum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = 0
    for _ in range(40):
        center = rng.integers(-300, 300, 2)
        x, y = (rng.integers(at - 90, at + 90, 12).astype(np.int16) for at in center)
        for shift in range(-400, 400, 23):
            if lut._fits(x, y, np.array([shift], np.int16), (LOW, HIGH))[0]:
                found += 1
                for carry in (0, 1):
                    wanted = (x[:, None] + y + carry).clip(-128, 127)
                    assert np.array_equal(
                        ((x + shift).clip(LOW, HIGH)[:, None] + y - shift + carry).clip(-128, 127), wanted
                    )
    assert found > 20
