"""Rows that are quantized by themselves, and sums over groups of them: against loops in whole numbers and fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from refsim.core.qmath import CANONICAL
from refsim.core.rng import Rng
from refsim.ops.base import group_linear

FLAGS = CANONICAL.flags


def test_rows_are_quantized_by_their_own_scale_and_zero_point() -> None:
    x = np.array([[[-2.0, 0.25, 1.0, 60.0], [0.0, 0.75, -0.75, 100.0]]], np.float32)
    scale, zp = np.array([[0.5, 0.25]], np.float32), np.array([[3, -2]], np.int8)
    found = group_linear.quantized_rows(x, scale, zp, FLAGS)
    # 0.5 goes to the even neighbour; what is beyond a byte stops at its ends
    assert found.tolist() == [[[-1, 3, 5, 123], [-2, 1, -5, 127]]]


def test_a_group_of_128_and_more_has_twice_the_workers() -> None:
    found = {group: group_linear.workers_of(group) for group in (4, 64, 124, 127, 128, 132, 256)}
    assert found == {4: 16, 64: 16, 124: 16, 127: 16, 128: 32, 132: 32, 256: 32}


@pytest.mark.parametrize("rows", [(), (3,), (2, 3)])
@pytest.mark.parametrize("group", [4, 8, 64, 128, 256])
def test_sums_of_groups(rows: tuple[int, ...], group: int) -> None:
    q = Rng(group).ints(-128, 127, (*rows, 2 * group)).astype(np.int32)
    found = group_linear.group_sums(q, group)
    assert found.dtype == np.int64 and found.shape == (*rows, 2)
    for row, sums in zip(q.reshape(-1, 2 * group), found.reshape(-1, 2), strict=True):
        assert sums.tolist() == [sum(map(int, row[:group])), sum(map(int, row[group:]))]


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


def test_a_group_adds_its_products_less_its_zero_point() -> None:
    rng, k, group, out = Rng(5), 24, 8, 6
    q = rng.ints(-128, 127, (2, 3, k)).astype(np.int32)
    zp = rng.ints(-128, 127, (2, 3)).astype(np.int8)
    values, sums = rng.ints(-8, 7, (out, k)).astype(np.int8), rng.ints(-999, 999, (3, out)).astype(np.int32)
    found = group_linear.adjusted(q, zp, values, sums, group)
    assert found.dtype == np.int64 and found.shape == (3, 2, 3, out)
    for g, b, row, n in np.ndindex(found.shape):
        part = range(g * group, g * group + group)
        products = sum(int(q[b, row, at]) * int(values[n, at]) for at in part)
        assert found[g, b, row, n] == products - int(zp[b, row]) * int(sums[g, n])


def test_groups_are_scaled_in_order_and_the_bias_comes_last() -> None:
    rng = Rng(6)
    adj = rng.ints(-4000, 4000, (3, 2, 4, 5)).astype(np.int64)
    scale = rng.uniform(0.01, 0.9, (2, 4)).astype(np.float32)
    weight_scales = rng.uniform(0.01, 0.9, (3, 5)).astype(np.float32)
    bias = rng.uniform(-9.0, 9.0, (5,)).astype(np.float32)
    for given in (None, bias):
        found = group_linear.scaled(adj, scale, weight_scales, given, FLAGS)
        assert found.dtype == np.float32 and found.shape == (2, 4, 5)
        for b, row, n in np.ndindex(found.shape):
            total = np.float32(0)
            for g in range(3):
                total += np.float32(adj[g, b, row, n]) * (scale[b, row] * weight_scales[g, n])
            assert found[b, row, n] == (total if given is None else total + bias[n])


@pytest.mark.parametrize("lanes", [1, 2, 64])
@pytest.mark.parametrize("k", [1, 8, 255, 256, 520])
def test_lanes_take_blocks_of_four_in_turn_and_are_added_by_halves(k: int, lanes: int) -> None:
    rng = Rng(k)
    x = rng.uniform(-1.0, 1.0, (1, k)).astype(np.float32)
    real = rng.uniform(-1.0, 1.0, (3, k)).astype(np.float32)
    bias = np.array([0.5, -3.0, 7.0], np.float32)
    found = group_linear.cooperative(x, real, None, FLAGS, lanes)
    assert found.dtype == np.float32 and found.shape == (1, 3)
    for n in range(3):
        held = [np.float32(0)] * lanes
        for at in range(k):
            held[at // 4 % lanes] += x[0, at] * real[n, at]
        while len(held) > 1:
            half = len(held) // 2
            held = [a + b for a, b in zip(held[:half], held[half:], strict=True)]
        assert found[0, n] == held[0]
        exact = sum(
            (Fraction(float(a)) * Fraction(float(b)) for a, b in zip(x[0], real[n], strict=True)), Fraction()
        )
        assert abs(Fraction(float(found[0, n])) - exact) < Fraction(1, 1000)
    assert np.array_equal(group_linear.cooperative(x, real, bias, FLAGS, lanes), found + bias)
    if lanes == group_linear.LANES:
        assert np.array_equal(group_linear.cooperative(x, real, None, FLAGS), found)
