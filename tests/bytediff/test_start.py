"""A known defect of the runtime is taken off first: the bug beside it is named as if it were alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from refsim.bytediff import Cause, Report, diff
from refsim.core.buffer import FILL, PackedBuffer
from refsim.exec.emulated import EmulatedExecutor
from refsim.exec.executor import YOURS, Source
from refsim.golden import certify, check
from refsim.golden.store import DigestEntry
from refsim.golden.telling import TellingCase
from refsim.modules.trial import ModuleTrial
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.defect import FIRST_BATCH
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call
from refsim.ops.q8ta_add import ALPHA_IGNORED

CONV = bind(OPS["q8ta_conv2d_pw"].cases.example)
ADD = bind(
    replace(OPS["q8ta_add"].cases.example, params={**OPS["q8ta_add"].cases.example.params, "alpha": 0.5})
)


def _wrong(bound: BoundCase, call: Call, first: bool = False) -> Report:
    """The diff of what another call gives; of its first batch alone, if so."""
    buffer = PackedBuffer.pack(call.define({k: b.unpack() for k, b in bound.inputs.items()}), call.out.layout)
    if first:
        buffer.raw[buffer.raw.size // 2 :] = FILL
    return diff(bound.call.expected(bound.inputs), buffer, call=bound, device=True)


def _without_bias() -> Call:
    return replace(CONV.call, consts={**CONV.call.consts, "bias": None})


def test_a_batch_that_nobody_wrote() -> None:
    report = _wrong(CONV, _without_bias(), first=True)
    assert FIRST_BATCH.note in report.pattern[0]
    assert "bias left out" in report.causes[0].what and report.causes[0].exact


def test_a_batch_that_is_as_wrong_as_the_first() -> None:
    report = _wrong(CONV, _without_bias())
    assert not any(FIRST_BATCH.note in line for line in report.pattern)
    assert "bias left out" in report.causes[0].what and report.causes[0].exact


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_values_that_are_wrong_everywhere(alpha: float) -> None:
    call = replace(ADD.call, params=replace(ADD.call.params, alpha=alpha, b_zp=ADD.call.params.a_zp))
    report = _wrong(ADD, call)
    assert any(ALPHA_IGNORED.note in line for line in report.pattern) is (alpha == 1.0)
    assert report.causes[0].exact and report.causes[0].name == "another tensor's quantization"


def test_a_defect_alone_is_the_cause() -> None:
    report = _wrong(ADD, replace(ADD.call, params=replace(ADD.call.params, alpha=1.0)))
    assert ALPHA_IGNORED.note in report.causes[0].what
    assert not any(ALPHA_IGNORED.note in line for line in report.pattern)


def test_a_right_batch_is_not_forgiven() -> None:
    right = CONV.call.expected(CONV.inputs)
    raw = right.raw.copy()
    raw[raw.size // 2 :] = np.roll(raw[raw.size // 2 :], 1)
    report = diff(right, raw, call=CONV, device=True)
    assert not any(FIRST_BATCH.note in line for line in report.pattern)


class Kernel(EmulatedExecutor):
    """Somebody's kernel: without bias, and of the first batch alone, as upstream's."""

    name = "kernel"
    foreign = True

    def source(self, call: Call) -> Source:
        return Source(YOURS, (call.op.name,))

    def run_call(self, call: Call, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        buffer = replace(call, consts={**call.consts, "bias": None}).expected(inputs)
        buffer.raw[buffer.raw.size // 2 :] = FILL
        return buffer


def _verify() -> list[Cause]:
    found = check.run("case", "kernel", Kernel(), CONV, CONV.call.expected(CONV.inputs))
    return list(found.causes)


def _check() -> list[Cause]:
    entry = DigestEntry(0, CONV.case, "")
    found = certify._judged(entry, CONV, Kernel().run_call(CONV.call, CONV.inputs).data)
    return list(found.causes)


def _shaders() -> list[Cause]:
    candidate = TellingCase("case", CONV.call.op.name, CONV.case)
    trial = ModuleTrial(Kernel())
    return [row.cause for row in trial.explain(trial.run(candidate), ()).kernel.causes]


@pytest.mark.parametrize("verb", [_verify, _check, _shaders])
def test_each_verb_takes_the_defect_off_first(verb: Callable[[], list[Cause]]) -> None:
    first, *_ = verb()
    assert "bias left out" in first.what and first.exact and not first.weak
