"""Tables that the kernel before them looks its bytes up in: the same bytes, in one step, by every route that can."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench.networks import Delegate
from refsim.core.layout import CHANNELS_PACKED, PACKED_4W, PACKED_4W4C
from refsim.exec.cpu import EmulatedExecutor, NativeExecutor
from refsim.exec.cpu.isa import cpu
from refsim.exec.cpu.step import PlanStep
from refsim.exec.model import Model

LOOKS_UP = pytest.mark.skipif(not cpu().isa.lookup, reason=f"{cpu().isa.name} looks up no bytes")
CONV, DEPTHWISE, POINTWISE, GEMV, ADD = (
    "q8ta_conv2d",
    "q8ta_conv2d_dw",
    "q8ta_conv2d_pw",
    "q8ta_linear_gemv",
    "q8ta_add",
)


class Layers(Delegate):
    """Quantize, one layer, a float function between dequantize and quantize (or a relu), dequantize."""

    def real(self, shape: tuple[int, ...]) -> int:
        return self.tensor(shape, CHANNELS_PACKED, np.float32)

    def packed(self, shape: tuple[int, ...]) -> int:
        return self.tensor(shape, PACKED_4W4C if len(shape) == 4 else PACKED_4W)

    def layer(self, name: str, x: int, channels: int, kernel: int = 1, stride: int = 1) -> int:
        n, c, *sizes = self.shape(x)
        if not sizes:
            return self.q8ta(name, {"x": x}, self.packed((n, channels)), channels, activation="none")
        if name == ADD:
            return self.q8ta(name, {"a": x, "b": x}, self.packed((n, c, *sizes)))
        pad = kernel // 2
        out = [(size + 2 * pad - kernel) // stride + 1 for size in sizes]
        window = {
            "kernel_size": (kernel,) * 2, "stride": (stride,) * 2, "padding": (pad,) * 2, "dilation": (1, 1),
            "groups": c if name == DEPTHWISE else 1, "activation": "none",
        }  # fmt: skip
        return self.q8ta(name, {"x": x}, self.packed((n, channels, *out)), channels, **window)

    def function(self, x: int, name: str, *args: float) -> int:
        real = self.q8ta("q8ta_dequantize", {"x": x}, self.real(self.shape(x)))
        made = self.call(name, (real,), self.real(self.shape(x)), *args)
        return self.q8ta("q8ta_quantize", {"x": made}, self.packed(self.shape(x)))

    def whole(
        self,
        shape: tuple[int, ...],
        name: str,
        channels: int,
        kernel: int = 1,
        stride: int = 1,
        relu: bool = False,
        function: str = "aten.sin.default",
        args: tuple[float, ...] = (),
    ) -> Model:
        x = self.real(shape)
        made = self.layer(
            name, self.q8ta("q8ta_quantize", {"x": x}, self.packed(shape)), channels, kernel, stride
        )
        if relu:
            made = self.q8ta("q8ta_relu", {"x": made}, self.packed(self.shape(made)))
        else:
            made = self.function(made, function, *args)
        return self.model(name, x, self.q8ta("q8ta_dequantize", {"x": made}, self.real(self.shape(made))))


def joined(model: Model, executor: NativeExecutor) -> list[PlanStep]:
    steps = [step for graph in model.graphs.values() for step in executor.session(graph).steps]
    return [step for step in steps if step.choice is not None and len(step.nodes) > 1]


def check(model: Model, **options: Any) -> list[PlanStep]:
    """The same bytes as node by node; the steps that have a table at their end."""
    inputs = [x * np.float32(3) for x in model.random_inputs(7)]
    expected = [out.tobytes() for out in model.run(inputs, EmulatedExecutor())]
    found = []
    for threads in (1, 2, 3):
        executor = NativeExecutor(threads, **options)
        assert [out.tobytes() for out in model.run(inputs, executor)] == expected, threads
        found = joined(model, executor)
    return found


WORKS = (
    (CONV, (1, 8, 13, 11), 20, 3, 1),
    (CONV, (2, 12, 9, 10), 68, 3, 2),
    (POINTWISE, (1, 24, 7, 7), 96, 1, 1),
    (DEPTHWISE, (1, 36, 9, 9), 36, 3, 1),
    (DEPTHWISE, (1, 80, 10, 8), 80, 3, 2),
    (GEMV, (1, 64), 40, 1, 1),
    (ADD, (1, 20, 9, 9), 20, 1, 1),
)


def test_two_tables_of_one_value_are_both_made() -> None:
    """The layer before them may look up one of them only if nobody else reads what it writes."""
    b = Layers()
    shape = (1, 36, 9, 9)
    x = b.real(shape)
    layer = b.layer(DEPTHWISE, b.q8ta("q8ta_quantize", {"x": x}, b.packed(shape)), 36, 3)
    real = b.q8ta("q8ta_dequantize", {"x": layer}, b.real(shape))
    clamped = b.call("aten.hardtanh.default", (real,), b.real(shape), -0.4, 0.8)
    negated = b.call("aten.neg.default", (clamped,), b.real(shape))
    sides = [b.q8ta("q8ta_quantize", {"x": value}, b.packed(shape)) for value in (clamped, negated)]
    made = b.q8ta(ADD, dict(zip("ab", sides, strict=True)), b.packed(shape))
    check(b.model("two tables", x, b.q8ta("q8ta_dequantize", {"x": made}, b.real(shape))))


@LOOKS_UP
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("work", WORKS, ids=lambda work: f"{work[0]} {work[1]}")
def test_a_table_is_part_of_the_step_before(work: tuple[Any, ...], relu: bool) -> None:
    name, shape, *sizes = work
    (step,) = check(Layers().whole(shape, name, *sizes, relu=relu))
    assert len(step.nodes) == (2 if relu else 4)


@LOOKS_UP
@pytest.mark.parametrize("route", ["amx_emulated", "winograd4", "winograd2", "gemm"])
@pytest.mark.parametrize("channels", [16, 20, 68])
def test_by_each_route(route: str, channels: int) -> None:
    model = Layers().whole((1, 8, 13, 11), CONV, channels, 3)
    (step,) = check(model, force={CONV: route})
    assert step.route == route and step.nodes[0].name.endswith("conv2d.default")


@LOOKS_UP
@pytest.mark.parametrize("bounds", [(0.0, 6.0), (-20.0, 20.0), (-3.0, 1.0)], ids=str)
@pytest.mark.parametrize("route", ["amx_emulated", "winograd4", "winograd2", "gemm"])
def test_clamps_need_no_table(route: str, bounds: tuple[float, float]) -> None:
    model = Layers().whole((1, 8, 13, 11), CONV, 68, 3, function="aten.hardtanh.default", args=bounds)
    (step,) = check(model, force={CONV: route})
    assert "clamped" in step.jobs[0].variant


@LOOKS_UP
def test_a_clamp_behind_a_depthwise_layer() -> None:
    for channels, stride in ((36, 1), (80, 2), (8, 1)):
        work = (DEPTHWISE, channels, 3, stride)
        model = Layers().whole((1, channels, 9, 9), *work, function="aten.hardtanh.default", args=(0.0, 4.0))
        (step,) = check(model)
        assert "clamped" in step.jobs[0].variant


@LOOKS_UP
def test_a_table_of_bytes_that_somebody_else_reads_is_a_step_of_its_own() -> None:
    d = Layers()
    x = d.real((1, 16, 8, 8))
    y = d.layer(POINTWISE, d.q8ta("q8ta_quantize", {"x": x}, d.packed((1, 16, 8, 8))), 32)
    both = d.q8ta("q8ta_add", {"a": y, "b": d.function(y, "aten.sin.default")}, d.packed(d.shape(y)))
    model = d.model("both", x, d.q8ta("q8ta_dequantize", {"x": both}, d.real(d.shape(both))))
    assert not check(model)


@LOOKS_UP
def test_padding_is_left_to_the_table_alone() -> None:
    """Bytes beyond the last channel are 0 behind a table, whatever it says of the zero point."""
    assert not check(Layers().whole((1, 8, 6, 6), POINTWISE, 10))


@LOOKS_UP
def test_a_plan_that_may_hold_less_keeps_the_table() -> None:
    """Routes with larger constants are given up, and what follows stays joined."""
    model = Layers().whole((1, 256, 14, 14), CONV, 256, 3)
    (step,) = check(model, memory_limit=1.0)
    assert not step.route.startswith("winograd") and len(step.nodes) == 4
