"""Causes in weights of 4 bits in groups, in rows quantized by scales of their own, and in those scales."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from refsim.bytediff import diff
from refsim.core.buffer import PackedBuffer
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.base.traits import Family

F = np.float32


def linear(rows: int, k: int, out: int, group: int, seed: int = 3) -> BoundCase:
    (name,) = (op.name for op in OPS.of_family(Family.GROUP_LINEAR) if "dq8ca" in op.name)
    inputs = {"x": ((rows, k), "W"), "scale": ((rows,), "W"), "zp": ((rows,), "4W")}
    features = {"out_channels": out, "bias": True, "scale": 0.03125}
    return bind(Case(name, {"group": group}, inputs, "W", seed, features))


MANY, LONG, WIDE, ODD, SINGLE = (
    linear(6, 64, 16, 32),
    linear(11, 32, 8, 16),
    linear(4, 256, 8, 256),
    linear(5, 64, 12, 32),
    linear(1, 512, 12, 32),
)


def kernel(
    bound: BoundCase,
    nibble: Callable[[int, int, np.ndarray], int] = lambda n, k, weight: _nibble(weight, n, k) - 8,
    scale_of: Callable[[int, int], tuple[int, int]] = lambda g, n: (g, n),
    row_of: Callable[[int], int] = lambda row: row,
    zp_times: int = 1,
    workers: int | None = None,
) -> np.ndarray:
    """A kernel of its own for several rows, in plain loops, with a place for each bug."""
    x, scale, zp = (bound.inputs[name].unpack() for name in ("x", "scale", "zp"))
    c, group = bound.call.consts, bound.call.params.group
    weight = c["weight"]
    out = np.zeros(bound.call.out.shape, np.float32)
    values = np.array([[nibble(n, k, weight) for k in range(x.shape[1])] for n in range(out.shape[1])])
    for row, n in np.ndindex(*out.shape):
        zero, step = int(zp[row_of(row)]), scale[row_of(row)]
        with np.errstate(over="ignore"):
            q = np.clip(np.rint(x[row] * (F(1) / step)) + zero, -128, 127).astype(int)
        total = F(0)
        for g, first in enumerate(range(0, x.shape[1], group)):
            own = q[first : first + group]
            acc = int(own @ values[n, first : first + group])
            acc -= zp_times * zero * int(c["weight_sums"][g, n])
            if workers is not None:
                acc += 8 * (int(own.sum()) - _by_workers(own, workers))
            at, column = scale_of(g, n)
            total = F(F(F(acc) * F(scale[row_of(row)] * c["weight_scales"][at, column])) + total)
        out[row, n] = F(total + c["bias"][n])
    return out


def _nibble(weight: np.ndarray, n: int, k: int) -> int:
    return int(weight[n, k // 2]) >> 4 * (k % 2) & 15


def _by_workers(q: np.ndarray, workers: int) -> int:
    total = 0
    for first in range(workers):
        own = 0
        for block in range(first, len(q) // 4, workers):
            own += int(q[4 * block : 4 * block + 4].sum()) + own
        total += own
    return total


def in_one_chain(bound: BoundCase) -> np.ndarray:
    (x,), c = bound.inputs["x"].unpack(), bound.call.consts
    out = np.zeros(bound.call.out.shape, np.float32)
    for n in range(out.shape[1]):
        total = F(0)
        for k, value in enumerate(x):
            real = F(F(_nibble(c["weight"], n, k) - 8) * c["weight_scales"][k // bound.call.params.group, n])
            total = F(F(value * real) + total)
        out[0, n] = F(total + c["bias"][n])
    return out


ROWS: tuple[tuple[str, str, BoundCase, dict[str, Any]], ...] = (
    ("sums of groups doubled", "32 workers", WIDE, {"workers": 32}),
    ("zero point of rows", "not subtracted", MANY, {"zp_times": 0}),
    ("zero point of rows", "subtracted twice", MANY, {"zp_times": 2}),
    ("scale of rows", "of the row before, and its zero point", MANY, {"row_of": lambda row: row - 1}),
    ("nibbles read wrong", "8 not taken", MANY, {"nibble": lambda n, k, w: _nibble(w, n, k)}),
    ("nibbles read wrong", "of a byte exchanged", MANY, {"nibble": lambda n, k, w: _nibble(w, n, k ^ 1) - 8}),
    ("weights laid out for another kernel", "low and high nibbles", MANY,
     {"nibble": lambda n, k, w: _nibble(w, n ^ 4, k) - 8}),
    ("scale of another group", "of the first group for all", MANY, {"scale_of": lambda g, n: (0, n)}),
    ("scale of another group", "stored by rows, read by groups", MANY,
     {"scale_of": lambda g, n: (n % 2, (n + 16 * g) // 2)}),
)  # fmt: skip


def check(name: str, detail: str, bound: BoundCase, values: np.ndarray) -> None:
    expected = bound.call.expected(bound.inputs)
    report = diff(expected, PackedBuffer.pack(values, expected.desc.layout), call=bound, search=0)
    assert not report.same
    found = [cause for cause in report.causes[:3] if cause.name == name]
    assert found, f"{name} is not among:\n{report}"
    assert detail in found[0].detail and found[0].exact, f"{detail} is not in:\n{report}"


def test_the_kernel_without_a_bug() -> None:
    for bound in (MANY, LONG, WIDE, ODD):
        assert np.array_equal(kernel(bound), bound.call.expected(bound.inputs).unpack())


@pytest.mark.parametrize(("name", "detail", "bound", "bug"), ROWS, ids=[f"{n}: {d}" for n, d, _, _ in ROWS])
def test_bug_is_named(name: str, detail: str, bound: BoundCase, bug: dict[str, Any]) -> None:
    check(name, detail, bound, kernel(bound, **bug))


def test_the_order_of_a_single_row_is_named() -> None:
    check("order of float sums", "one chain over K", SINGLE, in_one_chain(SINGLE))


def test_quantizing_a_single_row_is_named() -> None:
    check("quantized rows", "the activation is quantized", SINGLE, kernel(SINGLE))


# --- ranges of rows --------------------------------------------------------------------------------------

RANGES = [
    bind(Case(op.name, {"block": (1, 37)}, {"x": ((9, 37), "W")}, str(op.output.layouts[0]), 5, {"scale": 0.02}))
    for op in OPS.of_family(Family.ROW_RANGE)
]  # fmt: skip


def _of_rows(bound: BoundCase, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    """Scales or zero points of these ranges, where all scales are of a common size."""
    scale = ((hi - lo) / F(255)).astype(np.float32)
    if not bound.call.out.is_int8:
        return scale
    a, b = lo / scale, hi / scale
    z = np.where(F(128) - np.abs(a) < F(127) - np.abs(b), F(-128) - a, F(127) - b)
    return np.clip(np.rint(z), -128, 127).astype(np.int8)


@pytest.mark.parametrize("bound", RANGES, ids=lambda bound: bound.call.op.name)
def test_another_range_is_named(bound: BoundCase) -> None:
    x = (
        np.random.default_rng(4).uniform(-3, 5, (9, 37)).astype(np.float32)
        + np.arange(9, dtype=np.float32)[:, None]
    )
    bound = BoundCase(bound.case, bound.call, {"x": PackedBuffer.pack(x, "W")})
    lo, hi = np.minimum(x.min(1), 0), np.maximum(x.max(1), 0)
    short = x[:, :36]
    bugs = {
        "without 0 in the range": (x.min(1), x.max(1)),
        "of all rows together": (np.full(9, lo.min()), np.full(9, hi.max())),
        "of the row before": (np.roll(lo, 1), np.roll(hi, 1)),
    }
    assert np.array_equal(_of_rows(bound, lo, hi), bound.call.define({"x": x}))
    if bound.call.out.is_int8:  # a row without 0 has the zero point -128 both ways
        del bugs["without 0 in the range"]
    for detail, (low, high) in bugs.items():
        check("range of rows", detail, bound, _of_rows(bound, low, high))
    x[:, 36] = 40
    bound = BoundCase(bound.case, bound.call, {"x": PackedBuffer.pack(x, "W")})
    wrong = _of_rows(bound, np.minimum(short.min(1), 0), np.maximum(short.max(1), 0))
    check("range of rows", "without the last values", bound, wrong)
