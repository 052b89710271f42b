"""Float operators that make tensors, and that read and write elements at places held by other tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from refsim.aten.elementwise import dtype_of
from refsim.aten.row import Float, axis, contiguous, sized
from refsim.core.resize import STALE_READS


def _dtype(code: Any, default: Any) -> np.dtype[Any]:
    """The dtype of a code; a portable kernel's output says what it is, so that none is given."""
    return dtype_of(code) if isinstance(code, int) and not isinstance(code, bool) else np.dtype(default)


def _of(value: Any) -> type:
    return bool if isinstance(value, bool) else np.int64 if isinstance(value, int) else np.float32


def full(size: Sequence[int], value: Any, dtype: Any = None, *options: Any) -> np.ndarray:
    return np.full(sized(*size), value, _dtype(dtype, _of(value)))


def full_like(x: np.ndarray, value: Any, dtype: Any = None, *options: Any) -> np.ndarray:
    return np.full(x.shape, value, _dtype(dtype, x.dtype))


def scalar_tensor(value: Any, dtype: Any = None, *options: Any) -> np.ndarray:
    return full((), value, dtype)


def arange(end: Any, dtype: Any = None, *options: Any) -> np.ndarray:
    return arange_from(0, end, 1, dtype)


def arange_from(start: Any, end: Any, step: Any = 1, dtype: Any = None, *options: Any) -> np.ndarray:
    """start + i * step, computed in binary64."""
    count = math.ceil((end - start) / step)
    values = start + np.arange(*sized(count)) * step
    whole = all(isinstance(v, int) for v in (start, end, step))
    return values.astype(_dtype(dtype, np.int64 if whole else np.float32))


def index(x: np.ndarray, indices: Sequence[np.ndarray | None]) -> np.ndarray:
    """ATen's advanced indexing: a None keeps its dim; NumPy puts the result where ATen does."""
    return contiguous(x[tuple(slice(None) if i is None else _places(i) for i in indices)])


def _places(i: np.ndarray) -> np.ndarray:
    return i if i.dtype.kind == "b" else i.astype(np.int64)


def index_put(
    x: np.ndarray, indices: Sequence[np.ndarray | None], values: np.ndarray, accumulate: bool = False
) -> np.ndarray:
    result = contiguous(x)
    places = tuple(slice(None) if i is None else _places(i) for i in indices)
    if accumulate:
        np.add.at(result, places, values.astype(x.dtype))  # type: ignore[arg-type]
    else:
        result[places] = values.astype(x.dtype)
    return result


def index_select(x: np.ndarray, dim: int, places: np.ndarray) -> np.ndarray:
    return contiguous(np.take(x, places.reshape(-1).astype(np.int64), axis(dim, x.ndim)))


def gather(x: np.ndarray, dim: int, places: np.ndarray, sparse: bool = False) -> np.ndarray:
    """Places may have fewer elements along the other dims than the tensor."""
    at = axis(dim, x.ndim)
    cut = tuple(slice(None) if d == at else slice(size) for d, size in enumerate(places.shape))
    return np.take_along_axis(x[cut], places.astype(np.int64), at)


def scatter(x: np.ndarray, dim: int, places: np.ndarray, source: Any, *options: Any) -> np.ndarray:
    result, at = contiguous(x), axis(dim, x.ndim)
    grid: list[Any] = list(np.indices(places.shape, sparse=True))
    grid[at] = places.astype(np.int64)
    if isinstance(source, np.ndarray) and source.ndim:
        source = source[tuple(slice(size) for size in places.shape)]
    result[tuple(grid)] = source
    return result


def scatter_add(x: np.ndarray, dim: int, places: np.ndarray, source: np.ndarray) -> np.ndarray:
    """One addition after another, in the order of the places."""
    return scatter_reduce(x, dim, places, source, "sum")


