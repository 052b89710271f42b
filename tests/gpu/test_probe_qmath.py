"""include/qmath.glsl against refsim/core/qmath.py: ties, saturation, NaN, infinities, denormals, random numbers."""

from __future__ import annotations

import numpy as np
import pytest

from refsim.core import qmath
from refsim.core.buffer import GUARD_WORDS
from refsim.core.push import MAX_PUSH_WORDS
from refsim.core.qmath import CANONICAL, inv_scale
from refsim_gpu.build_push import PROBES
from refsim_gpu.kompute import Device
from refsim_gpu.pipelines import guarded_words

SCALES = (2.0**-7, 0.05, 1 / 3, 1.0, 37.5, 2.0**-60, 2.0**60)
ZERO_POINTS = (-128, -3, 0, 127)
RANDOM = 10_000  # of each kind, for each of 28 parameters: 1.1 million
ROW, LOCAL = 8, 64
FLAGS = CANONICAL.flags
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-39, 2.0**-126, -(2.0**-126), 3e38, -3e38, 2.0**31,
     -(2.0**31), 2.0**24 + 2, 8388607.5, 4194303.5, -4194303.5, 0.49999997, -0.49999997],
    np.float32,
)  # fmt: skip


def numbers(scale: np.float32, zp: int, random: np.random.Generator) -> np.ndarray:
    """binary32 numbers whose quotients by the scale are ties, next to ties, near the clamps, anything."""
    quotients = (np.arange(-300, 300) + 0.5).astype(np.float32)
    clamps = np.array([-128.5, -128, 127, 127.5], np.float32) - np.float32(zp)
    exact = np.concatenate([quotients, clamps]) * scale
    beside = [np.nextafter(exact, np.float32(side * np.inf)) for side in (-1, 1)]
    kinds = (
        random.integers(0, 2**32, RANDOM, np.uint32).view(np.float32),  # every exponent, NaNs of every kind
        np.float32(random.uniform(-400, 400, RANDOM)) * scale,
        np.float32(random.integers(-(2**24), 2**24, RANDOM)) * (scale / np.float32(2**16)),
        np.float32(random.integers(-700, 700, RANDOM) / 2) * scale,
    )
    return np.concatenate([SPECIAL, quotients, exact, *beside, *kinds])


def measured(device: Device, triples: np.ndarray, inv: np.float32, zp: int, scale: np.float32) -> np.ndarray:
    count = len(triples)
    push = PROBES["probe/qmath"][0].pack({}, COUNT=count, INV=inv, ZP=zp, SCALE=scale)
    out = device.once(
        "probe/qmath",
        [guarded_words(triples.reshape(-1).view(np.int32))],
        guarded_words(np.zeros(count * ROW, np.int32)),
        (-(-count // LOCAL), 1, 1),
        spec=(LOCAL, 1, 1, 1, 1, 1),
        push=[*push, *[0] * (MAX_PUSH_WORDS - len(push))],
    )
    return out[GUARD_WORDS:][: count * ROW].view(np.int32).reshape(count, ROW)


def is_denormal(x: np.ndarray) -> np.ndarray:
    return (x != 0) & (np.abs(x) < 2.0**-126)


@pytest.fixture(scope="module")
def flushes(device: Device) -> bool:
    """Whether the device takes denormals for 0; then what involves them may differ, see docs/numerics.md."""
    one = np.array([[1e-39, 2.0**40, 0]], np.float32)
    return bool(measured(device, one, np.float32(1), 0, np.float32(1))[0, 5] == 0)


@pytest.mark.parametrize("zp", ZERO_POINTS)
@pytest.mark.parametrize("scale", SCALES)
@np.errstate(all="ignore")
def test_qmath(device: Device, flushes: bool, scale: float, zp: int) -> None:
    random = np.random.default_rng([7, zp + 128, int(np.log2(scale)) + 100])
    step, inv = np.float32(scale), inv_scale(scale)
    x = numbers(step, zp, random)
    triples = np.stack([x, random.permutation(x), random.permutation(x)], axis=1)
    # sums that cancel, where a fused operation would show
    cancel = slice(len(SPECIAL), None, 2)
    triples[cancel, 2] = -(triples[cancel, 0] * triples[cancel, 1])
    got = measured(device, triples, inv, zp, step)
    number = ~np.isnan(x)

    def same(column: int, want: np.ndarray, where: np.ndarray) -> None:
        wrong = np.flatnonzero((got[:, column] != want) & where)
        assert wrong.size == 0, (
            f"{wrong.size} differ, the first for {triples[wrong[0]]}: {got[wrong[0], column]}"
        )

    everywhere = np.ones(len(x), bool)
    same(0, qmath.requant(x, inv, zp, FLAGS), number)
    same(1, qmath.requant(x, inv, zp, FLAGS), everywhere)
    same(2, qmath.to_int8(x, zp, FLAGS), number)
    same(3, got[:, 2], number)  # the sum with a large number rounds as roundEven() does
    q = (x.view(np.int32) & 0xFF).astype(np.uint8).view(np.int8).astype(np.int32)
    same(4, (np.float32(q - zp) * step).view(np.int32), everywhere)
    a, b, c = triples.T
    want = qmath.mul_add(a, b, c, FLAGS)
    tiny = is_denormal(a) | is_denormal(b) | is_denormal(c) | is_denormal(a * b) | is_denormal(want)
    same(5, want.view(np.int32), ~np.isnan(want) & ~(tiny & flushes))
    assert np.isnan(got[np.isnan(want), 5].view(np.float32)).all()  # which NaN is up to the device
    same(6, (~number).astype(np.int32), everywhere)
    shifts = np.uint32(8) * (np.arange(len(x)) & 3).astype(np.uint32)
    same(7, (x.view(np.uint32) & (np.uint32(255) << shifts)).view(np.int32), everywhere)


def test_there_are_a_million_random_numbers() -> None:
    assert len(SCALES) * len(ZERO_POINTS) * RANDOM * 4 > 1_000_000


def test_every_tie_that_can_be_held_rounds_to_even(device: Device) -> None:
    """All k + 1/2 and their neighbours within the clamps, for every zero point."""
    halves = (np.arange(-256, 256) + 0.5).astype(np.float32)
    y = np.concatenate([halves, *(np.nextafter(halves, np.float32(side)) for side in (-1e9, 1e9))])
    triples = np.stack([y, y, y], axis=1)
    for zp in range(-128, 128):
        got = measured(device, triples, np.float32(1), zp, np.float32(1))
        np.testing.assert_array_equal(got[:, 2], qmath.to_int8(y, zp, FLAGS))
        np.testing.assert_array_equal(got[:, 3], got[:, 2])
