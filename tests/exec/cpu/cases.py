"""Calls of chosen sizes: layers of networks, tensors of every layout, and sizes that are drawn.

A choice has bounds that nobody lists: whether the rows of a block fit, whether some threads would wait for others.
Sizes that are drawn lie on both sides of most of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

from wide import SQUARE, wide

from refsim.core.rng import Rng
from refsim.golden import rules
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.base.traits import Family

GENERAL, WIDE, POINT, DEPTH = "q8ta_conv2d_general", "q8ta_conv2d_im2col", "q8ta_conv2d_pw", "q8ta_conv2d_dw"
TRANSPOSED = "q8ta_conv2d_transposed"
#: Families whose kernels go by the layouts.
BY_LAYOUT = (
    Family.RELAYOUT, Family.STAGE_IN, Family.STAGE_OUT, Family.ELEMENTWISE, Family.QUANTIZE, Family.DEQUANTIZE,
)  # fmt: skip
#: Tensors whose rows and channels end within a block: one with wide rows, one of many channels.
SHAPES = (2, 22, 6, 150), (1, 102, 5, 38)
#: What is drawn for each processor, of each convolution and linear layer, and of any other operator.
MATRICES, OTHERS = 15, 5
MATRIX_LIKE = (GENERAL, WIDE, POINT, DEPTH, TRANSPOSED, "q8ta_linear", "linear_q8ta_q8csw_tiled")
#: Routes that are asked for besides the one that is chosen, one for each convolution; and a window for all of them.
ROUTES = ("winograd4", "winograd2", "gemm", "gemm8", "amx")
PLAIN = {"kernel_size": (3, 3), "stride": (1, 1), "padding": (1, 1), "dilation": (1, 1)}


def conv(op: str, x: tuple[int, int, int, int], out: int, kernel: int, stride: int = 1, **more: Any) -> Case:
    window = {
        "kernel_size": (kernel, kernel), "stride": (stride, stride), "padding": (kernel // 2, kernel // 2),
        "dilation": (1, 1), "groups": 1, "in_scale": 0.02, "in_zp": 5, "out_scale": 0.9, "out_zp": -7,
    }  # fmt: skip
    layout = more.pop("layout", "4W4C" if op == POINT else "4C")
    features = {} if op == DEPTH else {"out_channels": out}
    return Case(op, {**window, **more}, {"x": (x, layout)}, layout, features=features)


def _layers() -> Iterator[Case]:
    """Layers of networks for images, from the first to the last, and some that stand for what is seldom."""
    yield conv(GENERAL, (1, 3, 224, 224), 64, 7, 2)
    yield conv(GENERAL, (1, 3, 96, 96), 16, 3, 2)
    for channels, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
        yield conv(WIDE, (1, channels, size, size), channels, 3)
        yield conv(WIDE, (1, channels, size, size), 2 * channels, 3, 2)
    for channels, size, out in ((16, 112, 96), (96, 56, 24), (144, 28, 32), (384, 14, 64), (960, 7, 160)):
        yield conv(POINT, (1, channels, size, size), out, 1)
        yield conv(DEPTH, (1, channels, size, size), channels, 3, groups=channels)
        yield conv(DEPTH, (1, channels, size, size), channels, 5, 2, groups=channels)
    yield conv(POINT, (4, 100, 9, 31), 36, 1)
    yield conv(GENERAL, (2, 24, 17, 45), 40, 3, layout="4C1W", dilation=(2, 2), padding=(2, 2))
    yield conv(GENERAL, (1, 64, 21, 23), 64, 3, groups=4)
    yield conv(GENERAL, (1, 8, 300, 700), 12, 3)
    yield conv(DEPTH, (1, 20, 33, 250), 20, 3, groups=20, layout="4W4C")
    # a row alone is more than is kept at once
    yield conv(DEPTH, (1, 4, 5, 40_000), 4, 3, groups=4, layout="4W4C")
    # eight tasks a thread, where more would end sooner
    yield conv(DEPTH, (1, 8, 215, 499), 8, 1, 2, groups=8)
    yield conv(TRANSPOSED, (1, 64, 14, 14), 32, 2, 2, padding=(0, 0))
    yield conv(WIDE, (1, 64, 3, 1413), 32, 3)
    for kernel in ((7, 3), (3, 7), (1, 5), (5, 1)):  # few channels: windows may be copied, or not
        padding = (kernel[0] // 2, kernel[1] // 2)
        for channels, out in ((1, 32), (3, 24), (5, 64), (6, 200)):
            yield conv(GENERAL, (1, channels, 40, 44), out, 3, kernel_size=kernel, padding=padding)
    yield conv(GENERAL, (3, 64, 14, 14), 64, 1)
    yield conv(GENERAL, (1, 64, 14, 14), 64, 1)
    yield conv(POINT, (1, 256, 1, 5003), 48, 1)
    yield conv(POINT, (2, 40, 6, 610), 200, 1)


LAYERS = tuple(_layers())


def of_layouts() -> Iterator[Case]:
    """Every combination of layouts of these families, with wide rows; of few inputs also with many channels."""
    for name, op in OPS.items():
        for number in range(len(op.layouts)) if op.family in BY_LAYOUT else ():
            case = rules.case(name, number)
            for shape in SHAPES if len(case.inputs) == 1 else SHAPES[:1]:
                yield reshaped(case, shape)


def reshaped(case: Case, shape: tuple[int, ...]) -> Case:
    """A case of one of these families with another shape of its inputs."""
    params, given = dict(case.params), shape
    if OPS[case.op].family is Family.STAGE_IN:
        params["shape"], given = shape, (prod(shape),)
    return replace(case, params=params, inputs={key: (given, row[1]) for key, row in case.inputs.items()})


def drawn(seed: int) -> Iterator[tuple[Case, str]]:
    """Calls of drawn sizes, each with the route that it is forced to take; "" for the one that is chosen."""
    rng = Rng(seed)
    for name in MATRIX_LIKE:
        for number in range(MATRICES):
            case = wide(name, 100 * seed + number)
            case = case.changed(**PLAIN) if name in SQUARE and number % 2 else case
            yield case, ""
            if name != DEPTH:
                yield case, rng.choice(ROUTES)
    for name, op in OPS.items():
        for number in range(OTHERS if op.family not in (Family.CONVOLUTION, Family.DEPTHWISE) else 0):
            yield wide(name, 100 * seed + number), ""
