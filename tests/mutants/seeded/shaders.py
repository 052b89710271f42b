"""Bugs seeded into the shaders, into what they are launched with, and into the Kompute executor; run on lavapipe.

What the host computes for both executors alike, constants and launches, is seeded once: `shared` names those mutants of
emulated.py, which run here again.
"""

# ruff: noqa: E501  (anchors are quoted as they stand in the sources)

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mutants.mutant import Mutant, seeded
from mutants.seeded import emulated
from mutants.seeded.emulated import DW, GENERAL, IM2COL, PW, RELU
from mutants.seeded.subjects import elementwise, epilogues, first_kernel, occurs, routes, short, windows
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import OpSpec

_S, _I = "shaders/", "shaders/include/"
_INDEX, _LANES, _QMATH, _EPILOGUE = (
    _I + "index.glsl",
    _I + "lanes.glsl",
    _I + "qmath.glsl",
    _I + "epilogue.glsl",
)
_CHANNELS = _I + "channels.glsl"
_CONV, _GEMM, _DOT = _I + "conv_gemm.glsl", _I + "gemm.glsl", _I + "dot.glsl"
_ADD, _RELU, _CLONE, _SHUFFLE = (
    _S + f"q8ta_{name}.comp" for name in ("add", "relu", "clone", "pixel_shuffle")
)
_DWISE, _POINT, _GENERIC = (_S + f"q8ta_conv2d_{name}.comp" for name in ("dw", "pw", "general"))
_COLUMNS = _S + "q8ta_im2col.comp"
_LINEAR, _GEMV = _S + "q8ta_linear.comp", _S + "q8ta_linear_gemv.comp"
_PIPELINES = "gpu/pipelines.py"

_CLAMP = "clamp(y, vec4(low), vec4(high))"
_ROUND = f"precise vec4 shifted = {_CLAMP}"
_HIGHEST = "return to_int8x4(y, low, float(127 - zp), zp);"
_CLAMPED = f"vec4 c = {_CLAMP};\n    precise vec4 shifted ="
_AWAY = f"{_CLAMPED} (trunc(c) + sign(c) * vec4(greaterThanEqual(abs(c - trunc(c)), vec4(0.5))))"
_UP = f"{_CLAMPED} (floor(c) + vec4(greaterThanEqual(c - floor(c), vec4(0.5))))"
_CUT = f"{_CLAMPED} trunc(c)"
_BYTES = "return all - (0x4B400000 - zp - 128) * 0x01010101 ^ int(0x80808080u);"
_WRAPPED = "ivec4 q = {} & 255; return q.x | q.y << 8 | q.z << 16 | q.w << 24;"
_CLAMPED_EARLY = (
    (_QMATH, "relu ? 0.0 : float(-128 - zp)", "relu ? 0.0 : -128.0"),
    (_QMATH, "float(127 - zp)", "127.0"),
    (
        _QMATH,
        "(flags >> 16 & 255) - 128 - zp, high = 127 - (flags >> 24 & 255) - zp",
        "(flags >> 16 & 255) - 128, high = 127 - (flags >> 24 & 255)",
    ),
)
# lavapipe's fma() rounds twice: one rounding is spelled out in binary64, in which the product is exact
_FUSED = (_QMATH, "precise vec4 total = product + c;", "vec4 total = vec4(dvec4(a) * dvec4(b) + dvec4(c));")


gpu = seeded("gpu", "gpu")

#: Mutants of emulated.py whose edits are in what the host computes for any executor.
_HOST = (
    "P1-dw", "P1-rows", "P2-tail", "P3-weight", "P3-tile", "P4-weight", "I2-exchanged", "I3-stride", "I3-padding",
    "I3-kernel", "I3-all", "I4-add", *(f"I1-{op.name}" for op in routes(OPS.values())),
)  # fmt: skip


def shared() -> tuple[Mutant, ...]:
    found = {mutant.id.removeprefix("cpu-"): mutant for mutant in emulated.MUTANTS}
    return tuple(replace(found[name], id=f"gpu-{name}", executor="gpu") for name in _HOST)


