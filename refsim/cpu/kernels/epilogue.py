"""From 32-bit sums to int8, in vectors: the same roundings as `refsim.ops._epilogue`, one after the other.

    t = (f32(sum) + zp_term) * scale + bias;  q = clamp(t * inv, low, high) rounded to even, + zp

The sums come in with what is linear in them already inside (the input's zero point, the offset of unsigned bytes).
Where the zero point is taken out in binary32, `zp_term` is -f32(wsum) * f32(zp). Without a bias 0.0 is added: it only
turns -0 into 0, which rounds to the same integer. A relu is `low` = 0, for inv > 0. Clamped values round by adding
1.5 * 2**23, which leaves the integer in the low bits.
"""

from __future__ import annotations

import numpy as np

from refsim.cpu.ir import F32, I8, I32, Function, Value, vec
from refsim.cpu.kernels.args import Loaded

#: Rows of per-channel constants of a panel, each a word per channel: first sum, scale, bias, zp_term.
CONST_ROWS = 4
_MAGIC = 12582912.0


class Requant:
    """The part that all channels share: fields inv, low, high, zp of a kernel's arguments."""

    def __init__(self, fn: Function, a: Loaded, lanes: int, float_zp: bool) -> None:
        self.fn, self.lanes, self.float_zp = fn, lanes, float_zp
        self.inv, self.low, self.high = (a.f32(name).splat(lanes) for name in ("inv", "low", "high"))
        self.zp = a.i32("zp").splat(lanes)

    def finish(self, t: Value) -> Value:
        """Real values (in output units after `inv`) to bytes."""
        y = (t * self.inv).max(self.low).min(self.high)
        return ((y + _MAGIC).bits(vec(I32, self.lanes)) + self.zp).trunc(I8)

    def first(self, consts: Value, vector: int) -> Value:
        """What the sums of one vector of channels begin with."""
        return self.fn.load(consts + vector * self.lanes * 4, vec(I32, self.lanes))

    def apply(self, total: Value, consts: Value, panel: int, vector: int) -> Value:
        """The bytes of one vector of channels."""
        scale, bias, zp_term = (
            self.fn.load(consts + 4 * (row * panel + vector * self.lanes), vec(F32, self.lanes))
            for row in range(1, CONST_ROWS)
        )
        t = total.to_f32()
        if self.float_zp:
            t = t + zp_term
        return self.finish(t * scale + bias)


def shared_fields(params: object, inv: np.float32) -> dict[str, float | int]:
    """Values of inv, low, high and zp for an operator's parameters."""
    zp = int(params.out_zp)  # type: ignore[attr-defined]
    low = 0.0 if getattr(params, "activation", "none") == "relu" else float(-128 - zp)
    return {"inv": inv, "low": np.float32(low), "high": np.float32(127 - zp), "zp": zp}
