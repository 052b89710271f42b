"""Causes in a single step from a sum, or from an input, to a byte: another operation than the one that belongs there.

Each step is tried with every other operation, so a mistake that nobody has made yet is tried too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, hypothesis
from refsim.bytediff.hypotheses import winograd
from refsim.bytediff.hypotheses.grouped_steps import grouped_steps
from refsim.bytediff.rerun import (
    affine,
    finished,
    has_weights,
    integer_sums,
    is_convolution,
    logical_weight,
    products,
)
from refsim.core.qmath import f32, inv_scale, wrap32
from refsim.ops.base.epilogue import PER_CHANNEL
from refsim.ops.base.traits import Affine, Epilogue, Family

F = np.float32
Step = Callable[[Any, Any], Any]

#: Operations of two numbers, by how they read.
OPERATIONS: Mapping[str, Step] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "only the first": lambda a, b: a + 0 * b,
    "only the second": lambda a, b: 0 * a + b,
}
#: Rounding to an integer, by how it reads.
ROUNDING: Mapping[str, Callable[[Any], Any]] = {
    "down": np.floor,
    "up": np.ceil,
    "toward zero": np.trunc,
    "away from zero": lambda a: np.copysign(np.ceil(np.abs(a)), a),
}
_HUGE = float(1 << 30)  # beyond any byte, within int64


@dataclass(frozen=True)
class _Chain:
    """A computation in steps: ``run`` takes the operation of each, by name. ``steps`` has the right ones."""

    steps: Mapping[str, str]
    run: Callable[[Mapping[str, Step], Callable[[Any], Any]], np.ndarray]


@hypothesis("another operation", needs_call=True)
def operations(ev: Evidence) -> Iterator[Prediction]:
    """One step of the arithmetic with another operation: a sum for a product, a maximum for a minimum."""
    if ev.bound is not None and ev.call.op.int4 is not None:
        yield from grouped_steps(ev, OPERATIONS)
        return
    chain = _chain(ev)
    if chain is None:
        return
    right = {name: OPERATIONS[symbol] for name, symbol in chain.steps.items()}
    with np.errstate(all="ignore"):
        for name, symbol in chain.steps.items():
            for other, step in OPERATIONS.items():
                if other != symbol:
                    made = chain.run({**right, name: step}, np.rint)
                    yield Prediction(f"{name}: {other} instead of {symbol}", ev.with_values(made))
        if has_weights(ev):
            for what, acc in _joined(ev):
                yield Prediction(f"an input and its weight: {what} instead of *", finished(ev, acc))
            for what, cells in winograd.joined(ev):
                yield Prediction(f"an input and its weight in {what} instead of *", cells)
        if ev.desc.is_int8:
            for what, rounding in ROUNDING.items():
                yield Prediction(f"rounded {what}", ev.with_values(chain.run(right, rounding)))


def _chain(ev: Evidence) -> _Chain | None:
    if has_weights(ev):
        return _sums(ev)
    found = affine(ev) if ev.bound is not None else None
    if found is not None and len(found.terms) == len(ev.arrays):
        return _terms(ev, found)
    if ev.bound is not None and ev.call.op.family in (Family.QUANTIZE, Family.DEQUANTIZE):
        return _converted(ev)
    return None


def _joined(ev: Evidence) -> Iterator[tuple[str, np.ndarray]]:
    """(operation, integer sums) where inputs and weights are added, and not multiplied, before they are added up."""
    weight = logical_weight(ev) if is_convolution(ev) else ev.call.consts["weight"]
    assert weight is not None
    x = products(ev, np.ones_like(weight))
    own = weight.reshape(len(weight), -1).sum(axis=1, dtype=np.int64)
    w = own.reshape((-1, 1, 1) if ev.call.op.channel_dim == -3 else (-1,))
    yield from (("+", x + w), ("-", x - w), ("only the first", x), ("only the second", w + 0 * x))


def _byte(real: Any, zp: int, add: Step, rounding: Callable[[Any], Any]) -> np.ndarray:
    """A real number of steps as a byte: rounded, the zero point added, clamped."""
    whole = np.clip(np.nan_to_num(rounding(real)), -_HUGE, _HUGE)
    return np.clip(np.nan_to_num(add(whole, zp)), -128, 127)


def _sums(ev: Evidence) -> _Chain:
    """An integer sum, and the epilogue after it."""
    call, p = ev.call, ev.call.params
    spread = (-1, 1, 1) if call.op.channel_dim == -3 else (-1,)
    sums, scales, bias = (call.consts[name] for name in PER_CHANNEL)
    assert sums is not None and scales is not None
    acc, wsum, scale = integer_sums(ev), sums.reshape(spread).astype(np.int64), scales.reshape(spread)
    integer = ev.writing.epilogue is Epilogue.INTEGER_ZP or not ev.desc.is_int8
    relu = getattr(p, "activation", "none") == "relu"
    steps = {"zero point and weight sums": "*", "sum and what is folded": "-", "the two scales": "*"}
    steps |= {"the sum and its scale": "*"} | ({} if bias is None else {"the bias": "+"})
    if ev.desc.is_int8:
        steps |= ({"the relu": "maximum"} if relu else {}) | {"the output's scale": "*", "zero point": "+"}

    def run(by: Mapping[str, Step], rounding: Callable[[Any], Any]) -> np.ndarray:
        folded = by["zero point and weight sums"](np.int64(p.in_zp), wsum)
        if integer:
            held = np.nan_to_num(by["sum and what is folded"](acc, folded))
            t = f32(wrap32(np.clip(held, -_HUGE * _HUGE, _HUGE * _HUGE).astype(np.int64)))
        else:
            t = by["sum and what is folded"](f32(acc), np.asarray(folded).astype(F))
        t = by["the sum and its scale"](t, by["the two scales"](scale, F(p.in_scale)))
        t = t if bias is None else by["the bias"](t, bias.reshape(spread))
        if not ev.desc.is_int8:
            return np.asarray(t, F)
        t = by["the relu"](t, F(0)) if relu else t
        t = by["the output's scale"](t, inv_scale(p.out_scale))
        return _byte(t, p.out_zp, by["zero point"], rounding)

    return _Chain(steps, run)


def _terms(ev: Evidence, found: Affine) -> _Chain:
    """Elements of int8 inputs, added up and quantized again."""
    arrays = list(ev.arrays.values())
    steps = {"an input and its zero point": "-", "an input and its scale": "*"}
    steps |= {"the inputs": "+", "the factor": "*"} if len(arrays) > 1 else {}
    steps |= {"the relu": "maximum"} if found.relu else {}
    steps |= {"the output's scale": "*", "zero point": "+"}

    def run(by: Mapping[str, Step], rounding: Callable[[Any], Any]) -> np.ndarray:
        y: Any = None
        for number, (term, q) in enumerate(zip(found.terms, arrays, strict=True)):
            real = f32(by["an input and its zero point"](q.astype(np.int32), term.zp))
            real = by["an input and its scale"](real, F(term.scale))
            if number and "the factor" in by:
                real = by["the factor"](real, F(term.factor))
            y = real if y is None else by["the inputs"](y, real)
        y = by["the relu"](y, F(0)) if found.relu else y
        return _byte(by["the output's scale"](y, found.inv), found.zp, by["zero point"], rounding)

    return _Chain(steps, run) if all(q.shape == arrays[0].shape for q in arrays) else _Chain({}, run)


def _converted(ev: Evidence) -> _Chain:
    """Floats to bytes, or bytes to floats."""
    p, (x,) = ev.call.params, ev.arrays.values()
    if ev.desc.is_int8:
        return _Chain(
            {"the scale": "*", "zero point": "+"},
            lambda by, rounding: _byte(
                by["the scale"](x, inv_scale(p.scale)), p.zp, by["zero point"], rounding
            ),
        )
    return _Chain(
        {"zero point": "-", "the scale": "*"},
        lambda by, rounding: np.asarray(
            by["the scale"](by["zero point"](x.astype(F), F(p.zp)), F(p.scale)), F
        ),
    )
