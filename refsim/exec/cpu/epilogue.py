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

import numpy as np

from refsim.exec.cpu.args import LoadedArgs
from refsim.exec.cpu.ir import F32, I8, I32, Function, Value, vec
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
        self.zp = (a.i32("zp") - _MAGIC_BITS).splat(lanes)
        self._look = look_up(fn, a.pointer("then")) if then == LOOKED_UP else None
        self._bounds = (a.then.trunc(I8), a.then.shr(8).trunc(I8)) if then == CLAMPED else None

    def finished(self, made: Value) -> Value:
        """What becomes of bytes that were narrowed by saturation: best 64 at a time."""
        if self._bounds is not None:
            least, most = (bound.splat(made.type.lanes) for bound in self._bounds)
            return made.max(least).min(most)
        return made if self._look is None else self._look(made)

    def in_row(self, made: list[Value]) -> list[Value]:
        """What becomes of vectors that `apply` made, all at once."""
        if self._look is None:
            return made
        whole, lanes = self._look(_together(made)), made[0].type.lanes
        return [whole.shuffle(range(k * lanes, (k + 1) * lanes)) for k in range(len(made))]

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

    def apply(self, total: Value, terms: tuple[Value, ...]) -> Value:
        """The bytes of one vector of channels."""
        return self.bytes(self.real(total, terms))


def _together(vectors: list[Value]) -> Value:
    """Vectors one behind the other, the last one again until their number is a power of two."""
    while len(vectors) > 1:
        vectors = [a.concat(b) for a, b in zip(vectors[::2], [*vectors, vectors[-1]][1::2], strict=False)]
    return vectors[0]


def shared_fields(inv: np.float32, zp: int, relu: bool) -> dict[str, float | np.floating | int]:
    """Values of inv, low, high and zp."""
    return {"inv": inv, "low": 0.0 if relu else -128.0 - zp, "high": 127.0 - zp, "zp": zp}
