"""What follows an integer sum: the two epilogues, and the per-channel constants that they read.

Shared by the convolutions and the linear operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from refsim.core import size_limit
from refsim.core.errors import ParameterError, ShapeError
from refsim.core.jit import jitable
from refsim.core.lanes import as_f32, insert
from refsim.core.layout import Layout
from refsim.core.push import PushWords, flags, float32, int32
from refsim.core.qmath import (
    bounded,
    bounds_bits,
    check_bias,
    check_k,
    check_weight_scales,
    f32,
    inv_scale,
    mul_add,
    requant_added,
    wrap32,
)
from refsim.core.rng import Rng
from refsim.ops.base.arg import Arg, Kind
from refsim.ops.base.spec import Call
from refsim.ops.base.styles import CANCELLED
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Epilogue

ACTIVATIONS = ("none", "relu")
RELU, HAS_BIAS = 1 << 8, 1 << 9  # beside the profile's flags in one word
#: Constants with a number for each output channel.
PER_CHANNEL = ("weight_sums", "weight_scales", "bias")
CONSTS = ("weight", *PER_CHANNEL)


def args(
    x: Sequence[Layout],
    out: Sequence[Layout],
    rest: Sequence[str],
    *,
    floats: bool = False,
    weight_channels: int = 0,
) -> tuple[Arg, ...]:
    """The arguments of an operator with weights in serialized order. ``floats``: its output is not quantized."""
    return (
        Arg("x", Kind.INPUT, tuple(x)),
        Arg("in_scale"),
        Arg("in_zp"),
        Arg("weight", Kind.CONST, dtype=np.int8, channels=weight_channels),
        Arg("weight_sums", Kind.CONST, dtype=np.int32, channels=0),
        Arg("weight_scales", Kind.CONST, dtype=np.float32, channels=0),
        *(() if floats else (Arg("out_scale"), Arg("out_zp"))),
        Arg("bias", Kind.CONST, dtype=np.float32, optional=True, channels=0),
        *(Arg(name) for name in rest),
        Arg("out", Kind.OUTPUT, tuple(out)),
    )


def align4(n: int) -> int:
    return -(-n // 4) * 4


def out_channels(rows: int, declared: tuple[int, ...] | None, dim: int) -> int:
    """Output channels: the declared number, if the weight has as many rows, padded to a multiple of 4 or not."""
    if declared is not None and len(declared) >= -dim and rows in (declared[dim], align4(declared[dim])):
        return declared[dim]
    return rows


def check_activation(params: Any) -> None:
    """ParameterError for an activation of a `Params` that there is not."""
    if params.activation not in ACTIVATIONS:
        raise ParameterError(
            params.where, "unknown activation", got=repr(params.activation), need=" or ".join(ACTIVATIONS)
        )


def check_constants(call: Call, out: int, k: int) -> None:
    """The accumulator's length, and the ranges of the constants."""
    where = call.params.where
    check_k(where, k)
    for name in PER_CHANNEL:
        value = call.consts[name]
        if value is not None and value.ndim != 1:
            raise ShapeError(where, f"{name} is not a vector", got=value.shape, need=f"({align4(out)},)")
    (scales,) = call.given("weight_scales")
    bias = call.consts["bias"]
    check_weight_scales(where, call.params.in_scale, scales)
    if bias is not None:
        check_bias(where, bias)


# --- meaning ---------------------------------------------------------------------------------------------


def requantized(
    epilogue: Epilogue,
    params: Any,
    target: Target,
    acc: np.ndarray,
    consts: Mapping[str, Any],
    spread: tuple[int, ...],
) -> np.ndarray:
    """int8 output of integer sums whose last dims are (OC, *rest); ``spread`` shapes a per-channel vector."""
    sums, scales, bias = (consts[name] for name in PER_CHANNEL)
    if target.rule is not None:
        return target.rule(
            params.activation == "relu",
            acc=wrap32(acc - np.int64(params.in_zp) * sums.reshape(spread)),
            sx=np.float32(params.in_scale),
            sw=scales.reshape(spread),
            so=np.float32(params.out_scale),
            bias=np.float32(0.0) if bias is None else bias.reshape(spread),
            zp=np.int64(params.out_zp),
        )
    return FORMULAS[epilogue](
        acc,
        sums.reshape(spread),
        params.in_zp,
        scales.reshape(spread),
        np.float32(params.in_scale),
        np.float32(0.0) if bias is None else bias.reshape(spread),
        inv_scale(params.out_scale),
        params.out_zp,
        call_flags(params, target, bias is not None),
    ).astype(np.int8)


@jitable
def _scaled(t, scale, bias, flags):  # type: ignore[no-untyped-def]
    if flags & HAS_BIAS:
        return mul_add(t, scale, bias, flags)
    return t * scale


@jitable
def _finish(t, inv, zp, flags):  # type: ignore[no-untyped-def]
    if flags & RELU:
        t = np.maximum(t, np.float32(0.0))
    return bounded(requant_added(t, inv, zp, flags & 255), flags)


