"""For each row of a runtime's requirements a call that breaks it, and calls of the operator that break none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from check.small_files import BUFFER, INT8_4W4C, C, T, W, const

IMAGE = T((1, 8, 6, 6))
ROWS = T((6, 64), layout=W)
FLAT_ROWS = ROWS.but(storage=BUFFER)
INT8 = T((1, 8, 6, 6), "int8", BUFFER, INT8_4W4C)


Args = tuple[Any, ...]


class Broken(NamedTuple):
    """Arguments of an operator that break a rule, and its twins, which do not."""

    rule: str
    operator: str
    bad: Args
    twins: tuple[Args, ...]


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


def dq8ca(x: T, k: int, group: int) -> Any:
    groups = k // group
    sums, scales = const(groups, 8, dtype="int32"), const(groups, 8)
    zps = T((x.dims[-2],), "int8", layout=W)
    return (
        x, T((x.dims[-2],), layout=W), zps, const(8, k // 2, dtype="uint8"), sums, scales, group, None,
        like(x, dims=(*x.dims[:-1], 8)),
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

WEIGHT = const(8, 64, dtype="int8")
FOUR_BIT = dq8ca(ROWS, 64, 32)
WHOLE = norm([64], const(64), const(64))


def _of(operator: str, twins: tuple[Args, ...], *bad: tuple[str, Args]) -> Iterator[Broken]:
    return (Broken(rule, operator, args, twins) for rule, args in bad)


def _arange(*given: Any) -> Any:
    return (*given, *[None] * 4, T((5,)))


BROKEN = (
    *_of(
        "aten.max_pool2d.default", (pool("max", [2, 2], [2, 2], [0, 0]),),
        ("pool-stride", pool("max", [2, 2], [], [0, 0])),
    ),
    *_of(
        "aten.avg_pool2d.default", (pool("avg", [2, 2], [2, 2], [0, 0]),),
        ("pool-stride", pool("avg", [2, 2], [], [0, 0])),
        ("pool-window", pool("avg", [2], [2, 2], [0, 0])),
        ("pool-window", pool("avg", [2, 2], [2, 2], [0])),
    ),
    *_of(
        "aten.flip.default", ((IMAGE, [2], like(IMAGE)),),
        ("channels-packed", (IMAGE.but(layout=W), [2], IMAGE)),
        ("channels-packed", (IMAGE, [2], IMAGE.but(layout=W))),
    ),
    *_of(
        "aten.permute_copy.default",
        ((IMAGE, [0, 1, 3, 2], like(IMAGE)), (GRID, [0, 1, 3, 2], T((5, 1, 16, 3), layout=W))),
        ("packed-dims", (IMAGE, [0, 1, 3, 2], IMAGE.but(layout=W))),
        ("permute-rank", (GRID, [0, 1, 2, 4, 3], T((1, 5, 1, 16, 3)))),
    ),
    *_of(
        "aten.unsqueeze_copy.default",
        ((FLAT_ROWS, 0, T((1, 6, 64), storage=BUFFER, layout=C)), (GRID, 0, like(GRID, dims=(1, 5, 1, 3, 16)))),
        ("packed-dims", (ROWS, 0, T((1, 6, 64), layout=C))),
        ("unsqueeze-rank", (IMAGE, 0, like(IMAGE, dims=(1, 1, 8, 6, 6)))),
    ),
    *_of(
        "aten.add.Tensor", ((IMAGE, const(1, 8, 6, 6), 1, like(IMAGE)),),
        ("packed-dims", (IMAGE, like(IMAGE, layout=W), 1, like(IMAGE))),
    ),
    *_of(
        "aten.mean.dim", (reduce(IMAGE, [2, 3]), reduce(FLAT_ROWS, [-1])),
        ("reduce-dims", reduce(IMAGE, [1, 2, 3])),
        ("reduce-storage", reduce(IMAGE.but(storage=BUFFER), [2, 3])),
        ("reduce-storage", reduce(FLAT_ROWS, [0])),
        ("reduce-packed", reduce(IMAGE, [1, 2])),
    ),
    *_of("aten.sum.dim_IntList", (reduce(T((6,), layout=W), None),), ("reduce-dims", reduce(IMAGE, None))),
    *_of(
        "aten._softmax.default", ((IMAGE, 1, False, like(IMAGE)),),
        ("reduce-channels", (IMAGE.but(dims=(2, 8, 6, 6)), 1, False, like(IMAGE))),
    ),
    *_of(
        "aten.argmax.default", ((FLAT_ROWS, -1, False, T((6,))), (FLAT_ROWS, None, False, T((6,)))),
        ("arg-reduce", (ROWS, -1, False, T((6,)))),
        ("arg-reduce", (FLAT_ROWS, 0, False, T((64,)))),
    ),
    *_of(
        "aten.index.Tensor", ((ROWS, [INDICES], T((5, 64))),),
        ("index-list", (ROWS, [INDICES, like(INDICES)], T((5,)))),
        ("index-null", (ROWS, [None, INDICES], T((6, 5)))),
    ),
    *_of(
        "aten._native_batch_norm_legit_no_training.default",
        ((IMAGE, *(const(8) for _ in range(4)), 0.1, 1e-5, [like(IMAGE)]),),
        ("batch-norm", (ROWS, *(const(64) for _ in range(4)), 0.1, 1e-5, [like(ROWS)])),
    ),
    *_of(
        "aten.native_layer_norm.default", (WHOLE,),
        ("layer-norm", norm([6, 64], const(6, 64), const(6, 64))),
        ("layer-norm", norm([64], None, const(64))),
        ("layer-norm", norm([64], const(64), None)),
    ),
    *_of(
        "aten.linear.default", ((ROWS, const(8, 64), None, T((6, 8))),),
        ("constant-argument", (ROWS, like(ROWS), None, T((6, 6)))),
    ),
    *_of(
        "aten.embedding.default", ((const(9, 64), INDICES, -1, False, False, T((5, 64))),),
        ("constant-argument", (ROWS, INDICES, -1, False, False, T((5, 64)))),
    ),
    *_of(
        "aten.convolution.default", (convolution(), convolution(bias=const(8)), convolution(dilation=2)),
        ("constant-argument", convolution(bias=T((8,)))),
        ("conv-batch", convolution(IMAGE.but(dims=(2, 8, 6, 6)))),
        ("conv-packed", convolution(IMAGE.but(layout=W))),
        ("conv-dilation", convolution(dilation=2, transposed=True)),
    ),
    *_of(
        "et_vk.linear_dq8ca_q4gsw.default", (FOUR_BIT,),
        *(("constant-argument", (*FOUR_BIT[:at], T((8, 32)), *FOUR_BIT[at + 1 :])) for at in (3, 4, 5, 7)),
        ("row-length", dq8ca(ROWS.but(dims=(6, 60)), 60, 20)),
        ("one-row", dq8ca(ROWS.but(dims=(1, 64)), 64, 32)),
    ),
    *_of(
        "et_vk.linear_q8ta_q8csw.default",
        (head(ROWS, WEIGHT, T((6, 8))), head(ROWS, const(7, 64, dtype="int8"), T((6, 7)))),
        ("constant-argument", (*head(ROWS, WEIGHT, T((6, 8)))[:6], T((8,)), T((6, 8), layout=W))),
        ("float-argument", head(ROWS.but(dtype="int8"), WEIGHT, T((6, 8)))),
        ("row-length", head(ROWS.but(dims=(6, 63)), const(8, 63, dtype="int8"), T((6, 8)))),
        ("head-half", head(ROWS, WEIGHT, T((6, 8), "float16"))),
        ("head-buffer", head(FLAT_ROWS, const(7, 64, dtype="int8"), T((6, 7), storage=BUFFER))),
    ),
    *_of("aten.relu.default", ((ROWS, like(ROWS)),), ("computed-argument", (const(6, 64), like(ROWS)))),
    *_of(
        "dim_order_ops._to_dim_order_copy.default", ((FLAT_ROWS, *[None] * 6, like(FLAT_ROWS)),),
        ("dim-order-storage", (ROWS, *[None] * 6, like(FLAT_ROWS))),
        ("dim-order-storage", (FLAT_ROWS, *[None] * 6, like(ROWS))),
    ),
    *_of(
        "aten.arange.start_step", (_arange(0, 5, 1), _arange(None, 5, 1), _arange(0, 5, None)),
        *(("arange-int", _arange(*given)) for given in ((0, None, 1), (0.5, 5, 1), (0, 5.5, 1), (0, 5, 0.5))),
    ),
    *_of(
        "aten.grid_sampler_2d.default", (grid(),),
        ("grid-sampler", grid(mode=1)), ("grid-sampler", grid(padding=0)), ("grid-sampler", grid(corners=False)),
    ),
    *_of(
        "quantized_decomposed.quantize_per_tensor.default", ((IMAGE, 0.1, 0, -128, 127, None, like(INT8)),),
        ("quantized-layout", (IMAGE, 0.1, 0, -128, 127, None, like(IMAGE, dtype="int8"))),
    ),
    *_of(
        "quantized_decomposed.dequantize_per_tensor.default", ((INT8, 0.1, 0, -128, 127, None, None, like(IMAGE)),),
        ("quantized-layout", (IMAGE.but(dtype="int8"), 0.1, 0, -128, 127, None, None, like(IMAGE))),
    ),
    *_of(
        "et_vk.embedding_q4gsw.default", (embedding(INDICES),),
        ("embedding-rank", embedding(INDICES.but(dims=(1, 1, 1, 5)))),
        ("embedding-width", embedding(INDICES, 24)),
    ),
    *_of(
        "torchao.choose_qparams_affine.default", (choose(ROWS, [1, 64]),),
        ("qparams-rows", choose(ROWS.but(dims=(2, 3, 64)), [1, 1, 64])),
        ("qparams-rows", choose(ROWS, [1, 32])),
        ("qparams-packed", choose(ROWS.but(layout=C), [1, 64])),
    ),
    *_of(
        "et_vk.linear_q4gsw.default", (q4gsw(ROWS, 8, 64), q4gsw(ROWS, 12, 64)),
        ("row-length", q4gsw(ROWS.but(dims=(6, 66)), 8, 66)), ("row-length", q4gsw(ROWS, 10, 64)),
    ),
    *_of(
        "et_vk.linear_qcs4w.default", (),
        ("four-bit-channels", (ROWS, const(8, 32, dtype="uint8"), const(8), T((6, 8), layout=W))),
    ),
    *_of(
        "aten.div.Tensor_mode", ((ROWS, like(ROWS), "floor", like(ROWS)),),
        ("floor-mode", (ROWS, like(ROWS), "trunc", like(ROWS))),
    ),
    *_of(
        "aten.eq.Tensor", ((ROWS.but(dtype="int32"), like(ROWS, dtype="int32"), like(ROWS, dtype="bool")),),
        ("float-equal", (ROWS, like(ROWS), like(ROWS, dtype="bool"))),
    ),
    *_of("aten.gelu.default", ((ROWS, "tanh", like(ROWS)),), ("gelu-tanh", (ROWS, "none", like(ROWS)))),
    *_of(
        "et_vk.q8ta_pixel_shuffle.default", (shuffled(2),),
        ("pixel-shuffle", shuffled(3, INT8.but(dims=(1, 9, 2, 2)))),
        ("pixel-shuffle", shuffled(2, INT8.but(dims=(8, 6, 6)))),
    ),
    *_of(
        "et_vk.prepack.default", ((const(2, 3, 4), T((2, 3, 4), storage=BUFFER, layout=W)),),
        ("prepack-rank", (const(1, 1, 2, 3, 4), T((1, 1, 2, 3, 4), storage=BUFFER, layout=W))),
    ),
)  # fmt: skip
