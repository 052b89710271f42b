"""Poolings between a dequantize and a quantize: fused into native steps, with the bytes of the float operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builder import F32, Builder, Quantization

from refsim.aten.pool import max_pool2d_with_indices
from refsim.core.layout import PACKED_4C, PACKED_4W, PACKED_4W4C, WIDTH_PACKED, Layout
from refsim.core.rng import Rng
from refsim.exec.cpu import EmulatedExecutor, NativeExecutor
from refsim.exec.executor import run_graph
from refsim.graph.graph import Graph, Ref

MAXPOOL, MEAN, VIEW = (
    "aten.max_pool2d_with_indices.default",
    "aten.mean.dim",
    "aten.view_copy.default",
)
CLAMP = "aten.hardtanh.default"
#: Usual ones, none, and such as move every value.
CLAMPS = (None, (0.0, 6.0), (-1.0, 1.0), (0.0, float("inf")), (5.0, 900.0), (-9e6, -1e4))


def pooled(
    name: str, shape: tuple[int, ...], args: tuple[Any, ...], out: tuple[int, ...], before: Quantization,
    after: Quantization, layout: Layout = PACKED_4C, view: bool = False, seen: bool = False,
    clamp: tuple[float, float] | None = None,
) -> Graph:  # fmt: skip
    b = Builder()
    x = b.convert("q8ta_quantize", b.tensor(shape, F32, WIDTH_PACKED), before, layout)
    x = real = b.convert("q8ta_dequantize", x, before, WIDTH_PACKED)
    if clamp is not None:
        x = b.float(CLAMP, (Ref(x), *clamp), shape)
    x = b.float(name, (Ref(x), *args), *([out, out] if name == MAXPOOL else [out]))
    if view:
        x = b.float(VIEW, (Ref(x), list(out[:2])), out[:2])
    x = b.convert("q8ta_quantize", x, after, PACKED_4W if view else layout)
    x = b.convert("q8ta_dequantize", x, after, WIDTH_PACKED)
    return b.graph((x, real) if seen else (x,))


def check(graph: Graph, seed: int, fused: bool = True) -> None:
    x = Rng(seed).uniform(-6.0, 6.0, graph.tensors[0].shape).astype(np.float32)
    want = run_graph(graph, [x], EmulatedExecutor())
    for threads in (1, 2, 3):
        executor = NativeExecutor(threads)
        got = run_graph(graph, [x], executor)
        assert [g.tobytes() for g in got] == [w.tobytes() for w in want]
        assert fused == any(step.route == "pool" for step in executor.session(graph).steps)


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
    padding, ceil = [rng.integer(0, r // 2) for r in reach], bool(seed % 2)
    args = (kernel, stride, padding, dilation, ceil)
    out = max_pool2d_with_indices(np.zeros((n, c, h, w), np.float32), *args)[0].shape
    before = quantization(rng)
    after = before if seed % 4 else quantization(rng)
    clamp = CLAMPS[seed % len(CLAMPS)]
    check(pooled(MAXPOOL, (n, c, h, w), args, out, before, after, clamp=clamp), seed)


@pytest.mark.parametrize("kernel", [(4, 4), (5, 5), (17, 1)])
def test_max_pool_of_many_taps(kernel: tuple[int, int]) -> None:
    args = ([*kernel], [2, 2], [k // 2 for k in kernel], [1, 1], False)
    shape, q = (2, 70, 19, 11), (0.03, 2)
    out = max_pool2d_with_indices(np.zeros(shape, np.float32), *args)[0].shape
    check(pooled(MAXPOOL, shape, args, out, q, q), 1)


@pytest.mark.parametrize("channels", [12, 64, 68, 132])
def test_mean_of_some_vectors_at_once(channels: int) -> None:
    check(pooled(MEAN, (2, channels, 5, 3), ([2, 3], True), (2, channels, 1, 1), (0.03, 2), (0.02, -3)), 1)


@pytest.mark.parametrize("seed", range(30))
def test_mean(seed: int) -> None:
    rng = Rng(seed)
    n, c, h, w = (rng.integer(1, limit) for limit in (3, 150, 9, 15))
    view = seed % 3 > 0
    args = ([-1, -2] if seed % 2 else [2, 3], True)
    before, after = quantization(rng), quantization(rng)
    clamp = CLAMPS[seed % len(CLAMPS)]
    check(pooled(MEAN, (n, c, h, w), args, (n, c, 1, 1), before, after, view=view, clamp=clamp), seed)


def test_what_is_not_fused() -> None:
    q = (0.05, 3)
    shape, pool = (1, 8, 6, 6), ([2, 2], [2, 2], [0, 0], [1, 1], False)
    check(pooled(MAXPOOL, shape, pool, (1, 8, 3, 3), q, q, seen=True), 1)  # the dequantize runs beside it
    check(pooled(MEAN, shape, ([3], True), (1, 8, 6, 1), q, q), 2, fused=False)
    graph = pooled(MAXPOOL, shape, pool, (1, 8, 3, 3), q, q, PACKED_4W4C)
    check(graph, 3)  # it may lie in 4C between
    x = np.ones(shape, np.float32)
    kept = NativeExecutor(own_layouts=False)
    assert run_graph(graph, [x], kept)[0].tobytes() == run_graph(graph, [x], EmulatedExecutor())[0].tobytes()
    assert all(step.route != "pool" for step in kept.session(graph).steps)
