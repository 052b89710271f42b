"""Scale and zero point of every row of a float tensor, from its least and greatest value.

    lo = min(row, 0);  hi = max(row, 0);  s = (hi - lo) / f32(qmax - qmin)
    s = 0.1                           if s is 0 or 1 / s is infinite
    s = 6.1e-5 where it is less;      hi = s * 255 if lo is 0, lo = -s * 255 if hi is 0, else both times 6.1e-5 / s
    a = lo / s;  b = hi / s
    z = qmin - a if |qmin| - |a| < |qmax| - |b|, else qmax - b
    zp = rne(z), clamped to [qmin, qmax]

Each operation rounds once to binary32, divisions too; a device may divide less exactly. NaN counts as nothing in a row.
Rows of infinities have an infinite scale; a z that is NaN gives the zero point 0.

Source: ET-VK's choose_qparams_affine. It computes rows only, of tensors whose leading dims are 1. The kind of mapping,
eps and the dtypes that a graph carries change nothing there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from refsim.core.errors import ParameterError, ShapeError
from refsim.core.jit import jitable, select
from refsim.core.launch import Launch, Triple
from refsim.core.layout import WIDTH_PACKED
from refsim.core.push import PushWords, SpecWords, int32
from refsim.core.qmath import QMAX, QMIN, clamp, flush, round_half
from refsim.ops.base.arg import Arg, Kind, Shapes
from refsim.ops.base.case import Case
from refsim.ops.base.case_rule import MANY, CaseSlot, Hard, Made, rule, shape4
from refsim.ops.base.defect import Defect
from refsim.ops.base.spec import Call, KernelSpec, OpSpec, Upstream
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family

#: What a row without any range has, the least scale, and the width of the range that goes with it.
NO_RANGE, LEAST, WIDTH = np.float32(0.1), np.float32(6.1e-5), np.float32(255.0)
_ZERO, _ONE, _NAN = np.float32(0.0), np.float32(1.0), np.float32(np.nan)


@dataclass(frozen=True)
class RowRangeParams:
    """The block of values that share a scale, always a row, and the range of the quantized values.

    ``mapping``, ``eps``, the dtypes and ``keepdim`` are recorded and change nothing, but for ``keepdim``, which must
    not be set.
    """

    where = "choose_qparams_affine"

    block: tuple[int, ...]
    mapping: str = "ASYMMETRIC"
    dtype: int | None = None
    qmin: int = QMIN
    qmax: int = QMAX
    eps: float | None = None
    scale_dtype: int | None = None
    zp_dtype: int | None = None
    keepdim: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "block", tuple(int(size) for size in self.block))
        if not QMIN <= self.qmin < self.qmax <= QMAX:
            raise ParameterError(
                self.where, "qmin and qmax are no range of int8", got=(self.qmin, self.qmax),
                need="-128 <= qmin < qmax <= 127",
            )  # fmt: skip
        if self.keepdim:
            raise ParameterError(self.where, "keepdim is not supported", got=True, need="False")


def args(out: Arg) -> tuple[Arg, ...]:
    """The arguments in serialized order."""
    names = ("mapping", "block", "dtype", "qmin", "qmax", "eps", "scale_dtype", "zp_dtype", "keepdim")
    return (Arg("x", Kind.INPUT, (WIDTH_PACKED,)), *(Arg(name) for name in names), out)


# --- meaning ---------------------------------------------------------------------------------------------


@jitable
def scaled(lo: Any, hi: Any, qmin: Any, qmax: Any) -> Any:
    """(scale, lo, hi) of a row's least and greatest value, of which neither is beyond 0."""
    s = (hi - lo) / np.float32(qmax - qmin)
    s = select((s == _ZERO) | np.isinf(_ONE / s), NO_RANGE, s)
    small = s < LEAST
    larger = select(small, LEAST / s, _ONE)
    wide = LEAST * WIDTH
    low = select(lo == _ZERO, lo, select(hi == _ZERO, -wide, lo * larger))
    high = select(lo == _ZERO, wide, select(hi == _ZERO, hi, hi * larger))
    return select(small, LEAST, s), select(small, low, lo), select(small, high, hi)


@jitable
def _over(x: Any, s: Any) -> Any:
    """x / s; NaN without a warning for infinity over infinity."""
    both = np.isinf(x) & np.isinf(s)
    return select(both, _NAN, x / select(both, _ONE, s))


@jitable
def zero_point(s: Any, lo: Any, hi: Any, qmin: Any, qmax: Any, flags: Any) -> Any:
    """The zero point as int32, from what `scaled` gives."""
    least, most = np.float32(qmin), np.float32(qmax)
    a, b = _over(lo, s), _over(hi, s)
    z = select(np.abs(least) - np.abs(a) < np.abs(most) - np.abs(b), least - a, most - b)
    z = select(z == z, z, _ZERO)
    return np.int32(round_half(clamp(z, least, most), flags))