@jitable
def float_epilogue(acc, wsum, in_zp, weight_scale, in_scale, bias, inv, zp, flags):  # type: ignore[no-untyped-def]
    """The epilogue that subtracts the zero point in binary32: `Epilogue.FLOAT_ZP`."""
    t = mul_add(-f32(wsum), f32(in_zp), f32(acc), flags)
    return _finish(_scaled(t, weight_scale * in_scale, bias, flags), inv, zp, flags)


@jitable
def int_real(acc, wsum, in_zp, weight_scale, in_scale, bias, flags):  # type: ignore[no-untyped-def]
    """What an integer sum stands for, in binary32; the zero point is subtracted in int32."""
    t = f32(wrap32(acc - np.int64(in_zp) * wsum))
    return _scaled(t, weight_scale * in_scale, bias, flags)


@jitable
def int_epilogue(acc, wsum, in_zp, weight_scale, in_scale, bias, inv, zp, flags):  # type: ignore[no-untyped-def]
    """The epilogue that subtracts the zero point in int32: `Epilogue.INTEGER_ZP`."""
    return _finish(int_real(acc, wsum, in_zp, weight_scale, in_scale, bias, flags), inv, zp, flags)


#: What an operator says of its epilogue -> the formula.
FORMULAS: Mapping[Epilogue, Callable[..., Any]] = {
    Epilogue.INTEGER_ZP: int_epilogue,
    Epilogue.FLOAT_ZP: float_epilogue,
}


# --- words for the kernels --------------------------------------------------------------------------------


def call_flags(params: Any, target: Target, has_bias: bool) -> int:
    """The profile's flags, whether there is a relu, and whether there is a bias, in one word."""
    return target.profile.flags | RELU * (params.activation == "relu") | HAS_BIAS * has_bias


#: The push words that `out_word` reads. They stand in a kernel's row in this order, one behind the other.
QUANTIZATION = (
    int32("IN_ZP"),
    int32("ZP"),
    float32("IN_SCALE"),
    float32("INV"),
    flags("FLAGS", RELU=RELU, HAS_BIAS=HAS_BIAS),
)
IN_ZP, ZP, IN_SCALE, INV, FLAGS = PushWords(*QUANTIZATION).offsets


def quantization(call: Call) -> dict[str, Any]:
    """The values of `QUANTIZATION`, by name."""
    p = call.params
    return {
        "IN_ZP": p.in_zp,
        "ZP": p.out_zp,
        "IN_SCALE": np.float32(p.in_scale),
        "INV": inv_scale(p.out_scale),
        "FLAGS": call_flags(p, call.target, call.consts["bias"] is not None) | bounds_bits(call.bounds),
    }


def pack_weight(weight: np.ndarray) -> np.ndarray:
    """int8 (output channels, taps, input channels) to words [tap][input channel word][output channel]."""
    out, taps, channels = weight.shape
    padded = np.zeros((align4(out), taps, align4(channels)), np.int8)
    padded[:out, :, :channels] = weight
    return np.ascontiguousarray(padded.view(np.int32).transpose(1, 2, 0)).reshape(-1)


def pad_rows(values: np.ndarray, rows: int) -> np.ndarray:
    """A vector, padded with zeros."""
    padded = np.zeros(rows, values.dtype)
    padded[: len(values)] = values
    return padded


@jitable
def out_word(epilogue, acc, oc, channels, push, at, sums, scales, bias):  # type: ignore[no-untyped-def]
    """The output word of four sums for channels oc to oc + 3; lanes beyond the channels hold the zero point.

    The words of `QUANTIZATION` begin at push[at].
    """
    in_zp, zp, flags = push[at + IN_ZP], push[at + ZP], push[at + FLAGS]
    in_scale, inv = as_f32(push[at + IN_SCALE]), as_f32(push[at + INV])
    word = 0
    for k in range(4):
        q = zp
        if oc + k < channels:
            total, wsum, weight_scale = acc[k], sums[oc + k], as_f32(scales[oc + k])
            b = as_f32(bias[min(oc + k, bias.size - 1)])
            if epilogue == Epilogue.INTEGER_ZP:
                q = int_epilogue(total, wsum, in_zp, weight_scale, in_scale, b, inv, zp, flags)
            else:
                q = float_epilogue(total, wsum, in_zp, weight_scale, in_scale, b, inv, zp, flags)
        word = insert(word, k, q)
    return word


# --- random data -----------------------------------------------------------------------------------------


def _sparse(rng: Rng, shape: tuple[int, ...], k: int) -> np.ndarray:
    """About four entries of -1 and 1 per row, so that sums stay small enough for ties."""
    return rng.choices([-1, 1], shape) * (rng.ints(0, k - 1, shape) < 4)


