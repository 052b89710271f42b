"""Every operator on the device writes the definition's bytes, with and without the packed dot product."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import pytest
from examples import UNARY, at_the_least_range, zeros_of_both_signs

from refsim.core.errors import DeviceError, GuardError, ParameterError
from refsim.core.qmath import NVIDIA
from refsim.core.rng import Rng
from refsim.core.tensor import TensorDesc
from refsim.ops import q8ta_conv2d_dw
from refsim.ops.base import gemm
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.conv import WindowVariant
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import OpSpec
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family
from refsim.ops.q8ta_conv2d_dw import WINDOWS
from refsim_gpu.conformance import Count, cases, compare_calls, compare_recordings
from refsim_gpu.executor import KomputeExecutor
from refsim_gpu.kompute import Device

ROOT = Path(__file__).parents[2]
INDEX = int(os.environ.get("REFSIM_DEVICE", "0"))
MATRIX_LIKE = [name for name, op in OPS.items() if op.variants == gemm.TILE_CONFIGS]
Q = {"in_scale": 0.02, "in_zp": 5, "out_scale": 0.5, "out_zp": -9}
RANDOM = int(os.environ.get("REFSIM_GPU_RANDOM", "12"))  # 300 is what docs/conformance.md reports


@pytest.fixture(scope="module", params=[True, False], ids=["dot", "nodot"])
def executor(request: pytest.FixtureRequest, device: Device) -> Iterator[KomputeExecutor]:
    if request.param and not device.info.integer_dot_product:
        pytest.skip(f"{device.info.name} has no packed dot product")
    with KomputeExecutor(INDEX, use_dot=request.param) as opened:
        yield opened


def check(count: Count) -> None:
    assert count.compared
    assert not count.failed, f"{len(count.failed)} of {count.compared}: {count.failed[0]}"


@pytest.mark.parametrize("name", OPS)
def test_operator_writes_the_definitions_bytes(executor: KomputeExecutor, name: str) -> None:
    count = Count(name)
    compare_calls(executor, cases(name, RANDOM if executor.pipelines.use_dot else RANDOM // 3), count)
    check(count)


@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize("name", MATRIX_LIKE)
def test_every_tile_config_writes_the_definitions_bytes(executor: KomputeExecutor, name: str) -> None:
    count = Count(name)
    compare_calls(executor, cases(name, RANDOM // 3), count)
    check(count)


@pytest.mark.parametrize("window", WINDOWS, ids=[window.name for window in WINDOWS])
def test_every_depthwise_build_writes_the_definitions_bytes(
    executor: KomputeExecutor, window: WindowVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small cases never choose the builds for many rows, so those are forced."""
    monkeypatch.setattr(q8ta_conv2d_dw, "MANY", 0 if window.rows == q8ta_conv2d_dw.ROWS else 1 << 40)
    count = Count(window.name)
    rows = [
        Case(
            "q8ta_conv2d_dw",
            {
                **Q, "kernel_size": window.kernel, "stride": window.stride, "padding": (k, window.pad_w),
                "groups": 8, "activation": activation,
            },
            {"x": ((2, 8, 11, width), x)},
            out,
            features={"bias": k == 1},
        )
        for k, width, x, out, activation in (
            (0, 13, "4W4C", "4C1W", "none"), (1, 12, "4C1W", "4W4C", "relu"), (2, 19, "4C", "4C", "none"),
        )
    ]  # fmt: skip
    for case in rows:
        bound = bind(case)
        assert bound.call.dispatches()[-1].launch.variant == window.name
        compare_calls(executor, [bound], count)
    check(count)


@pytest.mark.parametrize("op", OPS.of_family(Family.ROW_RANGE), ids=lambda op: op.name)
def test_scales_about_the_greatest_whose_inverse_is_infinite(executor: KomputeExecutor, op: OpSpec) -> None:
    call, inputs = at_the_least_range(op)
    assert executor.run_call(call, inputs) == call.expected(inputs)


@pytest.mark.parametrize("rows", [1, 6])
def test_a_sum_of_negative_zeros_is_a_positive_one(executor: KomputeExecutor, rows: int) -> None:
    call, inputs = zeros_of_both_signs(rows)
    assert executor.run_call(call, inputs) == call.expected(inputs)


def test_recordings(executor: KomputeExecutor) -> None:
    count = Count("recordings")
    every = 1 if RANDOM >= 300 else 5 if executor.pipelines.use_dot else 25
    compare_recordings(executor, ROOT / "golden" / "upstream", count, every)
    check(count)


def test_a_grid_beyond_the_device_is_refused_before_anything_runs(executor: KomputeExecutor) -> None:
    bound = bind(UNARY.cases.example)
    (step,) = bound.call.dispatches()
    words = [buffer.words for buffer in bound.inputs.values()]
    executor.run(step.launch, words)  # what an executor keeps from its first call on is there now
    gc.collect()  # and what earlier tests held is not
    before = dict(executor.device._live)
    huge = replace(step.launch, grid=(1, 1 << 31, 1))
    with pytest.raises(DeviceError, match=f"{UNARY.name}: the device cannot take a grid"):
        executor.run(huge, words)
    assert {heap: used for heap, used in executor.device._live.items() if used} == {
        heap: used for heap, used in before.items() if used
    }


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.variants])
def test_the_plain_shader_takes_launches_that_name_a_variant(executor: KomputeExecutor, name: str) -> None:
    for bound in cases(name, 6):
        (step,) = bound.call.dispatches()
        buffers = {n: b.words for n, b in bound.inputs.items()} | bound.call.const_words()
        words = [buffers[n] for n in step.inputs]
        plain = executor.run(replace(step.launch, variant=""), words)
        assert plain == executor.run(step.launch, words) == bound.call.expected(bound.inputs), str(bound.case)


def test_another_profile_is_refused(executor: KomputeExecutor) -> None:
    """Its bytes would be right or wrong by chance: the shaders are canonical."""
    bound = bind(OPS["q8ta_add"].sample(Rng(1)), Target(NVIDIA))
    assert "the numerics of profile nvidia" in (executor.refusal(bound.call) or "")
    with pytest.raises(ParameterError, match="q8ta_add: another profile; got nvidia"):
        executor.run_call(bound.call, bound.inputs)


@pytest.mark.parametrize("words", [-200, 100, 250])
def test_a_write_off_by_hundreds_of_words_is_an_error(executor: KomputeExecutor, words: int) -> None:
    bound = bind(Case(UNARY.name, Q, {"x": ((2, 4, 3, 5), "4C")}, "4C", 1))

    class Off(TensorDesc):
        """The second image begins so many words too late."""

        @cached_property
        def strides_whcn(self) -> tuple[int, int, int, int]:
            w, h, c, n = super().strides_whcn
            return (w, h, c, n + words)

    skewed = replace(bound.call, out=Off(bound.call.out.shape, bound.call.out.layout))
    launch = replace(skewed.dispatches()[0].launch, out=bound.call.out)
    with pytest.raises(GuardError, match=r"wrote (before|behind) the buffer"):
        executor.run(launch, [bound.inputs["x"].words])
