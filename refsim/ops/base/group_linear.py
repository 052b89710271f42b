"""Linear operators with 4-bit weights in groups and activations that are quantized row by row: their arithmetic.

With more than one row, for the groups g of K in order:

    q   = clamp(int(rne(x * (1 / s)) + zp), -128, 127)
    adj = (sum over the group of q * w) - zp * wsum[g]          (int32)
    out = f32(adj) * (s * ws[g]) + out                          (from 0)

With a single row the activation is not quantized: 64 lanes share its blocks of four values, lane t takes the blocks t,
t + 64 and so on, and lane t + h is added to lane t for h = 32, 16, ... 1:

    p = x * (f32(w) * ws[g]) + p

The bias is added last. Source: ET-VK's linear_dq8ca_q4gsw_tiled and linear_dq8ca_q4gsw_coop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from refsim.core.jit import jitable
from refsim.core.qmath import flush, mul_add, to_int8_added
from refsim.ops.base import group_linear, int4
from refsim.ops.base.arg import Arrays
from refsim.ops.base.spec import Call

LANES = 64  # of the sum for a single row
BLOCK = 4  # neighbours along K that a lane takes at once


def quantized_rows(x: np.ndarray, scale: np.ndarray, zp: np.ndarray, flags: int) -> np.ndarray:
    """int32, every row by its own scale and zero point; the inverse of a scale is rounded once."""
    with np.errstate(all="ignore"):
        inv = np.float32(1.0) / scale
        found: np.ndarray = to_int8_added(x * inv[..., None], zp[..., None].astype(np.int32), flags)
    return found


def workers_of(group: int) -> int:
    """How many invocations of upstream's kernel add up the activations of a group."""
    return 32 if group >= 128 else 16


def group_sums(q: np.ndarray, group: int) -> np.ndarray:
    """int64 [.., groups]: the sums of the quantized values."""
    sums: np.ndarray = q.astype(np.int64).reshape(*q.shape[:-1], -1, group).sum(-1)
    return sums


