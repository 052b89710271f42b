"""A known defect of the runtime is taken off first: the bug beside it is named as if it were alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from refsim.bytediff import Cause, diff
from refsim.core.buffer import FILL, PackedBuffer
from refsim.exec.emulated import EmulatedExecutor
from refsim.exec.executor import YOURS, Source
from refsim.golden import certify, check
from refsim.golden.store import DigestEntry
from refsim.golden.telling import TellingCase
from refsim.modules.trial import ModuleTrial
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.defect import FIRST_BATCH, Defect
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call
from refsim.ops.q8ta_add import ALPHA_IGNORED

CONV = bind(OPS["q8ta_conv2d_pw"].cases.example)
SUM = OPS["q8ta_add"].cases.example
ADD = bind(replace(SUM, params={**SUM.params, "alpha": 0.5}))


def _without_bias(call: Call) -> Call:
    return replace(call, consts={**call.consts, "bias": None})


def _added(alpha: float, *, b_zp: int = ADD.call.params.b_zp) -> Call:
    return replace(ADD.call, params=replace(ADD.call.params, alpha=alpha, b_zp=b_zp))


def _second_batch(buffer: PackedBuffer) -> np.ndarray:
    return buffer.raw[buffer.raw.size // 2 :]


@pytest.mark.parametrize(
    ("bound", "call", "first", "beside", "cause"),
    [
        (CONV, _without_bias(CONV.call), True, FIRST_BATCH, "bias left out"),
        (CONV, _without_bias(CONV.call), False, None, "bias left out"),
        (ADD, _added(0.5, b_zp=ADD.call.params.a_zp), False, None, "another tensor's quantization"),
        (ADD, _added(1.0, b_zp=ADD.call.params.a_zp), False, ALPHA_IGNORED, "another tensor's quantization"),
        (ADD, _added(1.0), False, None, ALPHA_IGNORED.note),
    ],
    ids=["one batch written", "both as wrong", "values alone", "values, beside a defect", "a defect alone"],
)
def test_a_defect_is_told_beside_the_cause(
    bound: BoundCase, call: Call, first: bool, beside: Defect | None, cause: str
) -> None:
    """Of what another call gives; of its first batch alone, if so."""
    buffer = PackedBuffer.pack(call.define({k: b.unpack() for k, b in bound.inputs.items()}), call.out.layout)
    if first:
        _second_batch(buffer)[:] = FILL
    report = diff(bound.call.expected(bound.inputs), buffer, call=bound, device=True)
    notes = [row for row in (FIRST_BATCH, ALPHA_IGNORED) if any(row.note in line for line in report.pattern)]
    assert notes == ([] if beside is None else [beside])
    assert cause in report.causes[0].what and report.causes[0].exact


def test_a_right_batch_is_not_forgiven() -> None:
    right, wrong = CONV.call.expected(CONV.inputs), CONV.call.expected(CONV.inputs)
    _second_batch(wrong)[:] = np.roll(_second_batch(wrong), 1)
    pattern = diff(right, wrong, call=CONV, device=True).pattern
    assert not any(FIRST_BATCH.note in line for line in pattern)


class Kernel(EmulatedExecutor):
    """Somebody's kernel: without bias, and of the first batch alone, as upstream's."""

    name = "kernel"
    foreign = True

    def source(self, call: Call) -> Source:
        return Source(YOURS, (call.op.name,))

    def run_call(self, call: Call, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        buffer = _without_bias(call).expected(inputs)
        _second_batch(buffer)[:] = FILL
        return buffer


def _verify() -> Sequence[Cause]:
    return check.run("case", "kernel", Kernel(), CONV, CONV.call.expected(CONV.inputs)).causes


def _check() -> Sequence[Cause]:
    actual = Kernel().run_call(CONV.call, CONV.inputs)
    return certify._judged(DigestEntry(0, CONV.case, ""), CONV, actual.data).causes


def _shaders() -> Sequence[Cause]:
    trial = ModuleTrial(Kernel())
    found = trial.explain(trial.run(TellingCase("case", CONV.call.op.name, CONV.case)), ())
    return [row.cause for row in found.kernel.causes]


@pytest.mark.parametrize("verb", [_verify, _check, _shaders])
def test_each_verb_takes_the_defect_off_first(verb: Callable[[], Sequence[Cause]]) -> None:
    first, *_ = verb()
    assert "bias left out" in first.what and first.exact and not first.weak
