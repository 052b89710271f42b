"""Sums that are off by a single product, and sums as large as they may be, on every route that multiplies.

As a rule a step of the output is many products, and a sum that is off by one gives the same byte. Here one product is
one step: inputs beside the zero point, few weights of 1 and -1, scales that cancel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from cases import DEPTH, GENERAL, POINT, TRANSPOSED, WIDE, conv
from wide import EMULATED

from refsim.core.buffer import PackedBuffer
from refsim.exec.cpu import NativeExecutor
from refsim.exec.cpu.amx import tiles
from refsim.exec.cpu.isa import cpu
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case
from refsim.ops.base.prepared import Prepared

IN_ZP, OUT_ZP, SCALE = 3, -5, 0.25
OWN = {"in_scale": SCALE, "in_zp": IN_ZP, "out_scale": SCALE, "out_zp": OUT_ZP}
#: Weights of an output that are not 0: with inputs of up to 2 their sum stays within the output's bytes.
WEIGHTS = 48
MATRIX = ("gemm", "gemm8", "amx_emulated")
#: Routes that not every processor takes, and why this one does not.
LACKING = {
    "amx": tiles.why_not(cpu().isa),
    "gemm8": None if cpu().isa.maddubs else f"{cpu().isa.name} has no such products",
}


def _row(k: int, out: int) -> Case:
    features = {"out_channels": out, "bias": True}
    return Case(
        "q8ta_linear_gemv", OWN | {"activation": "none"}, {"x": ((1, 1, k), "4W")}, "4W", features=features
    )


def changed(bound: BoundCase, weight: np.ndarray, scales: np.ndarray, x: np.ndarray) -> BoundCase:
    """The call with other weights, their scales and inputs, and without a bias."""
    axis = (0, 1) if bound.call.op.name == DEPTH else 1
    consts = dict(bound.call.consts, weight=weight, weight_scales=scales)
    consts["weight_sums"] = weight.sum(axis, dtype=np.int32)
    if consts.get("bias") is not None:
        consts["bias"] = np.zeros_like(consts["bias"])
    packed = PackedBuffer.pack(x, bound.call.descs["x"].layout)
    return replace(bound, call=replace(bound.call, consts=consts), inputs={**bound.inputs, "x": packed})


def executor_for(made: BoundCase, route: str, threads: int = 1) -> NativeExecutor:
    if (lacking := LACKING.get(route)) is not None:
        pytest.skip(lacking)
    executor = NativeExecutor(threads, {"*": route})
    choice = executor.choose(Prepared(made.call))
    assert choice.route == route, dict(choice.rejected).get(route)
    return executor


def _cases() -> Iterator[tuple[Case, str]]:
    """A case and a route that it is to take."""
    for route in (*MATRIX, "winograd2", "winograd4"):
        for channels in (12, 132):
            yield conv(WIDE, (1, channels, 9, 11), 37, 3, **OWN), route
            # several blocks of columns
            yield conv(WIDE, (2, channels, 8, 152), 68, 3, **OWN), route
    for route in MATRIX:
        yield conv(GENERAL, (2, 7, 8, 10), 21, 3, 2, **OWN), route
        yield conv(POINT, (1, 136, 5, 13), 70, 1, **OWN), route
        yield conv(POINT, (2, 40, 3, 1210), 36, 1, **OWN), route
        yield conv(TRANSPOSED, (1, 20, 6, 7), 18, 2, 2, padding=(0, 0), **OWN), route
    for route, k, out in product(("gemv", *MATRIX), (20, 532, 2052), (9, 90)):
        yield _row(k, out), route
    for kernel, stride in product((3, 5), (1, 2)):
        yield conv(DEPTH, (1, 28, 9, 23), 28, kernel, stride, groups=28, **OWN), "depthwise"


def _of_units(case: Case) -> BoundCase:
    """The case with other numbers: each product that is not 0 is a step of the output or two."""
    rng = np.random.default_rng(7)
    made = bind(case)
    weight = made.call.consts["weight"]
    assert weight is not None
    if case.op == DEPTH:
        few, outputs = np.ones(weight.shape, bool), weight.shape[-1]
    else:
        outputs, k = weight.shape
        few = rng.permuted(np.arange(k)[None].repeat(outputs, 0), axis=1) < WEIGHTS
    few &= weight != 0  # those that fill words up stay 0
    weight = np.where(few, rng.choice([-1, 1], few.shape), 0).astype(np.int8)
    x = (IN_ZP + rng.integers(-1, 3, made.call.descs["x"].shape)).astype(np.int8)
    return changed(made, weight, np.ones(outputs, np.float32), x)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("case", "route"), list(_cases()), ids=lambda value: value.op if isinstance(value, Case) else value
)
def test_every_product_is_a_step(case: Case, route: str, threads: int) -> None:
    made = _of_units(case)
    executor = executor_for(made, route, threads)
    expected = made.call.expected(made.inputs)
    values = Counter(expected.unpack().reshape(-1).tolist())
    assert len(values) > 5 and values[127] + values[-128] < sum(values.values()) / 8, values
    assert executor.run_call(made.call, made.inputs) == expected


#: Of each route a case with as many products as it takes: Winograd's transforms hold no larger sums than those of 112.
LARGEST = {
    "amx": conv(GENERAL, (1, 256, 3, 5), 20, 3, out_scale=0.5),
    "amx_emulated": conv(GENERAL, (1, 256, 3, 5), 20, 3, out_scale=0.5),
    "winograd4": conv(WIDE, (1, 112, 9, 9), 20, 3, out_scale=0.5),
    "gemm8": Case(
        "q8ta_linear", OWN | {"in_scale": 0.02, "out_scale": 0.5}, {"x": ((9, 64), "4H4W")}, "4H4W",
        features={"out_channels": 40},
    ),
}  # fmt: skip


@pytest.mark.parametrize("value", [-128, 127])
@pytest.mark.parametrize("weights", [(-128,), (127,), (-128, 127, 127)], ids=str)
@pytest.mark.parametrize("route", LARGEST)
def test_largest_sums(route: str, weights: tuple[int, ...], value: int) -> None:
    """Products of both ends: nothing saturates."""
    case = LARGEST[route]
    made = bind(case.changed(in_zp=-1 - value))
    weight = made.call.consts["weight"]
    assert weight is not None
    chosen = np.where(weight != 0, np.resize(weights, weight.shape), 0).astype(np.int8)
    largest = np.abs(chosen.sum(1, dtype=np.int64)).max() * 255 * 0.02
    scales = (np.linspace(10, 50, len(chosen)) / largest).astype(np.float32)
    made = changed(made, chosen, scales, np.full(made.call.descs["x"].shape, value, np.int8))
    expected = EMULATED.run_call(made.call, made.inputs)
    assert executor_for(made, route).run_call(made.call, made.inputs) == expected
    assert len(np.unique(expected.unpack())) > 2, "else sums that wrap would not be seen"