def _one_sign(rng: Rng, shape: tuple[int, ...]) -> np.ndarray:
    """Large weights, of one sign in each row: sums of values of one sign grow as far as they can."""
    signs = 1 - 2 * (np.arange(shape[0]) % 2)
    return rng.ints(90, 127, shape) * signs.reshape(-1, *(1,) * (len(shape) - 1))


#: Style of a case -> weights (int64) of a shape with k of them per output channel.
_WEIGHTS: dict[str, Callable[[Rng, tuple[int, ...], int], np.ndarray]] = {
    "random": lambda rng, shape, k: rng.ints(-127, 127, shape),
    "position": lambda rng, shape, k: (np.arange(prod(shape)) * 83 % 251 - 125).reshape(shape),
    "ties": _sparse,
    "near_ties": lambda rng, shape, k: rng.ints(-2, 2, shape),  # larger ones saturate nearly every output
    "saturation": lambda rng, shape, k: rng.choices([-128, -128, 127], shape),
    "cancelling": lambda rng, shape, k: _one_sign(rng, shape),
    "far_bias": lambda rng, shape, k: _one_sign(rng, shape),
}
#: How many steps of the output a bias of style ``far_bias`` takes away.
FAR = 2.0**24


def _style(features: Mapping[str, Any]) -> str:
    return "near_ties" if features.get("ties") else str(features.get("style", "random"))


def weights(features: Mapping[str, Any], shape: tuple[int, ...], k: int, rng: Rng) -> np.ndarray:
    """Weights (int64), k of them per output channel, in the case's style; ``negated`` ones with that feature."""
    size_limit.check("weights", 8 * prod(shape))
    found = _WEIGHTS[_style(features)](rng, shape, k)
    return np.minimum(-found, 127) if features.get("negated") else found


def row_constants(params: Any, out: int, k: int, features: Mapping[str, Any], rng: Rng) -> dict[str, Any]:
    """weight (out, k padded to 4) and its per-row constants, scaled so that outputs spread over the range."""
    drawn = weights(features, (out, k), k, rng)
    weight = np.zeros((out, align4(k)), np.int8)
    weight[:, :k] = drawn
    return {"weight": weight, **per_channel(params, weight.astype(np.int64).sum(1), k, features, rng)}


def _step(params: Any) -> float:
    """The step of the output; where it is not quantized, that of the input."""
    return float(getattr(params, "out_scale", params.in_scale))


def per_channel(
    params: Any, sums: np.ndarray, k: int, features: Mapping[str, Any], rng: Rng
) -> dict[str, Any]:
    """weight_sums, weight_scales and bias, padded to 4.

    With style ``near_ties``, the scales are inexact fractions of the output's scale and the bias is a multiple of it.
    Many sums then lie within an ulp of a tie, where one rounding and two roundings give different bytes. With style
    ``ties`` they are powers of two. With style ``cancelling`` the bias takes away what the zero point leaves of the
    sums, which may be millions of steps; with style ``far_bias`` it is about `FAR` steps.
    """
    out, style, step = len(sums), _style(features), _step(params)
    if style == "near_ties":
        parts = np.array([6, 10, 14, 22])[rng.ints(0, 3, (out,))]
        scales = step / (params.in_scale * parts)
        bias = rng.ints(-60, 60, (out,)) * step
    elif style == "ties":
        # one step of the sum is half a step of the output, or a quarter
        halves = 2.0 ** rng.ints(-2, -1, (out,)) * (step / params.in_scale)
        scales = np.exp2(np.rint(np.log2(halves)))
        bias = rng.ints(-64, 64, (out,)) * (step / 2)
    elif style == "cancelling":
        scales = rng.uniform(0.5, 1.5, (out,)) * 40.0 * step / (params.in_scale * 1.4 * 108.0 * k**0.5)
        left = (CANCELLED - params.in_zp) * sums * scales.astype(np.float32).astype(np.float64)
        bias = rng.uniform(-60.0, 60.0, (out,)) * step - left * params.in_scale
    elif style == "far_bias":
        total = (CANCELLED - params.in_zp) * sums
        scales = rng.uniform(0.97, 1.03, (out,)) * FAR * step / (np.abs(total) * params.in_scale)
        left = total * scales.astype(np.float32).astype(np.float64)
        bias = rng.uniform(-60.0, 60.0, (out,)) * step - left * params.in_scale
    else:
        spread = 2.0 ** rng.integer(-1, 2) * 40.0 * step
        spread /= params.in_scale * 74.0 * 74.0 * k**0.5
        scales = rng.uniform(0.5, 1.5, (out,)) * min(max(spread, 2.0**-58), 2.0**58)
        bias = rng.uniform(-60.0, 60.0, (out,)) * step
    return {
        "weight_sums": pad_rows(sums.astype(np.int32), align4(out)),
        "weight_scales": pad_rows(scales.astype(np.float32), align4(out)),
        "bias": pad_rows(bias.astype(np.float32), align4(out)) if features.get("bias") else None,
    }
