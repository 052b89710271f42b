"""Small GLSL kernels of our own, compiled when a test asks; every compiler option that changes a module's shape."""

from __future__ import annotations

import functools
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import pytest

from refsim.spirv.module import Module

#: Name -> glslc's options: optimization, debug information, SPIR-V 1.0 (the old form of buffers) to 1.6.
BUILDS = {
    "O0": ("-O0", "--target-env=vulkan1.1"),
    "O": ("-O", "--target-env=vulkan1.1"),
    "Os": ("-Os", "--target-env=vulkan1.1"),
    "g": ("-g", "--target-env=vulkan1.1"),
    "spv10": ("-O0", "--target-env=vulkan1.0", "--target-spv=spv1.0"),
    "spv14": ("-O", "--target-env=vulkan1.2", "--target-spv=spv1.4"),
    "spv15": ("-O0", "--target-env=vulkan1.2", "--target-spv=spv1.5"),
    "spv16": ("-g", "--target-env=vulkan1.3", "--target-spv=spv1.6"),
}

#: Every kind of descriptor, constants of every kind, a helper that takes an image.
EVERYTHING = """
layout(constant_id = 0) const uint LX = 4;
layout(constant_id = 3) const int KIND = -7;
layout(constant_id = 4) const bool TWICE = true;
layout(constant_id = 5) const float FACTOR = 0.5;
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(set = 0, binding = 0) writeonly buffer Out { int t_out[]; };
layout(set = 0, binding = 1) readonly buffer In { ivec4 t_in[]; };
layout(set = 0, binding = 2) uniform isampler2D t_weight;
layout(set = 0, binding = 3) uniform sampler3D t_float;
layout(set = 0, binding = 4, rgba32f) uniform writeonly image3D t_image;
layout(set = 0, binding = 5) uniform Meta { ivec4 sizes[2]; uvec2 count; int packed_dim; } meta;
layout(set = 0, binding = 6, rgba32i) uniform iimage2D t_plane;
layout(push_constant) uniform Push { float scale; int zp; } push;

ivec4 fetched(isampler2D image, ivec2 pos) {
  return texelFetch(image, pos, 0);
}

void main() {
  ivec3 pos = ivec3(gl_GlobalInvocationID);
  ivec4 word = fetched(t_weight, pos.xy) + imageLoad(t_plane, pos.xy);
  if (any(greaterThanEqual(pos, imageSize(t_image)))) {
    return;
  }
  vec4 texel = texelFetch(t_float, pos, 0);
  imageStore(t_image, pos, texel * FACTOR * push.scale);
  imageStore(t_plane, pos.xy, word);
  int extra = TWICE ? KIND : meta.packed_dim;
  int at = pos.x + textureSize(t_weight, 0).x * pos.y;
  t_out[at] = t_in[pos.y].z + meta.sizes[1].y + push.zp + extra + int(meta.count.y);
}
"""


def tool(name: str) -> str:
    """The path of a program; without it the test is skipped, or fails where a GPU machine must have everything."""
    found = shutil.which(name)
    if found is None:
        if os.environ.get("REFSIM_GPU") == "require":
            pytest.fail(f"{name} is not installed: apt-get install glslc spirv-tools")
        pytest.skip(f"{name} is not installed: apt-get install glslc spirv-tools")
    return found


@functools.cache
def compiled(source: str, build: str = "O0") -> bytes:
    """The SPIR-V of a source (without its #version line) by one row of `BUILDS`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.comp"
        path.write_text("#version 450\n" + source)
        command = [tool("glslc"), *BUILDS[build], "-o", "kernel.spv", path.name]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr
        return (Path(folder) / "kernel.spv").read_bytes()


def run_tool(code: bytes, *command: str, suffix: str = ".spv") -> bytes:
    """What a program of spirv-tools makes of a module: ``command`` with the file's name behind it, then ``-o out``."""
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / f"in{suffix}", Path(folder) / "out"
        given.write_bytes(code)
        arguments = [tool(command[0]), *command[1:], str(given)]
        arguments += [] if command[0] == "spirv-val" else ["-o", str(made)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr + done.stdout
        return made.read_bytes() if made.exists() else b""


def assembled(text: str) -> Module:
    """A module of SPIR-V 1.3 from its text."""
    code = run_tool(text.encode(), "spirv-as", "--target-env", "spv1.3", suffix=".txt")
    return Module.parse(code, "hand-made")


#: SPIR-V version -> the oldest Vulkan that takes it.
VULKAN = {
    (1, 0): "1.0",
    (1, 1): "1.1",
    (1, 2): "1.1",
    (1, 3): "1.1",
    (1, 4): "1.1spv1.4",
    (1, 5): "1.2",
    (1, 6): "1.3",
}


#: OpCapability CooperativeMatrixKHR.
MATRICES = struct.pack("<II", 2 << 16 | 17, 6022)


def validate(code: bytes) -> None:
    """Fails with spirv-val's message if it refuses the module. Debian's knows no cooperative matrices: skips those."""
    if MATRICES in code:
        pytest.skip("cooperative matrices are unknown to Debian's spirv-val")
    run_tool(code, "spirv-val", "--target-env", f"vulkan{VULKAN[code[6], code[5]]}")
