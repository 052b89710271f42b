"""Bounds of an operator's kernels: `define`, the emulated kernel and the shaders clamp to the same bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from refsim.core.qmath import bounded, bounds_bits
from refsim.exec.cpu import EmulatedExecutor
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim_gpu.coop import AUTO, EMULATED
from refsim_gpu.executor import KomputeExecutor
from refsim_gpu.kompute import Device

INDEX = int(os.environ.get("REFSIM_DEVICE", "0"))
CASES = [(case, number) for op in OPS.values() if op.bounded for number, case in enumerate(op.cases)
         if isinstance(case, Case)]  # fmt: skip
BOUNDS = ((-100, 127), (-20, 40), (-128, 11), (7, 7), (90, 100))


@pytest.fixture(scope="module", params=[AUTO, EMULATED])
def executor(request: pytest.FixtureRequest, device: Device) -> Iterator[KomputeExecutor]:
    with KomputeExecutor(INDEX, coop=request.param) as opened:
        yield opened


@pytest.mark.parametrize("case, number", CASES, ids=lambda value: getattr(value, "op", value))
def test_every_kernel_clamps_alike(executor: KomputeExecutor, case: Case, number: int) -> None:
    bound = bind(case)
    free = bound.call.expected(bound.inputs)
    least, most = BOUNDS[number % len(BOUNDS)]
    for bounds in ((least, most), BOUNDS[0]):
        call = replace(bound.call, bounds=bounds)
        expected = call.expected(bound.inputs)
        assert expected.unpack().min() >= bounds[0] and expected.unpack().max() <= bounds[1]
        assert EmulatedExecutor().run_call(call, bound.inputs) == expected
        assert executor.run_call(call, bound.inputs) == expected
    assert executor.run_call(bound.call, bound.inputs) == free


def test_bounds_are_bits_of_the_flags() -> None:
    for least, most in BOUNDS:
        flags = bounds_bits((least, most)) | 0x3FF
        assert [int(bounded(q, flags)) for q in range(-128, 128)] == [
            min(max(q, least), most) for q in range(-128, 128)
        ]
    assert bounds_bits(None) == 0
