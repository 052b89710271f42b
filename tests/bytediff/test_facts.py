"""What a report states of wrong bytes where no cause fits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from refsim.bytediff.evidence import Evidence
from refsim.bytediff.facts import facts
from refsim.core.buffer import PackedBuffer

SHAPE = (1, 8, 16, 16)
X = PackedBuffer.pack(np.random.default_rng(1).integers(-8, 8, SHAPE).astype(np.int8), "4W4C")
EVERYWHERE = "the wrong value depends on the right one alone: the epilogue or a constant, not an address"
SOMEWHERE = "where it is wrong, the value depends on the right one alone"


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        (lambda index, value: value > 2, EVERYWHERE),
        (lambda index, value: index % 16 == 0, SOMEWHERE),  # an address alone decides
    ],
)
def test_equal_right_values_that_became_equal_wrong_ones(
    wrong: Callable[[np.ndarray, np.ndarray], np.ndarray], line: str
) -> None:
    raw = X.raw.copy()
    raw[wrong(np.arange(len(raw)), X.data)] ^= 16
    actual = PackedBuffer.from_raw(raw, SHAPE, "4W4C")
    said = facts(Evidence(X, actual, np.ones(len(raw), bool)))
    assert [one for one in said if one in (EVERYWHERE, SOMEWHERE)] == [line]