# fmt: off
def derived(ops: Iterable[OpSpec]) -> tuple[Mutant, ...]:
    """Bugs that follow from what operators say about themselves."""
    ops = tuple(ops)
    cleared, border = "    clear_padding(tile, to, 0);\n", "splat(push[IN_ZP])"
    return (
        *(gpu(f"P6-{short(op)}", "P6", op.name, "padding leaked", (file, cleared, ""))
          for op in elementwise(ops) if occurs(file := f"{_S}{op.name}.comp", cleared)),
        *(gpu(f"N2-{short(op)}", "N2", op.name, "border padded with 0", (file, border, "0"))
          for op in windows(ops) if occurs(file := f"{_S}{first_kernel(op)}.comp", border)),
        *(gpu(f"N6-{short(op)}", "N6", op.name, "fused multiply-add", _FUSED) for op in epilogues(ops)),
    )


MUTANTS: tuple[Mutant, ...] = (
    *shared(),
    *derived(OPS.values()),
    # --- constants ---------------------------------------------------------------------------------------
    # a read past the end gives the last channel's constants again, as a device with bounds checks may do
    gpu("P2-conv", "P2", GENERAL, "padding leaked",
        (_EPILOGUE, "first_lanes(full_word(integer, acc, of), channels - oc, splat(push[ZP]))", "full_word(integer, acc, of)"),
        (_CHANNELS, "return Channels(sums[at], combined, has_bias ? intBitsToFloat(bias[at]) : vec4(0.0));",
         "vec4 b = has_bias ? intBitsToFloat(bias[at]) : vec4(0.0);\n"
         "    ivec4 i = min(ivec4(0, 1, 2, 3), push[OUT + C] - 1 - oc), s = sums[at];\n"
         "    vec4 each = vec4(combined[i.x], combined[i.y], combined[i.z], combined[i.w]);\n"
         "    return Channels(ivec4(s[i.x], s[i.y], s[i.z], s[i.w]), each, vec4(b[i.x], b[i.y], b[i.z], b[i.w]));")),
    # --- addresses ---------------------------------------------------------------------------------------
    gpu("P3-block", "P3", "int8x4_to_nchw", "block transposed",
        (_INDEX, "int(outer) * inner_block(hashed) + int(inner)", "int(inner) * outer_block(hashed) + int(outer)")),
    gpu("P3-layout", "P3", RELU, "another layout's strides", (_RELU, "walk(X, X_HASH, origin)", "walk(X, OUT_HASH, origin)")),
    gpu("P4-read", "P4", RELU, "byte order", (_LANES, "bitfieldExtract(word, 8 * k, 8)", "bitfieldExtract(word, 24 - 8 * k, 8)")),
    gpu("P4-write", "P4", GENERAL, "byte order",
        (_QMATH, "digit.x + (digit.y + (digit.z + (digit.w << 8) << 8) << 8)", "digit.w + (digit.z + (digit.y + (digit.x << 8) << 8) << 8)")),
    gpu("P4-rotated", "P4", "q8ta_clone", "lanes rotated",
        (_CLONE, "    turn(tile, X_HASH, OUT_HASH);\n", "    turn(tile, X_HASH, OUT_HASH);\n    for (int v = 0; v < 4; ++v) tile[v] = tile[v] << 8 | tile[v] >> 24 & 255;\n")),
    gpu("P5-add", "P5", "q8ta_add", "unsigned lanes", (_LANES, "bitfieldExtract(word, 8 * k, 8)", "word >> (8 * k) & 255")),
    gpu("P5-dequantize", "P5", "q8ta_dequantize", "unsigned lanes", (_LANES, "bitfieldExtract(word, 8 * k, 8)", "word >> (8 * k) & 255")),
    gpu("P6-conv", "P6", GENERAL, "padding leaked", (_EPILOGUE, "splat(push[ZP])", "0")),
    gpu("P6-quantize", "P6", "q8ta_quantize", "padding leaked", (_S + "q8ta_quantize.comp", "splat(push[ZP])", "0")),
    gpu("P7-write", "P7", GENERAL, "batch ignored", (_CONV, "4 * channel_word, at.z)", "4 * channel_word, 0)")),
    gpu("P7-read", "P7", PW, "batch ignored", (_POINT, "push[IC4], at.z)", "push[IC4], 0)")),
    gpu("P7-operand", "P7", "q8ta_add", "batch ignored", (_ADD, "walk(B, B_HASH, origin)", "walk(B, B_HASH, ivec4(origin.xyz, 0))")),
    gpu("P7-row", "P7", "q8ta_linear", "batch ignored", (_LINEAR, "ivec4(4 * word, at)", "ivec4(4 * word, at.xy, 0)")),
    # --- launches and windows ----------------------------------------------------------------------------
    gpu("I2-half", "I2", DW, "stride or dilation", (_DWISE, "(first + t) * push[STRIDE_W]", "(first + t) * push[STRIDE_H]")),
    gpu("I2-dilation", "I2", IM2COL, "stride or dilation", (_COLUMNS, "tap / push[KERNEL_W] * push[DILATION_H]", "tap / push[KERNEL_W]")),
    gpu("I3-taps", "I3", GENERAL, ("H and W exchanged", "weights in another order"),
        (_GENERIC, "tap.x = int(number % uint(push[KERNEL_W]))", "tap.x = int(number % uint(push[KERNEL_H]))"),
        (_GENERIC, "tap.y = int(number / uint(push[KERNEL_W]))", "tap.y = int(number / uint(push[KERNEL_H]))")),
    gpu("I3-shuffle", "I3", "q8ta_pixel_shuffle", "H and W exchanged",
        (_SHUFFLE, "ivec4(left[2 * r], left[2 * r + 1], right[2 * r], right[2 * r + 1])", "ivec4(left[r], left[r + 2], right[r], right[r + 2])"),
        (_SHUFFLE, "R + place.y) * R + place.x", "R + place.x) * R + place.y")),
    gpu("I5-add", "I5", "q8ta_add", "stale constant",
        (_PIPELINES, "push = (*launch.push,", "push = padded_push.__dict__.setdefault((launch.shader, launch.global_size), launch.push)\n    push = (*push,"), twin="before"),
    gpu("I5-conv", "I5", GENERAL, "stale constant",
        (_PIPELINES, "push = (*launch.push,", "push = padded_push.__dict__.setdefault((launch.shader, launch.global_size), launch.push)\n    push = (*push,"), twin="before"),
    gpu("I6-conv", "I6", GENERAL, ("write out of bounds", "behind the buffer"), (_CONV, "result[word_idx(OUT, OUT_HASH, p)]", "result[word_idx(OUT, OUT_HASH, p) + 1]")),
    gpu("I6-linear", "I6", "q8ta_linear", ("write out of bounds", "before the buffer"), (_LINEAR, "result[word_idx(OUT, OUT_HASH, ", "result[-1 + word_idx(OUT, OUT_HASH, ")),
    # --- numerics ----------------------------------------------------------------------------------------
    gpu("N1-away", "N1", GENERAL, "tie rule", (_QMATH, _ROUND, _AWAY)),
    gpu("N1-up", "N1", "q8ta_add", "tie rule", (_QMATH, _ROUND, _UP)),
    gpu("N1-truncated", "N1", "q8ta_linear", "truncation", (_QMATH, _ROUND, _CUT)),
    gpu("N1-quantize", "N1", "q8ta_quantize", "tie rule", (_QMATH, _ROUND, _AWAY)),
    gpu("N2-window", "N2", DW, "border padded with 0", (_DWISE, "hit ? x[column[j] + row] : border", "hit ? x[column[j] + row] : 0"), (_DWISE, "w0 + j + l < push[X + W] ? four[l] : border", "w0 + j + l < push[X + W] ? four[l] : 0"), (_DWISE, ": ivec4(border)", ": ivec4(0)"), variants=True),
    gpu("N3-missing", "N3", "q8ta_linear", "zero point not folded", (_EPILOGUE, "acc - in_zp * of.sums", "acc")),
    gpu("N3-twice", "N3", IM2COL, "zero point folded twice", (_EPILOGUE, "acc - in_zp * of.sums", "acc - 2 * in_zp * of.sums")),
    gpu("N3-float", "N3", DW, "zero point not folded", (_EPILOGUE, "mul_add4(-vec4(of.sums), vec4(float(in_zp)), vec4(acc))", "vec4(acc)")),
    gpu("N3-added", "N3", GENERAL, "zero point folded twice", (_EPILOGUE, "mul_add4(-vec4(of.sums)", "mul_add4(vec4(of.sums)")),
    gpu("N3-operand", "N3", "q8ta_add", "zero point not folded", (_ADD, "push[B_ZP]", "0")),
    gpu("N3-output", "N3", RELU, "zero point not folded", (_QMATH, _HIGHEST, f"zp = 0;\n    {_HIGHEST}")),
    gpu("N4-wraps", "N4", "q8ta_linear", "clamp order", *_CLAMPED_EARLY, (_QMATH, _BYTES, _WRAPPED.format("digit - 0x4B400000 + zp"))),
    gpu("N4-again", "N4", "q8ta_add", "clamp order", *_CLAMPED_EARLY, (_QMATH, _BYTES, _WRAPPED.format("clamp(digit - 0x4B400000 + zp, -128, 127)"))),
    gpu("N5-conv", "N5", GENERAL, "relu bound", (_QMATH, "relu ? max(low, 0)", "relu ? max(low, -zp)")),
    gpu("N5-relu", "N5", RELU, "relu bound", (_RELU, "lanes_of(source)", "max(lanes_of(source), 0)"), (_RELU, "lowest(push[ZP], true)", "lowest(push[ZP], false)")),
    gpu("N5-dropped", "N5", "q8ta_linear", "relu dropped or added", (_EPILOGUE, "(push[FLAGS] & RELU) != 0", "false")),
    gpu("N6-instruction", "N6", "q8ta_add", "could be fused", (_QMATH, _FUSED[1], "vec4 total = fma(a, b, c);")),
    gpu("N7-add", "N7", "q8ta_add", ("known defect of upstream", "alpha ignored"), (_ADD, "push_float(ALPHA) * addend", "1.0 * addend")),
    # 4452 = OpSUDot: the second operand is unsigned
    gpu("N8-weights", "N8", "q8ta_linear", "unsigned lanes", (_DOT, "id = 4450", "id = 4452")),
    gpu("N8-data", "N8", PW, "unsigned lanes", (_DOT, "id = 4450", "id = 4452"), (_DOT, "refsim_op_sdot(a, b, 0)", "refsim_op_sdot(b, a, 0)")),
    # --- order of work -----------------------------------------------------------------------------------
    gpu("S1-reduction", "S1", "q8ta_linear_gemv", "reduction too short", (_GEMV, "barrier();\n        ivec4 sum", "ivec4 sum")),
    gpu("S1-scratch", "S1", IM2COL, "stale or foreign buffer",
        ("gpu/calls.py", "for launch, inputs, output in call.launches:", "for launch, inputs, output in reversed(call.launches):")),
    gpu("S2-partial", "S2", "q8ta_linear_gemv", "reduction too short", (_GEMV, "u < FANIN; ++u) sum", "u < FANIN - 1; ++u) sum")),
    gpu("S2-stage", "S2", "q8ta_linear", "reduction too short", (_GEMM, "for (uint k1 = 0; k1 < STAGE; ++k1)", "for (uint k1 = 0; k1 < STAGE - 1; ++k1)")),
    gpu("S2-rest", "S2", PW, "reduction too short", (_GEMM, "k1 < uint(all_k - k0)", "k1 + 1 < uint(all_k - k0)")),
    gpu("S2-word", "S2", GENERAL, "reduction too short", (_GENERIC, "push[KERNEL_W] * push[IC4]; }", "push[KERNEL_W] * push[IC4] - 1; }")),
)
# fmt: on