def ranges(params: RowRangeParams, target: Target, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """(scale, lo, hi) of every row; the last dim is gone."""
    given = flush(x, target.profile.flags)
    lo = np.fmin.reduce(given, axis=-1, initial=_ZERO)
    hi = np.fmax.reduce(given, axis=-1, initial=_ZERO)
    found: tuple[np.ndarray, ...] = scaled(lo, hi, params.qmin, params.qmax)
    return found


def out_shape(
    params: RowRangeParams, shapes: Shapes, consts: Mapping[str, Any], declared: Any
) -> tuple[int, ...]:
    """One value per row."""
    return shapes["x"][:-1]


def check(call: Call) -> None:
    """A block is one row."""
    shape = call.descs["x"].shape
    row = (*(1 for _ in shape[:-1]), shape[-1])
    if call.params.block != row:
        raise ShapeError(call.params.where, "block is not a row", got=list(call.params.block), need=list(row))


#: Upstream takes one plane of rows.
PLANES = Defect(
    "planes",
    "upstream's runtime refuses to load this: leading dims above 1",
    lambda call: prod(call.descs["x"].shape[:-2]) > 1,
)


# --- words for the kernels -------------------------------------------------------------------------------

#: ``COUNT`` rows have ``K`` values each; ``ROWS`` of them are a line of the output.
PUSH = PushWords(int32("COUNT"), int32("ROWS"), int32("K"), int32("QMIN"), int32("QMAX"), int32("FLAGS"))
SPEC = SpecWords()
COUNT, ROWS, K, LOW, HIGH, FLAGS = PUSH.offsets


def values(call: Call) -> dict[str, Any]:
    """The words of `PUSH`, by name."""
    shape, p = call.descs["x"].shape, call.params
    found = {"COUNT": prod(shape[:-1]), "ROWS": shape[-2], "K": shape[-1], "QMIN": p.qmin, "QMAX": p.qmax}
    return found | {"FLAGS": call.target.profile.flags}


@jitable
def row_range(x, row, k, flags):  # type: ignore[no-untyped-def]
    """(lo, hi) of a row of float words; NaN counts as nothing."""
    lo, hi = _ZERO, _ZERO
    for i in range(row * k, row * k + k):
        value = flush(np.int32(x[i]).view(np.float32), flags)
        if value < lo:
            lo = value
        if value > hi:
            hi = value
    return lo, hi


# --- cases -----------------------------------------------------------------------------------------------


def _block(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*(1 for _ in shape[:-1]), shape[-1])


def golden(slot: CaseSlot) -> Made:
    shape = shape4(slot)
    # rows whose range is far below, about and above that of the least scale
    scale = slot.rng.choice([0.5, 0.013, 6.1e-5, 2.0**-15, 1e-6, 1e-20])
    params: dict[str, Any] = {"block": _block(shape)}
    if slot.wild:
        params |= {"qmin": slot.rng.choice([QMIN, QMIN, -8, 0]), "qmax": slot.rng.choice([QMAX, QMAX, 15])}
    return params, {"x": shape}, {"scale": scale}


def _many(slot: CaseSlot) -> Made:
    shape = (MANY, 6)
    return {"block": _block(shape)}, {"x": shape}, {"scale": 0.013}


def _tiny(slot: CaseSlot) -> Made:
    """Rows whose range is so small that the inverse of its step is infinite, among a few with infinities."""
    shape = (1 + slot.number % 2, 37, (3, 8, 18, 5)[slot.number])
    return {"block": _block(shape)}, {"x": shape}, {"scale": (1e-39, 2e-39)[slot.number // 2]}


HARD = (Hard("many positions", 1, _many, "random"), Hard("tiny ranges", 4, _tiny, "random"))


# --- what an operator says -------------------------------------------------------------------------------


def _work_item(launch: Launch, word: Any, w: Any, h: Any, c: Any, n: Any) -> tuple[Any, Any, Any]:
    return word, 0 * word, 0 * word


def kernel(run: Callable[..., None], local: Triple) -> KernelSpec:
    """A kernel with a work item for each word of the output."""
    return KernelSpec(
        run, lambda call: call.launched((call.out.words, 1, 1), local, **values(call)), PUSH, SPEC, _work_item
    )


def operator(name: str, out: Arg, **own: Any) -> OpSpec:
    """The operator of one of the two outputs."""
    example = Case(
        name,
        {"block": (1, 64)},
        {"x": ((6, 64), "WIDTH_PACKED")},
        str(out.layouts[0]),
        features={"scale": 0.05},
    )
    cases = rule(
        example,
        dict(block=(1, 2048), x=(128, 2048)),
        example.refused(ShapeError, "block is not a row", block=(1, 32)),
        example.refused(ParameterError, "no range of int8", qmin=-129),
        example.refused(ParameterError, "keepdim", keepdim=True),
        example.refused(ShapeError, "too few dims", x=(64,), block=(64,)),
        spread=320,
        make=golden,
        hard=HARD,
    )
    return OpSpec(
        name=name,
        family=Family.ROW_RANGE,
        args=args(out),
        params=RowRangeParams,
        out_shape=out_shape,
        check=check,
        cases=cases,
        min_rank=2,
        upstream=Upstream(defects=(PLANES,)),
        **own,
    )
