"""Poolings between a dequantize and a quantize: fused into native steps, with the bytes of the float operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builder import Builder, Quantization, Shape, check, drawn, ran

from refsim.aten.reduce import mean
from refsim.core.layout import PACKED_4C, PACKED_4W, PACKED_4W4C
from refsim.core.rng import Rng
from refsim.exec.cpu import EmulatedExecutor, NativeExecutor
from refsim.exec.cpu.pool.plain import ROWS, PlainMean
from refsim.graph.graph import Graph, Ref

#: Usual ones, none, and such as move every value.
CLAMPS = (None, (0.0, 6.0), (-1.0, 1.0), (0.0, float("inf")), (5.0, 900.0), (-9e6, -1e4))
Q, AFTER = (0.03, 2), (0.02, -3)


def pooled(
    shape: Shape, window: tuple[Any, ...], before: Quantization, after: Quantization, seed: int = 0,
    view: bool = False,
) -> Graph:  # fmt: skip
    """A clamp, and a max pool of this window, or where there is none a mean."""
    b = Builder()
    x = b.entered(shape, before)
    clamp = CLAMPS[seed % len(CLAMPS)]
    x = x if clamp is None else b.clamp(x, *clamp)
    x = b.max_pool(x, *window) if window else b.mean(x, [-1, -2] if seed % 2 else [2, 3])
    x = b.view(x, shape[:2]) if view else x
    return b.graph(b.through(x, after, PACKED_4W if view else PACKED_4C))


def is_fused(graph: Graph) -> bool:
    return any(step.route == "pool" for step in check(graph))


def quantization(rng: Rng) -> Quantization:
    return float(np.float32(rng.uniform(0.01, 0.09, (1,))[0])), rng.integer(-128, 127)


@pytest.mark.parametrize("seed", range(60))
def test_max_pool(seed: int) -> None:
    rng = Rng(seed)
    n, c, h, w = (rng.integer(1, limit) for limit in (2, 150, 12, 20))
    kernel = [rng.integer(1, min(3, h)), rng.integer(1, min(4, w))]
    stride, dilation = [rng.integer(1, 3), rng.integer(1, 2)], [1, 1]
    if seed % 3 == 0:
        dilation = [2 if h > 2 * kernel[0] else 1, 2 if w > 2 * kernel[1] else 1]
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    window = (kernel, stride, [rng.integer(0, r // 2) for r in reach], dilation, bool(seed % 2))
    before = quantization(rng)
    assert is_fused(pooled((n, c, h, w), window, before, before if seed % 4 else quantization(rng), seed))


@pytest.mark.parametrize("kernel", [(4, 4), (5, 5), (17, 1), ()])
@pytest.mark.parametrize("channels", [12, 64, 68, 132])
def test_many_taps_and_some_vectors_at_once(channels: int, kernel: tuple[int, ...]) -> None:
    window = ([*kernel], [2, 2], [k // 2 for k in kernel], [1, 1], False) if kernel else ()
    assert is_fused(pooled((2, channels, 19, 11), window, Q, AFTER if not kernel else Q))


@pytest.mark.parametrize("seed", range(30))
def test_mean(seed: int) -> None:
    rng = Rng(seed)
    n, c, h, w = (rng.integer(1, limit) for limit in (3, 150, 9, 15))
    assert is_fused(pooled((n, c, h, w), (), quantization(rng), quantization(rng), seed, seed % 3 > 0))


def test_what_is_not_fused() -> None:
    shape, window = (1, 8, 6, 6), ([2, 2], [2, 2], [0, 0], [1, 1], False)
    b = Builder()
    real = b.entered(shape, Q)
    assert is_fused(b.graph(b.through(b.max_pool(real, *window), Q), real))  # the dequantize runs beside it
    b = Builder()
    rows = b.float("mean.dim", (Ref(b.entered(shape, Q)), [3], True), (1, 8, 6, 1))
    assert not is_fused(b.graph(b.through(rows, Q)))
    b = Builder()
    graph = b.graph(b.through(b.max_pool(b.entered(shape, Q, PACKED_4W4C), *window), Q, PACKED_4W4C))
    assert is_fused(graph)  # it may lie in 4C between
    kept = NativeExecutor(own_layouts=False)
    assert ran(graph, drawn(graph), kept) == ran(graph, drawn(graph), EmulatedExecutor())
    assert all(step.route != "pool" for step in kept.session(graph).steps)


# --- the mean between delegates --------------------------------------------------------------------------


def of_all_magnitudes(shape: tuple[int, ...]) -> np.ndarray:
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
    for x in (of_all_magnitudes(shape), -np.zeros(shape, np.float32), np.full(shape, np.inf, np.float32)):
        for _ in range(2):
            found, need = faster(x, dim, keepdim), mean(x, dim, keepdim)
            assert found is not None
            assert (found.shape, found.dtype, found.tobytes()) == (need.shape, need.dtype, need.tobytes())


def test_the_order_of_additions_shows() -> None:
    x = of_all_magnitudes((16, 4096))
    assert mean(x, [1]).tobytes() != mean(x[:, ::-1], [1]).tobytes()


def test_other_arguments_are_left_to_the_definition() -> None:
    x, faster = of_all_magnitudes((4, 5, 6)), PlainMean()
    whole = np.float32(1).reshape(())
    for args in (
        (x, [0]), (x, [1]), (x, [0, 2]), (x.astype(np.float64), [2]), (x, [2], False, 6), (x.T, [2]),
        (x[:, :0], [1]), (whole, []), (), (None,), (x, 2), (x, [3]), (x, [-4]), (x, [2, 2]), (x, ["w"]), (x, [True]),
        (x, None, False, None, 1),
    ):  # fmt: skip
        assert faster(*args) is None
