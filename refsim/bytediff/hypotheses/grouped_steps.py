"""Steps of the arithmetic with 4-bit weights in groups, each with another operation; part of "another operation"."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction
from refsim.bytediff.hypotheses.int4 import int4_cells, int4_weights
from refsim.ops.base import group_linear, group_weights
from refsim.ops.base.traits import Family

Step = Callable[[Any, Any], Any]
F = np.float32


def grouped_steps(ev: Evidence, operations: Mapping[str, Step]) -> Iterator[Prediction]:
    """The output with each operation in place of the right one."""
    call = ev.call
    many = call.op.family is Family.GROUP_LINEAR and call.out.shape[-2] > 1
    steps = _MANY if many else _REAL
    run = _many if many else _real
    right = {name: operations[symbol] for name, symbol in steps.items()}
    for name, symbol in steps.items():
        for other, step in operations.items():
            if other != symbol:
                with np.errstate(all="ignore"):
                    cells = run(ev, {**right, name: step})
                yield Prediction(f"{name}: {other} instead of {symbol}", cells)


_REAL = {"a weight and its scale": "*"}


def _real(ev: Evidence, by: Mapping[str, Step]) -> np.ndarray:
    """Rows that stay floats, and rows of a table: a weight is a real number before it is used."""
    found = int4_weights(ev)
    assert found is not None
    values, scales = found
    spread = np.repeat(scales, values.shape[1] // scales.shape[1], axis=1)
    real = np.asarray(by["a weight and its scale"](values.astype(F), spread), F)
    return int4_cells(ev, real, np.ones_like(scales))


_MANY = {
    "zero point and weight sums": "*",
    "sum and what is folded": "-",
    "scale of the row and of the group": "*",
    "the sum of a group and its scale": "*",
    "the groups": "+",
    "the bias": "+",
}


def _many(ev: Evidence, by: Mapping[str, Step]) -> np.ndarray:
    """Rows that are quantized: sums of integers, group by group."""
    call, zp = ev.call, ev.arrays["zp"].astype(np.int64)[..., None]
    values, scales = group_weights.weights_of(call)
    none = np.zeros_like(group_weights.own_sums(call))
    parts = group_linear.adjusted(
        group_weights.quantized(call, ev.arrays), 0 * ev.arrays["zp"], values, none, call.params.group
    )
    row, bias = ev.arrays["scale"][..., None], call.consts["bias"]
    out: Any = np.zeros(parts.shape[1:], F)
    for part, sums, scale in zip(parts, group_weights.own_sums(call), scales.T, strict=True):
        folded = by["zero point and weight sums"](zp, sums.astype(np.int64))
        held = np.nan_to_num(np.asarray(by["sum and what is folded"](part, folded), np.float64)).astype(F)
        scaled = by["the sum of a group and its scale"](
            held, by["scale of the row and of the group"](row, scale)
        )
        out = np.asarray(by["the groups"](out, scaled), F)
    return ev.with_values(np.asarray(out if bias is None else by["the bias"](out, bias), F))
