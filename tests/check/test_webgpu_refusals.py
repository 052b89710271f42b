"""The runtime webgpu: what it refused in 60 calls, and the first cause that it named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from check.small_files import BUFFER, INT8_4W4C, T, W, call, const

from refsim.check.finding import Level
from refsim.check.run import check_bytes

RECORDED = Path(__file__).parents[1] / "data" / "webgpu" / "refusals.json"
ROWS: dict[str, dict[str, str]] = {row["case"]: row for row in json.loads(RECORDED.read_bytes())}
QUANTIZE = "quantized_decomposed.quantize_per_tensor.default"
DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor.default"
QUANTIZED = (0.1, 0, -128, 127, None)


def real(*dims: int) -> T:
    return T(dims, storage=BUFFER, layout=W)


def int8(*dims: int) -> T:
    return T(dims, "int8", BUFFER, INT8_4W4C)


def add(a: T, b: T) -> bytes:
    return call("et_vk.q8ta_add.default", a, b, 0.1, 0, 0.1, 0, 0.1, 0, 1.0, int8(*a.dims))


def shuffle(*dims: int) -> bytes:
    n, c, h, w = dims
    out = int8(n, c // 4, h * 2, w * 2)
    return call("et_vk.q8ta_pixel_shuffle.default", int8(*dims), 0.1, 0, 10.0, 0, 2, out)


def sums(name: str, x: T, weight: T, out: T, count: int, *rest: Any, requant: bool = True) -> bytes:
    """A call of the family that adds up products; ``count``: the scales and sums that it has."""
    made = (0.1, 0) if requant else ()
    given = (x, 0.1, 0, weight, const(count, dtype="int32"), const(count), *made, None, *rest)
    return call(f"et_vk.{name}.default", *given, out)


def conv(
    name: str, x: tuple[int, ...], weight: tuple[int, ...], out: tuple[int, ...], kernel: int = 3,
    stride: int = 1, pad: int = 1, dilation: int = 1, groups: int = 1, act: str = "none", count: int = 0,
) -> bytes:  # fmt: skip
    pairs: list[Any] = [[kernel] * 2, [stride] * 2, [pad] * 2, [dilation] * 2]
    if name.endswith("transposed"):
        pairs.insert(3, [0, 0])
    return sums(
        name, int8(*x), const(*weight, dtype="int8"), int8(*out), count or out[1], *pairs, groups, act
    )


def conv2d(x: tuple[int, ...] = (1, 4, 8, 8), oc: int = 8, row: int = 0, **more: Any) -> bytes:
    n, c, h, w = x
    taps = row or more.get("kernel", 3) ** 2 * c
    return conv("q8ta_conv2d", x, (oc, taps), (n, oc, h, w), **more)


def dw(x: tuple[int, ...] = (1, 8, 8, 8), **more: Any) -> bytes:
    return conv("q8ta_conv2d_dw", x, (3, 3, x[1]), x, groups=x[1], **more)


def pw(x: tuple[int, ...] = (1, 8, 8, 8), oc: int = 8, size: int = 0, pad: int = 0, **more: Any) -> bytes:
    n, c, h, w = x
    out = (n, oc, size or h, size or w)
    return conv("q8ta_conv2d_pw", x, (oc, c), out, kernel=1, pad=pad, **more)


def transposed(size: int = 8, groups: int = 1, dilation: int = 1, act: str = "none") -> bytes:
    x, out = (1, 4, size // 2, size // 2), (1, 8, size, size)
    return conv(
        "q8ta_conv2d_transposed", x, (8, 16), out, kernel=2, stride=2, pad=0, groups=groups,
        dilation=dilation, act=act,
    )  # fmt: skip


def linear(m: int, k: int, n: int, act: str = "none", count: int = 0, name: str = "q8ta_linear") -> bytes:
    return sums(name, int8(m, k), const(n, k, dtype="int8"), int8(m, n), count or n, act)


def head(x: T, n: int, count: int = 0) -> bytes:
    weight = const(n, x.dims[1], dtype="int8")
    return sums("linear_q8ta_q8csw", x, weight, real(x.dims[0], n), count or n, requant=False)


def chosen(rows: int, low: int = -128, high: int = 127) -> bytes:
    x, results = real(rows, 16), [real(rows), int8(rows)]
    args = ("ASYMMETRIC", [1, 16], "int8", low, high, None, None, None, results)
    return call("torchao.choose_qparams_affine.default", x, *args)


#: Of operators that need nothing else than a tensor: their other arguments, and the output's dims.
PLAIN: dict[str, tuple[tuple[Any, ...], tuple[int, ...]]] = {
    "aten.permute_copy.default": (([0, 2, 3, 1],), (1, 4, 4, 8)),
    "aten.permute.default": (([0, 2, 3, 1],), (1, 4, 4, 8)),
    "aten.relu.default": ((), (1, 8, 4, 4)),
    "aten.max_pool2d.default": (([2, 2], [2, 2], [0, 0], [1, 1], False), (1, 8, 2, 2)),
    "aten.slice_copy.Tensor": ((1, 0, 4, 1), (1, 4, 4, 4)),
    "aten.hardswish.default": ((), (1, 8, 4, 4)),
    "aten.hardsigmoid.default": ((), (1, 8, 4, 4)),
    "aten.silu.default": ((), (1, 8, 4, 4)),
    "et_vk.q8ta_clone.default": ((), (1, 8, 4, 4)),
    "aten.hardtanh.default": ((0.0, 6.0), (1, 8, 4, 4)),
}


def plain(name: str, dtype: str) -> bytes:
    args, dims = PLAIN[name]
    make = int8 if dtype == "int8" else real
    return call(name, make(1, 8, 4, 4), *args, make(*dims))


CALLS: dict[str, bytes] = {
    "quantize, numel 6": call(QUANTIZE, real(6), *QUANTIZED, int8(6)),
    "dequantize, numel 6": call(DEQUANTIZE, int8(6), *QUANTIZED, None, real(6)),
    "add, numel 6": add(int8(6), int8(6)),
    "add, broadcast": add(int8(2, 8), int8(1, 8)),
    "relu, numel 6": call("et_vk.q8ta_relu.default", int8(6), 0.1, 0, 0.1, 0, int8(6)),
    "pixel_shuffle, numel 18": call(
        "et_vk.q8ta_pixel_shuffle.default", int8(1, 9, 1, 2), 0.1, 0, 10.0, 0, 3, int8(1, 1, 3, 6)
    ),
    "conv2d, fused relu": conv2d(act="relu"),
    "conv2d, groups 2": conv2d(groups=2, row=20),
    "conv2d, W_out 7": conv2d((1, 4, 8, 7)),
    "conv2d, input numel % 4": conv("q8ta_conv2d", (1, 3, 5, 5), (4, 28), (1, 4, 4, 4), kernel=2, pad=0),
    "conv2d, weight numel % 4 (row not padded)": conv("q8ta_conv2d", (1, 3, 8, 8), (5, 27), (1, 5, 8, 8)),
    "dw, fused relu": dw(act="relu"),
    "dw, W_out 7": dw((1, 8, 8, 7)),
    "dw, multiplier 2": conv("q8ta_conv2d_dw", (1, 4, 8, 8), (3, 3, 4), (1, 8, 8, 8), groups=4),
    "dw, C 6, constants padded": dw((1, 6, 8, 8), count=8),
    "dw, weight numel % 4": dw((1, 5, 8, 8)),
    "pw, fused relu": pw(act="relu"),
    "pw, stride 2": pw(stride=2, size=4),
    "pw, padding 1": pw(pad=1, size=10),
    "pw, groups 2": pw(groups=2),
    "pw, W 7": pw((1, 8, 8, 7)),
    "pw, OC 6, constants padded as exporters do": pw(oc=6, count=8),
    "pw, OC*IC % 4": pw((1, 3, 4, 4), oc=5),
    "transposed, fused relu": transposed(act="relu"),
    "transposed, groups 2": transposed(groups=2),
    "transposed, dilation 2": transposed(dilation=2),
    "transposed, W_out 10": transposed(size=10),
    "linear, fused relu": linear(4, 16, 8, act="relu"),
    "linear, N 10": linear(4, 16, 10, count=12),
    "linear, N 10, not padded": linear(4, 16, 10),
    "linear, M*K % 4": linear(3, 6, 8),
    "gemv, fused relu": linear(1, 16, 8, act="relu", name="q8ta_linear_gemv"),
    "gemv, K 6": linear(1, 6, 8, name="q8ta_linear_gemv"),
    "linear_q8ta_q8csw, N 10, constants padded": head(int8(4, 16), 10, count=12),
    "linear_q8ta_q8csw, M*K % 4": head(int8(3, 6), 8),
    "linear_q8ta_q8csw, float activation": head(real(4, 16), 8),
    "choose_qparams, 5 rows": chosen(5),
    "choose_qparams, qmin 0 qmax 255": chosen(4, 0, 255),
    "clone, int8 numel 6": call("aten.clone.default", int8(6), None, int8(6)),
    "view, int8 numel 6": call("aten.view_copy.default", int8(6), [2, 3], int8(2, 3)),
    **{
        f"{name} on {dtype}": plain(name, dtype)
        for name in PLAIN for dtype in ("int8", "float32")
    },
}  # fmt: skip


def refused(data: bytes, runtime: str = "webgpu") -> list[str]:
    return [found.what for found in check_bytes(data, "call", runtime) if found.level is Level.ERROR]


def test_there_is_a_call_for_each_row() -> None:
    assert CALLS.keys() == ROWS.keys() and len(ROWS) == 60


@pytest.mark.parametrize("case", CALLS)
def test_a_call_is_judged_as_the_runtime_judged_it(case: str) -> None:
    row = ROWS[case]
    assert refused(CALLS[case]) == ([row["message"]] if row["result"] == "refused" else [])


#: Like the calls above, and taken.
TAKEN: dict[str, bytes] = {
    "quantize": call(QUANTIZE, real(8), *QUANTIZED, int8(8)),
    "add of equal numbers of elements": add(int8(2, 8), int8(4, 4)),
    "conv2d": conv2d(),
    "dw": dw(),
    "pw": pw(),
    "transposed": transposed(),
    "linear": linear(4, 16, 8),
    "gemv of several rows": linear(3, 16, 8, name="q8ta_linear_gemv"),
    "head": head(int8(4, 16), 8),
    "3 rows": chosen(3),
    "shuffle": shuffle(1, 8, 4, 4),
}


@pytest.mark.parametrize("case", TAKEN)
def test_a_twin_without_the_fault_is_taken(case: str) -> None:
    assert refused(TAKEN[case]) == []
