"""What linear operators with a float output share: parameters, meaning, constants, cases.

    adj = acc - zp_in * wsum (int32);  out = f32(adj) * (s_in * ws);  out = out + b

It is the integer epilogue without its end: nothing is rounded to integers, so there is neither an output's scale nor a
zero point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from refsim.core.layout import WIDTH_PACKED, Layout
from refsim.core.push import flags, float32, int32
from refsim.ops.base import epilogue, linear, quantized
from refsim.ops.base.case_rule import CaseSlot, Made, quantization
from refsim.ops.base.padding import no_padding
from refsim.ops.base.spec import Call, OpSpec
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family


@dataclass(frozen=True)
class FloatLinearParams(quantized.Quantization):
    """Quantization of the activation."""

    where = "linear_q8ta_q8csw"

    in_scale: float
    in_zp: int


def define(params: FloatLinearParams, target: Target, x: np.ndarray, **consts: np.ndarray) -> np.ndarray:
    """float32 (..., N) of int8 (..., K)."""
    return finished(params, target, linear.products(x, consts["weight"]), consts)


def finished(
    params: FloatLinearParams, target: Target, acc: np.ndarray, consts: Mapping[str, Any]
) -> np.ndarray:
    """float32 (..., N) of integer sums (..., N)."""
    sums, scales, bias = (consts[name] for name in epilogue.PER_CHANNEL)
    with np.errstate(over="ignore"):
        real: np.ndarray = epilogue.int_real(
            acc,
            sums,
            params.in_zp,
            scales,
            np.float32(params.in_scale),
            np.float32(0.0) if bias is None else bias,
            call_flags(target, bias is not None),
        )
    return real


def call_flags(target: Target, has_bias: bool) -> int:
    """The profile's flags, and whether there is a bias, in one word."""
    return target.profile.flags | epilogue.HAS_BIAS * has_bias


#: The push words of the epilogue; they stand in a kernel's row in this order, one behind the other.
EPILOGUE_WORDS = (int32("IN_ZP"), float32("IN_SCALE"), flags("FLAGS", HAS_BIAS=epilogue.HAS_BIAS))


def epilogue_words(call: Call) -> dict[str, Any]:
    """The values of `EPILOGUE_WORDS`, by name."""
    p = call.params
    has_bias = call.consts["bias"] is not None
    return {"IN_ZP": p.in_zp, "IN_SCALE": np.float32(p.in_scale), "FLAGS": call_flags(call.target, has_bias)}


def operator(params: Any, layout: Layout, **own: Any) -> OpSpec:
    """Such an operator, for an input in this layout."""
    shared: dict[str, Any] = {
        "family": Family.FLOAT_LINEAR,
        "args": epilogue.args((layout,), (WIDTH_PACKED,), (), floats=True),
        "define": define,
        "padding": no_padding,
    }
    return linear.operator(params, **shared | own)


def golden(slot: CaseSlot) -> Made:
    """A golden case."""
    params = quantization(slot, "in")
    return (params, *linear.golden_rows(slot))
