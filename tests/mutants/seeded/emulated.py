"""Bugs seeded into the emulated kernels, the launches and the CPU executor."""

# ruff: noqa: E501  (anchors are quoted as they stand in the sources)

from __future__ import annotations

from collections.abc import Iterable

from mutants.mutant import Mutant, seeded
from mutants.seeded.subjects import elementwise, epilogues, first_kernel, occurs, routes, short, windows
from refsim.ops.base.registry import OPS, kernel_of
from refsim.ops.base.spec import OpSpec

GENERAL, DW, PW, IM2COL = "q8ta_conv2d_general", "q8ta_conv2d_dw", "q8ta_conv2d_pw", "q8ta_conv2d_im2col"
RELU = "q8ta_relu"

_OPS = "refsim/ops/"
_LAUNCH = "refsim/core/launch.py"
_INDEX, _LANES, _QMATH = "refsim/core/index.py", "refsim/core/lanes.py", "refsim/core/qmath.py"
_EPILOGUE, _CONV, _EMULATED = _OPS + "base/epilogue.py", _OPS + "base/conv.py", "refsim/exec/emulated.py"
_GENERAL, _DW, _PW = _OPS + "q8ta_conv2d_general.py", _OPS + "q8ta_conv2d_dw.py", _OPS + "q8ta_conv2d_pw.py"
_HEAD = _OPS + "linear_q8ta_q8csw_tiled.py"
_ADD, _RELU, _CLONE = _OPS + "q8ta_add.py", f"{_OPS}{RELU}.py", _OPS + "q8ta_clone.py"


cpu = seeded("cpu", "cpu:emulated")


# fmt: off
def derived(ops: Iterable[OpSpec]) -> tuple[Mutant, ...]:
    """Bugs that follow from what operators say about themselves."""
    ops = tuple(ops)
    masked, border = "for k in range(lanes):", "splat(push[IN_ZP])"
    return (
        *(cpu(f"P6-{short(op)}", "P6", op.name, ("padding leaked",),
            (file, masked, "for k in range(4):"))
          for op in elementwise(ops) if occurs(file := f"{_OPS}{op.name}.py", masked)),
        *(cpu(f"I1-{op.name}", "I1", op.name, ("last tile missing",),
            (_LAUNCH, "                -(-extent // (local * tile))\n", "                max(1, extent // (local * tile))\n"))
          for op in routes(ops)),
        *(cpu(f"N2-{op.name}", "N2", op.name, ("border padded with 0",), (file, border, "splat(0)"))
          for op in windows(ops) if occurs(file := f"{_OPS}{first_kernel(op)}.py", border)),
        *(cpu(f"N6-{op.name}", "N6", op.name, ("fused multiply-add",),
            (_QMATH, "    if flags & CONTRACT:\n        return fused", "    if True:\n        return fused"))
          for op in epilogues(ops)),
    )


def _stale(op: str, first: str) -> tuple[tuple[str, str, str], ...]:
    """The push words from one on are those of the call before."""
    at = kernel_of(op).push.at[first]
    return (
        (_EMULATED, "        given = (z, y, x), spec, push,",
             f"        push[{at}:] = _FIRST.setdefault((launch.shader, launch.global_size), push[{at}:].copy())\n"
             "        given = (z, y, x), spec, push,"),
        (_EMULATED, "class EmulatedExecutor(Executor):", "_FIRST: dict = {}\n\n\nclass EmulatedExecutor(Executor):"),
    )


