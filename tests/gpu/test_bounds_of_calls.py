"""Bounds of an operator's kernels: `define`, the emulated kernel and the shaders clamp to the same bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest
from examples import some

from refsim.core.qmath import bounded, bounds_bits
from refsim.core.rng import Rng
from refsim.exec.cpu import EmulatedExecutor
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import OpSpec
from refsim_gpu.coop import AUTO, EMULATED
from refsim_gpu.executor import KomputeExecutor
from refsim_gpu.kompute import Device

INDEX = int(os.environ.get("REFSIM_DEVICE", "0"))
CASES = [(case, number) for op in OPS.values() if op.bounded for number, case in enumerate(some(op))]
#: Operators whose outputs have whole words of four channels.
WHOLE = {"linear_q8ta_q8csw", "linear_q8ta_q8csw_tiled", "q8ta_conv2d_dw"}
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


@pytest.mark.parametrize(
    "op", [OPS[n] for n, op in OPS.items() if op.bounded and n not in WHOLE], ids=lambda op: op.name
)
def test_padding_holds_the_zero_point_whatever_the_bounds(executor: KomputeExecutor, op: OpSpec) -> None:
    """Lanes behind the last element are not clamped: bounds without the zero point do not reach them."""
    found = 0
    for seed in range(400):
        bound = bind(op.sample(Rng(seed)))
        out, params = bound.call.out, bound.call.params
        if out.sizes_whcn[out.layout.inner] % 4 == 0:
            continue
        zp = getattr(params, "out_zp", getattr(params, "zp", 0))
        call = replace(bound.call, bounds=(zp + 1, 127) if zp < 0 else (-128, zp - 1))
        expected = call.expected(bound.inputs)
        assert EmulatedExecutor().run_call(call, bound.inputs) == expected, seed
        assert executor.run_call(call, bound.inputs) == expected, seed
        found += 1
        if found == 4:
            break
    assert found == 4


def test_bounds_are_bits_of_the_flags() -> None:
    for least, most in BOUNDS:
        flags = bounds_bits((least, most)) | 0x3FF
        assert [int(bounded(q, flags)) for q in range(-128, 128)] == [
            min(max(q, least), most) for q in range(-128, 128)
        ]
    assert bounds_bits(None) == 0
