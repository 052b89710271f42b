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
CONV, DEPTHWISE, POINTWISE = "q8ta_conv2d", "q8ta_conv2d_dw", "q8ta_conv2d_pw"
GEMV, ADD, SIN, CLAMP = "q8ta_linear_gemv", "q8ta_add", "aten.sin.default", "aten.hardtanh.default"


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

    def ended(self, name: str, x: int, made: int) -> Model:
        return self.model(name, x, self.q8ta("q8ta_dequantize", {"x": made}, self.real(self.shape(made))))

    def whole(
        self,
        shape: tuple[int, ...],
        name: str,
        *sizes: int,
        relu: bool = False,
        function: str = SIN,
        args: Any = (),
    ) -> Model:
        x = self.real(shape)
        made = self.layer(name, self.q8ta("q8ta_quantize", {"x": x}, self.packed(shape)), *sizes)
        if relu:
            made = self.q8ta("q8ta_relu", {"x": made}, self.packed(self.shape(made)))
        else:
            made = self.function(made, function, *args)
        return self.ended(name, x, made)


def check(model: Model, **options: Any) -> list[PlanStep]:
    """The same bytes as node by node; the steps that have a table at their end."""
    inputs = [x * np.float32(3) for x in model.random_inputs(7)]
    expected = [out.tobytes() for out in model.run(inputs, EmulatedExecutor())]
    executors = [NativeExecutor(threads, **options) for threads in (1, 2, 3)]
    for executor in executors:
        assert [out.tobytes() for out in model.run(inputs, executor)] == expected, executor.threads
    steps = [step for graph in model.graphs.values() for step in executors[-1].session(graph).steps]
    return [step for step in steps if step.choice is not None and len(step.nodes) > 1]


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
    clamped = b.call(CLAMP, (real,), b.real(shape), -0.4, 0.8)
    negated = b.call("aten.neg.default", (clamped,), b.real(shape))
    sides = [b.q8ta("q8ta_quantize", {"x": value}, b.packed(shape)) for value in (clamped, negated)]
    made = b.q8ta(ADD, dict(zip("ab", sides, strict=True)), b.packed(shape))
    check(b.ended("two tables", x, made))


@LOOKS_UP
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("work", WORKS, ids=lambda work: f"{work[0]} {work[1]}")
def test_a_table_is_part_of_the_step_before(work: tuple[Any, ...], relu: bool) -> None:
    name, shape, *sizes = work
    (step,) = check(Layers().whole(shape, name, *sizes, relu=relu))
    assert len(step.nodes) == (2 if relu else 4)


@LOOKS_UP
@pytest.mark.parametrize("route", ["amx_emulated", "winograd4", "winograd2", "gemm"])
@pytest.mark.parametrize(
    ("channels", "bounds"),
    [(16, None), (20, None), (68, None), (68, (0, 6)), (68, (-20, 20)), (68, (-3, 1))],
    ids=str,
)
def test_by_each_route(route: str, channels: int, bounds: tuple[float, float] | None) -> None:
    """Clamps need no table."""
    function, args = (SIN, ()) if bounds is None else (CLAMP, map(float, bounds))
    model = Layers().whole((1, 8, 13, 11), CONV, channels, 3, function=function, args=args)
    (step,) = check(model, force={CONV: route})
    assert step.route == route and step.nodes[0].name.endswith("conv2d.default")
    assert ("clamped" in step.jobs[0].variant) == (bounds is not None)


@LOOKS_UP
@pytest.mark.parametrize(("channels", "stride"), [(36, 1), (80, 2), (8, 1)])
def test_a_clamp_behind_a_depthwise_layer(channels: int, stride: int) -> None:
    work = (DEPTHWISE, channels, 3, stride)
    (step,) = check(Layers().whole((1, channels, 9, 9), *work, function=CLAMP, args=(0.0, 4.0)))
    assert "clamped" in step.jobs[0].variant


@LOOKS_UP
def test_a_table_of_bytes_that_somebody_else_reads_is_a_step_of_its_own() -> None:
    d = Layers()
    x = d.real((1, 16, 8, 8))
    y = d.layer(POINTWISE, d.q8ta("q8ta_quantize", {"x": x}, d.packed((1, 16, 8, 8))), 32)
    both = d.q8ta(ADD, {"a": y, "b": d.function(y, SIN)}, d.packed(d.shape(y)))
    assert not check(d.ended("both", x, both))


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
