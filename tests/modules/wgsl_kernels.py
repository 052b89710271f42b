"""WGSL kernels of our own on flat tensors, and seeded bugs in them: a line of a table each.

An edit is a piece of text that occurs once in one source of wgsl/right, and what stands there instead. ``causes`` are
the names of the causes that tell the truth about it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from refsim.core.errors import DeviceError, FormatError, MissingDependencyError

RIGHT = Path(__file__).parent / "wgsl" / "right"
#: The adapter that tests run on: a number of `wgpu`'s list.
INDEX = int(os.environ.get("REFSIM_DEVICE", "0"))


@dataclass(frozen=True)
class Bug:
    """One bug: where it is, the operator that it shows in, and the names of the causes that are true of it."""

    id: str
    op: str
    file: str
    anchor: str
    replacement: str
    causes: tuple[str, ...]

    def seeded(self, folder: Path) -> Path:
        """A copy of the kernels with the bug; FormatError if the text to be replaced does not occur exactly once."""
        shutil.copytree(RIGHT, folder)
        text = (folder / self.file).read_text()
        if text.count(self.anchor) != 1:
            raise FormatError(self.id, "its text is not in the source once", got=text.count(self.anchor))
        (folder / self.file).write_text(text.replace(self.anchor, self.replacement))
        return folder


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


@contextmanager
def needs_device() -> Iterator[None]:
    """Skip, with the reason, where there is no device for WGSL; REFSIM_GPU=require makes that a failure."""
    try:
        yield
    except (DeviceError, MissingDependencyError) as error:
        if os.environ.get("REFSIM_GPU") == "require":
            raise
        pytest.skip(str(error))
