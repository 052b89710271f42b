"""For each row of a runtime's requirements a call that breaks it, and its twin that does not."""

from __future__ import annotations

from typing import Any, NamedTuple

from check.small_files import BUFFER, INT8_4W4C, C, T, W, const

IMAGE = T((1, 8, 6, 6))
ROWS = T((6, 64), layout=W)
FLAT_ROWS = ROWS.but(storage=BUFFER)
INT8 = T((1, 8, 6, 6), "int8", BUFFER, INT8_4W4C)


class Pair(NamedTuple):
    """Two calls of an operator: the first breaks a rule, the second does not."""

    rule: str
    operator: str
    bad: tuple[Any, ...]
    good: tuple[Any, ...]


def like(tensor: T, **changes: Any) -> T:
    """Another tensor of the same kind."""
    return tensor.but(**changes)


def pool(
    name: str, window: list[int], stride: list[int], padding: list[int], x: T = IMAGE, out: T = IMAGE
) -> Any:
    rest = ([1, 1], False) if name.startswith("max") else (False, True, None)
    return (x, window, stride, padding, *rest, like(out))


def reduce(x: T, dims: Any, out: T | None = None) -> Any:
    return (x, dims, True, None, like(x) if out is None else out)


def norm(dims: list[int], weight: Any, bias: Any) -> Any:
    return (ROWS, dims, weight, bias, 1e-5, [like(ROWS), like(ROWS), like(ROWS)])


def head(x: T, weight: T, out: T) -> Any:
    return (x, 0.02, 3, weight, const(8, dtype="int32"), const(8), None, out.but(layout=W))


