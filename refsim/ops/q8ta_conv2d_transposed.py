"""q8ta_conv2d_transposed: transposed convolution.

An output reads input row (oh + pad - kh) / stride if that is a whole number inside the image. Every other tap
contributes zp_in * w. The epilogue is that of q8ta_conv2d_general. Source: ET-VK's q8ta_conv2d_transposed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from refsim.core import index
from refsim.core.errors import ParameterError, ShapeError
from refsim.core.jit import emulated_kernel
from refsim.core.lanes import add_dot4, splat
from refsim.core.launch import Launch
from refsim.core.layout import C, H, W
from refsim.ops.base import conv, conv_cases, epilogue
from refsim.ops.base.case_rule import CaseSlot, Made
from refsim.ops.base.conv import (
    IC4,
    IN_ZP,
    KERNEL_H,
    KERNEL_W,
    OC4,
    OUT,
    OUT_HASH,
    PADDING_H,
    PADDING_W,
    STRIDE_H,
    STRIDE_W,
    X_HASH,
    X,
)
from refsim.ops.base.gemm import position_place
from refsim.ops.base.host.row import with_dot_product
from refsim.ops.base.spec import Call
from refsim.ops.base.traits import Epilogue


@dataclass(frozen=True)
class Params(conv.ConvParams):
    """As every convolution, without dilation; output_padding enlarges the output at the far edges."""

    where = "q8ta_conv2d_transposed"

    output_padding: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dilation != (1, 1):
            raise ParameterError(self.where, "dilation is not supported", got=self.dilation, need=(1, 1))
        if any(extra >= step for extra, step in zip(self.output_padding, self.stride, strict=True)):
            raise ParameterError(
                self.where,
                "output_padding is too large",
                got=self.output_padding,
                need=f"less than {self.stride}",
            )

    def pairs(self) -> dict[str, int]:
        return super().pairs() | {"output_padding": 0}

    def out_size(self, size: tuple[int, int]) -> tuple[int, int]:
        h, w = (
            (n - 1) * s - 2 * p + k + extra
            for n, s, p, k, extra in zip(
                size, self.stride, self.padding, self.kernel_size, self.output_padding, strict=True
            )
        )
        return (h, w)

    def source(self, axis: int, out_count: int, tap: int, in_count: int) -> np.ndarray:
        scaled = np.arange(out_count) + self.padding[axis] - tap
        hit = (scaled >= 0) & (scaled % self.stride[axis] == 0) & (scaled // self.stride[axis] < in_count)
        return np.where(hit, scaled // self.stride[axis], in_count)


EPILOGUE = Epilogue.FLOAT_ZP
KIND = conv.WindowKind(transposed=True)


def launch(call: Call) -> Launch:
    """A `launch_gemm` over the positions of one phase: rows and columns with the same remainder modulo the stride.

    All of them hit the same taps, so a workgroup skips the others.
    """
    w, h, _, n = call.out.sizes_whcn
    sh, sw = call.params.stride
    return conv.launch_gemm(call, n * -(-h // sh) * -(-w // sw), sh * sw)


def prepack(call: Call, name: str, value: np.ndarray) -> np.ndarray:
    """weight: as in every convolution, then [phase][output channel] sums of the weights that cannot hit."""
    packed = conv.prepack(call, name, value)
    if name != "weight":
        return packed
    p = call.params
    taps = conv.logical_weight(p, value, call.descs["x"].shape[-3] // p.groups).sum(-1, dtype=np.int64)
    row_phase, column_phase = (
        (np.arange(k) - pad) % stride
        for k, pad, stride in zip(p.kernel_size, p.padding, p.stride, strict=True)
    )
    missed = np.zeros((p.stride[0] * p.stride[1], epilogue.align4(len(value))), np.int32)
    for phase in range(len(missed)):
        hits = (row_phase == phase // p.stride[1])[:, None] & (column_phase == phase % p.stride[1])
        missed[phase, : len(value)] = taps[:, ~hits].sum(1)
    return np.concatenate([packed, missed.reshape(-1)])


def work_item(launch: Launch, word: Any, w: Any, h: Any, c: Any, n: Any) -> tuple[Any, Any, Any]:
    """The work item that writes the word at a coordinate."""
    width, height, *_ = launch.out.sizes_whcn
    sh, sw = launch.push[STRIDE_H], launch.push[STRIDE_W]
    rows, columns = -(-height // sh), -(-width // sw)
    position = (n * rows + h // sh) * columns + w // sw
    per_group = launch.global_size[1]
    return position, c // 4 % per_group, c // 4 // per_group * (sh * sw) + h % sh * sw + w % sw


@emulated_kernel
def kernel(reached, spec, push, x_words, weight, sums, scales, bias, out):  # type: ignore[no-untyped-def]
    x_hash, out_hash = spec[X_HASH], spec[OUT_HASH]
    channel_step = push[X + index.C_STRIDE] * index.words_per_block(x_hash)
    border = splat(push[IN_ZP])
    all_oc = (push[OUT + C] + 3) // 4 * 4
    phases = push[STRIDE_H] * push[STRIDE_W]
    rows = (push[OUT + H] + push[STRIDE_H] - 1) // push[STRIDE_H]
    columns = (push[OUT + W] + push[STRIDE_W] - 1) // push[STRIDE_W]
    for z, word, position in np.ndindex(reached):
        phase, group = z % phases, z // phases
        oc4 = group * push[OC4] + word
        column, row, n = position_place(position, columns, rows)
        ow = column * push[STRIDE_W] + phase % push[STRIDE_W]
        oh = row * push[STRIDE_H] + phase // push[STRIDE_W]
        if (oh >= push[OUT + H]) | (ow >= push[OUT + W]):
            continue
        acc = 0, 0, 0, 0
        for i in range(push[KERNEL_H]):
            ih = oh + push[PADDING_H] - i
            row_hit = (ih >= 0) & (ih % push[STRIDE_H] == 0) & (ih // push[STRIDE_H] < push[X + H])
            for j in range(push[KERNEL_W]):
                iw = ow + push[PADDING_W] - j
                hit = row_hit & (iw >= 0) & (iw % push[STRIDE_W] == 0) & (iw // push[STRIDE_W] < push[X + W])
                source = 0
                if hit:
                    source = index.word_idx(
                        push, X, x_hash, iw // push[STRIDE_W], ih // push[STRIDE_H], 4 * group * push[IC4], n
                    )
                tap = (i * push[KERNEL_W] + j) * push[IC4]
                for ic4 in range(push[IC4]):
                    word = x_words[source + ic4 * channel_step] if hit else border
                    acc = add_dot4(acc, word, weight, (tap + ic4) * all_oc + 4 * oc4)
        to = index.word_idx(push, OUT, out_hash, ow, oh, 4 * oc4, n)
        out[to] = epilogue.out_word(EPILOGUE, acc, 4 * oc4, push[OUT + C], push, IN_ZP, sums, scales, bias)


def golden(slot: CaseSlot) -> Made:
    rng = slot.rng
    groups, channels, out = conv_cases.golden_channels(slot)
    window = conv_cases.golden_window(slot)
    kernel_size, stride = window["kernel_size"], window["stride"]
    window |= {
        "dilation": (1, 1),
        "padding": tuple(rng.integer(0, (k - 1) // 2) for k in kernel_size),
        "output_padding": tuple(rng.integer(0, s - 1) for s in stride),
    }
    params = conv_cases.golden_params(slot, window, groups)
    x: tuple[int, ...] = (slot.batch, channels, slot.size(1, 5), slot.size(0, 7))
    if slot.huge:
        x = (1, channels, 101 // stride[0], 163 // stride[1])
    return params, {"x": x}, {"out_channels": out, "bias": slot.bias}


EXAMPLE = conv_cases.example(Params.where, kernel_size=(4, 4), stride=(2, 2), padding=(1, 1)).changed(
    x=(2, 8, 4, 5)
)

OP = conv.operator(
    Params,
    KIND,
    serialized="et_vk.q8ta_conv2d_transposed.default",
    kernel=conv.kernel(kernel, launch, work_item),
    prepack=prepack,
    cases=conv_cases.rule(
        EXAMPLE,
        dict(x=(1, 64, 14, 14), out_channels=32),
        EXAMPLE.refused(ParameterError, "dilation", dilation=(2, 2)),
        EXAMPLE.refused(ParameterError, "output_padding", output_padding=(2, 0)),
        EXAMPLE.refused(ShapeError, "do not fill words", groups=2, x=(2, 6, 4, 5)),
        kind=KIND,
        make=golden,
    ),
    epilogue=EPILOGUE,
    upstream=conv.upstream(conv.module(with_dot_product("q8ta_conv2d_transposed"), "transposed")),
)
