"""What the convolutions share: parameters, shapes, the integer sum, weights, the launch, and the operator itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from refsim.core.errors import ParameterError, ShapeError
from refsim.core.jit import jitable
from refsim.core.launch import Launch
from refsim.core.layout import CHANNELS_PACKED_INT8, PACKED_4W4C, H, Layout, W
from refsim.core.push import PushWords, SpecWords, hashed, int32, pair, tensor
from refsim.core.resize import BOUND_BATCH
from refsim.ops.base import epilogue, quantized
from refsim.ops.base.arg import Arg, Shapes
from refsim.ops.base.defect import FIRST_BATCH, Defect
from refsim.ops.base.gemm import TILE_CONFIGS, tile_config
from refsim.ops.base.host.row import ModuleCall, Shader
from refsim.ops.base.host.weights import WINDOW as WINDOW_TEXELS
from refsim.ops.base.host.weights import Packing
from refsim.ops.base.padding import OnDevice, Pad, Padding
from refsim.ops.base.spec import Call, KernelSpec, OpSpec, Upstream
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Epilogue, Family, MatrixProblem, XQuads


@dataclass(frozen=True)
class ConvParams(quantized.InOutParams):
    """Quantization of input and output, and the window; pairs are (height, width)."""

    where = "q8ta_conv2d"

    kernel_size: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    activation: str = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        epilogue.check_activation(self)
        for name, least in self.pairs().items():
            pair = getattr(self, name)
            if len(pair) != 2 or min(pair) < least or max(pair) >= 1 << 15:
                raise ParameterError(
                    self.where, f"{name} is not a legal pair", got=pair, need=f"two integers >= {least}"
                )
            object.__setattr__(self, name, (int(pair[0]), int(pair[1])))
        if self.groups < 1:
            raise ParameterError(self.where, "groups is too small", got=self.groups, need=">= 1")

    def pairs(self) -> dict[str, int]:
        """The fields that are pairs, and their least value."""
        return {"kernel_size": 1, "stride": 1, "padding": 0, "dilation": 1}

    @property
    def taps(self) -> int:
        return self.kernel_size[0] * self.kernel_size[1]

    def out_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Output height and width."""
        h, w = (
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, p, d, k, s in zip(
                size, self.padding, self.dilation, self.kernel_size, self.stride, strict=True
            )
        )
        return (h, w)

    def source(self, axis: int, out_count: int, tap: int, in_count: int) -> np.ndarray:
        """The input row or column that each output position reads at a tap; in_count if there is none."""
        at = np.arange(out_count) * self.stride[axis] - self.padding[axis] + tap * self.dilation[axis]
        return np.where((at >= 0) & (at < in_count), at, in_count)


@dataclass(frozen=True)
class WindowKind:
    """What a convolution takes: windows of one tap alone, channels that fill words alone; depthwise, transposed."""

    one_tap: bool = False
    whole_words: bool = False
    depthwise: bool = False
    transposed: bool = False


ANY = WindowKind()


def args(kind: WindowKind = ANY, x_layouts: tuple[Layout, ...] = CHANNELS_PACKED_INT8) -> tuple[Arg, ...]:
    """The arguments in serialized order."""
    window = ["kernel_size", "stride", "padding", "output_padding", "dilation", "groups", "activation"]
    if not kind.transposed:
        window.remove("output_padding")
    channels = 2 if kind.depthwise else 0
    return epilogue.args(x_layouts, CHANNELS_PACKED_INT8, window, weight_channels=channels)


# --- shapes and checks -----------------------------------------------------------------------------------


def out_shape(
    params: ConvParams, shapes: Shapes, consts: Mapping[str, Any], declared: Any
) -> tuple[int, ...]:
    """(N, OC, OH, OW), with the input's leading dims."""
    return shape_for(params, shapes["x"], consts["weight"].shape[0], declared)


def shape_for(params: ConvParams, x: tuple[int, ...], rows: int, declared: Any) -> tuple[int, ...]:
    h, w = params.out_size((x[-2], x[-1]))
    if h < 1 or w < 1:
        raise ShapeError(params.where, "the window is larger than the padded image", got=f"output {h} x {w}")
    return (*x[:-3], epilogue.out_channels(rows, declared, -3), h, w)


