"""The mean between delegates: the bits of its definition, whatever the sums' order would change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from refsim.aten.reduce import mean
from refsim.exec.cpu.pool.plain import ROWS, PlainMean


def drawn(shape: tuple[int, ...]) -> np.ndarray:
    """Of magnitudes so different that another order of additions shows."""
    rng = np.random.default_rng(sum(shape))
    return (rng.standard_normal(shape) * 10.0 ** rng.integers(-6, 6, shape)).astype(np.float32)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize(
    ("shape", "dim"),
    [
        ((1, 16, 64, 64), [2, 3]), ((1, 16, 64, 64), [-1, -2]), ((2, ROWS + 1, 5, 7), [2, 3]), ((3, 5, 7), [-1]),
        ((1, 1, 9), [2]), ((31, 4), [1]), ((6, 7), None), ((6, 7), []), ((5,), [0]), ((2, 3, 4), [0, 1, 2]),
    ],
)  # fmt: skip
def test_the_definitions_bits(shape: tuple[int, ...], dim: Any, keepdim: bool) -> None:
    faster = PlainMean()
    for x in (drawn(shape), -np.zeros(shape, np.float32), np.full(shape, np.inf, np.float32)):
        for _ in range(2):
            found, need = faster(x, dim, keepdim), mean(x, dim, keepdim)
            assert found is not None
            assert (found.shape, found.dtype, found.tobytes()) == (need.shape, need.dtype, need.tobytes())


def test_the_order_of_additions_shows() -> None:
    x = drawn((16, 4096))
    assert mean(x, [1]).tobytes() != mean(x[:, ::-1], [1]).tobytes()


def test_other_arguments_are_left_to_the_definition() -> None:
    x, faster = drawn((4, 5, 6)), PlainMean()
    for args in (
        (x, [0]),
        (x, [1]),
        (x, [0, 2]),
        (x.astype(np.float64), [2]),
        (x, [2], False, 6),
        (x.T, [2]),
    ):
        assert faster(*args) is None
    assert faster(x[:, :0], [1]) is None and faster(np.float32(1).reshape(()), []) is None
    for wrong in (
        (),
        (None,),
        (x, 2),
        (x, [3]),
        (x, [-4]),
        (x, [2, 2]),
        (x, ["w"]),
        (x, [True]),
        (x, None, False, None, 1),
    ):
        assert faster(*wrong) is None
