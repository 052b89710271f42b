"""Seeded bugs in the kernels of glsl/: a line of a table each, and the causes that tell the truth about it.

An edit is a piece of text that occurs once in one source, and what stands there instead. It changes one module only:
the others of a folder stay right. Bugs that every kernel of ExecuTorch has (`Upstream.defects`) are not among them,
because nothing calls them wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from modules import build
from modules.seed import Seed
from refsim.exec.again import PACKED
from refsim.exec.reads import NAME


@dataclass(frozen=True)
class Bug(Seed):
    """A bug of a kernel in glsl/. ``module`` is the only one that is built with it."""

    module: str = ""

    def sources(self, folder: Path) -> Path:
        """A copy of glsl/ with the bug."""
        return self.sown(build.SOURCES, folder)

    def compiled(self, folder: Path) -> bytes:
        """The SPIR-V of the wrong module, by way of an empty scratch folder."""
        return build.compiled(build.MODULES[self.module], folder, sources=self.sources(folder / "glsl"))


def _of(module: str, op: str, file: str, *rows: tuple[str, str, str, tuple[str, ...] | str]) -> list[Bug]:
    """The bugs of one file as they show in one module: (id, text, what stands there instead, causes)."""
    return [
        Bug(id, op, file, anchor, replacement, (causes,) if isinstance(causes, str) else causes, module)
        for id, anchor, replacement, causes in rows
    ]


QUANTIZE, DEQUANTIZE = "q8ta_quantize_buffer_float", "q8ta_dequantize_buffer_float"
GENERAL, TRANSPOSED = "q8ta_conv2d_float", "q8ta_conv2d_transposed_float"
DEPTHWISE, POINTWISE = "q8ta_conv2d_dw_float", "q8ta_conv2d_pw_float"
LINEAR, GEMV = "q8ta_linear_float", "q8ta_linear_gemv_float"
BLOCKS, CONV, EPILOGUE = "include/blocks.glsl", "include/conv.glsl", "include/epilogue.glsl"
LANES, REQUANT, TENSOR = "include/lanes.glsl", "include/requant.glsl", "include/tensor.glsl"

NO_CLAMP = "int(clamp(roundEven(scaled), float(-128 - zp), float(127 - zp))) + zp"

BUGS: tuple[Bug, ...] = (
    # --- elementwise ---
    *_of(QUANTIZE, "q8ta_quantize", REQUANT,
        ("quantize-ties-away", "roundEven(scaled)", "sign(scaled) * floor(abs(scaled) + 0.5)", "tie rule"),
        ("quantize-uint8", "float(-128 - zp), float(127 - zp)", "float(-zp), float(255 - zp)", "clamp bounds"),
        ("quantize-half-up", "roundEven(scaled)", "floor(scaled + 0.5)", "tie rule"),
        ("quantize-no-clamp", NO_CLAMP, "int(roundEven(scaled)) + zp", "no clamp"),
    ),
    *_of(QUANTIZE, "q8ta_quantize", "q8ta_quantize.comp",
        ("quantize-rows-as-columns", "element_at(in_tensor, IN_LAYOUT, at)",
            "element_at(in_tensor, IN_LAYOUT, Coord(at.whcn.yxzw, at.beyond))", "H and W exchanged"),
    ),
    *_of("q8ta_quantize_texture3d_float", "q8ta_quantize", "include/texture.glsl",
        ("quantize-first-batch", "at[t.axis_map.w] += at.w * texels[t.axis_map.w];", "", "batch ignored"),
    ),
    *_of(DEQUANTIZE, "q8ta_dequantize", "q8ta_dequantize.comp",
        ("dequantize-no-zero-point", "byte_at % 4u), scale, zp)", "byte_at % 4u), scale, 0)",
            "zero point not folded"),
    ),
    *_of(DEQUANTIZE, "q8ta_dequantize", REQUANT,
        ("dequantize-products", "float(q - zp) * scale", "float(q) * scale - float(zp) * scale",
            "order of the epilogue"),
    ),
    *_of(DEQUANTIZE, "q8ta_dequantize", LANES,
        ("dequantize-uint8", "bitfieldExtract(word, int(8u * k), 8)",
            "int(bitfieldExtract(uint(word), int(8u * k), 8))", "unsigned lanes"),
    ),
    *_of("q8ta_add_buffer", "q8ta_add", "q8ta_add.comp",
        ("add-b-at-out", "word_at(b_tensor, B_LAYOUT, at)", "word_at(out_tensor, OUT_LAYOUT, at)",
            "another layout's strides"),
        ("add-zero-point-of-b", "real_value(qa, a_scale, a_zp)", "real_value(qa, a_scale, b_zp)",
            "another tensor's quantization"),
        ("add-operands-exchanged", "sum_of(lane(a, k), lane(b, k))", "sum_of(lane(b, k), lane(a, k))",
            "operands exchanged"),
        ("add-lanes-shifted", "with_lane(word, k, k < lanes", "with_lane(word, (k + 1u) % 4u, k < lanes",
            "lanes rotated"),
    ),
    *_of("q8ta_add_buffer", "q8ta_add", REQUANT, ("add-no-clamp", NO_CLAMP, "int(roundEven(scaled)) + zp", "no clamp")),
    *_of("q8ta_relu_buffer", "q8ta_relu", REQUANT,
        ("relu-no-clamp", NO_CLAMP, "int(roundEven(scaled)) + zp", "no clamp"),
    ),
    *_of("q8ta_relu_buffer", "q8ta_relu", "q8ta_relu.comp",
        ("relu-of-quantized",
            "max(real_value(lane(source, k), in_scale, in_zp), 0.0);\n"
            "                word = with_lane(word, k, k < lanes ? requant(real, inv_out_scale, out_zp) : 0);",
            "real_value(lane(source, k), in_scale, in_zp);\n"
            "                word = with_lane(word, k, k < lanes ? max(requant(real, inv_out_scale, out_zp), 0) : 0);",
            "relu bound"),
    ),
    *_of("q8ta_relu_buffer", "q8ta_relu", REQUANT,
        ("relu-clamps-first", "float(-128 - zp), float(127 - zp)", "-128.0, 127.0", "clamp order"),
    ),
    *_of("q8ta_relu_buffer", "q8ta_relu", BLOCKS,
        ("relu-last-block", "blocks[inner_dim(config)] = div_up(blocks[inner_dim(config)], inner_size(config));",
            "blocks[inner_dim(config)] /= inner_size(config);", ("last tile missing", "nothing written")),
    ),
    *_of("q8ta_clone", "q8ta_clone", "q8ta_clone.comp",
        ("clone-layouts-exchanged",
            "(constant_id = 3) const uint IN_LAYOUT = 0;\nlayout(constant_id = 4) const uint OUT_LAYOUT",
            "(constant_id = 4) const uint IN_LAYOUT = 0;\nlayout(constant_id = 3) const uint OUT_LAYOUT",
            "another layout's strides"),
        ("clone-lanes-swapped", "with_lane(word, k, lane(", "with_lane(word, k ^ 1u, lane(",
            ("lanes exchanged", "byte order")),
        ("clone-lanes-reversed", "with_lane(word, k, lane(", "with_lane(word, 3u - k, lane(", "byte order"),
    ),
    *_of("q8ta_pixel_shuffle", "q8ta_pixel_shuffle", "q8ta_pixel_shuffle.comp",
        ("shuffle-subpixel-exchanged", "to.y % r * r + to.x % r", "to.x % r * r + to.y % r",
            "H and W exchanged"),
        ("shuffle-channels-outside", "to.z * r * r + to.y % r * r + to.x % r",
            "(to.y % r * r + to.x % r) * out_tensor.sizes[0].z + to.z", "C and another dim exchanged"),
        ("shuffle-zero-point-of-out", "real_value(q, in_scale, in_zp)", "real_value(q, in_scale, out_zp)",
            "another tensor's quantization"),
    ),
    # --- staging ---
    *_of("nchw_to_int8x4_buffer", "nchw_to_int8x4", "nchw_to_int8x4.comp",
        ("stage-in-columns", "* sizes.y + at.y) * sizes.x + at.x", "* sizes.x + at.x) * sizes.y + at.y",
            ("H and W exchanged", "one coordinate for another")),
    ),
    *_of("int8x4_buffer_to_nchw", "int8x4_to_nchw", TENSOR,
        ("stage-out-block-transposed",
            "at.whcn[outer] % outer_size(hashed) * inner_size(hashed) + at.whcn[inner] % inner_size(hashed)",
            "at.whcn[inner] % inner_size(hashed) * outer_size(hashed) + at.whcn[outer] % outer_size(hashed)",
            "block transposed"),
    ),
    *_of("int8x4_buffer_to_nchw", "int8x4_to_nchw", "int8x4_to_nchw.comp",
        ("stage-out-first-batch", "element_at(in_tensor, IN_LAYOUT, at)",
            "element_at(in_tensor, IN_LAYOUT, uvec4(at.xyz, 0u))", "batch ignored"),
    ),
    # --- convolutions ---
    *_of(GENERAL, "q8ta_conv2d_general", "q8ta_conv2d.comp",
        ("conv-border-zero", "return splat(in_zp);", "return 0;", "border padded with 0"),
        ("conv-window-short", "kx < uint(conv.kernel.x)", "kx + 1u < uint(conv.kernel.x)",
            "reduction too short"),
        ("conv-reads-first-batch", "uvec4(at, channel, n)", "uvec4(at, channel, 0u)", "batch ignored"),
        ("conv-first-group", "4u * (group * words + ic4), n)", "4u * ic4, n)", "group ignored"),
        ("conv-weights-xy", "ivec2(oc4 * uint(conv.kernel.x) + kx, ky * words + ic4)",
            "ivec2(ky * words + ic4, oc4 * uint(conv.kernel.x) + kx)", NAME),
        ("conv-sums-kept",
            "ivec4 sums_at(uvec2 to, uint oc4, uint n) {\n"
            "    const uint words = in_words_per_group(conv), group = group_of(conv, oc4);\n"
            "    ivec4 sums = ivec4(0);",
            "ivec4 sums = ivec4(0);\n\nivec4 sums_at(uvec2 to, uint oc4, uint n) {\n"
            "    const uint words = in_words_per_group(conv), group = group_of(conv, oc4);",
            "sums not reset"),
        ("conv-unbounded", "row >= sizes.y || oc4 >= div_up(sizes.z, 4u)", "row >= sizes.y",
            "write out of bounds"),
    ),
    *_of(GENERAL, "q8ta_conv2d_general", CONV,
        ("conv-last-column", "lessThan(at, ivec2(t.sizes[0].xy))", "lessThan(at, ivec2(t.sizes[0].xy) - ivec2(1, 0))",
            "edge of the input"),
        ("conv-stride-exchanged", "ivec2(to) * conv.stride - ", "ivec2(to) * conv.stride.yx - ",
            "H and W exchanged"),
    ),
    *_of(GENERAL, "q8ta_conv2d_general", EPILOGUE,
        ("conv-bias-scaled", "real + biases[oc / 4u][oc % 4u]", "real + biases[oc / 4u][oc % 4u] * in_scale",
            "bias changed"),
        ("conv-no-bias", "apply_bias != 0u", "apply_bias > 1u", "bias left out"),
        ("conv-sums-of-16-bits", "float(sum) - correction", "float(clamp(sum, -32768, 32767)) - correction",
            "sums of 16 bits"),
    ),
    *_of(GENERAL, "q8ta_conv2d_general", REQUANT,
        ("conv-truncates", "roundEven(scaled)", "trunc(scaled)", "truncation"),
    ),
    *_of(GENERAL, "q8ta_conv2d_general", "include/dot.glsl",
        # 4455 = OpSUDotAccSat
        ("conv-unsigned-weights", "id = 4453)", "id = 4455)", "unsigned lanes"),
    ),
    *_of(DEPTHWISE, "q8ta_conv2d_dw", CONV,
        ("dw-dilation-of-columns", "ivec2(tap) * conv.dilation", "ivec2(tap) * conv.dilation.xx", "stride or dilation"),
        ("dw-no-dilation", "ivec2(tap) * conv.dilation", "ivec2(tap)", "stride or dilation"),
    ),
    *_of(DEPTHWISE, "q8ta_conv2d_dw", EPILOGUE,
        ("dw-no-zero-point", "weight_sum * float(in_zp)", "weight_sum * 0.0", "zero point not folded"),
        ("dw-scale-of-block", "weight_scales[oc / 4u][oc % 4u]", "weight_scales[oc / 4u][0]",
            "channel constants misplaced"),
    ),
    *_of(DEPTHWISE, "q8ta_conv2d_dw", "q8ta_conv2d_dw.comp",
        ("dw-taps-exchanged", "ky * texels_per_row + kx / 4u), 0)[kx % 4u]",
            "kx * texels_per_row + ky / 4u), 0)[ky % 4u]", "weights in another order"),
    ),
    *_of(TRANSPOSED, "q8ta_conv2d_transposed", "q8ta_conv2d_transposed.comp",
        ("transposed-every-phase", "from * conv.stride == shifted && ", "", "stride or dilation"),
        ("transposed-padding", "+ conv.padding - ivec2(tap)", "- conv.padding - ivec2(tap)",
            "padding offset"),
    ),
    *_of(POINTWISE, "q8ta_conv2d_pw", "q8ta_conv2d_pw.comp",
        ("pw-last-words", "k4 < uint(k4_per_group)", "k4 < uint(k4_per_group) / 4u * 4u", "reduction too short"),
        ("pw-last-word", "k4 < uint(k4_per_group)", "k4 + 1u < uint(k4_per_group)", "reduction too short"),
        ("pw-layouts-exchanged",
            "(constant_id = 5) const uint OUT_LAYOUT = 0;\nlayout(constant_id = 6) const uint IN_LAYOUT",
            "(constant_id = 6) const uint OUT_LAYOUT = 0;\nlayout(constant_id = 5) const uint IN_LAYOUT",
            "another layout's strides"),
    ),
    *_of(POINTWISE, "q8ta_conv2d_pw", EPILOGUE,
        ("pw-zero-point-twice", "sum - in_zp * ", "sum - 2 * in_zp * ", "zero point folded twice"),
        ("pw-sums-of-neighbour", "weight_sums[oc / 4u][oc % 4u]), oc)", "weight_sums[oc / 4u][(oc + 1u) % 4u]), oc)",
            "channel constants misplaced"),
        ("pw-sums-of-first-block", "weight_sums[oc / 4u][oc % 4u]), oc)", "weight_sums[0][oc % 4u]), oc)",
            "channel constants misplaced"),
        ("pw-no-relu", "activation == RELU", "activation > RELU", "relu dropped or added"),
    ),
    *_of("q8ta_conv2d_pw_unsigned_float", "q8ta_conv2d_pw", "q8ta_conv2d_pw.comp",
        ("pw-unsigned-offset", " - 128 * weight_sums[oc4];", ";", "unsigned lanes"),
    ),
    *_of("q8ta_im2col", "q8ta_conv2d_im2col", "q8ta_im2col.comp",
        ("im2col-border-zero", "return splat(in_zp);", "return 0;", "border padded with 0"),
        ("im2col-taps-exchanged", "uvec2(tap % uint(conv.kernel.x), tap / uint(conv.kernel.x))",
            "uvec2(tap / uint(conv.kernel.y), tap % uint(conv.kernel.y))",
            ("weights in another order", "one coordinate for another")),
        ("im2col-first-group", "4u * (group * words + ic4)", "4u * ic4", "group ignored"),
    ),
    *_of("q8ta_im2col", "q8ta_conv2d_im2col", CONV,
        ("im2col-padding-of-columns", "- conv.padding + ", "- conv.padding.xx + ", "padding offset"),
    ),
    # --- linear ---
    *_of(LINEAR, "q8ta_linear", "q8ta_linear.comp",
        ("linear-last-rows", "m4 >= m4s", "m4 + 1u >= m4s", ("last tile missing", "nothing written")),
        ("linear-padded-rows", "4u * m4 + row < uint(out_sizes.y) ? word : 0", "word", "padding leaked"),
        ("linear-weights-xy", "ivec2(n4, k4)", "ivec2(k4, n4)", NAME),
    ),
    *_of(LINEAR, "q8ta_linear", EPILOGUE,
        ("linear-bias-of-first-block", "biases[oc / 4u][oc % 4u]", "biases[0][oc % 4u]",
            "channel constants misplaced"),
    ),
    *_of(GEMV, "q8ta_linear_gemv", "q8ta_linear_gemv.comp",
        ("gemv-no-barrier", "    memoryBarrierShared();\n    barrier();\n", "",
            ("reduction too short", "other bytes each time")),
        ("gemv-last-worker", "other < workers", "other + 1u < workers", ("reduction too short", NAME)),
        ("gemv-own-sum-twice",
            "ivec4 total = ivec4(0);\n    for (uint other = 0u;",
            "ivec4 total = sums[worker];\n    for (uint other = 1u;", NAME),
        ("gemv-first-half", "other < workers", "other < workers / 2u", ("reduction too short", NAME)),
    ),
    # --- modules that pack weights ---
    *_of("pack_q8_conv2d_weights_texture2d", "q8ta_conv2d", "pack_q8_conv2d_weights.comp",
        ("pack-window-taps-last", "tap * in_channels + ic", "ic * kernel_h * kernel_w + tap", PACKED),
        ("pack-window-last-channel", "ic < in_channels", "ic + 1 < in_channels", PACKED),
    ),
    *_of("pack_q8_conv2d_dw_weights_texture2d", "q8ta_conv2d_dw", "pack_q8_conv2d_dw_weights.comp",
        ("pack-depthwise-columns-first", "(ky * kernel_w + kx)", "(kx * kernel_h + ky)", PACKED),
    ),
    *_of("pack_q8_linear_weight_texture2d", "q8ta_linear", "pack_q8_linear_weight.comp",
        ("pack-matrix-outputs-reversed", "texel[j] = ", "texel[3 - j] = ", PACKED),
    ),
)  # fmt: skip
