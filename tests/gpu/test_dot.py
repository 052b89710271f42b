"""dot4 of shaders/include/dot.glsl, with OpSDot and without, against plain integer arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from refsim_gpu.kompute import Device

LOCAL = 64
SHADERS = ("probe/dot", "probe/dot_portable")
EXTREMES = np.array([-128, -127, -1, 0, 1, 126, 127], np.int8)


def cases() -> tuple[np.ndarray, np.ndarray]:
    """Operands as int8 (words, 4): every pair of bytes in every lane, the extremes together, random words."""
    every = np.arange(-128, 128, dtype=np.int8)
    pairs = np.stack(np.meshgrid(every, every, indexing="ij"), -1).reshape(-1, 2)
    a, b = [], []
    for lane in range(4):
        for operand, column in ((a, 0), (b, 1)):
            word = np.zeros((len(pairs), 4), np.int8)
            word[:, lane] = pairs[:, column]
            operand.append(word)
    extremes = np.stack(np.meshgrid(*[EXTREMES] * 4, indexing="ij"), -1).reshape(-1, 4)
    for other in (extremes, np.roll(extremes, 1, axis=1), extremes[::-1], np.full_like(extremes, -128)):
        a.append(extremes)
        b.append(other)
    generator = np.random.default_rng(20)
    for operand in (a, b):
        operand.append(generator.integers(-128, 128, (100_003, 4), np.int8))
    return np.concatenate(a), np.concatenate(b)


@pytest.mark.parametrize("shader", SHADERS)
def test_dot4_is_exact(device: Device, shader: str) -> None:
    if shader == "probe/dot" and not device.info.integer_dot_product:
        pytest.skip(f"{device.info.name} has no VK_KHR_shader_integer_dot_product")
    a, b = cases()
    want = (a.astype(np.int64) * b).sum(axis=1)
    assert want.max() == 4 * 128 * 128 and want.min() == 4 * -128 * 127
    count = len(a)
    grid = (-(-count // LOCAL), 1, 1)
    out = np.full(count + 1, 0x5A5A5A5A, np.int32)
    words = [operand.view(np.int32).reshape(-1) for operand in (a, b)]
    got = device.once(shader, words, out, grid, push=(count,))
    assert got[count] == out[count], "wrote past its end"
    np.testing.assert_array_equal(got[:count], want)
