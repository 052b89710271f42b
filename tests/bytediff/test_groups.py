"""Causes in weights of 4 bits in groups, in rows quantized by scales of their own, and in those scales."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from refsim.bytediff import diff
from refsim.bytediff.hypotheses import quotients
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
    most: int = 127,
    starts_anew: bool = True,
    sums_at: Callable[[int, int], tuple[int, int]] = lambda g, n: (g, n),
    zero_of: Callable[[int], int] | None = None,
) -> np.ndarray:
    """A kernel of its own for several rows, in plain loops, with a place for each bug."""
    x, scale, zp = (bound.inputs[name].unpack() for name in ("x", "scale", "zp"))
    c, group = bound.call.consts, bound.call.params.group
    weight = c["weight"]
    out = np.zeros(bound.call.out.shape, np.float32)
    values = np.array([[nibble(n, k, weight) for k in range(x.shape[1])] for n in range(out.shape[1])])
    for row, n in np.ndindex(*out.shape):
        zero, step = int(zp[(zero_of or row_of)(row)]), scale[row_of(row)]
        with np.errstate(over="ignore"):
            q = np.clip(np.rint(x[row] * (F(1) / step)) + zero, -128, most).astype(int)
        total, before = F(0), 0
        for g, first in enumerate(range(0, x.shape[1], group)):
            own = q[first : first + group]
            acc = before + int(own @ values[n, first : first + group])
            acc -= zp_times * zero * int(c["weight_sums"][sums_at(g, n)])
            before = 0 if starts_anew else acc
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
    ("clamp bounds", "rows are quantized: at most 63", MANY, {"most": 63}),
    ("sums over other groups", "a sum goes on in the next group", MANY, {"starts_anew": False}),
    ("weight sums of other outputs", "place // 4 * 4 for the place", MANY, {"sums_at": lambda g, n: (g, n // 4 * 4)}),
    ("weight sums of other outputs", "weight sums and scales read at lines 8 apart", MANY,
     {"sums_at": lambda g, n: (0, 8 * g + n) if 8 * g + n < 16 else (1, 8 * g + n - 16),
      "scale_of": lambda g, n: (0, 8 * g + n) if 8 * g + n < 16 else (1, 8 * g + n - 16)}),
    ("weight sums of other outputs", "weight sums and scales read at place // 4 * 4", LONG,
     {"sums_at": lambda g, n: (g, n // 4 * 4), "scale_of": lambda g, n: (g, n // 4 * 4)}),
    ("zero point of rows", "word place // 8 of a line", LONG, {"zero_of": lambda row: row // 8 * 4 + row % 4}),
)  # fmt: skip


def native(bound: BoundCase, odd: Callable[[int], int], apart: int = 1) -> np.ndarray:
    """Zero points are taken off the rows before; ``odd`` gives the odd weight of a byte that has two along K.

    The rows lie in memory, where vectors of 16 are written ``apart`` times as far as they are read.
    """
    x, scale, zp = (bound.inputs[name].unpack() for name in ("x", "scale", "zp"))
    c, group = bound.call.consts, bound.call.params.group
    weight = np.asarray(c["weight"])
    q = np.clip(np.rint(x * (F(1) / scale)[:, None]) + zp[:, None].astype(F), -128, 127)
    flat = (q.astype(int) - zp[:, None]).reshape(-1)
    memory = np.zeros(2 * flat.size + 16, int)
    for first in range(0, flat.size, 16):
        memory[apart * first : apart * first + 16] = flat[first : first + 16]
    rows = memory[: flat.size].reshape(x.shape)
    out = np.zeros(bound.call.out.shape, np.float32)
    for row, n in np.ndindex(*out.shape):
        total = F(0)
        for g, first in enumerate(range(0, x.shape[1], group)):
            acc = 0
            for k in range(first, first + group):
                byte = int(weight[n, k // 2])
                acc += int(rows[row, k]) * ((odd(byte) if k % 2 else byte & 15) - 8)
            total = F(F(F(acc) * F(scale[row] * c["weight_scales"][g, n])) + total)
        out[row, n] = F(total + c["bias"][n])
    return out


@pytest.mark.parametrize(
    ("name", "detail", "odd", "apart"),
    [
        ("elements at another distance", "quantized rows written with vectors of 16 at 2 times their place",
         lambda byte: byte >> 4, 2),
    ],
)  # fmt: skip
def test_a_kernel_that_takes_zero_points_off_first(
    name: str, detail: str, odd: Callable[[int], int], apart: int
) -> None:
    assert np.array_equal(native(MANY, lambda byte: byte >> 4), kernel(MANY))
    check(name, detail, MANY, native(MANY, odd, apart))


def check(name: str, detail: str, bound: BoundCase, values: np.ndarray) -> None:
    expected = bound.call.expected(bound.inputs)
    report = diff(expected, PackedBuffer.pack(values, expected.desc.layout), call=bound)
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


@pytest.mark.parametrize("bound", RANGES, ids=lambda bound: bound.call.op.name)
def test_a_bound_of_a_part_of_each_row_is_named(bound: BoundCase) -> None:
    """Vectors of 16 leave five values of 37, which have bounds of their own."""
    x = np.random.default_rng(4).uniform(-3, 5, (9, 37)).astype(np.float32)
    x[:, 33] = 9
    least = x.copy()
    least[:, 3], least[:, 5], x[:, 35] = -6, 10, -6
    for values, of, what in ((least, "lo", "leave"), (x, "hi", "take")):
        bound = BoundCase(bound.case, bound.call, {"x": PackedBuffer.pack(values, "W")})
        lo, hi = np.minimum(values.min(1), 0), np.maximum(values.max(1), 0)
        if of == "lo":
            lo = np.minimum(values[:, 32:].min(1), 0)
        else:
            hi = np.maximum(values[:, :32].max(1), 0)
        check("range of rows", f"{of} of what 8 lanes {what} alone", bound, _of_rows(bound, lo, hi))


@pytest.mark.parametrize("bound", RANGES, ids=lambda bound: bound.call.op.name)
def test_another_step_from_range_to_scale_is_named(bound: BoundCase) -> None:
    """Another number of steps, the greatest value in place of the least, and rows that begin elsewhere."""
    x = np.random.default_rng(6).uniform(-1, 5, (9, 37)).astype(np.float32)
    x[:, 0], x[:, 36] = -np.arange(9) / F(4) - 1, 6 + np.arange(9) / F(2)
    bound = BoundCase(bound.case, bound.call, {"x": PackedBuffer.pack(x, "W")})
    lo, hi = np.minimum(x.min(1), 0), np.maximum(x.max(1), 0)
    check("range of rows", "rows 36 values apart", bound, _of_rows(bound, *_ranges_of(x, 36)))
    if not bound.call.out.is_int8:
        check("range of rows", "lo without its sign", bound, _of_rows(bound, -lo, hi))
        check(
            "range of rows",
            "the steps of the range: one more",
            bound,
            ((hi - lo) / F(256)).astype(np.float32),
        )


def _ranges_of(x: np.ndarray, apart: int) -> tuple[np.ndarray, np.ndarray]:
    """Of rows of 37 values that begin so far apart."""
    rows = [x.reshape(-1)[row * apart : row * apart + 37] for row in range(9)]
    return np.array([min(row.min(), 0) for row in rows]), np.array([max(row.max(), 0) for row in rows])


def test_a_division_that_loses_a_digit_is_named() -> None:
    """Scales by a division that cuts off what is behind the last digit: the next float toward zero."""
    bound = next(bound for bound in RANGES if not bound.call.out.is_int8)
    x = np.random.default_rng(9).uniform(-1, 5, (9, 37)).astype(np.float32)
    bound = BoundCase(bound.case, bound.call, {"x": PackedBuffer.pack(x, "W")})
    width = np.maximum(x.max(1), 0) - np.minimum(x.min(1), 0)
    exact = width.astype(np.float64) / 255
    cut = exact.astype(np.float32)
    cut = np.where(cut > exact, np.nextafter(cut, F(0)), cut).astype(np.float32)
    check("range of rows", "its division: rounded down", bound, cut)


@pytest.mark.parametrize("count", [20000])
def test_the_division_without_a_bug_is_that_of_binary32(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, (right, _, _) in quotients._STEPS.items():
        monkeypatch.setitem(quotients._TABLE, name, np.full((1, 1), right, np.int64))
    rng = np.random.default_rng(8)
    a, b = rng.integers(0, 1 << 32, count, np.uint32), rng.integers(0, 0x7F800001, count, np.uint32)
    with np.errstate(all="ignore"):
        want, made = a.view(F) / b.view(F), quotients.divided(a.view(F), b.view(F))[0]
    same = (want.view(np.uint32) == made.view(np.uint32)) | np.isnan(want) & np.isnan(made)
    assert same.all()
