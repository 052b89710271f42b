"""Rows that are quantized by themselves, and sums over groups of them: against loops in whole numbers and fractions."""

from __future__ import annotations

import numpy as np
import pytest

from refsim.core.rng import Rng
from refsim.ops.base import group_linear


def test_a_group_of_128_and_more_has_twice_the_workers() -> None:
    found = {group: group_linear.workers_of(group) for group in (4, 64, 124, 127, 128, 132, 256)}
    assert found == {4: 16, 64: 16, 124: 16, 127: 16, 128: 32, 132: 32, 256: 32}


@pytest.mark.parametrize(
    "group, workers", [(4, 16), (64, 16), (128, 16), (128, 32), (256, 32), (256, 16), (24, 2)]
)
def test_what_a_worker_has_is_added_once_more_for_each_further_block(group: int, workers: int) -> None:
    q = Rng(workers).ints(-128, 127, (2, 3, 2 * group)).astype(np.int32)
    found = group_linear.doubled_sums(q, group, workers)
    assert found.dtype == np.int64 and found.shape == (2, 3, 2)
    for row, sums in zip(q.reshape(-1, 2, group), found.reshape(-1, 2), strict=True):
        for values, total in zip(row, sums, strict=True):
            blocks, held = [int(values[at : at + 4].sum()) for at in range(0, group, 4)], [0] * workers
            for number, block in enumerate(blocks):
                held[number % workers] += block + held[number % workers]
            assert total == sum(held)
    if group // 4 <= workers:  # a block each: nothing is added again
        assert np.array_equal(found, group_linear.group_sums(q, group))
