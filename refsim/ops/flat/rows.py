"""Flat meanings of the operators with weights of 4 bits, and of what quantizes activations row by row for them."""

from __future__ import annotations

import numpy as np

from refsim.core.errors import UnsupportedError
from refsim.core.qmath import QMAX, QMIN
from refsim.ops.base.row_range import LEAST, NO_RANGE, WIDTH
from refsim.ops.base.target import Target
from refsim.ops.embedding_q4gsw import looked_up
from refsim.ops.flat.base import F32, FlatOp, flat

Shapes = tuple[tuple[int, ...], ...]
Arrays = tuple[np.ndarray, ...]
_LOW, _HIGH = F32(QMIN), F32(QMAX)
#: Invocations that add up a single row, values of four bits in a word, and of what the depth is a multiple where
#: products are made in half precision.
LANES, _WORD, HALF_STEP = 64, 8, 16
#: (depth, outputs) and rows for which another kernel adds up in half precision, too.
_IN_HALVES, _FUSED_ROWS = ((2048, 8192), (8192, 2048), (2048, 2048)), (128, 508, 512)


def choose_qparams(target: Target, shapes: Shapes, x: np.ndarray) -> Arrays:
    """Scale and zero point of each row. Only a scale of exactly 0 counts as none."""
    rows = x.reshape(-1, x.shape[-1])
    low, high = np.minimum(rows.min(1), F32(0)), np.maximum(rows.max(1), F32(0))
    scale = (high - low) / WIDTH
    scale = np.where(scale == 0, NO_RANGE, scale)
    small, larger = scale < LEAST, LEAST / scale
    wide = LEAST * WIDTH
    lower = np.where(low == 0, low, np.where(high == 0, -wide, low * larger))
    upper = np.where(low == 0, wide, np.where(high == 0, high, high * larger))
    low, high = np.where(small, lower, low), np.where(small, upper, high)
    scale = np.where(small, LEAST, scale)
    a, b = low / scale, high / scale
    z = np.where(np.abs(_LOW) - np.abs(a) < np.abs(_HIGH) - np.abs(b), _LOW - a, _HIGH - b)
    z = np.where(np.isnan(z), _LOW, np.clip(np.rint(z), _LOW, _HIGH))
    return scale, z.astype(np.int8)


def linear_dq8ca_q4gsw(
    target: Target, shapes: Shapes, x: np.ndarray, scale: np.ndarray, zp: np.ndarray, weight: np.ndarray,
    scales: np.ndarray, group: int, bias: np.ndarray | None = None,
) -> Arrays:  # fmt: skip
    """Every row is quantized, by a division; products are added in one float sum over K."""
    depth, outputs = x.shape[-1], len(weight)
    rows, nibbles = x.reshape(-1, depth), _nibbles(weight, depth)
    s, z = scale.reshape(-1, 1), zp.reshape(-1, 1).astype(np.int32)
    q = np.clip(np.rint(rows / s).astype(np.int64) + z, QMIN, QMAX) - z
    acc = np.zeros((len(rows), outputs), F32)
    for k in range(depth):
        w = nibbles[:, k].astype(F32) * scales[k // group, :outputs]
        acc = acc + q[:, k : k + 1].astype(F32) * w
    out = s * acc
    return (out if bias is None else out + bias[:outputs],)


def embedding_q4gsw(
    target: Target, shapes: Shapes, weight: np.ndarray, scales: np.ndarray, group: int, indices: np.ndarray,
    is_linear_weight: bool,
) -> Arrays:  # fmt: skip
    """Rows of the table, each value times the scale of its group."""
    first, second = (weight & 15, weight >> 4) if is_linear_weight else (weight >> 4, weight & 15)
    values = np.stack([first, second], -1).reshape(len(weight), -1).astype(np.int32) - 8
    columns = np.arange(values.shape[1]) // group
    return (looked_up(indices, values.astype(F32) * scales[:, columns]),)


def _nibbles(weight: np.ndarray, depth: int) -> np.ndarray:
    """The values of a weight, the first of a byte in its low half."""
    return np.stack([weight & 15, weight >> 4], -1).reshape(len(weight), -1)[:, :depth].astype(np.int32) - 8


def linear_q4gsw(
    target: Target, shapes: Shapes, x: np.ndarray, weight: np.ndarray, scales: np.ndarray, group: int,
    bias: np.ndarray | None = None,
) -> Arrays:  # fmt: skip
    """One row is summed by `LANES`; several rows are multiplied in half precision, or where the depth is no multiple
    of `HALF_STEP` in single. So a device with half precision runs it; derived from the sources, not recorded.

    UnsupportedError for the few sizes whose products are added in half precision, as devices fuse that.
    """
    depth, outputs = x.shape[-1], len(weight)
    rows, values = x.reshape(-1, depth), _nibbles(weight, depth).astype(F32)
    factors = np.repeat(scales[:, :outputs], group, 0)[:depth].T
    if len(rows) == 1 and depth % _WORD == 0 and group % _WORD == 0:
        out = _by_lanes(rows[0], values, factors)
    else:
        if (depth, outputs) in _IN_HALVES and group == 64 and bias is None and len(rows) in _FUSED_ROWS:
            need = f"another number of rows than {', '.join(map(str, _FUSED_ROWS))}"
            raise UnsupportedError(
                "linear_q4gsw", "adds up in half precision there", got=len(rows), need=need
            )
        kind = np.float16 if depth % HALF_STEP == 0 else F32
        left, right = rows.astype(kind), values.astype(kind) * factors.astype(kind)
        out = np.zeros((len(rows), outputs), F32)
        for k in range(depth):
            out = out + (left[:, k : k + 1] * right[:, k]).astype(F32)
    return (out if bias is None else out + bias[:outputs],)


def _by_lanes(row: np.ndarray, values: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Lane t takes words t, t + LANES, .. of eight values, each (x * q) * scale; halves of the lanes are added."""
    rounds = -(-len(row) // (_WORD * LANES))
    padded = [
        np.pad(a, ((0, 0), (0, rounds * _WORD * LANES - len(row)))) for a in (row[None], values, factors)
    ]
    x, q, s = (a.reshape(len(a), rounds, LANES, _WORD) for a in padded)
    sums = np.zeros((len(values), LANES), F32)
    for turn in range(rounds):
        for lane in range(_WORD):
            sums = sums + (x[:, turn, :, lane] * q[:, turn, :, lane]) * s[:, turn, :, lane]
    while sums.shape[1] > 1:
        half = sums.shape[1] // 2
        sums = sums[:, :half] + sums[:, half:]
    return sums[None, :, 0]


_BLOCK = "mapping:- block:- dtype:- qmin:- qmax:- eps:- scale_dtype:- zp_dtype:- keepdim:-"

ROWS: tuple[FlatOp, ...] = (
    flat("torchao.choose_qparams_affine.default", f"x:t {_BLOCK}", choose_qparams),
    flat(
        "et_vk.linear_dq8ca_q4gsw.default",
        "x:t scale:t zp:t weight:t sums:- scales:t group:i bias:t",
        linear_dq8ca_q4gsw,
        "every row is quantized, by a division; one float sum over all groups",
    ),
    flat(
        "et_vk.embedding_q4gsw.default",
        "weight:t scales:t group:i indices:t is_linear_weight:b",
        embedding_q4gsw,
    ),
    flat(
        "et_vk.linear_q4gsw.default",
        "x:t weight:t scales:t group:i bias:t",
        linear_q4gsw,
        "several rows are multiplied in half precision; one row is summed by 64 lanes",
    ),
)
