"""A Winograd convolution with a wrong number in a transform, tile by tile, written apart from refsim.bytediff."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from wrong_sums import SQUARE

from refsim.ops.base.binding import BoundCase

F = np.float32
_IN4 = [
    [4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0],
    [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1],
]  # fmt: skip
_WEIGHTS4 = [[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 6]]
_OUT4 = [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 4]]
_IN2 = [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]
_WEIGHTS2 = [[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, -2]]
_OUT2 = [[1, 1, 1, 0], [0, 1, -1, 1]]
#: F(m x m): the matrices, what they multiply a convolution by, its power of two.
SHAPES = {4: ((_IN4, _WEIGHTS4, _OUT4), 576, 6), 2: ((_IN2, _WEIGHTS2, _OUT2), 4, 2)}


def winograd(
    m: int,
    which: int = 0,
    place: tuple[int, int] | None = None,
    number: int = 0,
    join: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda u, v: u * v,
) -> tuple[BoundCase, np.ndarray]:
    """`SQUARE` through F(m x m, 3 x 3) with another number in its ``which``-th matrix, or with no products."""
    matrices, constant, shift = SHAPES[m]
    changed = [np.array(matrix, np.int64) for matrix in matrices]
    if place is not None:
        changed[which][place] = number
    inputs, weights, outputs = changed
    p, consts = SQUARE.call.params, SQUARE.call.consts
    x = SQUARE.inputs["x"].unpack().astype(np.int64)[0]
    _, channels, height, width = SQUARE.call.out.shape
    kernels = np.asarray(consts["weight"]).astype(np.int64)[:, : 9 * len(x)].reshape(channels, 3, 3, -1)
    image = np.full((len(x), height + 2 + m, width + 2 + m), p.in_zp, np.int64)
    top, left = p.padding
    image[:, top : top + x.shape[1], left : left + x.shape[2]] = x
    totals = np.zeros((channels, height + m, width + m), np.int64)
    for oc in range(channels):
        u = np.einsum("ai,ijc,bj->abc", weights, kernels[oc], weights)
        for row in range(0, height, m):
            for column in range(0, width, m):
                tile = image[:, row : row + m + 2, column : column + m + 2]
                v = np.einsum("ai,cij,bj->abc", inputs, tile, inputs)
                sums = join(u, v).sum(axis=2)
                totals[oc, row : row + m, column : column + m] = outputs @ sums @ outputs.T
    # the constant's odd part by its inverse modulo 2**32, the power of two as a scale; the zero point as a float
    whole = (totals[:, :height, :width] * pow(constant >> shift, -1, 1 << 32)).astype(np.int32)
    wsum, scale, bias = (
        np.asarray(consts[n])[:, None, None] for n in ("weight_sums", "weight_scales", "bias")
    )
    t = whole.astype(F) - (wsum.astype(F) * F(p.in_zp)) * F(2**shift)
    t = t * (scale * F(p.in_scale)) * F(2.0**-shift) + bias
    q = np.rint(t * (F(1) / F(p.out_scale)))
    return SQUARE, (np.clip(q, -128 - p.out_zp, 127 - p.out_zp) + p.out_zp).astype(np.int8)[None]


ROWS = (
    ("Winograd transform", "F(4x4, 3x3): input transform", lambda: winograd(4, 0, (4, 3), 2)),
    ("Winograd transform", "F(4x4, 3x3): weight transform", lambda: winograd(4, 1, (3, 2), 2)),
    ("Winograd transform", "F(4x4, 3x3): output transform", lambda: winograd(4, 2, (1, 4), 2)),
    ("Winograd transform", "F(2x2, 3x3): output transform", lambda: winograd(2, 2, (1, 2), 1)),
)