def dq8ca(x: T, n: int, k: int, group: int, bias: Any = None) -> Any:
    groups = k // group
    sums, scales = const(groups, n, dtype="int32"), const(groups, n)
    zps = T((x.dims[-2],), "int8", layout=W)
    return (
        x, T((x.dims[-2],), layout=W), zps, const(n, k // 2, dtype="uint8"), sums, scales, group, bias,
        like(x, dims=(*x.dims[:-1], n)),
    )  # fmt: skip


def q4gsw(x: T, n: int, k: int) -> Any:
    return (x, const(n, k // 2, dtype="uint8"), const(k // 32, n), 32, None, like(x, dims=(*x.dims[:-1], n)))


def choose(x: T, block: list[int]) -> Any:
    scales = [T(x.dims[:-1], layout=W), T(x.dims[:-1], "int8", layout=W)]
    return (x, "ASYMMETRIC", block, None, -128, 127, None, None, None, False, scales)


def embedding(indices: T, width: int = 32) -> Any:
    out = like(indices, dims=(*indices.dims, 2 * width), dtype="float32")
    return (const(9, width, dtype="uint8"), const(9, 2), 32, indices, True, out)


def convolution(
    x: T = IMAGE, weight: Any = None, bias: Any = None, dilation: int = 1, transposed: bool = False
) -> Any:
    weight = const(8, 8, 3, 3) if weight is None else weight
    pairs = ([1, 1], [1, 1], [dilation] * 2)
    return (x, weight, bias, *pairs, transposed, [0, 0], 1, like(x))


def grid(mode: int = 0, padding: int = 1, corners: bool = True) -> Any:
    return (IMAGE, T((1, 6, 6, 2), storage=BUFFER, layout=W), mode, padding, corners, like(IMAGE))


def shuffled(factor: int, x: T = INT8) -> Any:
    *lead, c, h, w = x.dims
    return (x, 0.1, 0, 10.0, 0, factor, like(x, dims=(*lead, c // factor**2, h * factor, w * factor)))


INDICES = T((5,), "int32", layout=W)
GRID = T((5, 1, 3, 16), storage=BUFFER, layout=W)

PAIRS = (
    *(
        Pair(
            "pool-stride", f"aten.{name}", pool(name, [2, 2], [], [0, 0]), pool(name, [2, 2], [2, 2], [0, 0])
        )
        for name in ("max_pool2d.default", "avg_pool2d.default")
    ),
    Pair(
        "pool-window",
        "aten.avg_pool2d.default",
        pool("avg", [2], [2, 2], [0, 0]),
        pool("avg", [2, 2], [2, 2], [0, 0]),
    ),
    Pair(
        "pool-window",
        "aten.avg_pool2d.default",
        pool("avg", [2, 2], [2, 2], [0]),
        pool("avg", [2, 2], [2, 2], [0, 0]),
    ),
    Pair(
        "channels-packed", "aten.flip.default", (IMAGE.but(layout=W), [2], IMAGE), (IMAGE, [2], like(IMAGE))
    ),
    Pair(
        "channels-packed", "aten.flip.default", (IMAGE, [2], IMAGE.but(layout=W)), (IMAGE, [2], like(IMAGE))
    ),
    Pair(
        "packed-dims",
        "aten.permute_copy.default",
        (IMAGE, [0, 1, 3, 2], IMAGE.but(layout=W)),
        (IMAGE, [0, 1, 3, 2], like(IMAGE)),
    ),
    Pair(
        "packed-dims",
        "aten.unsqueeze_copy.default",
        (ROWS, 0, T((1, 6, 64), layout=C)),
        (FLAT_ROWS, 0, T((1, 6, 64), storage=BUFFER, layout=C)),
    ),
    Pair(
        "packed-dims",
        "aten.add.Tensor",
        (IMAGE, like(IMAGE, layout=W), 1, like(IMAGE)),
        (IMAGE, const(1, 8, 6, 6), 1, like(IMAGE)),
    ),
    Pair("reduce-dims", "aten.mean.dim", reduce(IMAGE, [1, 2, 3]), reduce(IMAGE, [2, 3])),
    Pair("reduce-dims", "aten.sum.dim_IntList", reduce(IMAGE, None), reduce(T((6,), layout=W), None)),
    Pair("reduce-storage", "aten.mean.dim", reduce(IMAGE.but(storage=BUFFER), [2, 3]), reduce(IMAGE, [2, 3])),
    Pair("reduce-storage", "aten.mean.dim", reduce(FLAT_ROWS, [0]), reduce(FLAT_ROWS, [-1])),
    Pair("reduce-packed", "aten.mean.dim", reduce(IMAGE, [1, 2]), reduce(IMAGE, [2, 3])),
    Pair(
        "reduce-channels",
        "aten._softmax.default",
        (IMAGE.but(dims=(2, 8, 6, 6)), 1, False, like(IMAGE)),
        (IMAGE, 1, False, like(IMAGE)),
    ),
    Pair("arg-reduce", "aten.argmax.default", (ROWS, -1, False, T((6,))), (FLAT_ROWS, -1, False, T((6,)))),
    Pair(
        "arg-reduce",
        "aten.argmax.default",
        (FLAT_ROWS, 0, False, T((64,))),
        (FLAT_ROWS, None, False, T((6,))),
    ),
    Pair(
        "index-list",
        "aten.index.Tensor",
        (ROWS, [INDICES, like(INDICES)], T((5,))),
        (ROWS, [INDICES], T((5, 64))),
    ),
    Pair(
        "index-null", "aten.index.Tensor", (ROWS, [None, INDICES], T((6, 5))), (ROWS, [INDICES], T((5, 64)))
    ),
    Pair(
        "batch-norm",
        "aten._native_batch_norm_legit_no_training.default",
        (ROWS, *(const(64) for _ in range(4)), 0.1, 1e-5, [like(ROWS)]),
        (IMAGE, *(const(8) for _ in range(4)), 0.1, 1e-5, [like(IMAGE)]),
    ),
    Pair(
        "layer-norm",
        "aten.native_layer_norm.default",
        norm([6, 64], const(6, 64), const(6, 64)),
        norm([64], const(64), const(64)),
    ),
    Pair(
        "layer-norm",
        "aten.native_layer_norm.default",
        norm([64], None, const(64)),
        norm([64], const(64), const(64)),
    ),
    Pair(
        "layer-norm",
        "aten.native_layer_norm.default",
        norm([64], const(64), None),
        norm([64], const(64), const(64)),
    ),
    Pair(
        "constant-argument",
        "aten.linear.default",
        (ROWS, like(ROWS), None, T((6, 6))),
        (ROWS, const(8, 64), None, T((6, 8))),
    ),
    Pair(
        "constant-argument",
        "aten.embedding.default",
        (ROWS, INDICES, -1, False, False, T((5, 64))),
        (const(9, 64), INDICES, -1, False, False, T((5, 64))),
    ),
    Pair(
        "constant-argument", "aten.convolution.default", convolution(bias=T((8,))), convolution(bias=const(8))
    ),
    *(
        Pair(
            "constant-argument",
            "et_vk.linear_dq8ca_q4gsw.default",
            (*dq8ca(ROWS, 8, 64, 32)[:at], T((8, 32)), *dq8ca(ROWS, 8, 64, 32)[at + 1 :]),
            dq8ca(ROWS, 8, 64, 32),
        )
        for at in (3, 4, 5, 7)
    ),
    Pair(
        "constant-argument",
        "et_vk.linear_q8ta_q8csw.default",
        (*head(ROWS, const(8, 64, dtype="int8"), T((6, 8)))[:6], T((8,)), T((6, 8), layout=W)),
        head(ROWS, const(8, 64, dtype="int8"), T((6, 8))),
    ),
    Pair("computed-argument", "aten.relu.default", (const(6, 64), like(ROWS)), (ROWS, like(ROWS))),
    Pair("conv-batch", "aten.convolution.default", convolution(IMAGE.but(dims=(2, 8, 6, 6))), convolution()),
    Pair("conv-packed", "aten.convolution.default", convolution(IMAGE.but(layout=W)), convolution()),
    Pair(
        "conv-dilation",
        "aten.convolution.default",
        convolution(dilation=2, transposed=True),
        convolution(dilation=2),
    ),
    Pair(
        "permute-rank",
        "aten.permute_copy.default",
        (GRID, [0, 1, 2, 4, 3], T((1, 5, 1, 16, 3))),
        (GRID, [0, 1, 3, 2], T((5, 1, 16, 3), layout=W)),
    ),
    Pair(
        "unsqueeze-rank",
        "aten.unsqueeze_copy.default",
        (IMAGE, 0, like(IMAGE, dims=(1, 1, 8, 6, 6))),
        (GRID, 0, like(GRID, dims=(1, 5, 1, 3, 16))),
    ),
    Pair(
        "dim-order-storage",
        "dim_order_ops._to_dim_order_copy.default",
        (ROWS, *[None] * 6, like(FLAT_ROWS)),
        (FLAT_ROWS, *[None] * 6, like(FLAT_ROWS)),
    ),
    Pair(
        "dim-order-storage",
        "dim_order_ops._to_dim_order_copy.default",
        (FLAT_ROWS, *[None] * 6, like(ROWS)),
        (FLAT_ROWS, *[None] * 6, like(FLAT_ROWS)),
    ),
    Pair(
        "arange-int",
        "aten.arange.start_step",
        (0, None, 1, *[None] * 4, T((5,))),
        (0, 5, 1, *[None] * 4, T((5,))),
    ),
    Pair(
        "arange-int",
        "aten.arange.start_step",
        (0.5, 5, 1, *[None] * 4, T((5,))),
        (None, 5, 1, *[None] * 4, T((5,))),
    ),
    Pair(
        "arange-int",
        "aten.arange.start_step",
        (0, 5.5, 1, *[None] * 4, T((5,))),
        (0, 5, 1, *[None] * 4, T((5,))),
    ),
    Pair(
        "arange-int",
        "aten.arange.start_step",
        (0, 5, 0.5, *[None] * 4, T((5,))),
        (0, 5, None, *[None] * 4, T((5,))),
    ),
    Pair("grid-sampler", "aten.grid_sampler_2d.default", grid(mode=1), grid()),
    Pair("grid-sampler", "aten.grid_sampler_2d.default", grid(padding=0), grid()),
    Pair("grid-sampler", "aten.grid_sampler_2d.default", grid(corners=False), grid()),
    Pair(
        "quantized-layout",
        "quantized_decomposed.quantize_per_tensor.default",
        (IMAGE, 0.1, 0, -128, 127, None, like(IMAGE, dtype="int8")),
        (IMAGE, 0.1, 0, -128, 127, None, like(INT8)),
    ),
    Pair(
        "quantized-layout",
        "quantized_decomposed.dequantize_per_tensor.default",
        (IMAGE.but(dtype="int8"), 0.1, 0, -128, 127, None, None, like(IMAGE)),
        (INT8, 0.1, 0, -128, 127, None, None, like(IMAGE)),
    ),
    Pair(
        "float-argument",
        "et_vk.linear_q8ta_q8csw.default",
        head(ROWS.but(dtype="int8"), const(8, 64, dtype="int8"), T((6, 8))),
        head(ROWS, const(8, 64, dtype="int8"), T((6, 8))),
    ),
    Pair(
        "row-length",
        "et_vk.linear_q8ta_q8csw.default",
        head(ROWS.but(dims=(6, 63)), const(8, 63, dtype="int8"), T((6, 8))),
        head(ROWS, const(8, 64, dtype="int8"), T((6, 8))),
    ),
    Pair(
        "head-half",
        "et_vk.linear_q8ta_q8csw.default",
        head(ROWS, const(8, 64, dtype="int8"), T((6, 8), "float16")),
        head(ROWS, const(8, 64, dtype="int8"), T((6, 8))),
    ),
    Pair(
        "head-buffer",
        "et_vk.linear_q8ta_q8csw.default",
        head(FLAT_ROWS, const(7, 64, dtype="int8"), T((6, 7), storage=BUFFER)),
        head(ROWS, const(7, 64, dtype="int8"), T((6, 7))),
    ),
    Pair(
        "embedding-rank",
        "et_vk.embedding_q4gsw.default",
        embedding(INDICES.but(dims=(1, 1, 1, 5))),
        embedding(INDICES),
    ),
    Pair("embedding-width", "et_vk.embedding_q4gsw.default", embedding(INDICES, 24), embedding(INDICES)),
    Pair(
        "qparams-rows",
        "torchao.choose_qparams_affine.default",
        choose(ROWS.but(dims=(2, 3, 64)), [1, 1, 64]),
        choose(ROWS, [1, 64]),
    ),
    Pair(
        "qparams-rows", "torchao.choose_qparams_affine.default", choose(ROWS, [1, 32]), choose(ROWS, [1, 64])
    ),
    Pair(
        "qparams-packed",
        "torchao.choose_qparams_affine.default",
        choose(ROWS.but(layout=C), [1, 64]),
        choose(ROWS, [1, 64]),
    ),
    Pair(
        "row-length",
        "et_vk.linear_dq8ca_q4gsw.default",
        dq8ca(ROWS.but(dims=(6, 60)), 8, 60, 20),
        dq8ca(ROWS, 8, 64, 32),
    ),
    Pair(
        "row-length", "et_vk.linear_q4gsw.default", q4gsw(ROWS.but(dims=(6, 66)), 8, 66), q4gsw(ROWS, 8, 64)
    ),
    Pair("row-length", "et_vk.linear_q4gsw.default", q4gsw(ROWS, 10, 64), q4gsw(ROWS, 12, 64)),
    Pair(
        "one-row",
        "et_vk.linear_dq8ca_q4gsw.default",
        dq8ca(ROWS.but(dims=(1, 64)), 8, 64, 32),
        dq8ca(ROWS, 8, 64, 32),
    ),
    Pair(
        "four-bit-channels",
        "et_vk.linear_qcs4w.default",
        (ROWS, const(8, 32, dtype="uint8"), const(8), T((6, 8), layout=W)),
        (),
    ),
    Pair(
        "floor-mode",
        "aten.div.Tensor_mode",
        (ROWS, like(ROWS), "trunc", like(ROWS)),
        (ROWS, like(ROWS), "floor", like(ROWS)),
    ),
    Pair(
        "float-equal",
        "aten.eq.Tensor",
        (ROWS, like(ROWS), like(ROWS, dtype="bool")),
        (ROWS.but(dtype="int32"), like(ROWS, dtype="int32"), like(ROWS, dtype="bool")),
    ),
    Pair("gelu-tanh", "aten.gelu.default", (ROWS, "none", like(ROWS)), (ROWS, "tanh", like(ROWS))),
    Pair(
        "pixel-shuffle",
        "et_vk.q8ta_pixel_shuffle.default",
        shuffled(3, INT8.but(dims=(1, 9, 2, 2))),
        shuffled(2),
    ),
    Pair(
        "pixel-shuffle",
        "et_vk.q8ta_pixel_shuffle.default",
        shuffled(2, INT8.but(dims=(8, 6, 6))),
        shuffled(2),
    ),
    Pair(
        "prepack-rank",
        "et_vk.prepack.default",
        (const(1, 1, 2, 3, 4), T((1, 1, 2, 3, 4), storage=BUFFER, layout=W)),
        (const(2, 3, 4), T((2, 3, 4), storage=BUFFER, layout=W)),
    ),
)
