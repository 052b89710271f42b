"""The order of additions in norms, softmax and rotary embeddings, played by hand against the table."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from float_orders import (
    F32,
    ROWS,
    by_four,
    by_lanes,
    in_turn,
    neighbours,
    product_chain,
    run,
    tree,
    values,
    worker,
)

from refsim import aten
from refsim.core.layout import C, W
from refsim.core.qmath import NVIDIA
from refsim.core.rng import Rng

# --- norms -----------------------------------------------------------------------------------------------


def exp(x: np.ndarray) -> np.ndarray:
    return np.exp(x.astype(np.float64)).astype(np.float32)


@pytest.mark.parametrize("what", ["not packed", "packed width", "row of a buffer"])
def test_softmax(what: str) -> None:
    """A buffer's rows are summed by four workers too."""
    place, dim, total = ROWS[what]
    total = by_four if place.buffer else total
    x = Rng(3).uniform(-4.0, 4.0, (1, 2, 3, 23)).astype(np.float32)
    found = run("aten._softmax.default", x, dim, False, place=place)
    for c, h in itertools.product(range(2), range(3)):
        powers = exp(x[0, c, h] - x[0, c, h].max())
        assert np.array_equal(found[0, c, h], powers / total(powers))


def test_softmax_of_nothing_but_infinities() -> None:
    """Repaired after a search that begins with the first element; else it begins with a finite number."""
    x = np.full((1, 4), -np.inf, np.float32)
    for place in (aten.Place(packed=C), aten.Place(packed=W), aten.Place(packed=W, buffer=True)):
        assert run("aten._softmax.default", x, 1, False, place=place).tolist() == [[0.0] * 4]
    assert np.isnan(run("aten._softmax.default", x, 1, False)).all()


@pytest.mark.parametrize(
    ("shape", "lanes"),
    [
        ((5, 40), 32),
        ((8, 40), 16),
        ((40, 16), 4),
        ((40, 8), 2),
        ((1, 40), 64),
        ((2, 3, 40), 8),
        ((6, 7, 40), 8),
        ((40, 50, 8), 2),
    ],
)
def test_layer_norm(shape: tuple[int, ...], lanes: int) -> None:
    """Lanes take texels in turn, then neighbours add up; as many lanes as the workgroup is wide."""
    n = shape[-1]
    x, w, b = values(1, shape), values(2, (n,)), values(3, (n,))

    def total(row: np.ndarray) -> np.float32:
        texels = np.concatenate([row, np.zeros(-len(row) % 4, F32)]).reshape(-1, 4)
        return in_turn([neighbours([worker(texels[:, c], t, lanes) for t in range(lanes)]) for c in range(4)])

    found = run("aten.native_layer_norm.default", x, (n,), w, b, 1e-5, place=aten.Place(packed=W))
    for row, got in zip(x.reshape(-1, n)[:3], found.reshape(-1, n), strict=False):
        middle = F32(total(row) / F32(n))
        spread = F32(total((row - middle) * (row - middle)) / F32(n))
        r = F32(np.float64(F32(spread + F32(1e-5))) ** -0.5)
        assert np.array_equal(got, (row * r + F32(-r * middle)) * w + b)


def test_layer_norm_of_a_buffer() -> None:
    x, w, b = values(1, (3, 131)), values(2, (131,)), values(3, (131,))
    place = aten.Place(packed=W, buffer=True)
    found = run("aten.native_layer_norm.default", x, (131,), w, b, 1e-5, place=place)
    for row, got in zip(x, found, strict=True):
        middle = F32(by_lanes(row) / F32(131))
        delta = row - middle
        r = F32(np.float64(F32(F32(by_lanes(delta * delta) / F32(131)) + F32(1e-5))) ** -0.5)
        assert np.array_equal(got, (delta * r) * w + b)


