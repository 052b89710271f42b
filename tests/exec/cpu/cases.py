"""Calls of chosen sizes: layers of networks, tensors of every layout, and sizes that are drawn.

A choice has bounds that nobody lists: whether the rows of a block fit, whether some threads would wait for others.
Sizes that are drawn lie on both sides of most of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

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
#: Convolutions and linear layers that are drawn for each processor; calls of any other operator.
MATRICES, OTHERS = 100, 5
MATRIX_LIKE = (GENERAL, WIDE, POINT, DEPTH, TRANSPOSED, "q8ta_linear", "linear_q8ta_q8csw_tiled")
#: Routes that are asked for besides the one that is chosen, one for each convolution.
ROUTES = ("winograd4", "winograd2", "gemm", "gemm8", "amx")
#: The most weights, and elements of an input.
MOST_WEIGHTS, MOST_ELEMENTS = 150_000, 400_000


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
    for _ in range(MATRICES):
        case = _matrix(rng)
        yield case, ""
        if case.op != DEPTH:
            yield case, rng.choice(ROUTES)
    for name, op in OPS.items():
        for _ in range(OTHERS if op.family not in (Family.CONVOLUTION, Family.DEPTHWISE) else 0):
            yield _other(rng, name), ""


def _size(rng: Rng, most: int) -> int:
    """Small sizes as often as large ones."""
    return rng.integer(1, most >> rng.integer(0, most.bit_length() - 1))


def _matrix(rng: Rng) -> Case:
    op = rng.choice(MATRIX_LIKE)
    while True:
        channels, out = _size(rng, 300), _size(rng, 300)
        shape = (_size(rng, 3), channels, _size(rng, 120), _size(rng, 160 if rng.chance(80) else 1500))
        kernel, stride, dilation = (3, 3), (1, 1), (1, 1)
        if rng.chance(50):
            kernel = (rng.integer(1, 7), rng.integer(1, 7))
            stride = (rng.integer(1, 3), rng.integer(1, 3))
            dilation = (rng.integer(1, 3), rng.integer(1, 3)) if rng.chance(30) else (1, 1)
        groups = rng.integer(2, 4) if rng.chance(15) and "conv2d" in op else 1
        if groups > 1 or op in (WIDE, DEPTH):  # channels fill words
            channels, out = (-(-size // (4 * groups)) * 4 * groups for size in (channels, out))
        groups = channels if op == DEPTH else groups
        shape = (shape[0], channels, *shape[2:])
        window = {"kernel_size": kernel, "stride": stride, "dilation": dilation, "groups": groups}
        case = _call(rng, op, shape, out, window)
        taps = 1 if "linear" in op or op == POINT else prod(kernel)
        fits = channels * out * taps // groups <= MOST_WEIGHTS and prod(shape) <= MOST_ELEMENTS
        if fits and all(size > (k - 1) * d for size, k, d in zip(shape[2:], kernel, dilation, strict=True)):
            return case


def _call(rng: Rng, op: str, shape: tuple[int, int, int, int], out: int, window: dict[str, Any]) -> Case:
    features = {"out_channels": out, "bias": rng.chance(70)}
    if "conv2d" not in op:
        params = dict(in_scale=0.02, in_zp=5)
        if op == "q8ta_linear":
            params |= dict(out_scale=0.03, out_zp=-9)
        x = (max(1, shape[2] * shape[3] // 8), -(-shape[1] // 4) * 4)
        layout = "4H4W" if op == "q8ta_linear" else "W"
        return Case(op, params, {"x": (x, "4H4W")}, layout, features=features)
    layout = "4W4C" if op == POINT else rng.choice(("4C", "4C1W", "4W4C"))
    window = window | {"padding": tuple(rng.integer(0, size // 2) for size in window["kernel_size"])}
    if op == POINT:
        window |= dict.fromkeys(("kernel_size", "stride", "dilation"), (1, 1)) | {"padding": (0, 0)}
    if op == TRANSPOSED:
        window["dilation"] = (1, 1)
    case = conv(op, shape, out, 1, layout=layout)
    features = {} if op == DEPTH else features
    out_layout = rng.choice(("4C", "4C1W", "4W4C"))
    return replace(case, params={**case.params, **window}, out_layout=out_layout, features=features)


def _other(rng: Rng, name: str) -> Case:
    """A case of the corpus; where the layouts alone decide what runs, of another shape."""
    op = OPS[name]
    case = rules.case(name, rng.integer(0, rules.RULES[name].count - 1))
    if op.family not in BY_LAYOUT:
        return case
    shape = (_size(rng, 3), _size(rng, 200), _size(rng, 40), _size(rng, 300))
    while prod(shape) > MOST_ELEMENTS:
        shape = (shape[0], shape[1] // 2, *shape[2:])
    return reshaped(rules.case(name, rng.integer(0, len(op.layouts) - 1)), shape)
