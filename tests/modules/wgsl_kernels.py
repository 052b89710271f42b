"""WGSL kernels of our own on flat tensors, and seeded bugs in them: a line of a table each.

An edit is a piece of text that occurs once in one source of wgsl/right, and what stands there instead. ``causes`` are
the names of the causes that tell the truth about it.
"""

from __future__ import annotations

import os
from pathlib import Path

from modules.seed import Seed

RIGHT = Path(__file__).parent / "wgsl" / "right"
#: The adapter that tests run on: a number of `wgpu`'s list.
INDEX = int(os.environ.get("REFSIM_DEVICE", "0"))


class Bug(Seed):
    """A bug of a kernel in wgsl/right."""

    def seeded(self, folder: Path) -> Path:
        """A copy of the kernels with the bug."""
        return self.sown(RIGHT, folder)


BUGS = (
    Bug(
        "quantize-zero-point", "q8ta_quantize", "quantize.wgsl",
        "+ block.zp, -128, 127)", "- block.zp, -128, 127)", ("zero point not folded", "zero point sign"),
    ),
    Bug(
        "quantize-truncates", "q8ta_quantize", "quantize.wgsl",
        "i32(round(x * block.inv_scale))", "i32(x * block.inv_scale)", ("truncation",),
    ),
    Bug("clone-moved", "q8ta_clone", "copied.wgsl", "= x[id.x];", "= x[max(id.x, 1u) - 1u];", ("values moved",)),
    Bug(
        "dequantize-unsigned", "q8ta_dequantize", "dequantize.wgsl",
        "extractBits(bitcast<i32>(bytes[at / 4u]), 8u * (at % 4u), 8u)",
        "i32(extractBits(bytes[at / 4u], 8u * (at % 4u), 8u))", ("sign",),
    ),
    Bug(
        "add-zero-points", "q8ta_add", "sum.wgsl",
        "steps(b[word], lane, block.b_zp)", "steps(b[word], lane, block.a_zp)",
        ("another tensor's quantization",),
    ),
    Bug("add-scale", "q8ta_add", "sum.wgsl", "block.b_scale * steps", "block.a_scale * steps", ("another tensor's",)),
    Bug(
        "relu-clamps-the-byte", "q8ta_relu", "rectified.wgsl",
        "max(block.in_scale * vec4<f32>(four), vec4<f32>(0.0))", "block.in_scale * vec4<f32>(four)", ("relu",),
    ),
    Bug(
        "convolution-left-edge", "q8ta_conv2d", "convolution.wgsl",
        "if (ix < 0 || ix >= i32(block.in_width))", "if (ix < 0 || ix >= i32(block.in_width) - 1)", ("edge",),
    ),
    Bug(
        "convolution-stride", "q8ta_conv2d", "convolution.wgsl",
        "i32(row) * block.stride_y", "i32(row) * block.stride_x", ("stride", "H and W"),
    ),
    Bug(
        "depthwise-taps", "q8ta_conv2d_dw", "depthwise.wgsl",
        "(ky * block.kernel_width + kx) * block.channels", "(kx * block.kernel_height + ky) * block.channels",
        ("kernel", "weights"),
    ),
    Bug(
        "pointwise-bias", "q8ta_conv2d_pw", "pointwise.wgsl",
        "if (block.biased != 0u) {", "if (block.biased == 0u) {", ("bias",),
    ),
    Bug(
        "pointwise-short", "q8ta_conv2d_pw", "pointwise.wgsl",
        "c < block.in_channels; c++", "c < block.in_channels - 1u; c++", ("reduction too short", "edge of the input"),
    ),
    Bug(
        "linear-scales", "q8ta_linear", "matrix.wgsl",
        "scales[output[lane]]", "scales[output[0]]", ("channel constants",),
    ),
)  # fmt: skip
