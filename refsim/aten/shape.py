"""Float operators that move elements: views, transposes, slices, joins, padding. They are exact everywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from refsim.aten.row import Float, axis, contiguous, sized
from refsim.core.resize import NEGATIVE_DIMS_STOP, STALE_READS


def view(x: np.ndarray, size: Sequence[int]) -> np.ndarray:
    return contiguous(x).reshape(tuple(size))


def flatten(x: np.ndarray, start: int = 0, end: int = -1) -> np.ndarray:
    first, last = axis(start, x.ndim), axis(end, x.ndim)
    return contiguous(x).reshape((*x.shape[:first], -1, *x.shape[last + 1 :]))


def permute(x: np.ndarray, dims: Sequence[int]) -> np.ndarray:
    return contiguous(x.transpose(tuple(dims)))


def transpose(x: np.ndarray, a: int, b: int) -> np.ndarray:
    return contiguous(x.swapaxes(axis(a, x.ndim), axis(b, x.ndim))) if x.ndim else x.copy()


def t(x: np.ndarray) -> np.ndarray:
    if x.ndim > 2:
        raise ValueError(f"transpose of a tensor with {x.ndim} dims")
    return contiguous(x.T)


def unsqueeze(x: np.ndarray, dim: int) -> np.ndarray:
    return np.expand_dims(contiguous(x), axis(dim, x.ndim + 1))


def squeeze(x: np.ndarray, dims: int | Sequence[int] | None = None) -> np.ndarray:
    """All dims of one element, or those of them that are named."""
    named = range(x.ndim) if dims is None else [dims] if isinstance(dims, int) else dims
    gone = {d for d in (axis(d, x.ndim) for d in named) if x.ndim and x.shape[d] == 1}
    return contiguous(x).reshape([size for d, size in enumerate(x.shape) if d not in gone])


def expand(x: np.ndarray, size: Sequence[int], implicit: bool = False) -> np.ndarray:
    """-1 keeps a dim."""
    old = (1,) * (len(size) - x.ndim) + x.shape
    return contiguous(
        np.broadcast_to(x, sized(*(o if s == -1 else s for s, o in zip(size, old, strict=True))))
    )


def repeat(x: np.ndarray, repeats: Sequence[int]) -> np.ndarray:
    if len(repeats) < x.ndim:
        raise ValueError(f"{len(repeats)} counts for {x.ndim} dims")
    sized(x.size, *repeats)
    return np.tile(x, tuple(repeats))


def select(x: np.ndarray, dim: int, index: int) -> np.ndarray:
    return contiguous(np.take(x, index, axis(dim, x.ndim)))


def slice_(
    x: np.ndarray, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> np.ndarray:
    if step < 1:
        raise ValueError(f"step {step}")
    chosen = [slice(None)] * x.ndim
    chosen[axis(dim, x.ndim)] = slice(start, end, step)
    return contiguous(x[tuple(chosen)])


def split(x: np.ndarray, size: int | Sequence[int], dim: int = 0) -> tuple[np.ndarray, ...]:
    """Parts of one size, of which the last may be smaller, or of the sizes that are given."""
    whole = x.shape[axis(dim, x.ndim)]
    if isinstance(size, int):
        size = [min(size, whole - at) for at in range(0, whole, size)] or [0]
    if sum(size) != whole:
        raise ValueError(f"parts {list(size)} of {whole}")
    return tuple(contiguous(part) for part in np.split(x, np.cumsum(size)[:-1], axis(dim, x.ndim)))


def chunk(x: np.ndarray, count: int, dim: int = 0) -> tuple[np.ndarray, ...]:
    return split(x, -(-x.shape[axis(dim, x.ndim)] // count) or 1, dim)


def unbind(x: np.ndarray, dim: int = 0) -> tuple[np.ndarray, ...]:
    return tuple(contiguous(part) for part in np.moveaxis(x, axis(dim, x.ndim), 0))


def cat(tensors: Sequence[np.ndarray], dim: int = 0) -> np.ndarray:
    """A tensor of shape (0,) is left out, as ATen does."""
    kept = [x for x in tensors if x.shape != (0,)] or list(tensors[:1])
    return np.concatenate(kept, axis(dim, kept[0].ndim))


def stack(tensors: Sequence[np.ndarray], dim: int = 0) -> np.ndarray:
    return np.stack(tensors, axis(dim, tensors[0].ndim + 1))


def flip(x: np.ndarray, dims: Sequence[int]) -> np.ndarray:
    return contiguous(np.flip(x, tuple(axis(d, x.ndim) for d in dims)))


def roll(x: np.ndarray, shifts: Sequence[int], dims: Sequence[int] = ()) -> np.ndarray:
    if not dims:
        return np.roll(x.reshape(-1), shifts[0]).reshape(x.shape)
    return np.roll(x, tuple(shifts), tuple(dims))


def _padding(x: np.ndarray, pad: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs from the last dim on, as ATen lists them, for NumPy."""
    if len(pad) % 2 or len(pad) > 2 * x.ndim:
        raise ValueError(f"padding {list(pad)} of {x.ndim} dims")
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    every = [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]
    sized(*(size + max(a, 0) + max(b, 0) for size, (a, b) in zip(x.shape, every, strict=True)))
    return every


