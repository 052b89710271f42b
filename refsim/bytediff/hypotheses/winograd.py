"""Causes in a Winograd convolution: one number of a transform is another, or one step of the way it is computed.

F(m x m, 3 x 3) for m = 4 and 2 in integers: tiles of (m + 2) squared inputs and the weights are transformed, multiplied
element by element and summed over the channels; a third transform makes m x m outputs, times a known constant. A wrong
number there leaves sums that the constant does not divide, modulo 2**32: the odd part is taken out by its inverse.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, hypothesis
from refsim.bytediff.rerun import finished, is_convolution, is_depthwise, logical_weight, quantized
from refsim.ops.base import conv
from refsim.ops.base.epilogue import PER_CHANNEL
from refsim.ops.base.traits import Epilogue

#: Transforms of larger problems are not tried.
MOST_PRODUCTS = 1 << 26
#: A changed transform is tried on so many tiles and output channels first, and kept if it makes so much of them.
TILES, CHANNELS, LEAST_SHARE = 3, 4, 0.5
#: What a number may be instead, as multiples of it.
_TIMES = (-1, 0, 2, 4, 0.5, 0.25)

#: A step ``(a, x, b, y)`` makes a * x + b * y; numbers name the elements that come in, letters what steps made before.
_Step = tuple[str, int, str, int, str]
_Matrix = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Transform:
    """F(m x m, 3 x 3): how elements are made, step by step, from `m + 2` that come in; ``weights`` as numbers."""

    m: int
    inputs: tuple[_Step, ...]
    outputs: tuple[_Step, ...]
    weights: _Matrix
    scale: int


_F4 = Transform(
    4,
    (
        ("c", 1, "4", -1, "2"), ("e", 1, "3", -1, "1"), ("a", 1, "4", -4, "2"), ("b", 1, "3", -4, "1"),
        ("f", 1, "0", -1, "2"), ("g", 1, "5", -1, "3"),
        ("=0", 4, "f", 1, "c"), ("=1", 1, "a", 1, "b"), ("=2", 1, "a", -1, "b"), ("=3", 1, "c", 2, "e"),
        ("=4", 1, "c", -2, "e"), ("=5", 1, "g", -4, "e"),
    ),
    (
        ("s", 1, "1", 1, "2"), ("d", 1, "1", -1, "2"), ("t", 1, "3", 1, "4"), ("u", 2, "3", -2, "4"),
        ("v", 1, "0", 1, "s"), ("w", 1, "5", 1, "u"),
        ("=0", 1, "v", 1, "t"), ("=1", 1, "d", 1, "u"), ("=2", 1, "s", 4, "t"), ("=3", 1, "d", 4, "w"),
    ),
    ((6, 0, 0), (-4, -4, -4), (-4, 4, -4), (1, 2, 4), (1, -2, 4), (0, 0, 6)),
    24,
)  # fmt: skip
_F2 = Transform(
    2,
    (("=0", 1, "0", -1, "2"), ("=1", 1, "1", 1, "2"), ("=2", 1, "2", -1, "1"), ("=3", 1, "1", -1, "3")),
    (("s", 1, "1", 1, "2"), ("d", 1, "1", -1, "2"), ("=0", 1, "0", 1, "s"), ("=1", 1, "d", 1, "3")),
    ((2, 0, 0), (1, 1, 1), (1, -1, 1), (0, 0, -2)),
    2,
)


@hypothesis("Winograd transform", needs_call=True)
def transform(ev: Evidence) -> Iterator[Prediction]:
    """One number, sign or operand of a Winograd transform is another one."""
    if not _may_be(ev):
        return
    for shape in (_F4, _F2):
        problem = _Problem(ev, shape)
        for what, matrices in _changes(shape):
            if problem.fits(matrices):
                yield Prediction(f"F({shape.m}x{shape.m}, 3x3): {what}", problem.cells(matrices))


def _may_be(ev: Evidence) -> bool:
    if not is_convolution(ev) or is_depthwise(ev) or ev.call.op.transposed:
        return False
    p = ev.call.params
    plain = (p.kernel_size, p.stride, p.dilation, p.groups) == ((3, 3), (1, 1), (1, 1), 1)
    return plain and ev.call.out.numel * 9 * ev.call.descs["x"].shape[-3] <= MOST_PRODUCTS


# --- the transforms as matrices, and each with one change ------------------------------------------------

_Matrices = tuple[np.ndarray, np.ndarray, np.ndarray]


@cache
def _matrices(shape: Transform) -> _Matrices:
    size = shape.m + 2
    return _matrix(shape.inputs, size), np.array(shape.weights), _matrix(shape.outputs, size)


def _matrix(steps: tuple[_Step, ...], size: int) -> np.ndarray:
    """int64 (elements made, elements that come in)."""
    known = {str(k): row for k, row in enumerate(np.eye(size))}
    for name, a, x, b, y in steps:
        known[name] = a * known[x] + b * known[y]
    return np.stack([row for name, row in known.items() if name[0] == "="]).astype(np.int64)


def _changes(shape: Transform) -> Iterator[tuple[str, _Matrices]]:
    """(what is changed, the matrices), no matrices twice."""
    inputs, weights, outputs = _matrices(shape)
    seen = {_bytes((inputs, weights, outputs))}
    made = [
        *((f"input transform, {what}", (made, weights, outputs)) for what, made in _stepped(shape.inputs, shape.m)),
        *((f"output transform, {what}", (inputs, weights, made)) for what, made in _stepped(shape.outputs, shape.m)),
        *((f"weight transform, {what}", (inputs, made, outputs)) for what, made in _entries(weights)),
        *((f"input transform, {what}", (made, weights, outputs)) for what, made in _entries(inputs)),
        *((f"output transform, {what}", (inputs, weights, made)) for what, made in _entries(outputs)),
    ]  # fmt: skip
    for what, matrices in made:
        if _bytes(matrices) not in seen:
            seen.add(_bytes(matrices))
            yield what, matrices


def _bytes(matrices: _Matrices) -> bytes:
    return b"|".join(matrix.tobytes() for matrix in matrices)


def _stepped(steps: tuple[_Step, ...], m: int) -> Iterator[tuple[str, np.ndarray]]:
    """The transform with one number, sign or operand of a step changed."""
    for place, (name, a, x, b, y) in enumerate(steps):
        others = [str(k) for k in range(m + 2)] + [step[0] for step in steps[:place] if step[0][0] != "="]
        changed = [(name, other, x, b, y) for other in _others(a)]
        changed += [(name, a, x, other, y) for other in _others(b)]
        changed += [(name, -a, x, -b, y)]
        changed += [(name, a, other, b, y) for other in others] + [(name, a, x, b, other) for other in others]
        for step in changed:
            made = _matrix((*steps[:place], step, *steps[place + 1 :]), m + 2)
            yield f"{_said(step)} for {_said(steps[place])}", made


def _others(number: int) -> list[int]:
    """Numbers that may stand for one by mistake."""
    return [int(number * times) for times in _TIMES if number * times == int(number * times)]


def _said(step: _Step) -> str:
    return f"{step[1]} * {step[2]} {step[3]:+d} * {step[4]}"


def _entries(matrix: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The matrix with one number changed."""
    for place in np.ndindex(matrix.shape):
        now = int(matrix[place])
        for other in dict.fromkeys((*_others(now), now + 1, now - 1)):
            made = matrix.copy()
            made[place] = other
            yield f"{other} for {now} in row {place[0]}, column {place[1]}", made