@pytest.mark.parametrize(("channels", "groups"), [(8, 2), (6, 2), (10, 5), (12, 1), (5, 5)])
@pytest.mark.parametrize("size", [(3, 3), (9, 7), (1, 1)])
def test_group_norm(channels: int, groups: int, size: tuple[int, int]) -> None:
    """64 lanes take runs of a group's texels, pixel by pixel; a texel may belong to two groups."""
    x, w, b = values(1, (2, channels, *size)), values(2, (channels,)), values(3, (channels,))
    inner, depth = size[0] * size[1], channels // groups
    args = (x, w, b, 2, channels, inner, groups, 1e-5)
    found = run("aten.native_group_norm.default", *args, place=aten.Place(packed=C))
    for n, g in itertools.product(range(2), range(groups)):
        first, last = g * depth, (g + 1) * depth
        texels = [
            [x[n, c, p // size[1], p % size[1]] for c in range(4 * t, 4 * t + 4) if first <= c < last]
            for p in range(inner)
            for t in range(first // 4, -(-last // 4))
        ]
        run_length = -(-len(texels) // 64)
        sums, squares = [], []
        for lane in range(64):
            one, two = F32(0), F32(0)
            for value in itertools.chain(*texels[lane * run_length : (lane + 1) * run_length]):
                one, two = F32(one + value), F32(two + F32(value * value))
            sums.append(one)
            squares.append(two)
        count = F32(depth * inner)
        middle = F32(tree(sums) / count)
        variance = F32(F32(tree(squares) / count) - F32(middle * middle))
        r = F32(F32(1) / np.sqrt(F32(variance + F32(1e-5))))
        for c in range(first, last):
            assert np.array_equal(found[n, c], ((x[n, c] - middle) * r) * w[c] + b[c], equal_nan=True)


@pytest.mark.parametrize("buffer", [False, True])
@pytest.mark.parametrize("count", [3, 64, 131, 300])
def test_rms_norm(buffer: bool, count: int) -> None:
    x, w = values(1, (2, count)), values(2, (count,))
    found = run("et_vk.rms_norm.default", x, w, 1e-6, place=aten.Place(packed=W, buffer=buffer))
    for row, got in zip(x, found, strict=True):
        squares = row * row
        if not buffer:  # a texel's four squares are added first
            texels = np.concatenate([squares, np.zeros(-count % 4, F32)]).reshape(-1, 4)
            squares = np.array([in_turn(list(texel)) for texel in texels])
        r = F32(np.float64(F32(F32(by_lanes(squares) / F32(count)) + F32(1e-6))) ** -0.5)
        assert np.array_equal(got, (row * r) * w)


def test_batch_norm() -> None:
    x = values(1, (2, 3, 4, 5))
    w, b, middle, spread = (values(seed, (3,)) for seed in (2, 3, 4, 5))
    args = (x, w, b, middle, np.abs(spread), 0.1, 1e-3)
    found = run("aten._native_batch_norm_legit_no_training.default", *args, place=aten.Place(packed=C))
    for c in range(3):
        deviation = np.sqrt(F32(np.abs(spread[c]) + F32(1e-3)))
        assert np.array_equal(found[:, c], ((x[:, c] - middle[c]) / deviation) * w[c] + b[c])


@pytest.mark.parametrize("fuse", [False, True])
def test_rotary_embeddings(fuse: bool) -> None:
    """Pairs of neighbours, and pairs half a row apart of which the last elements stay as they are."""
    q, k = values(1, (1, 3, 2, 12)), values(2, (1, 3, 1, 12))
    cos, sin = (Rng(seed).uniform(-1.0, 1.0, (5, 6)).astype(np.float32) for seed in (3, 4))
    place = aten.Place(profile=NVIDIA) if fuse else aten.Place()

    def sum_of(a: np.float32, b: np.float32, c: np.float32, d: np.float32) -> np.float32:
        return product_chain([(a, b)], F32(c * d), fuse)

    pairs = aten.find("et_vk.apply_rotary_emb.default", "").run((q, k, cos[:3], sin[:3]), "", place)
    halves = aten.find("et_vk.apply_rotary_emb_hf.default", "").run((q, k, cos, sin, 2), "", place)
    joined = np.stack([cos[:3], sin[:3]], -1)
    one = run("et_vk.apply_rotary_emb_interleaved.default", q[:, :, 0], joined, place=place)
    assert one.tobytes() == np.ascontiguousarray(pairs[0][:, :, 0]).tobytes()
    for x, near, far in zip((q, k), pairs, halves, strict=True):
        for n, p, h, i in np.ndindex(x.shape):
            if i % 2 == 0:
                a, b, c, s = x[n, p, h, i], x[n, p, h, i + 1], cos[p, i // 2], sin[p, i // 2]
                assert (near[n, p, h, i], near[n, p, h, i + 1]) == (sum_of(a, c, -b, s), sum_of(a, s, b, c))
            if i < 3:
                a, b, c, s = x[n, p, h, i], x[n, p, h, i + 3], cos[p + 2, i], sin[p + 2, i]
                assert (far[n, p, h, i], far[n, p, h, i + 3]) == (sum_of(a, c, -b, s), sum_of(b, c, a, s))
            if i >= 6:
                assert far[n, p, h, i] == x[n, p, h, i]
