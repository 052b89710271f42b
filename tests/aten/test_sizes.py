"""Operators whose result is as large as an argument says are refused before that much memory is taken."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from refsim import aten
from refsim.core.errors import LimitError

X = np.ones((1, 1, 4, 4), np.float32)
W = np.ones((1, 1, 1, 1), np.float32)
BIG = 1 << 20


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("aten::full.out", ((BIG, BIG), 1.0)),
        ("aten::arange.out", (1 << 40,)),
        ("aten::arange.start_out", (0, 1.0, 1e-12)),
        ("aten::expand_copy.out", (X[..., :1], (1, 1, 4, 1 << 40))),
        ("aten::repeat.out", (X, (1, 1, BIG, BIG))),
        ("aten::constant_pad_nd.out", (X, (BIG, BIG, BIG, BIG), 0.0)),
        ("aten::upsample_nearest2d.out", (X, (BIG, BIG))),
        ("aten::upsample_bilinear2d.out", (X, (BIG, BIG), False)),
        ("aten::convolution.out", (X, W, None, (1, 1), (BIG, BIG), (1, 1), False, (0, 0), 1)),
        ("aten::convolution.out", (X, W, None, (BIG, BIG), (0, 0), (1, 1), True, (0, 0), 1)),
        ("aten::repeat_interleave.Tensor_out", (np.array([1 << 40]),)),
    ],
)
def test_results(name: str, args: tuple[Any, ...]) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(LimitError, match="its result"):
            aten.find(name, "x").run(args, "x")
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()