# --- the convolution through them ------------------------------------------------------------------------


class _Problem:
    """A convolution in tiles; a few of them, and a few output channels, for a first look."""

    def __init__(self, ev: Evidence, shape: Transform) -> None:
        self.ev, self.shape = ev, shape
        self.joined = 0  # 1 or -1: inputs and weights are added or subtracted, and not multiplied
        p, x, m = ev.call.params, conv.nchw4(ev.arrays["x"]), shape.m
        self.out = conv.nchw4(ev.differing[ev.places].reshape(ev.call.out.shape)).shape
        self.rows, self.columns = -(-self.out[2] // m), -(-self.out[3] // m)
        framed = np.full((*x.shape[:2], self.rows * m + 2, self.columns * m + 2), p.in_zp, np.float64)
        inside = framed[:, :, p.padding[0] :, p.padding[1] :][:, :, : x.shape[2], : x.shape[3]]
        inside[:] = x[:, :, : inside.shape[2], : inside.shape[3]]
        tiles = np.lib.stride_tricks.sliding_window_view(framed, (m + 2, m + 2), (2, 3))[:, :, ::m, ::m]
        # number of the tile; channel; its rows and columns
        self.tiles = tiles.transpose(0, 2, 3, 1, 4, 5).reshape(-1, x.shape[1], m + 2, m + 2)
        self.weight = logical_weight(ev).astype(np.float64)
        sums = ev.call.consts["weight_sums"]
        assert sums is not None
        self.folded = ev.writing.epilogue is Epilogue.INTEGER_ZP
        self.first = -int(p.in_zp) * sums.astype(np.int64) * shape.scale**2
        self.got, self.wrong = self._tiled(ev.got), self._tiled(ev.differing)
        self.some = (
            np.argsort(-self.wrong.sum(axis=(1, 2, 3)), kind="stable")[:TILES],
            np.argsort(-self.wrong.sum(axis=(0, 2, 3)), kind="stable")[:CHANNELS],
        )

    def _tiled(self, cells: np.ndarray) -> np.ndarray:
        """Cells as (tiles, channels, m, m); 0 beyond the image."""
        m, (images, channels, height, width) = self.shape.m, self.out
        whole = np.zeros((images, channels, self.rows * m, self.columns * m), cells.dtype)
        whole[:, :, :height, :width] = cells[self.ev.places].reshape(self.out)
        parts = whole.reshape(images, channels, self.rows, m, self.columns, m)
        return parts.transpose(0, 2, 4, 1, 3, 5).reshape(-1, channels, m, m)

    def fits(self, matrices: _Matrices) -> bool:
        """Whether these transforms make a good part of the wrong bytes of a few tiles."""
        tiles, channels = self.some
        made = quantized(self.ev, self.totals(matrices, tiles, channels), self._consts(channels))
        got, wrong = (cells[tiles][:, channels] for cells in (self.got, self.wrong))
        return int(((made == got) & wrong).sum()) >= LEAST_SHARE * int(wrong.sum()) > 0

    def cells(self, matrices: _Matrices) -> np.ndarray:
        """The whole buffer through these transforms."""
        m, (images, channels, height, width) = self.shape.m, self.out
        every = np.arange(channels)
        totals = self.totals(matrices, np.arange(len(self.tiles)), every)
        parts = totals.reshape(images, self.rows, self.columns, channels, m, m).transpose(0, 3, 1, 4, 2, 5)
        whole = parts.reshape(images, channels, self.rows * m, self.columns * m)
        return finished(self.ev, np.ascontiguousarray(whole[:, :, :height, :width]), self._consts(every))

    def _consts(self, channels: np.ndarray) -> dict[str, np.ndarray]:
        """What takes the power of two out of the sums, and the zero point if it is not in them yet."""
        consts = {
            name: value[channels] for name in PER_CHANNEL if (value := self.ev.call.consts[name]) is not None
        }
        shift = _shift(self.shape)
        consts["weight_scales"] = np.ldexp(consts["weight_scales"], -shift)
        sums = consts["weight_sums"]
        consts["weight_sums"] = np.zeros_like(sums) if self.folded else sums << shift
        return consts

    def totals(self, matrices: _Matrices, tiles: np.ndarray, channels: np.ndarray) -> np.ndarray:
        """Sums times a power of two, int64 (tiles, channels, m, m), as 32-bit arithmetic leaves them."""
        inputs, weights, outputs = (matrix.astype(np.float64) for matrix in matrices)  # all of it is exact
        v = _int16(inputs @ self.tiles[tiles] @ inputs.T).transpose(2, 3, 0, 1)
        kernels = self.weight[channels].transpose(0, 3, 1, 2)
        u = _int16(weights @ kernels @ weights.T).transpose(2, 3, 1, 0)
        products = v @ u if not self.joined else v.sum(-1)[..., None] + self.joined * u.sum(-2)[..., None, :]
        sums = products.transpose(2, 3, 0, 1)  # tile, output channel, rows and columns
        if self.folded:
            sums[:, :, 1, 1] += self.first[channels]
        totals = _int32(outputs @ _int32(sums).astype(np.float64) @ outputs.T)
        odd = self.shape.scale**2 >> _shift(self.shape)
        return _int32(totals * pow(odd, -1, 1 << 32)) if odd > 1 else totals


def _shift(shape: Transform) -> int:
    constant = shape.scale**2
    return (constant & -constant).bit_length() - 1


def _int16(values: np.ndarray) -> np.ndarray:
    """Whole numbers modulo 2**16."""
    return values.astype(np.int64).astype(np.int16).astype(np.float64)


def _int32(values: np.ndarray) -> np.ndarray:
    """Whole numbers modulo 2**32; the products of two such numbers wrap in 64 bits without harm."""
    return values.astype(np.int64).astype(np.int32).astype(np.int64)
