"""Linear operators with 4-bit weights in groups and rows that are quantized: their output for other weights and sums.

Defects and those who look for the cause of wrong bytes compute it so. `group_linear` has the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refsim.core.qmath import flush
from refsim.ops.base import group_linear, int4
from refsim.ops.base.arg import Arrays
from refsim.ops.base.group_linear import LANES
from refsim.ops.base.spec import Call

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