MUTANTS: tuple[Mutant, ...] = (
    *derived(OPS.values()),
    # --- constants ---------------------------------------------------------------------------------------
    cpu("P1-dw", "P1", DW, ("weight sums over the wrong dimension",),
        (_DW, "epilogue.per_channel(params, weight.sum((0, 1)),",
             "epilogue.per_channel(params, np.resize(weight.sum((1, 2)), channels),"), drawn=True),
    cpu("P1-rows", "P1", "q8ta_linear", ("weight sums over the wrong dimension",),
        (_EPILOGUE, "weight.astype(np.int64).sum(1), k, features",
             "np.resize(weight.astype(np.int64).sum(0), out), k, features"), drawn=True),
    cpu("P2-conv", "P2", GENERAL, ("padding leaked",),
        (_EPILOGUE, "if oc + k < channels:", "if True:"),
        (_EPILOGUE, "= acc[k], sums[oc + k], as_f32(scales[oc + k])",
             "= acc[k], sums[min(oc + k, channels - 1)], as_f32(scales[min(oc + k, channels - 1)])"),
        (_EPILOGUE, "as_f32(bias[min(oc + k, bias.size - 1)])", "as_f32(bias[min(oc + k, min(channels, bias.size) - 1)])")),
    cpu("P2-tail", "P2", "q8ta_linear", ("channel constants misplaced",),
        (_EPILOGUE, "padded[: len(values)] = values", "padded[: len(values) // 4 * 4] = values[: len(values) // 4 * 4]")),
    # --- addresses ---------------------------------------------------------------------------------------
    cpu("P3-block", "P3", "q8ta_clone", ("block transposed",),
        (_INDEX, "return outer % outer_block(hashed) * inner_block(hashed) + inner % inner_block(hashed)",
             "return inner % inner_block(hashed) * outer_block(hashed) + outer % outer_block(hashed)")),
    cpu("P3-weight", "P3", GENERAL, ("weights in another order", "block transposed"),
        (_EPILOGUE, "padded.view(np.int32).transpose(1, 2, 0)", "padded.view(np.int32).transpose(1, 0, 2)")),
    cpu("P3-tile", "P3", PW, ("block transposed",),
        (_EPILOGUE, "return np.ascontiguousarray(padded.view(np.int32).transpose(1, 2, 0)).reshape(-1)",
             "blocks = padded.reshape(align4(out) // 4, 4, taps, -1, 4).swapaxes(1, 4)\n"
             "    packed = np.ascontiguousarray(blocks).reshape(padded.shape).view(np.int32)\n"
             "    return np.ascontiguousarray(packed.transpose(1, 2, 0)).reshape(-1)")),
    cpu("P3-layout", "P3", RELU, ("another layout's strides",),
        (_RELU, "index.word_idx(push, X, x_hash, w, h, c, n)", "index.word_idx(push, X, out_hash, w, h, c, n)")),
    cpu("P4-read", "P4", RELU, ("byte order",),
        (_LANES, "return (((word >> (8 * k)) & 255) ^ 128) - 128", "return (((word >> (24 - 8 * k)) & 255) ^ 128) - 128")),
    cpu("P4-write", "P4", GENERAL, ("byte order",),
        (_LANES, "return word | (np.int64(q) & 255) << (8 * k)", "return word | (np.int64(q) & 255) << (24 - 8 * k)")),
    cpu("P4-weight", "P4", "q8ta_linear_gemv", ("byte order",),
        (_EPILOGUE, "padded.view(np.int32).transpose(1, 2, 0)", "padded.view(np.int32).byteswap().transpose(1, 2, 0)")),
    cpu("P4-rotated", "P4", "q8ta_clone", ("lanes rotated",),
        (_CLONE, "lane(x_words[at // 4], at % 4)", "lane(x_words[at // 4], (at + 1) % 4)")),
    cpu("P5-add", "P5", "q8ta_add", ("unsigned lanes",),
        (_LANES, "return (((word >> (8 * k)) & 255) ^ 128) - 128", "return (word >> (8 * k)) & 255")),
    cpu("P5-dequantize", "P5", "q8ta_dequantize", ("unsigned lanes",),
        (_LANES, "return (((word >> (8 * k)) & 255) ^ 128) - 128", "return (word >> (8 * k)) & 255")),
    cpu("P6-conv", "P6", GENERAL, ("padding leaked",), (_EPILOGUE, "        q = zp\n", "        q = 0\n")),
    cpu("P7-write", "P7", GENERAL, ("batch ignored",),
        (_GENERAL, "oc4 = group * push[OC4] + word", "oc4, n = group * push[OC4] + word, 0")),
    cpu("P7-read", "P7", PW, ("batch ignored",), (_PW, "4 * group * push[IC4], n)", "4 * group * push[IC4], 0)")),
    cpu("P7-operand", "P7", "q8ta_add", ("batch ignored",),
        (_ADD, "word_b = b[index.word_idx(push, B, b_hash, w, h, c, n)]", "word_b = b[index.word_idx(push, B, b_hash, w, h, c, 0)]")),
    cpu("P7-row", "P7", "q8ta_linear", ("batch ignored",),
        (_OPS + "q8ta_linear.py", "        source = index.word_idx(", "        n = 0\n        source = index.word_idx(")),
    # --- launches ----------------------------------------------------------------------------------------
    cpu("I2-exchanged", "I2", GENERAL, ("stride or dilation",),
        (_CONV, '"STRIDE": p.stride,', '"STRIDE": p.dilation,'),
        (_CONV, '"DILATION": p.dilation,', '"DILATION": p.stride,')),
    cpu("I2-half", "I2", DW, ("stride or dilation",), (_CONV, "iw = ow * push[STRIDE_W]", "iw = ow * push[STRIDE_H]")),
    cpu("I2-dilation", "I2", IM2COL, ("stride or dilation",),
        (_CONV, "- push[PADDING_H] + i * push[DILATION_H]", "- push[PADDING_H] + i")),
    cpu("I3-stride", "I3", GENERAL, ("H and W exchanged",),
        (_CONV, '"STRIDE": p.stride,', '"STRIDE": p.stride[::-1],')),
    cpu("I3-padding", "I3", DW, ("H and W exchanged",),
        (_CONV, '"PADDING": p.padding,', '"PADDING": p.padding[::-1],')),
    cpu("I3-kernel", "I3", GENERAL, ("H and W exchanged", "weights in another order"),
        (_CONV, '"KERNEL": p.kernel_size,', '"KERNEL": p.kernel_size[::-1],')),
    cpu("I3-all", "I3", "q8ta_conv2d_transposed", ("H and W exchanged",),
        (_CONV, '"KERNEL": p.kernel_size,', '"KERNEL": p.kernel_size[::-1],'),
        (_CONV, '"STRIDE": p.stride,', '"STRIDE": p.stride[::-1],'),
        (_CONV, '"PADDING": p.padding,', '"PADDING": p.padding[::-1],')),
    cpu("I3-shuffle", "I3", "q8ta_pixel_shuffle", ("H and W exchanged",),
        (_OPS + "q8ta_pixel_shuffle.py", "kc * r * r + kh % r * r + kw % r", "kc * r * r + kw % r * r + kh % r")),
    cpu("I4-add", "I4", "q8ta_add", ("nothing written", "grid outside the device's limits"),
        (_LAUNCH, "                -(-extent // (local * tile))\n", "                extent // (local * tile)\n")),
    cpu("I5-add", "I5", "q8ta_add", ("stale constant",), *_stale("q8ta_add", "A_SCALE"), twin="before"),
    cpu("I5-conv", "I5", GENERAL, ("stale constant",), *_stale(GENERAL, "IN_ZP"), twin="before"),
    cpu("I6-conv", "I6", GENERAL, ("write out of bounds", "behind the buffer"),
        (_GENERAL, "        to = index.word_idx(push, OUT, out_hash, ow, oh, 4 * oc4, n)\n",
             "        to = index.word_idx(push, OUT, out_hash, ow, oh, 4 * oc4, n)\n        if to == out.size - 1:\n            to += 1\n")),
    cpu("I6-linear", "I6", "q8ta_linear", ("write out of bounds", "behind the buffer", "before the buffer"),
        (_OPS + "q8ta_linear.py", "index.word_idx(push, OUT, out_hash, 4 * o4, h, c, n)", "index.word_idx(push, OUT, out_hash, 4 * o4, h, c, n) + 1")),
    # --- numerics ----------------------------------------------------------------------------------------
    cpu("N1-away", "N1", GENERAL, ("tie rule",),
        (_QMATH, "    return np.rint(y)\n", "    return np.trunc(y + np.copysign(np.float32(0.5), y))\n")),
    cpu("N1-up", "N1", "q8ta_add", ("tie rule",),
        (_QMATH, "    return np.rint(y)\n", "    return np.floor(y + np.float32(0.5))\n")),
    cpu("N1-truncated", "N1", "q8ta_linear", ("truncation",),
        (_QMATH, "    return np.rint(y)\n", "    return np.trunc(y)\n")),
    cpu("N1-quantize", "N1", "q8ta_quantize", ("tie rule",),
        (_QMATH, "    return np.rint(y)\n", "    return np.trunc(y + np.copysign(np.float32(0.5), y))\n")),
    cpu("N3-missing", "N3", "q8ta_linear", ("zero point not folded",),
        (_EPILOGUE, "acc - np.int64(in_zp) * wsum", "acc")),
    cpu("N3-twice", "N3", IM2COL, ("zero point folded twice",),
        (_EPILOGUE, "acc - np.int64(in_zp) * wsum", "acc - 2 * np.int64(in_zp) * wsum")),
    cpu("N3-head", "N3", "linear_q8ta_q8csw", ("zero point not folded",),
        (_EPILOGUE, "acc - np.int64(in_zp) * wsum", "acc")),
    # rows as whole texels, as upstream's kernel stores them in a buffer
    cpu("I6-head", "I6", "linear_q8ta_q8csw", ("rows apart",),
        (_HEAD, "            out[index.buf_idx(push, OUT, out_hash, oc, h, c, n)] = f32_bits(real)",
             "            if row * all_out + oc < out.size:\n                out[row * all_out + oc] = f32_bits(real)")),
    cpu("N3-float", "N3", DW, ("zero point not folded",),
        (_EPILOGUE, "t = mul_add(-f32(wsum), f32(in_zp), f32(acc), flags)", "t = f32(acc)")),
    cpu("N3-added", "N3", GENERAL, ("zero point folded twice",),
        (_EPILOGUE, "t = mul_add(-f32(wsum), f32(in_zp), f32(acc), flags)", "t = mul_add(f32(wsum), f32(in_zp), f32(acc), flags)")),
    cpu("N3-operand", "N3", "q8ta_add", ("zero point not folded",),
        (_ADD, "addend = f32(qb - b_zp) * b_scale", "addend = f32(qb) * b_scale")),
    cpu("N3-output", "N3", RELU, ("zero point not folded",),
        (_QMATH, "return np.int32(clamp(whole + zp, QMIN, QMAX))", "return np.int32(clamp(whole, QMIN, QMAX))")),
    cpu("N4-wraps", "N4", "q8ta_linear", ("clamp order",),
        (_QMATH, "return np.int32(clamp(whole + zp, QMIN, QMAX))", "return np.int32(clamp(whole, QMIN, QMAX) + zp)")),
    cpu("N4-again", "N4", "q8ta_add", ("clamp order",),
        (_QMATH, "return np.int32(clamp(whole + zp, QMIN, QMAX))",
             "return np.int32(clamp(clamp(whole, QMIN, QMAX) + zp, QMIN, QMAX))")),
    cpu("N5-conv", "N5", GENERAL, ("relu bound",),
        (_EPILOGUE, "        t = np.maximum(t, np.float32(0.0))\n", "        return max(requant_added(t, inv, zp, flags & 255), 0)\n")),
    cpu("N5-relu", "N5", RELU, ("relu bound",),
        (_RELU, "return np.maximum(f32(q - in_zp) * in_scale, np.float32(0.0))", "return f32(max(q, 0) - in_zp) * in_scale")),
    cpu("N5-dropped", "N5", "q8ta_linear", ("relu dropped or added",),
        (_EPILOGUE, "    if flags & RELU:\n        t =", "    if flags & RELU and False:\n        t =")),
    cpu("N7-add", "N7", "q8ta_add", ("known defect of upstream", "alpha ignored"),
        (_ADD, "        addend = alpha * addend\n", "        addend = addend * np.float32(1.0)\n")),
    cpu("N8-data", "N8", PW, ("unsigned lanes",),
        (_LANES, "        lane(a, 0) * lane(b, 0) + lane(a, 1) * lane(b, 1) + lane(a, 2) * lane(b, 2) + lane(a, 3) * lane(b, 3)\n",
             "        (a & 255) * lane(b, 0) + (a >> 8 & 255) * lane(b, 1) + (a >> 16 & 255) * lane(b, 2) + (a >> 24 & 255) * lane(b, 3)\n")),
    cpu("N8-weights", "N8", "q8ta_linear", ("unsigned lanes",),
        (_LANES, "        lane(a, 0) * lane(b, 0) + lane(a, 1) * lane(b, 1) + lane(a, 2) * lane(b, 2) + lane(a, 3) * lane(b, 3)\n",
             "        lane(a, 0) * (b & 255) + lane(a, 1) * (b >> 8 & 255) + lane(a, 2) * (b >> 16 & 255) + lane(a, 3) * (b >> 24 & 255)\n")),
    # --- order of work -----------------------------------------------------------------------------------
    cpu("S1-scratch", "S1", IM2COL, ("stale or foreign buffer",),
        ("refsim/exec/executor.py", "            buffers[step.output] = result.words\n",
             "            buffers[step.output] = result.words * 0 if step.output != \"out\" else result.words\n")),
    cpu("S2-linear", "S2", "q8ta_linear", ("reduction too short",),
        (_OPS + "q8ta_linear.py", "products((0, 0, 0, 0), push[K4],", "products((0, 0, 0, 0), push[K4] - 1,")),
    cpu("S2-pw", "S2", PW, ("reduction too short",),
        (_PW, "products((0, 0, 0, 0), push[IC4],", "products((0, 0, 0, 0), push[IC4] - 1,")),
    cpu("S2-lane", "S2", "q8ta_linear_gemv", ("reduction too short",),
        (_LANES, " + lane(a, 2) * lane(b, 2) + lane(a, 3) * lane(b, 3)", " + lane(a, 2) * lane(b, 2)")),
    cpu("S3-pool", "S3", RELU, ("stale or foreign buffer",),
        (_EMULATED, "        out = PackedBuffer(launch.out)\n",
             "        out = _POOL.setdefault(launch.out, PackedBuffer(launch.out))\n        out.words[:] = 0\n"),
        (_EMULATED, "class EmulatedExecutor(Executor):", "_POOL: dict = {}\n\n\nclass EmulatedExecutor(Executor):"), twin="after"),
)
# fmt: on
