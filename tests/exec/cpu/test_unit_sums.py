"""Sums that are off by a single product, on every route that multiplies.

As a rule a step of the output is many products, and a sum that is off by one gives the same byte. Here one product is
one step: inputs beside the zero point, few weights of 1 and -1, scales that cancel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from cases import conv

from refsim.core.buffer import PackedBuffer
from refsim.exec.cpu import NativeExecutor
from refsim.exec.cpu.isa import cpu
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case
from refsim.ops.base.prepared import Prepared

IN_ZP, OUT_ZP, SCALE = 3, -5, 0.25
#: Weights of an output that are not 0: with inputs of up to 2 their sum stays within the output's bytes.
WEIGHTS = 48
MATRIX = ("gemm", "gemm8", "amx_emulated")


def _conv(
    op: str, x: tuple[int, int, int, int], out: int, kernel: int, stride: int = 1, **more: object
) -> Case:
    own = {"in_scale": SCALE, "in_zp": IN_ZP, "out_scale": SCALE, "out_zp": OUT_ZP}
    return conv(op, x, out, kernel, stride, **own, **more)


def _row(k: int, out: int) -> Case:
    params = {"in_scale": SCALE, "in_zp": IN_ZP, "out_scale": SCALE, "out_zp": OUT_ZP, "activation": "none"}
    return Case(
        "q8ta_linear_gemv",
        params,
        {"x": ((1, 1, k), "4W")},
        "4W",
        features={"out_channels": out, "bias": True},
    )


def _cases() -> Iterator[tuple[Case, str]]:
    """A case and a route that it is to take."""
    for route in (*MATRIX, "winograd2", "winograd4"):
        for channels in (12, 132):
            yield _conv("q8ta_conv2d_im2col", (1, channels, 9, 11), 37, 3), route
            yield (
                _conv("q8ta_conv2d_im2col", (2, channels, 8, 152), 68, 3),
                route,
            )  # several blocks of columns
    for route in MATRIX:
        yield _conv("q8ta_conv2d_general", (2, 7, 8, 10), 21, 3, 2), route
        yield _conv("q8ta_conv2d_pw", (1, 136, 5, 13), 70, 1), route
        yield _conv("q8ta_conv2d_pw", (2, 40, 3, 1210), 36, 1), route
        yield _conv("q8ta_conv2d_transposed", (1, 20, 6, 7), 18, 2, 2, padding=(0, 0)), route
    for route in ("gemv", *MATRIX):
        for k in (20, 532, 2052):
            for out in (9, 90):
                yield _row(k, out), route
    for kernel in (3, 5):
        for stride in (1, 2):
            yield _conv("q8ta_conv2d_dw", (1, 28, 9, 23), 28, kernel, stride, groups=28), "depthwise"


def _of_units(case: Case) -> BoundCase:
    """The case with other numbers: each product that is not 0 is a step of the output or two."""
    rng = np.random.default_rng(7)
    made = bind(case)
    weight = made.call.consts["weight"]
    assert weight is not None
    if case.op.endswith("_dw"):
        few = np.ones(weight.shape, bool)
        outputs, axis = weight.shape[-1], (0, 1)
    else:
        (outputs, k), axis = weight.shape, (1,)
        few = rng.permuted(np.arange(k)[None].repeat(outputs, 0), axis=1) < WEIGHTS
    few &= weight != 0  # those that fill words up stay 0
    weight = np.where(few, rng.choice([-1, 1], few.shape), 0).astype(np.int8)
    consts = dict(made.call.consts, weight=weight, weight_scales=np.ones(outputs, np.float32))
    consts["weight_sums"] = weight.sum(axis, dtype=np.int32)
    if consts.get("bias") is not None:
        consts["bias"] = np.zeros_like(consts["bias"])
    shape = made.call.descs["x"].shape
    x = (IN_ZP + rng.integers(-1, 3, shape)).astype(np.int8)
    packed = PackedBuffer.pack(x, made.call.descs["x"].layout)
    return replace(made, call=replace(made.call, consts=consts), inputs={**made.inputs, "x": packed})


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("case", "route"), list(_cases()), ids=lambda value: value.op if isinstance(value, Case) else value
)
def test_every_product_is_a_step(case: Case, route: str, threads: int) -> None:
    made = _of_units(case)
    executor = NativeExecutor(threads, {"*": route})
    prepared = Prepared(made.call)
    choice = executor.choose(prepared)
    if choice.route != route:
        pytest.skip(f"{cpu().isa.name} does not take {route}: {dict(choice.rejected).get(route)}")
    expected = made.call.expected(made.inputs)
    values = Counter(expected.unpack().reshape(-1).tolist())
    assert len(values) > 5 and values[127] + values[-128] < sum(values.values()) / 8, values
    found = executor.run_prepared(prepared, made.inputs)
    assert found == expected
