"""Wrong kernels: a line of a table for every kind of bug of packed int8 kernels that an edit is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from wrong import Arrays, Edit, Read, grid, hosted, kernel, line, pushed, words

from refsim.core import index, lanes, qmath
from refsim.core.launch import Launch, Triple
from refsim.ops import (
    embedding_q4gsw,
    int8x4_to_nchw,
    linear_dq8ca_q4gsw,
    linear_q4gsw,
    nchw_to_int8x4,
    q8ta_add,
    q8ta_clone,
    q8ta_conv2d_dw,
    q8ta_conv2d_general,
    q8ta_conv2d_pw,
    q8ta_conv2d_transposed,
    q8ta_dequantize,
    q8ta_im2col,
    q8ta_linear,
    q8ta_linear_gemv,
    q8ta_pixel_shuffle,
    q8ta_quantize,
    q8ta_relu,
)
from refsim.ops.base import conv, elementwise, epilogue, gemm, group_linear, int4, row_range
from refsim.ops.base.case import Case

CONV = Case(
    "q8ta_conv2d_general",
    dict(
        in_scale=0.5, in_zp=11, out_scale=1.0, out_zp=-9, kernel_size=(3, 2), stride=(2, 1), padding=(1, 2),
        dilation=(1, 2), activation="relu",
    ),
    {"x": ((2, 6, 9, 7), "4W4C")}, "4C1W", seed=5, features={"out_channels": 7, "bias": True}, poison=True,
)  # fmt: skip


def _whole_groups(launch: Launch) -> Triple:
    """The grid rounded down to whole workgroups, at least one."""
    rows = zip(launch.reached, launch.local, launch.tile, strict=True)
    x, y, z = (max(1, have // (n * t)) * n * t if have > n * t else have for have, n, t in rows)
    return x, y, z


def _bytes(function: Callable[[np.ndarray], np.ndarray]) -> Read:
    """Words whose four bytes are changed."""
    return lambda held, _: (
        np.ascontiguousarray(function(held.view(np.int8).reshape(-1, 4))).view(np.int32).reshape(-1)
    )


def _zeros(held: np.ndarray, _: Arrays) -> np.ndarray:
    return np.zeros_like(held)


def _over_outputs(held: np.ndarray, arrays: Arrays) -> np.ndarray:
    """Weight sums over the outputs, one for each input: the weights lie [word of inputs][output][input]."""
    sums = arrays["weight"].view(np.int8).reshape(-1, len(held), 4).sum(1, np.int32)
    return np.resize(sums.reshape(-1), held.shape)


def _none(launch: Launch) -> Triple:
    return 0, 0, 0


CLAMPED = "clamp(whole + zp, QMIN, QMAX)", "whole + zp"

PAIRS = ("KERNEL", "STRIDE", "PADDING", "DILATION")

#: Every kind of bug of packed int8 kernels that an edit is, by the sections of docs/causes.md.
EDITS: tuple[Edit, ...] = (
    # parts are missing, old or foreign
    grid("nothing written", "q8ta_add", "no invocation ran", _none),
    grid("last tile missing", "q8ta_conv2d_general", "the grid rounded down to whole workgroups", _whole_groups),
    kernel("batch ignored", q8ta_conv2d_pw, "w, h, 4 * group * push[IC4], n)", "w, h, 4 * group * push[IC4], 0)"),
    words("stale or foreign buffer", "q8ta_conv2d_im2col", "the scratch is read before it was written",
        scratch=_zeros),
    kernel("padding leaked", q8ta_quantize, "q = zp", "q = 0"),
    kernel("write out of bounds", q8ta_clone, "out[i] = word", "out[i] = out[i + 4] = word"),
    # right values at the wrong place
    kernel("lanes exchanged", q8ta_clone, "insert(word, k, lane", "insert(word, (k + 1) % 4, lane"),
    kernel("byte order", q8ta_clone, "lane(x_words[at // 4], at % 4)", "lane(x_words[at // 4], 3 - at % 4)"),
    line("block transposed", "q8ta_clone", index, "intra_block_idx",
        "outer % outer_block(hashed) * inner_block(hashed) + inner % inner_block(hashed)",
        "inner % inner_block(hashed) * outer_block(hashed) + outer % outer_block(hashed)"),
    words("block transposed", "q8ta_conv2d_pw", "blocks of 4 x 4 weights stored untransposed",
        weight=_bytes(lambda held: held.reshape(-1, 4, 4).swapaxes(1, 2))),
    kernel("another layout's strides", q8ta_add, "index.word_idx(push, B, b_hash",
        "index.word_idx(push, B, a_hash"),
    kernel("H and W exchanged", q8ta_add, "word_idx(push, B, b_hash, w, h,", "word_idx(push, B, b_hash, h, w,"),
    kernel("C and another dim exchanged", q8ta_pixel_shuffle, "kc * r * r + kh % r * r + kw % r",
        "kc + (kh % r * r + kw % r) * push[OUT + 2]"),
    kernel("one coordinate for another", nchw_to_int8x4,
        "((n * push[OUT + C] + kc) * push[OUT + H] + kh) * push[OUT + W] + kw",
        "((n * push[OUT + W] + kw) * push[OUT + C] + kc) * push[OUT + H] + kh"),
    kernel("one coordinate for another", int8x4_to_nchw, "c, n = rest % push[X + C], rest // push[X + C]",
        "n, c = rest % push[X + 3], rest // push[X + 3]"),
    kernel("one coordinate for another", int8x4_to_nchw, "w, rest = rest % push[X + W], rest // push[X + W]\n"
        "            h, rest = rest % push[X + H], rest // push[X + H]\n"
        "            c, n = rest % push[X + C], rest // push[X + C]",
        "c, rest = rest % push[X + C], rest // push[X + C]\n"
        "            w, rest = rest % push[X + W], rest // push[X + W]\n"
        "            h, n = rest % push[X + H], rest // push[X + H]"),
    kernel("one coordinate for another", int8x4_to_nchw, "rest = 4 * i + k\n"
        "            w, rest = rest % push[X + W], rest // push[X + W]",
        "rest = 4 * i\n            w, rest = rest % push[X + W] + k, rest // push[X + W]"),
    kernel("address", q8ta_pixel_shuffle, "source = kc * r * r", "source = c * r * r + kc - c"),
    kernel("address", q8ta_pixel_shuffle, "kh // r, source, n)", "kh // r, source - kw % r, n) + kw % r"),
    kernel("address", q8ta_linear, "index.word_idx(push, X, x_hash, 0, h, c, n)",
        "index.word_idx(push, X, x_hash, 0, row, 0, 0)"),
    # wrong terms in the sum
    line("stride or dilation", "q8ta_conv2d_dw", conv, "tap_place", "j * push[DILATION_W]", "j * push[DILATION_H]"),
    pushed("stride or dilation", "q8ta_conv2d_general", "stride and dilation exchanged",
        STRIDE_H=lambda p: p["DILATION_H"], STRIDE_W=lambda p: p["DILATION_W"],
        DILATION_H=lambda p: p["STRIDE_H"], DILATION_W=lambda p: p["STRIDE_W"]),
    pushed("H and W exchanged", "q8ta_conv2d_general", "kernel_size exchanged", KERNEL_H=lambda p: p["KERNEL_W"],
        KERNEL_W=lambda p: p["KERNEL_H"]),
    pushed("padding offset", "q8ta_conv2d_dw", "padding taken as 0", PADDING_H=lambda p: 0, PADDING_W=lambda p: 0),
    line("edge of the input", "q8ta_conv2d_dw", conv, "tap_place", "(ih < push[X + H])", "(ih <= push[X + H])"),
    line("edge of the input", "q8ta_conv2d_dw", conv, "tap_place", "(iw < push[X + W])", "(iw < push[X + W] - 1)"),
    line("edge of the input", "q8ta_im2col", conv, "tap_place", "return iw, ih, (ih >= 0) & (ih < push[X + H])",
        "return min(max(iw, 0), push[X + W] - 1), min(max(ih, 0), push[X + H] - 1), (0 >= 0) | (ih < push[X + H])"),
    line("stride or dilation", "q8ta_conv2d_general", conv, "tap_place",
        "oh * push[STRIDE_H] - push[PADDING_H] + i * push[DILATION_H]\n"
        "    iw = ow * push[STRIDE_W] - push[PADDING_W]",
        "(oh - push[PADDING_H]) * push[STRIDE_H] + i * push[DILATION_H]\n"
        "    iw = (ow - push[PADDING_W]) * push[STRIDE_W]"),
    kernel("edge of the input", embedding_q4gsw, "row = indices[number]",
        "row = min(max(indices[number], 0), push[TABLE_ROWS] - 1)"),
    kernel("group ignored", q8ta_conv2d_general, "4 * group * push[IC4], n) if hit", "0, n) if hit"),
    kernel("reduction too short", q8ta_conv2d_pw, "push[IC4], x_words", "push[IC4] - 1, x_words"),
    line("reduction too short", "q8ta_linear", gemm, "products", "words - stage)", "(words - stage) // 2 * 2)"),
    line("words along K exchanged", "q8ta_linear", gemm, "products", "k4 = stage + k1", "k4 = k1"),
    line("words along K exchanged", "q8ta_conv2d_pw", gemm, "products", "x_words[source + k4", "x_words[source + k1"),
    kernel("reduction too short", q8ta_linear_gemv, "range(push[K4])", "range(push[K4] - 1)"),
    line("lanes exchanged", "q8ta_linear", lanes, "dot4", "lane(a, 0) * lane(b, 0)", "lane(a, 1) * lane(b, 0)"),
    line("weights of other channels", "q8ta_linear", lanes, "add_dot4", "dot4(word, w0), acc[1]",
        "dot4(word, w1), acc[1]"),
    kernel("weights in another order", q8ta_conv2d_transposed, "i * push[KERNEL_W] + j",
        "i * push[KERNEL_W] + push[KERNEL_W] - 1 - j"),
    line("input read at a neighbour", "q8ta_linear", gemm, "products", "k4 * k_step]", "k4 * k_step + 1]"),
    line("sums of 16 bits", "q8ta_linear", epilogue, "out_word", "total, wsum, weight_scale = acc[k]",
        "total, wsum, weight_scale = min(max(acc[k], -32768), 32767)"),
    kernel("sums begun anew", q8ta_linear_gemv, "range(push[K4])", "range(push[K4] - 1, push[K4])"),
    kernel("sums not reset", linear_dq8ca_q4gsw, "acc = 0", "acc = 0 if g == 0 else acc"),
    line("unsigned lanes", "q8ta_linear", lanes, "dot4", "lane(a, 3) * lane(b, 3)",
        "(lane(a, 3) & 255) * lane(b, 3)"),
    kernel("sums not reset", q8ta_conv2d_dw, "for i in range(push[KERNEL_H]):",
        "for ow, i in [(q, k) for q in range(left, ow + 1) for k in range(push[KERNEL_H])]:"),
    # wrong constants and zero points
    line("zero point not folded", "q8ta_conv2d_pw", epilogue, "int_real", "acc - np.int64(in_zp) * wsum", "acc"),
    line("zero point folded twice", "q8ta_linear", epilogue, "int_real", "acc - np.int64(in_zp) * wsum",
        "acc - 2 * np.int64(in_zp) * wsum"),
    pushed("order of the epilogue", "q8ta_pixel_shuffle", "the zero point taken off in steps of the output",
        IN_ZP=lambda p: 0, ZP=lambda p: p["ZP"] - p["IN_ZP"]),
    kernel("order of the epilogue", q8ta_add, "q = requant_added(total, inv, push[ZP], push[FLAGS])",
        "q = min(max(int(np.rint(f32(lane(word_a, k) - push[A_ZP]) * a_scale * inv) + np.rint("
        "f32(lane(word_b, k) - push[B_ZP]) * b_scale * alpha * inv)) + push[ZP], -128), 127)"),
    line("order of the epilogue", "q8ta_add", q8ta_add, "_sum", "f32(qb - b_zp) * b_scale",
        "f32(qb) * b_scale - f32(b_zp) * a_scale"),
    line("order of the epilogue", "q8ta_conv2d_general", epilogue, "float_epilogue",
        "_scaled(t, weight_scale * in_scale, bias, flags)",
        "_scaled(f32(acc), weight_scale * in_scale, bias, flags) - f32(wsum) * f32(in_zp) * in_scale"),
    pushed("zero point one off", "q8ta_linear", "the input's zero point one too large",
        IN_ZP=lambda p: p["IN_ZP"] + 1),
    words("weight sums over the wrong dimension", "q8ta_linear", "weight sums over the outputs",
        weight_sums=_over_outputs),
    kernel("border padded with 0", q8ta_im2col, "splat(push[IN_ZP])", "0", "q8ta_conv2d_im2col"),
    words("channel constants misplaced", "q8ta_linear", "weight sums of the neighbour channel",
        weight_sums=lambda held, _: np.roll(held, -1)),
    line("channel constants misplaced", "q8ta_linear", epilogue, "out_word", "sums[oc + k]", "sums[oc + k + 1]"),
    words("bias left out", "q8ta_linear", "the bias left out", bias=_zeros),
    line("bias left out", "linear_q8ta_q8csw", epilogue, "_scaled", "if flags & HAS_BIAS", "if False"),
    line("bias changed", "q8ta_linear", epilogue, "int_real", "weight_scale * in_scale, bias, flags)",
        "weight_scale * in_scale, bias * in_scale, flags)"),
    kernel("another tensor's quantization", q8ta_add, "push[B_ZP]", "push[A_ZP]"),
    line("another tensor's quantization", "q8ta_add", q8ta_add, "_sum", "qb - b_zp", "qb - a_zp"),
    pushed("known defect of upstream", "q8ta_add", "alpha taken as 1", ALPHA=lambda p: 0x3F800000),
    kernel("operands exchanged", q8ta_add, "b[index.word_idx(push, B, b_hash", "a[index.word_idx(push, B, b_hash"),
    line("scale changed", "q8ta_linear", epilogue, "int_real", "weight_scale * in_scale", "weight_scale"),
    # what the host launches and lays out
    hosted("weights in another order", "q8ta_conv2d_general", epilogue, "pack_weight", "transpose(1, 2, 0)",
        "transpose(2, 1, 0)"),
    hosted("reduction too short", "linear_dq8ca_q4gsw", linear_dq8ca_q4gsw, "launch", "K4=k // 4", "K4=k // 8"),
    hosted("scale changed", "q8ta_quantize", qmath, "inv_scale", "np.float32(1.0) / np", "np.float32(2.0) / np"),
    hosted("last tile missing", "q8ta_add", elementwise, "tiled", "-(-c // along_c)", "c // along_c"),
    # rounding and ranges
    line("order of the epilogue", "q8ta_add", q8ta_add, "_sum", "f32(qb - b_zp) * b_scale",
        "f32(qb) * b_scale - f32(b_zp) * b_scale"),
    kernel("order of the epilogue", q8ta_dequantize, "f32(lane(x_words[at // 4], at % 4) - push[ZP]) * scale",
        "f32(lane(x_words[at // 4], at % 4)) * scale - f32(push[ZP]) * scale"),
    kernel("order of the epilogue", q8ta_dequantize, "f32(lane(x_words[at // 4], at % 4) - push[ZP]) * scale",
        "f32(lane(x_words[at // 4], at % 4)) * scale - f32(push[ZP])"),
    line("order of the epilogue", "q8ta_linear", epilogue, "_scaled", "mul_add(t, scale, bias, flags)",
        "(t + bias) * scale"),
    line("order of the epilogue", "q8ta_linear", epilogue, "int_real", "_scaled(t, ",
        "-f32(in_zp * wsum) + _scaled(f32(acc), "),
    line("no clamp", "q8ta_add", qmath, "to_int8", *CLAMPED),
    line("no clamp", "q8ta_relu", qmath, "to_int8", *CLAMPED),
    line("no clamp", "q8ta_quantize", qmath, "to_int8", *CLAMPED),
    line("conversion out of range", "q8ta_quantize", qmath, "to_int32",
        "(flags >> CONVERT_SHIFT) & CONVERT_MASK == 1", "True"),
    line("clamp order", "q8ta_quantize", qmath, "to_int8", "np.int32(clamp(whole + zp, QMIN, QMAX))",
        "np.int32(clamp(whole, QMIN, QMAX) + zp)"),
    line("clamp bounds", "q8ta_quantize", qmath, "to_int8", "clamp(whole + zp, QMIN, QMAX)",
        "clamp(whole + zp, QMIN, QMAX - 1)"),
    line("relu dropped or added", "q8ta_relu", q8ta_relu, "_relu", "np.float32(0.0))", "np.float32(-1e30))"),
    line("relu bound", "q8ta_relu", q8ta_relu, "_relu", "np.float32(0.0))", "-f32(in_zp) * in_scale)"),
    line("relu bound", "q8ta_relu", q8ta_relu, "_relu", "np.maximum(f32(q - in_zp) * in_scale, np.float32(0.0))",
        "np.minimum(np.maximum(f32(q - in_zp) * in_scale, np.float32(0.0)), np.float32(6.0))"),
    kernel("relu bound", q8ta_relu, "real = _relu", "if lane(source, k) <= push[IN_ZP]:\n"
        "                    continue\n                real = _relu"),
    line("tie rule", "q8ta_quantize", qmath, "round_half", "return np.rint(y)",
        "return np.floor(y + np.float32(0.5))"),
    line("tie rule", "q8ta_quantize", qmath, "round_half", "return np.rint(y)",
        "return np.copysign(np.floor(abs(y) + np.float32(0.5)), y)"),
    line("tie rule", "q8ta_quantize", qmath, "to_int8", "clamp(whole + zp, QMIN, QMAX)",
        "clamp(int(np.rint(y + np.float32(zp))), QMIN, QMAX)"),
    line("truncation", "q8ta_quantize", qmath, "round_half", "return np.rint(y)", "return np.trunc(y)"),
    line("truncation", "q8ta_quantize", qmath, "round_half", "return np.rint(y)",
        "return np.trunc(y + np.float32(0.5))"),
    line("fused multiply-add", "q8ta_add", qmath, "mul_add", "return a * b + c", "return fused(a, b, c)"),
    # 4-bit weights in groups
    line("nibbles read wrong", "linear_q4gsw", int4, "nibble", "- 8", "- 7"),
    line("weights laid out for another kernel", "embedding_q4gsw", int4, "halves_place",
        "row % 4, 8 * (k % 4) + row % 8 // 4 * 4", "row % 8 // 2, 8 * (k % 4) + row % 2 * 4"),
    kernel("weights laid out for another kernel", embedding_q4gsw, "halves_place(row, d,",
        "halves_place(row ^ 4, d,"),
    kernel("scale of another group", linear_q4gsw, "k4 // push[GROUP4]", "0"),
    hosted("order of float sums", "linear_q4gsw", linear_q4gsw, "lanes_of",
        "else next(lanes for most, lanes in TREES if out <= most)", "else 1"),
    line("order of float sums", "linear_q4gsw", group_linear, "tree_sum", "sums[t] + sums[t + half]",
        "sums[2 * t] + sums[2 * t + 1]"),
    kernel("zero point of rows", linear_dq8ca_q4gsw, "acc -= zero * sums", "acc -= 0 * sums"),
    words("scale of rows", "linear_dq8ca_q4gsw", "the scale of the row before", scale=lambda held,
        _: np.append(0, held[:-1])),
    kernel("scale of another group", embedding_q4gsw, "row * groups + d // group", "row * groups"),
    kernel("channel constants misplaced", linear_dq8ca_q4gsw, "sums[g * padded", "sums[g * outputs"),
    kernel("lanes exchanged", int8x4_to_nchw, "x_words[at // 4], at % 4", "x_words[at // 4], k"),
    line("range of rows", "choose_qparams_affine", row_range, "row_range", "range(row * k, row * k + k)",
         "range(row * k, row * k + k - 1)"),
    line("relu bound", "q8ta_linear", epilogue, "int_epilogue",
        "int_real(acc, wsum, in_zp, weight_scale, in_scale, bias, flags), inv, zp, flags)",
        "np.maximum(int_real(acc, wsum, in_zp, weight_scale, in_scale, f32(0), flags), f32(0)) "
        "+ (bias if flags & HAS_BIAS else f32(0)), inv, zp, flags & ~RELU) if flags & RELU else _finish("
        "int_real(acc, wsum, in_zp, weight_scale, in_scale, bias, flags), inv, zp, flags)"),
)  # fmt: skip

#: Edits that any convolution takes; several tests need them.
UNFOLDED = words("zero point not folded", CONV.op, "weight sums of 0", weight_sums=_zeros)
FOLDED_TWICE = words(
    "zero point folded twice", CONV.op, "weight sums doubled", weight_sums=lambda held, _: 2 * held
)
EXCHANGED = pushed(
    "H and W exchanged", CONV.op, "the window's pairs exchanged",
    **{f"{pair}_{a}": lambda p, other=f"{pair}_{b}": p[other] for pair in PAIRS for a, b in ("HW", "WH")},
)  # fmt: skip
UNBORDERED = kernel("border padded with 0", q8ta_conv2d_general, "splat(push[IN_ZP])", "0")
TRUNCATED = line("truncation", CONV.op, qmath, "round_half", "return np.rint(y)", "return np.trunc(y)")
UNSIGNED = words("unsigned lanes", CONV.op, "x", weight=lambda held, _: held ^ np.int32(-2139062144))
