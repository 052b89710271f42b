"""Float operators that reduce dims. The order of additions is the point: here it is the kernels', to the bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from refsim.aten import within
from refsim.aten.elementwise import dtype_of
from refsim.aten.row import Exact, Float, Place, axis, contiguous, sized

#: Invocations that share one result of a reduction over a texture, and over a row of a buffer.
WORKERS, ROW_WORKERS = 4, 64
#: The same of a runtime with flat storage.
FLAT_WORKERS = 256


def in_order(rows: np.ndarray) -> np.ndarray:
    """The sum over the first dim, one addition after another from 0; NumPy's own sum may pair them."""
    if not len(rows):
        return np.zeros(rows.shape[1:], rows.dtype)
    # a sum from 0 is never -0, one from the first element may be
    return np.add.accumulate(rows, axis=0, dtype=rows.dtype)[-1] + rows.dtype.type(0)


def tree(parts: np.ndarray) -> np.ndarray:
    """p[t] += p[t + h] for h half the count, a quarter, .. 1."""
    while len(parts) > 1:
        half = len(parts) // 2
        parts = parts[:half] + parts[half:]
    result: np.ndarray = parts[0]
    return result


def dealt(x: np.ndarray, workers: int) -> np.ndarray:
    """(rounds, workers, ..) of the first dim dealt out in turn; zeros, which no sum notices, fill the last round."""
    missing = -len(x) % workers
    whole = np.concatenate([x, np.zeros((missing, *x.shape[1:]), x.dtype)]) if missing else x
    return whole.reshape(-1, workers, *x.shape[1:])


def _axes(x: np.ndarray, dim: int | Sequence[int] | None) -> list[int]:
    """The dims of a list, in its order; none means all."""
    given = [dim] if isinstance(dim, int) else list(dim or ())
    return [axis(d, x.ndim) for d in given] or list(range(x.ndim))


def _shape(x: np.ndarray, axes: Sequence[int], keepdim: bool) -> list[int]:
    sizes = [1 if d in axes else size for d, size in enumerate(x.shape)]
    return sizes if keepdim else [size for d, size in enumerate(sizes) if d not in axes]