_MEET: dict[str, np.ufunc] = {"sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}


def scatter_reduce(
    x: np.ndarray, dim: int, places: np.ndarray, source: np.ndarray, reduce: str, include_self: bool = True
) -> np.ndarray:
    if reduce not in _MEET or not include_self:
        raise TypeError(f"reduction {reduce!r}, with itself: {include_self}")
    result, at = contiguous(x), axis(dim, x.ndim)
    grid: list[Any] = list(np.indices(places.shape, sparse=True))
    grid[at] = places.astype(np.int64)
    _MEET[reduce].at(result, tuple(grid), source[tuple(slice(size) for size in places.shape)])
    return result


def masked_scatter(x: np.ndarray, mask: np.ndarray, source: np.ndarray) -> np.ndarray:
    """The source's elements, in order, where the mask is true."""
    x, mask = np.broadcast_arrays(x, mask.astype(bool))
    result = contiguous(x)
    result[mask] = source.reshape(-1)[: np.count_nonzero(mask)]
    return result


def masked_select(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    x, mask = np.broadcast_arrays(x, mask.astype(bool))
    return x[mask]


def nonzero(x: np.ndarray) -> np.ndarray:
    """(count, dims): where the elements that are not 0 stand."""
    return contiguous(np.argwhere(x)).astype(np.int64)


def repeat_interleave(repeats: np.ndarray, output_size: int | None = None) -> np.ndarray:
    """Each index as often as its count says."""
    sized(int(repeats.sum()))
    found = np.repeat(np.arange(len(repeats)), repeats)
    if output_size is not None and output_size != len(found):
        raise ValueError(f"{len(found)} elements, {output_size} announced")
    return found.astype(repeats.dtype)


def select_scatter(x: np.ndarray, source: np.ndarray, dim: int, place: int) -> np.ndarray:
    result = contiguous(x)
    np.moveaxis(result, axis(dim, x.ndim), 0)[place] = source
    return result


def slice_scatter(
    x: np.ndarray, source: np.ndarray, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> np.ndarray:  # fmt: skip
    result = contiguous(x)
    np.moveaxis(result, axis(dim, x.ndim), 0)[start:end:step] = np.moveaxis(source, axis(dim, x.ndim), 0)
    return result


def embedding(weight: np.ndarray, places: np.ndarray, *options: Any) -> np.ndarray:
    return contiguous(weight[places.astype(np.int64)])


def _triangle(lower: bool) -> Any:
    def call(x: np.ndarray, diagonal: int = 0) -> np.ndarray:
        rows, columns = np.ogrid[: x.shape[-2], : x.shape[-1]]
        kept = columns - rows <= diagonal if lower else columns - rows >= diagonal
        return np.where(kept, x, x.dtype.type(0))

    return call


def copy(x: np.ndarray, source: np.ndarray, non_blocking: bool = False) -> np.ndarray:
    return np.broadcast_to(source, x.shape).astype(x.dtype)


ROWS = (
    Float("full", full),
    Float("zeros empty empty_permuted _empty_dim_order", lambda size, dtype=None, *o: full(size, 0.0, dtype)),
    Float("ones", lambda size, dtype=None, *o: full(size, 1.0, dtype)),
    Float("full_like", full_like),
    Float("zeros_like empty_like", lambda x, dtype=None, *o: full_like(x, 0, dtype)),
    Float("ones_like", lambda x, dtype=None, *o: full_like(x, 1, dtype)),
    Float("fill", full_like),
    Float("scalar_tensor", scalar_tensor),
    Float("arange", arange),
    Float("arange.start arange.start_step arange.start_out", arange_from),
    Float("index", index),
    Float("index_put index_put_", index_put),
    Float("index_select", index_select, resize=STALE_READS),
    Float("gather", gather),
    Float("scatter", scatter),
    Float("scatter_add", scatter_add),
    Float("scatter_reduce", scatter_reduce),
    Float("masked_scatter", masked_scatter),
    Float("masked_select", masked_select),
    Float("nonzero", nonzero),
    Float("repeat_interleave.Tensor repeat_interleave.Tensor_out", repeat_interleave),
    Float("select_scatter", select_scatter),
    Float("slice_scatter", slice_scatter),
    Float("embedding", embedding),
    Float("tril", _triangle(True)),
    Float("triu", _triangle(False)),
    Float("copy copy_", copy),
)
