"""One wrong buffer for each cause: those that the tests of the hypotheses make, and what docs/causes.md shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import test_groups
import test_hypotheses

from refsim.bytediff.evidence import Evidence, Prediction
from refsim.bytediff.hypotheses import ALL
from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.ops.base.binding import BoundCase, bind

#: Where the tests have several wrong buffers for a cause: the detail of the one that looks most like it.
TELLING = {
    "batch ignored": "computed from batch 0",
    "another layout's strides": "written as 4C1W",
    "C and another dim exchanged": "C and H",
    "known defect of upstream": "computes the first plane",
}
HYPOTHESES = {hypothesis.name: hypothesis for hypothesis in ALL}


@dataclass(frozen=True)
class Shown:
    """A call, the buffer that a kernel with one bug leaves, and the prediction that is equal to it."""

    name: str
    evidence: Evidence
    prediction: Prediction

    @classmethod
    def of(cls, name: str, detail: str, bound: BoundCase, wrong: Any, **more: Any) -> Shown:
        """AssertionError if no prediction of the cause, with this detail, is the buffer byte for byte."""
        expected = bound.call.expected(bound.inputs)
        actual = _buffer(expected, wrong)
        known = {f"input {arg}": buffer.raw for arg, buffer in bound.inputs.items()}
        every = np.ones(len(actual.words) * (4 if expected.desc.is_int8 else 1), bool)
        evidence = Evidence(expected, actual, every, bound, others=known, **more)
        assert evidence.differing.any(), name
        for prediction in HYPOTHESES[name].find(evidence):
            if detail in prediction.detail and np.array_equal(prediction.cells, evidence.got):
                return cls(name, evidence, prediction)
        raise AssertionError(f"{name}: no prediction with {detail} is the wrong buffer")


def _buffer(expected: PackedBuffer, wrong: Any) -> PackedBuffer:
    """The wrong buffer of raw bytes, of a buffer, or of NCHW values; with values the padding is right."""
    if isinstance(wrong, PackedBuffer):
        return wrong
    desc = expected.desc
    if wrong.ndim == 1:
        return PackedBuffer.from_raw(wrong.tobytes(), desc.shape, desc.layout, desc.dtype)
    fresh = PackedBuffer(desc)
    fresh.raw[:] = expected.raw
    elements = expected.kinds() == ByteKind.VALUE
    fresh.raw[elements] = PackedBuffer.pack(wrong.reshape(desc.shape), desc.layout).raw[elements]
    return fresh


def _stale_constant() -> Shown:
    bound = test_hypotheses.BOUND
    before = bind(replace(bound.case, params={**bound.case.params, "out_scale": 2.0}, seed=8))
    stale = replace(bound.call, params=replace(bound.call.params, out_scale=2.0))
    wrong = stale.expected(bound.inputs).unpack()
    return Shown.of("stale constant", "out_scale of the call before", bound, wrong, previous=before)


def _sums_of_others() -> Shown:
    """Sums stored in rows of 8 outputs, the last of which is not full, and read in rows of 4."""
    bound = test_groups.ODD
    sums, out = np.asarray(bound.call.consts["weight_sums"]), bound.call.out.shape[-1]
    groups = len(sums)
    stored = np.zeros((groups, 16), sums.dtype)
    stored[:, :out] = sums[:, :out]
    read = stored.reshape(-1)[: groups * out].reshape(groups, out)
    wrong = replace(bound.call, consts={**bound.call.consts, "weight_sums": read}).expected(bound.inputs)
    return Shown.of("weight sums of other outputs", "", bound, wrong)


def _range_of_rows() -> Shown:
    bound = next(b for b in test_groups.RANGES if not b.call.out.is_int8)
    x = np.random.default_rng(4).uniform(-3, 5, (9, 37)).astype(np.float32)
    x += np.arange(9, dtype=np.float32)[:, None]
    bound = BoundCase(bound.case, bound.call, {"x": PackedBuffer.pack(x, "W")})
    low, high = (np.roll(edge, 1) for edge in (np.minimum(x.min(1), 0), np.maximum(x.max(1), 0)))
    wrong = ((high - low) / np.float32(255)).astype(np.float32)
    return Shown.of("range of rows", "of the row before", bound, wrong)


def _quantized_row() -> Shown:
    bound = test_groups.SINGLE
    return Shown.of("quantized rows", "the activation is quantized", bound, test_groups.kernel(bound))


def shown() -> Iterator[Shown]:
    """An example of each cause, in the order of the hypotheses; of several the first that the tests have."""
    made = {
        "stale constant": _stale_constant,
        "weight sums of other outputs": _sums_of_others,
        "range of rows": _range_of_rows,
        "quantized rows": _quantized_row,
    }
    for name in HYPOTHESES:
        if name in made:
            yield made[name]()
            continue
        detail = TELLING.get(name, "")
        row = next((r for r in test_hypotheses.ROWS if r[0] == name and detail in r[1]), None)
        if row is not None:
            yield Shown.of(name, row[1], *row[2]())
        else:
            _, detail, bound, bug = next(row for row in test_groups.ROWS if row[0] == name)
            yield Shown.of(name, detail, bound, test_groups.kernel(bound, **bug))