def check(call: Call) -> None:
    """Channels, groups and the sizes and ranges of the constants."""
    p, where = call.params, call.params.where
    channels, out = call.descs["x"].shape[-3], call.out.shape[-3]
    if channels % p.groups or out % p.groups:
        raise ShapeError(
            where, "channels do not divide into groups", got=f"{channels} -> {out}, {p.groups} groups"
        )
    per_group = channels // p.groups
    if p.groups > 1 and (per_group % 4 or (out // p.groups) % 4):
        raise ShapeError(
            where,
            "grouped channels do not fill words",
            got=f"{per_group} -> {out // p.groups} per group",
            need="multiples of 4",
        )
    need = (p.taps * per_group, epilogue.align4(p.taps * per_group))
    (weight,) = call.given("weight")
    if weight.ndim != 2 or weight.shape[1] not in need:
        raise ShapeError(where, "weight has the wrong shape", got=weight.shape, need=f"({out}, {need[1]})")
    epilogue.check_constants(call, out, p.taps * per_group)


def check_words(call: Call) -> None:
    """ShapeError unless the channels of each group fill words."""
    channels, groups = call.descs["x"].shape[-3], call.params.groups
    if channels % (4 * groups):
        raise ShapeError(
            call.params.where,
            "channels per group do not fill words",
            got=f"{channels} in {groups} groups",
            need="a multiple of 4 per group",
        )


def padding(call: Call) -> Padding:
    """Lanes beyond the channels hold the zero point. Words beyond the width are never written."""
    return Padding(Pad(call.params.out_zp), Pad(0, OnDevice.UNTOUCHED))


# --- meaning ---------------------------------------------------------------------------------------------


def logical_weight(params: ConvParams, weight: np.ndarray, per_group: int) -> np.ndarray:
    """The weight as (OC, KH, KW, IC per group), from rows of taps with the channel fastest."""
    return weight[:, : params.taps * per_group].reshape(-1, *params.kernel_size, per_group)


def accumulate(params: ConvParams, x: np.ndarray, weight: np.ndarray, out_hw: tuple[int, int]) -> np.ndarray:
    """The sum of q_x * w over the taps and the channels of a group: int64 (N, OC, OH, OW).

    A tap without a source reads the zero point: so each sum is that of the zero points, plus (q_x - zero point) * w
    where a tap has a source. Sums in binary64 are exact here: |sum| < 2**31.
    """
    n, channels, height, width = x.shape
    out, kh, kw, per_group = weight.shape
    groups = channels // per_group
    images = x.reshape(n, groups, per_group, height, width).astype(np.float64) - params.in_zp
    taps = weight.reshape(groups, out // groups, kh, kw, per_group).astype(np.float64)
    acc = np.zeros((n, groups, out // groups, *out_hw))
    acc += params.in_zp * taps.sum((2, 3, 4))[:, :, None, None]
    for i in range(kh):
        rows = params.source(0, out_hw[0], i, height)
        down = np.flatnonzero(rows < height)
        for j in range(kw):
            columns = params.source(1, out_hw[1], j, width)
            across = np.flatnonzero(columns < width)
            patch = images[..., rows[down][:, None], columns[across]]
            sums = taps[:, :, i, j] @ patch.reshape(n, groups, per_group, -1)
            acc[..., down[:, None], across] += sums.reshape(*acc.shape[:3], down.size, across.size)
    return acc.astype(np.int64).reshape(n, out, *out_hw)


def define_conv(
    kind: Epilogue, params: ConvParams, target: Target, x: np.ndarray, **consts: Any
) -> np.ndarray:
    """A convolution with weights in rows of taps: (N, OC, OH, OW), leading dims as the input's."""
    shape = shape_for(params, x.shape, len(consts["weight"]), None)
    weight = logical_weight(params, consts["weight"], x.shape[-3] // params.groups)
    acc = accumulate(params, nchw4(x), weight, (shape[-2], shape[-1]))
    return epilogue.requantized(kind, params, target, acc, consts, (-1, 1, 1)).reshape(shape)


def windows(params: ConvParams, x: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Windows as (..., K, rows, columns), for this many rows and columns."""
    image = nchw4(x)
    n, channels, height, width = image.shape
    framed = np.full((n, channels, height + 1, width + 1), params.in_zp, np.int8)
    framed[:, :, :height, :width] = image
    at_rows = np.stack([params.source(0, rows, i, height) for i in range(params.kernel_size[0])])
    at_columns = np.stack([params.source(1, columns, j, width) for j in range(params.kernel_size[1])])
    found = framed[
        :, :, at_rows[:, None, :, None], at_columns[None, :, None, :]
    ]  # N, C, KH, KW, rows, columns
    grouped = found.reshape(n, params.groups, -1, *found.shape[2:])
    return np.moveaxis(grouped, 2, 4).reshape(*x.shape[:-3], -1, rows, columns)


def nchw4(x: np.ndarray) -> np.ndarray:
    """The array with exactly four dims: leading dims are folded into N or added."""
    return x.reshape(-1, *x.shape[-3:])


# --- dispatch --------------------------------------------------------------------------------------------

#: The push words of a window. IC4 and OC4 count words of channels, of the input and of the output, in a group.
WINDOW = (
    tensor("X"),
    tensor("OUT"),
    pair("KERNEL"),
    pair("STRIDE"),
    pair("PADDING"),
    pair("DILATION"),
    int32("IC4"),
    int32("OC4"),
)
#: The words of every convolution kernel.
PUSH = PushWords(*WINDOW, *epilogue.QUANTIZATION)
SPEC = SpecWords(hashed("X"), hashed("OUT"))
(
    X, OUT, KERNEL_H, KERNEL_W, STRIDE_H, STRIDE_W, PADDING_H, PADDING_W, DILATION_H, DILATION_W,
    IC4, OC4, IN_ZP, ZP, IN_SCALE, INV, FLAGS,
) = PUSH.offsets  # fmt: skip
X_HASH, OUT_HASH = SPEC.offsets


@jitable
def tap_place(push: Any, ow: Any, oh: Any, i: Any, j: Any) -> Any:
    """(column, row, whether it is inside) of the input at tap (i, j) of the window of an output's column and row."""
    ih = oh * push[STRIDE_H] - push[PADDING_H] + i * push[DILATION_H]
    iw = ow * push[STRIDE_W] - push[PADDING_W] + j * push[DILATION_W]
    return iw, ih, (ih >= 0) & (ih < push[X + H]) & (iw >= 0) & (iw < push[X + W])


def window(call: Call) -> dict[str, Any]:
    """The values of `WINDOW`, by name."""
    p = call.params
    return {
        "KERNEL": p.kernel_size,
        "STRIDE": p.stride,
        "PADDING": p.padding,
        "DILATION": p.dilation,
        "IC4": epilogue.align4(call.descs["x"].shape[-3] // p.groups) // 4,
        "OC4": epilogue.align4(call.out.shape[-3] // p.groups) // 4,
    }


def values(call: Call) -> dict[str, Any]:
    """The words of `PUSH`, by name."""
    return window(call) | epilogue.quantization(call)


def launch_gemm(call: Call, positions: int, phases: int = 1) -> Launch:
    """A matrix-like kernel. Global size: positions x channel words of a group x (groups, phases)."""
    p = call.params
    per_group = epilogue.align4(call.out.shape[-3] // p.groups) // 4
    k = epilogue.align4(call.descs["x"].shape[-3] // p.groups) // 4 * -(-p.taps // phases)
    slices = p.groups * phases
    shape = tile_config(positions, per_group, k, slices)
    return call.launched((positions, per_group, slices), shape.local, shape.tile, shape.name, **values(call))


def launch(call: Call) -> Launch:
    """A `launch_gemm` whose positions are the pixels of the output, numbered through as (batch, row, column)."""
    w, h, _, n = call.out.sizes_whcn
    return launch_gemm(call, n * h * w)


def matrix(call: Call) -> MatrixProblem:
    """The convolution as one product: its windows are gathered as they are read."""
    p, x = call.params, call.descs["x"]
    w, h, _, n = call.out.sizes_whcn
    per_group = x.shape[-3] // p.groups
    x_quads = XQuads.WORDS
    if x.layout == PACKED_4W4C and p.stride[1] == 1:
        one_tap = (p.kernel_size, p.stride, p.padding) == ((1, 1), (1, 1), (0, 0))
        x_quads = XQuads.BLOCK if one_tap else XQuads.BLOCKS
    return MatrixProblem(
        shader="coop/conv",
        push=PUSH.pack(call.tensors, **values(call)),
        positions=epilogue.align4(w) * h * n,
        channels=call.out.shape[-3] // p.groups,
        groups=p.groups,
        depth=p.taps * per_group,
        chunks=p.taps * -(-per_group // 16),
        integer_zp=call.op.epilogue is Epilogue.INTEGER_ZP,
        x_quads=x_quads,
        weight=lambda value: logical_weight(p, value, per_group).reshape(len(value), -1, per_group),
    )


@dataclass(frozen=True)
class WindowVariant:
    """A build of a shader for one window: kernel and stride (height, width), padding of columns, dilation 1.

    ``rows``: how many output rows an invocation takes.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad_w: int
    rows: int

    @property
    def name(self) -> str:
        return "k{}x{}.s{}x{}.p{}.r{}".format(*self.kernel, *self.stride, self.pad_w, self.rows)

    @property
    def definitions(self) -> dict[str, int]:
        """What this build defines."""
        (kh, kw), (sh, sw) = self.kernel, self.stride
        sizes = {
            "KERNEL_H": kh,
            "KERNEL_W": kw,
            "STRIDE_H": sh,
            "STRIDE_W": sw,
            "PAD_W": self.pad_w,
            "ROWS": self.rows,
        }
        return {f"REFSIM_{key}": size for key, size in sizes.items()}


def work_item(launch: Launch, word: Any, w: Any, h: Any, c: Any, n: Any) -> tuple[Any, Any, Any]:
    """The work item that writes the word at a coordinate."""
    width, height, *_ = launch.out.sizes_whcn
    per_group = launch.global_size[1]
    return (n * height + h) * width + w, c // 4 % per_group, c // 4 // per_group


def prepack(call: Call, name: str, value: np.ndarray) -> np.ndarray:
    """Words (int32) as the kernels read them.

    weight: [tap][input channel word][output channel], channels of a tap padded to 4 with zeros, so that four
    neighbouring words serve the four lanes of an output word. The others are padded to 4 entries.
    """
    if name != "weight":
        return epilogue.pad_rows(value, epilogue.align4(len(value))).view(np.int32)
    per_group = call.descs["x"].shape[-3] // call.params.groups
    return epilogue.pack_weight(
        logical_weight(call.params, value, per_group).reshape(len(value), -1, per_group)
    )


def module(shaders: tuple[Shader, ...], local_size: str, packing: Packing = WINDOW_TEXELS) -> ModuleCall:
    """How upstream's host calls a convolution that walks over its window: 4 columns x 4 channels at a time."""
    return ModuleCall(
        shaders=shaders,
        bindings=("out", "x", *epilogue.CONSTS, "meta:out", "meta:x", "conv_params"),
        push=("in_scale", "in_zp", "inv_out_scale", "out_zp"),
        spec=("apply_bias", "activation", "layout:x", "layout:out"),
        global_size=("ceil(w / 4)", "h", "ceil(c / 4)"),
        local_size=local_size,
        packing={"weight": packing},
    )


# --- what an operator says -------------------------------------------------------------------------------


def kernel(
    run: Callable[..., None],
    launch: Callable[[Call], Launch] = launch,
    work_item: Callable[..., tuple[Any, Any, Any]] = work_item,
) -> KernelSpec:
    """A kernel that is launched as a product."""
    return KernelSpec(run, launch, PUSH, SPEC, work_item, TILE_CONFIGS)


def upstream(module: ModuleCall | None, *defects: Defect, exported: bool = True) -> Upstream:
    """What every convolution of upstream has in common, and what is known of one more."""
    return Upstream(module, (FIRST_BATCH, *defects), resize=BOUND_BATCH, exported=exported)


def operator(params: Any, kind: WindowKind = ANY, **own: Any) -> OpSpec:
    """A convolution: what all of them have in common, and what is its own."""
    shared: dict[str, Any] = {
        "name": params.where,
        "define": own.get("define") or partial(define_conv, own["epilogue"]),
        "family": Family.DEPTHWISE if kind.depthwise else Family.CONVOLUTION,
        "args": args(kind),
        "params": params,
        "out_shape": out_shape,
        "padding": padding,
        "prepack": prepack,
        "check": check,
        "min_rank": 3,
        "one_tap": kind.one_tap,
        "transposed": kind.transposed,
        "any_channels": not (kind.whole_words or kind.depthwise),
    }
    return OpSpec(**shared | own)
