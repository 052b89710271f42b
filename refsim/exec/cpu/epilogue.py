"""From 32-bit sums to int8, in vectors: the same roundings as `refsim.ops.base.epilogue`, one after the other.

    t = (f32(sum) + zp_term) * scale + bias;  q = clamp(rne(t * inv), low, high) + zp

The sums come in with what is linear in them already inside (the input's zero point, the offset of unsigned bytes).
Where the zero point is taken out in binary32, `zp_term` is -f32(wsum) * f32(zp). Without a bias 0.0 is added: it only
turns -0 into 0, which rounds to the same integer. A relu is `low` = 0, for inv > 0.

Rounding adds 1.5 * 2**23, which leaves the integer in the low bits if it is below 2**22 in magnitude. Where prepack
proves that it is, saturating to int8 is the only clamp (`RANGE`), but for a relu (`LOW`); else values are clamped
before they are rounded (`FULL`), which gives the same: the bounds are integers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from refsim.exec.cpu.args import LoadedArgs
from refsim.exec.cpu.ir import F32, I8, I16, I32, Function, Value, vec
from refsim.exec.cpu.narrow import VECTORS, in_order, narrow, nearest
from refsim.exec.cpu.table import look_up

#: Rows of per-channel constants of a panel, each a word per channel: first sum, scale, bias, zp_term.
CONST_ROWS = 4

RANGE, LOW, FULL = "range", "low", "full"
_MAGIC = 12582912.0
_MAGIC_BITS = 0x4B400000
_LIMIT = 2.0**22 - 256


#: What becomes of the bytes at the end: nothing; a clamp, whose bounds are the lowest bytes of the field `then`; what a
#: table of 256 bytes gives, which the field points at.
NOTHING, CLAMPED, LOOKED_UP = "none", "clamped", "looked_up"


def then_for(table: np.ndarray | None) -> str:
    """What a table does with bytes (int8, by the unsigned value of the byte before)."""
    if table is None:
        return NOTHING
    return CLAMPED if np.array_equal(table, _EVERY.clip(table.min(), table.max())) else LOOKED_UP


_EVERY = np.arange(256).astype(np.uint8).view(np.int8)


def bounds_word(table: np.ndarray) -> int:
    """The field of a clamp: its least value in the lowest byte, its greatest in the next one."""
    return int(table.min()) & 0xFF | (int(table.max()) & 0xFF) << 8


def clamp_for(bound: float, zp: int, relu: bool) -> str:
    """The clamp that values need whose magnitude, in steps of the output, is at most `bound`."""
    if not bound <= _LIMIT:
        return FULL
    return LOW if relu and zp > -128 else RANGE


class Requant:
    """The part that all channels share: fields inv, low, high, zp of a kernel's arguments.

    ``then``: what becomes of the bytes at the end, in terms of the field `then` (see `then_for`).
    """

    def __init__(
        self,
        fn: Function,
        a: LoadedArgs,
        lanes: int,
        clamp: str,
        float_zp: bool = False,
        then: str = NOTHING,
    ) -> None:
        self.fn, self.lanes, self.clamp, self.float_zp = fn, lanes, clamp, float_zp
        self.inv, self.low, self.high = (a.f32(name).splat(lanes) for name in ("inv", "low", "high"))
        self.zp, self.zp_step = (a.i32("zp") - _MAGIC_BITS).splat(lanes), a.i32("zp")
        # either the zero point is the lowest byte, or the bound is -128, or there is a relu
        self.low_byte = a.f32("low").eq(0.0).select(self.zp_step, -128).trunc(I8)
        self._look = look_up(fn, a.pointer("then")) if then == LOOKED_UP else None
        self._bounds = (a.then.trunc(I8), a.then.shr(8).trunc(I8)) if then == CLAMPED else None

    def narrowed(self, reals: Sequence[Value], packs: bool, ordered: bool) -> Value:
        """The bytes of `VECTORS` vectors of real values; ``ordered``: one vector's behind the other's.

        By instructions of x86 (``packs``) values are rounded as they become integers, and what is the same for all of
        them, the zero point and the lower bound, is left until four vectors are one or two. What is no number, and what
        is too low for an integer, becomes the least integer there, and so the lower bound.
        """
        fn = self.fn
        if packs:
            steps = [t * self.inv for t in reals]
            steps = [self.high.min(y) for y in steps] if self.clamp == FULL else steps
            made = narrow(fn, [nearest(fn, y) for y in steps], packs, self.zp_step.trunc(I16))
            if self.clamp != RANGE:
                made = made.max(self.low_byte.splat(made.type.lanes))
        else:
            made = narrow(fn, [self.wide(t) for t in reals], packs)
        return self._finished(in_order(made) if ordered else made)

    def in_rows(self, reals: Sequence[Sequence[Value]], packs: bool) -> list[Value]:
        """The bytes of each row of vectors of real values; all rows have as many, at most `VECTORS`.

        With ``packs`` as by `narrowed`, but for single vectors, where taking the bytes apart again costs what it saves.
        """
        width = len(reals[0])
        if not packs or width == 1:
            return [self._joined([self.bytes(t) for t in row]) for row in reals]
        made, at_once = [], VECTORS // width
        for first in range(0, len(reals), at_once):
            rows = reals[first : first + at_once]
            flat = [t for row in rows for t in row]
            whole = self.narrowed([*flat, *flat[-1:] * (VECTORS - len(flat))], packs, True)
            size = width * self.lanes
            made += [whole.shuffle(range(m * size, (m + 1) * size)) for m in range(len(rows))]
        return made

    def _joined(self, made: list[Value]) -> Value:
        """Vectors that `bytes` made, one behind the other, and what becomes of them."""
        lanes = sum(one.type.lanes for one in made)
        whole = _together(made)
        if self._look is not None:
            whole = self._look(whole)
        return whole if whole.type.lanes == lanes else whole.shuffle(range(lanes))

    def _finished(self, made: Value) -> Value:
        """What becomes of bytes that were narrowed by saturation: best 64 at a time."""
        if self._bounds is not None:
            least, most = (bound.splat(made.type.lanes) for bound in self._bounds)
            return made.max(least).min(most)
        return made if self._look is None else self._look(made)

    def wide(self, t: Value) -> Value:
        """Real values to 32-bit integers, of which saturation to int8 makes the result."""
        y = t * self.inv
        if self.clamp != RANGE:
            y = y.max(self.low)
        if self.clamp == FULL:
            y = y.min(self.high)
        return self.rounded(y)

    def rounded(self, y: Value) -> Value:
        """Numbers of steps to integers, the zero point added."""
        return (y + _MAGIC).bits(vec(I32, self.lanes)) + self.zp

    def integers(self, t: Value) -> Value:
        """Real values to int8, one a lane of 32 bits."""
        if self._bounds is None:
            return self.wide(t).max(-128).min(127)
        least, most = (bound.sext(I32).splat(self.lanes) for bound in self._bounds)
        return self.wide(t).max(least).min(most)

    def bytes(self, t: Value) -> Value:
        """Real values to bytes."""
        return self.integers(t).trunc(I8)

    def first(self, consts: Value, vector: int) -> Value:
        """What the sums of one vector of channels begin with."""
        return self.fn.load(consts + vector * self.lanes * 4, vec(I32, self.lanes))

    def terms(self, consts: Value, row_bytes: Value | int, vector: int) -> tuple[Value, ...]:
        """Scale, bias and zp_term of one vector of channels; the rows of constants are `row_bytes` apart."""
        return tuple(
            self.fn.load(consts + row_bytes * row + vector * self.lanes * 4, vec(F32, self.lanes))
            for row in range(1, CONST_ROWS)
        )

    def real(self, total: Value, terms: tuple[Value, ...]) -> Value:
        """Sums of one vector of channels as real values."""
        scale, bias, zp_term = terms
        t = total.to_f32()
        if self.float_zp:
            t = t + zp_term
        return t * scale + bias


def _together(vectors: list[Value]) -> Value:
    """Vectors one behind the other, the last one again until their number is a power of two."""
    while len(vectors) > 1:
        vectors = [a.concat(b) for a, b in zip(vectors[::2], [*vectors, vectors[-1]][1::2], strict=False)]
    return vectors[0]


def shared_fields(inv: np.float32, zp: int, relu: bool) -> dict[str, float | np.floating | int]:
    """Values of inv, low, high and zp."""
    return {"inv": inv, "low": 0.0 if relu else -128.0 - zp, "high": 127.0 - zp, "zp": zp}