def _moved(x: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """The reduced dims first, in this order."""
    return np.moveaxis(x, axes, range(len(axes))) if x.ndim else x


# --- sum and mean ----------------------------------------------------------------------------------------


def _total(x: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """In the order of memory, as portable kernels add."""
    moved = _moved(x, sorted(axes))
    return in_order(moved.reshape(-1, *moved.shape[len(axes) :]) if x.ndim else x.reshape(1))


def dealt_and_whole(axes: Sequence[int]) -> tuple[int, int]:
    """Of two dims that ET-VK reduces: the one that is dealt out to `WORKERS`, and the one that each takes whole.

    Worker t starts from 0 and adds the places t, t + `WORKERS`, .. of the first, for each all of the second. Then the
    workers' sums are added in turn. The native kernel follows the same two dims (refsim/exec/cpu/pool).
    """
    first, second = axes
    return first, second


def _device_total(place: Place, x: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """Partial sums by four workers, or by 64 over a row of a buffer; as ET-VK's reduce, reduce2d, reduce_per_row."""
    if len(axes) not in (1, 2) or not x.ndim:
        return _total(x, axes)
    if len(axes) == 2:
        rounds = dealt(_moved(x, dealt_and_whole(axes)), WORKERS).swapaxes(1, 2)
        return in_order(in_order(rounds.reshape(-1, WORKERS, *rounds.shape[3:])))
    moved, whcn = _moved(x, axes), x.ndim - 1 - axes[0]
    if place.buffer and whcn == 0:
        return _row_total(moved)
    if whcn == place.packed:
        return _packed_total(moved)
    return in_order(in_order(dealt(moved, WORKERS)))


def _row_total(moved: np.ndarray) -> np.ndarray:
    """Each lane starts from its first element, which may be -0; one without elements holds 0."""
    missing = -len(moved) % ROW_WORKERS
    filled = np.full((missing, *moved.shape[1:]), -0.0 if len(moved) > ROW_WORKERS else 0.0, moved.dtype)
    lanes = np.concatenate([moved, filled]).reshape(-1, ROW_WORKERS, *moved.shape[1:])
    return tree(np.add.accumulate(lanes, axis=0, dtype=lanes.dtype)[-1])


def _packed_total(moved: np.ndarray) -> np.ndarray:
    """Whole texels by component; a last partial one element by element, to component x of the worker in turn."""
    full = len(moved) // 4
    rest = moved.shape[1:]
    parts = in_order(dealt(moved[: 4 * full].reshape(full, 4, *rest), WORKERS))
    for element in moved[4 * full :]:
        parts[full % WORKERS, 0] = parts[full % WORKERS, 0] + element
    return in_order(in_order(parts))


def _reduction(total: Callable[..., np.ndarray], divide: bool) -> Callable[..., Any]:
    def call(
        x: np.ndarray, dim: int | Sequence[int] | None = None, keepdim: bool = False, dtype: Any = None
    ) -> np.ndarray:
        if dtype is not None:
            x = x.astype(dtype_of(dtype))
        elif divide and not np.issubdtype(x.dtype, np.floating):
            raise TypeError(f"mean of {x.dtype}, only of floats")
        elif not np.issubdtype(x.dtype, np.floating):
            x = x.astype(np.int64)
        axes = _axes(x, dim)
        result = total(x, axes)
        if divide:
            count = int(np.prod([x.shape[d] for d in axes]))
            result = result / x.dtype.type(count)
        return np.asarray(result, x.dtype).reshape(_shape(x, axes, keepdim))

    return call


def _delegate(divide: bool) -> Callable[..., Any]:
    return lambda place, *args: _reduction(partial(_device_total, place), divide)(*args)


def _flat_total(x: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """256 partial sums, dealt out in turn over the places in memory, then added up in order."""
    moved = _moved(x, sorted(axes)).reshape(-1, *[size for d, size in enumerate(x.shape) if d not in axes])
    return in_order(in_order(dealt(moved, FLAT_WORKERS)))


mean, sum_ = _reduction(_total, True), _reduction(_total, False)


def adaptive_avg_pool2d(x: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """Windows that overlap where the sizes do not divide; each in the order of memory."""
    return _adaptive(x, size, lambda part: mean(part, (-2, -1)))


def _adaptive_delegate(place: Place, x: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """The exporter makes a mean over (-1, -2) of an output of 1 x 1."""
    return _adaptive(x, size, lambda part: _delegate(True)(place, part, (-1, -2)))


def _adaptive(x: np.ndarray, size: Sequence[int], average: Callable[..., Any]) -> np.ndarray:
    sized(*x.shape[:-2], *size)
    (rows, row_of), (columns, column_of) = (_windows(*pair) for pair in zip(x.shape[-2:], size, strict=True))
    found = np.stack([np.stack([average(x[..., r, c]) for c in columns], -1) for r in rows], -2)
    return found[..., row_of[:, None], column_of]


def _windows(count: int, out: int) -> tuple[list[slice], np.ndarray]:
    """The different windows of an axis, and which of them each output takes: there may be many more of these."""
    number = np.arange(out)
    ends = np.stack([number * count // out, -(-(number + 1) * count // out)], -1)
    different, which = np.unique(ends, axis=0, return_inverse=True)
    return [slice(int(first), int(last)) for first, last in different], which.reshape(-1)


# --- exact in any order ----------------------------------------------------------------------------------


def _extreme(function: Any) -> Callable[..., Any]:
    def call(x: np.ndarray, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> np.ndarray:
        axes = _axes(x, dim)
        return np.asarray(function(x, axis=tuple(axes))).reshape(_shape(x, axes, keepdim))

    return call


def _with_place(best: Any, place_of: Any) -> Callable[..., Any]:
    """max.dim: the values and where they stand first; max of a whole tensor is one value."""

    def call(x: np.ndarray, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is None:
            return np.asarray(best(x))
        at = axis(dim, x.ndim)
        return best(x, axis=at, keepdims=keepdim), np.asarray(place_of(x, axis=at, keepdims=keepdim))

    return call


def _place_of(function: Any) -> Callable[..., Any]:
    def call(x: np.ndarray, dim: int | None = None, keepdim: bool = False) -> np.ndarray:
        return np.asarray(function(x, axis=None if dim is None else axis(dim, x.ndim), keepdims=keepdim))

    return call


def _truth(function: Any) -> Callable[..., Any]:
    reduced = _extreme(function)
    return lambda x, *args: reduced(x.astype(bool), *args)


# --- others ----------------------------------------------------------------------------------------------


def var(
    x: np.ndarray, dim: Sequence[int] | bool | None = None, correction: Any = 1, keepdim: bool = False
) -> np.ndarray:
    """Of a mean and of squared deviations, each summed in the order of memory."""
    axes = _axes(x, None if isinstance(dim, bool) else dim)
    count = int(np.prod([x.shape[d] for d in axes]))
    middle = mean(x, axes, True)
    spread = sum_((x - middle) * (x - middle), axes, keepdim)
    less = 1 if correction is None else correction
    return np.asarray(spread / x.dtype.type(max(count - float(less), 0)), x.dtype)


def var_mean(
    x: np.ndarray, dim: Sequence[int] | None = None, correction: Any = None, keepdim: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    return var(x, dim, correction, keepdim), mean(x, dim, keepdim)


def vector_norm(
    x: np.ndarray, order: float = 2.0, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> np.ndarray:
    """The square root of a sum of squares in the order of memory; the largest magnitude for infinity."""
    axes = _axes(x, dim)
    if order == float("inf"):
        return np.asarray(_extreme(np.max)(np.abs(x), axes, keepdim))
    if order == 1:
        return np.asarray(sum_(np.abs(x), axes, keepdim))
    if order != 2:
        raise TypeError(f"norm of order {order}")
    return np.sqrt(sum_(x * x, axes, keepdim))


def _floats_or_int64(x: np.ndarray, dtype: Any) -> np.ndarray:
    held = x if dtype is None else x.astype(dtype_of(dtype))
    return held if held.dtype.kind == "f" else held.astype(np.int64)


def _running(function: Any) -> Callable[..., np.ndarray]:
    def call(x: np.ndarray, dim: int, dtype: Any = None) -> np.ndarray:
        held = _floats_or_int64(x, dtype)
        return function(held, axis(dim, x.ndim), dtype=held.dtype) if x.ndim else contiguous(held)

    return call


def prod(x: np.ndarray, dim: int | None = None, keepdim: bool = False, dtype: Any = None) -> np.ndarray:
    """In the order of memory, of one dim or of all."""
    held = _floats_or_int64(x, dtype)
    if dim is None or not x.ndim:
        return np.asarray(_product(held.reshape(-1)))
    at = axis(dim, x.ndim)
    return _product(np.moveaxis(held, at, 0)).reshape(_shape(x, [at], keepdim))


def _product(rows: np.ndarray) -> np.ndarray:
    ones = np.ones((1, *rows.shape[1:]), rows.dtype)
    return np.asarray(np.multiply.accumulate(np.concatenate([ones, rows]), axis=0, dtype=rows.dtype)[-1])


def sort(x: np.ndarray, dim: int = -1, descending: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Equal elements stay in order; NaN counts as the largest."""
    if not x.ndim:
        return contiguous(x), np.zeros((), np.int64)
    at = axis(dim, x.ndim)
    places = np.argsort(x, at, kind="stable")
    if descending:  # the last of the turned round, where equal ones stand in order again
        places = x.shape[at] - 1 - np.flip(np.argsort(np.flip(x, at), at, kind="stable"), at)
    return np.take_along_axis(x, places, at), places


def topk(x: np.ndarray, k: int, dim: int = -1, largest: bool = True, ordered: bool = True) -> Any:
    """Of equal elements the first; kernels take the one that their C++ library comes upon."""
    at = axis(dim, x.ndim)
    order = np.argsort(-x if largest else x, at, kind="stable")
    places = np.take(order, range(k), at)
    return np.take_along_axis(x, places, at), places


_ORDER = "four partial sums by index mod 4 of the first dim, then in turn"
ROWS = (
    Float(
        "mean", mean, _delegate(True), Exact.DIVISION, _ORDER + "; / n",
        within=within.relative(within.DIVISION), flat=_reduction(_flat_total, True),
    ),
    Float("sum", sum_, _delegate(False), order=_ORDER, flat=_reduction(_flat_total, False)),
    Float(
        "adaptive_avg_pool2d _adaptive_avg_pool2d", adaptive_avg_pool2d, _adaptive_delegate, Exact.DIVISION,
        "mean over (-1, -2)", within=within.relative(within.DIVISION),
    ),
    Float("amax", _extreme(np.max)),
    Float("amin", _extreme(np.min)),
    Float("max", _with_place(np.max, np.argmax)),
    Float("min", _with_place(np.min, np.argmin)),
    Float("argmax", _place_of(np.argmax)),
    Float("argmin", _place_of(np.argmin)),
    Float("any", _truth(np.any)),
    Float("all", _truth(np.all)),
    Float("var", var, exact=Exact.DIVISION),
    Float("var_mean", var_mean, exact=Exact.DIVISION),
    Float(
        "linalg_vector_norm norm", vector_norm, exact=Exact.FUNCTION, bound="that of sqrt",
        within=within.relative(within.SQRT),
    ),
    Float("cumsum", _running(np.cumsum)),
    Float("topk", topk),
    Float("prod", lambda x, dtype=None: prod(x, None, False, dtype)),
    Float("prod.dim_int prod.int_out", prod),
    Float("cumprod", _running(np.cumprod)),
    Float("sort", sort),
    Float("sort.stable sort.values_stable", lambda x, stable=True, *args: sort(x, *args)),
    Float("argsort", lambda x, *args: sort(x, *args)[1]),
    Float("argsort.stable", lambda x, stable=True, *args: sort(x, *args)[1]),
)  # fmt: skip
