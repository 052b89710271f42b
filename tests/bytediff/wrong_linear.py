"""A linear kernel with one bug each, and bytes of elsewhere: written plainly, apart from refsim.bytediff."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case

F = np.float32
LINEAR = bind(
    Case(
        "q8ta_linear",
        dict(in_scale=0.02, in_zp=13, out_scale=0.4, out_zp=-21, activation="none"),
        {"x": ((12, 48), "4H4W")},
        "4H4W",
        seed=9,
        features={"out_channels": 20, "bias": True},
    )
)
CLONE = bind(Case("q8ta_clone", {}, {"x": ((2, 12, 10, 9), "4W4C")}, "4C1W", style="position"))

Wrong = Callable[[], tuple[BoundCase, Any]]


def linear(bound: BoundCase = LINEAR, **bug: Any) -> Wrong:
    """The whole linear layer, with a bug if any argument is given."""

    def make() -> tuple[BoundCase, np.ndarray]:
        p, consts = bound.call.params, bound.call.consts
        x = bug.get("x", lambda x: x)(bound.inputs["x"].unpack().astype(np.int64))
        weight = bug.get("weight", lambda w: w)(np.asarray(consts["weight"]).astype(np.int64))
        acc = bug["sums"](x, weight) if "sums" in bug else x @ weight.T
        in_zp = bug.get("in_zp", p.in_zp)
        t = F(acc - in_zp * np.asarray(consts["weight_sums"]).astype(np.int64))
        scales = np.asarray(consts["weight_scales"]) * bug.get("factor", F(1))
        if bug.get("apart"):
            t = t * scales * F(p.in_scale)
        else:
            t = t * (scales * F(p.in_scale))
        t = t + np.asarray(consts["bias"]) * F(bug.get("bias", 1))
        t = bug.get("real", lambda t: t)(t)
        q = np.rint(t / F(p.out_scale) if bug.get("divide") else t * (F(1) / F(p.out_scale)))
        whole = q.astype(np.int64) + p.out_zp
        values = (whole + 128) % 256 - 128 if bug.get("wraps") else np.clip(whole, -128, 127)
        return bound, values.astype(np.int8).reshape(1, 1, *values.shape)

    return make


def _short(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The third word of channels counted twice, the last one left out."""
    times = np.ones(48, np.int64)
    times[8:12], times[44:] = 2, 0
    return (x * times) @ weight.T


def _mixed(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Lane 2 of x times lane 1 of the weights, in place of lane 2."""
    other = weight.copy()
    other[:, 2::4] = weight[:, 1::4]
    return x @ other.T


def _first_row(x: np.ndarray) -> np.ndarray:
    made = x.copy()
    made[-1] = 13
    return made


def clone(change: Callable[[np.ndarray], np.ndarray]) -> Wrong:
    """A copy whose elements are changed: int8 NCHW."""
    return lambda: (CLONE, np.ascontiguousarray(change(CLONE.inputs["x"].unpack())))


def _pairs(x: np.ndarray) -> np.ndarray:
    """Every second row holds what belongs to the row below it."""
    made = x.copy()
    made[:, :, 0:8:2] = x[:, :, 1:9:2]
    return made


def _phase(x: np.ndarray) -> np.ndarray:
    made = x.copy()
    made[..., 1::3] = 77
    return made


def _copied(by: int) -> Wrong:
    """The input's bytes at some distance, with no regard for layouts."""

    def make() -> tuple[BoundCase, Any]:
        expected = CLONE.call.expected(CLONE.inputs)
        raw = expected.raw.copy()
        raw[200:600] = CLONE.inputs["x"].raw[200 + by : 600 + by]
        return CLONE, raw

    return make


def _input_cut_at_zero() -> tuple[BoundCase, np.ndarray]:
    """A composite operator that quantizes its input first, to bytes of which none is above 0."""
    case = Case(
        "linear_q8ta_q8csw", dict(in_scale=0.05, in_zp=7), {"x": ((6, 40), "W")}, "W", seed=4, style="position",
        features={"out_channels": 12, "bias": True},
    )  # fmt: skip
    bound = bind(case)
    consts = {name: np.asarray(value) for name, value in bound.call.consts.items()}
    q = np.rint(bound.inputs["x"].unpack() * (F(1) / F(0.05))) + 7
    q = np.clip(q, -128, 0).astype(np.int64)
    t = F(q @ consts["weight"].T.astype(np.int64) - 7 * consts["weight_sums"].astype(np.int64))
    return bound, t * (consts["weight_scales"] * F(0.05)) + consts["bias"]


ROWS: tuple[tuple[str, str, Wrong], ...] = (
    ("clamp bounds", "the quantized input clamped to [-128, 0]", _input_cut_at_zero),
    ("zero point one off", "in_zp one too large", linear(in_zp=14)),
    ("scale changed", "_scale doubled", linear(factor=F(2))),
    ("bias changed", "negated", linear(bias=-1)),
    ("input read at a neighbour", "x read at w +1", linear(x=lambda x: np.roll(x, -1, -1))),
    ("edge of the input", "the last row of x read as the zero point", linear(x=_first_row)),
    ("products miscounted", "word of channels 11 counted once less; word of channels 2 counted once more",
     linear(sums=_short)),
    ("products miscounted", "lane 2 of x by lane 2 of the weights counted once less", linear(sums=_mixed)),
    ("values moved", "i +1, for", clone(lambda x: np.concatenate((x[:, :, 1:], x[:, :, -1:]), 2))),
    ("values moved", "row i holds row i +1, for 4 of them", clone(_pairs)),
    ("values moved", "those of input x +8 bytes away", _copied(8)),
    ("only a part is written", "where w % 3 is 1", clone(_phase)),
)  # fmt: skip