def doubled_sums(q: np.ndarray, group: int, workers: int) -> np.ndarray:
    """int64 [.., groups]: sums in which what a worker has is added once more for each further block that it takes."""
    blocks = q.astype(np.int64).reshape(*q.shape[:-1], -1, group // 4, 4).sum(-1)
    total = np.zeros(blocks.shape[:-1], np.int64)
    for first in range(min(workers, group // 4)):
        own = np.zeros_like(total)
        for block in range(first, group // 4, workers):
            own = own + (blocks[..., block] + own)
        total += own
    return total


def adjusted(q: np.ndarray, zp: np.ndarray, values: np.ndarray, sums: np.ndarray, group: int) -> np.ndarray:
    """int64 [groups, .., N]: what each group adds, before the scales. ``values`` [N, K], ``sums`` [groups, N]."""
    k = q.shape[-1]
    found = []
    for g, at in enumerate(range(0, k, group)):
        # sums in binary64 are exact here: |sum| < 2**31
        part = q[..., at : at + group].astype(np.float64) @ values[:, at : at + group].T.astype(np.float64)
        found.append(part.astype(np.int64) - zp[..., None].astype(np.int64) * sums[g].astype(np.int64))
    return np.stack(found)


def scaled(
    adj: np.ndarray, scale: np.ndarray, weight_scales: np.ndarray, bias: np.ndarray | None, flags: int
) -> np.ndarray:
    """float32 [.., N] of what `adjusted` gives: groups in order, then the bias."""
    out = np.zeros(adj.shape[1:], np.float32)
    with np.errstate(all="ignore"):
        for part, row in zip(adj, weight_scales, strict=True):
            out = mul_add(part.astype(np.float32), scale[..., None] * row, out, flags)
        return out if bias is None else out + bias


def cooperative(
    x: np.ndarray, real: np.ndarray, bias: np.ndarray | None, flags: int, among: int = LANES
) -> np.ndarray:
    """float32 [.., N]: floats ``x`` [.., K] times the weights ``real`` [N, K], plus the bias.

    The lanes ``among`` which the blocks of four along K are divided are a power of two; 1 adds up in order.
    """
    step = among * BLOCK
    more = -x.shape[-1] % step
    # what pads K adds a product of zeros, which changes no sum that began at +0
    given = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, more)]).reshape(*x.shape[:-1], 1, -1, among, BLOCK)
    by = np.pad(real, [(0, 0), (0, more)]).reshape(len(real), -1, among, BLOCK)
    lanes = np.zeros((*x.shape[:-1], len(real), among), np.float32)
    with np.errstate(all="ignore"):
        for block in range(by.shape[1]):
            for k in range(BLOCK):
                lanes = mul_add(given[..., block, :, k], by[:, block, :, k], lanes, flags)
        while lanes.shape[-1] > 1:
            half = lanes.shape[-1] // 2
            lanes = lanes[..., :half] + lanes[..., half:]
        total: np.ndarray = lanes[..., 0]
        return total if bias is None else total + bias


@jitable
def tree_sum(sums: Any, lanes: Any) -> Any:
    """The sum of so many floats, a power of two: the second half is added to the first until one is left."""
    half = lanes // 2
    while half > 0:
        for t in range(half):
            sums[t] = sums[t] + sums[t + half]
        half //= 2
    return sums[0]


# --- for other weights and sums --------------------------------------------------------------------------


Weights = tuple[np.ndarray, np.ndarray]  # values [N, K], and scales [N, groups]


def quantized(call: Call, arrays: Arrays) -> np.ndarray:
    """int32 [.., K]: the activations, each row by its own scale and zero point."""
    bits = call.target.profile.flags
    return group_linear.quantized_rows(flush(arrays["x"], bits), arrays["scale"], arrays["zp"], bits)


def weights_of(call: Call) -> Weights:
    """The weights and scales of the call itself."""
    weight, scales = call.given("weight", "weight_scales")
    return int4.unpacked(weight), np.ascontiguousarray(scales.T)


def of_many(
    call: Call, arrays: Arrays, weights: Weights, sums: np.ndarray, more: np.ndarray | int = 0
) -> np.ndarray:
    """The output of several rows for such weights; ``more`` [groups, .., 1] is added to the integer sums."""
    values, scales = weights
    adj = group_linear.adjusted(quantized(call, arrays), arrays["zp"], values, sums, call.params.group)
    own = scales[:, :: scales.shape[1] // len(adj)].T  # a group has one scale, that of its first element
    bias, bits = call.consts["bias"], call.target.profile.flags
    return group_linear.scaled(adj + more, arrays["scale"], own, bias, bits)


def of_one(call: Call, arrays: Arrays, weights: Weights, lanes: int) -> np.ndarray:
    """The output of a single row for such weights, shared by so many lanes."""
    bits, bias = call.target.profile.flags, call.consts["bias"]
    return group_linear.cooperative(flush(arrays["x"], bits), int4.dequantized(*weights), bias, bits, lanes)


def _lanes(call: Call) -> int:
    return LANES if call.out.shape[-2] == 1 else 1


def _compute(call: Call, arrays: Arrays, values: np.ndarray, scales: np.ndarray) -> np.ndarray:
    if _lanes(call) > 1:
        return of_one(call, arrays, (values, scales), LANES)
    return of_many(call, arrays, (values, scales), own_sums(call))


def _orders(call: Call, arrays: Arrays) -> Iterator[tuple[str, np.ndarray]]:
    for lanes in (1, 8, 16, 32, 128) if _lanes(call) > 1 else ():
        yield int4.order_name(lanes), of_one(call, arrays, weights_of(call), lanes)


def own_sums(call: Call) -> np.ndarray:
    """int32 [groups, N]: the weight sums of the call, right or wrong."""
    (sums,) = call.given("weight_sums")
    return sums[:, : call.out.shape[-1]]


GROUPED = int4.GroupedWeight(int4.HALVES, weights_of, _compute, _orders, _lanes)