def constant_pad(x: np.ndarray, pad: Sequence[int], value: Any = 0) -> np.ndarray:
    """Negative padding takes away."""
    pairs = _padding(x, pad)
    kept = x[tuple(slice(max(-a, 0), size - max(-b, 0)) for (a, b), size in zip(pairs, x.shape, strict=True))]
    added = [(max(a, 0), max(b, 0)) for a, b in pairs]
    return np.pad(kept, added, constant_values=np.asarray(value).astype(x.dtype))


def _pad(mode: str) -> Callable[..., Any]:
    return lambda x, pad: np.pad(x, _padding(x, pad), mode=mode)  # type: ignore[call-overload]


def pixel_shuffle(x: np.ndarray, factor: int) -> np.ndarray:
    *lead, c, h, w = x.shape
    parts = x.reshape(*lead, c // factor**2, factor, factor, h, w)
    n = len(lead)
    moved = parts.transpose(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return contiguous(moved).reshape(*lead, c // factor**2, h * factor, w * factor)


def pixel_unshuffle(x: np.ndarray, factor: int) -> np.ndarray:
    *lead, c, h, w = x.shape
    parts = x.reshape(*lead, c, h // factor, factor, w // factor, factor)
    n = len(lead)
    moved = parts.transpose(*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return contiguous(moved).reshape(*lead, c * factor**2, h // factor, w // factor)


def unfold(x: np.ndarray, dim: int, size: int, step: int) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(x, size, axis(dim, x.ndim))
    chosen = [slice(None)] * windows.ndim
    chosen[axis(dim, x.ndim)] = slice(None, None, step)
    return contiguous(windows[tuple(chosen)])


def as_strided(
    x: np.ndarray, size: Sequence[int], stride: Sequence[int], offset: int | None = 0
) -> np.ndarray:
    """Elements of the memory of ``x``, which lies in logical order."""
    at = np.full(sized(*size), offset or 0, np.int64)
    for steps, step in zip(np.indices(tuple(size), sparse=True), stride, strict=True):
        at = at + steps * step
    if at.size and (at.min() < 0 or at.max() >= x.size):
        raise IndexError(f"place {at.max()} of {x.size}")
    return contiguous(x).reshape(-1)[at]


def diagonal(x: np.ndarray, offset: int = 0, a: int = 0, b: int = 1) -> np.ndarray:
    return contiguous(np.diagonal(x, offset, axis(a, x.ndim), axis(b, x.ndim)))


def narrow(x: np.ndarray, dim: int, start: int, length: int) -> np.ndarray:
    if not 0 <= length <= x.shape[axis(dim, x.ndim)]:
        raise ValueError(f"{length} elements of dim {dim} of {x.shape}")
    start = start % max(x.shape[axis(dim, x.ndim)], 1)
    return slice_(x, dim, start, start + length)


ROWS = (
    Float("view view_copy reshape _reshape_copy _unsafe_view et_view", view, prefix=True),
    Float("flatten", flatten),
    Float("permute permute_copy", permute, resize=NEGATIVE_DIMS_STOP),
    Float("transpose transpose_copy", transpose),
    Float("t t_copy", t),
    Float("unsqueeze unsqueeze_copy", unsqueeze),
    Float("squeeze squeeze_copy", squeeze),
    Float("expand expand_copy", expand),
    Float("repeat", repeat),
    Float("select select_copy", select),
    Float("slice slice_copy", slice_),
    Float("split split_copy split_with_sizes split_with_sizes_copy", split, resize=STALE_READS),
    Float("chunk", chunk, resize=STALE_READS),
    Float("unbind unbind_copy", unbind),
    Float("cat", cat),
    Float("stack", stack),
    Float("flip", flip),
    Float("roll", roll),
    Float("constant_pad_nd", constant_pad),
    Float("reflection_pad1d reflection_pad2d reflection_pad3d", _pad("reflect")),
    Float("replication_pad1d replication_pad2d replication_pad3d", _pad("edge")),
    Float("pixel_shuffle", pixel_shuffle),
    Float("pixel_unshuffle", pixel_unshuffle),
    Float("unfold unfold_copy", unfold),
    Float("as_strided as_strided_copy", as_strided),
    Float("diagonal diagonal_copy", diagonal),
    Float("narrow narrow_copy", narrow),
    Float("sym_size", lambda x, dim: x.shape[axis(dim, x.ndim)]),
)
