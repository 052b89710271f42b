"""Build tests/modules/glsl to the committed SPIR-V; ``--check`` compares instead of writing.

The kernels are named, bound and called as those of ExecuTorch's Vulkan backend: they stand in for the modules of a
user's build. A module is compiled by glslc at -O, without names, and validated by spirv-val; every float operation is
marked NoContraction. `compiled` also makes other builds: with a bug, or unoptimized with names and lines.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from refsim.spirv.instruction import string_words
from refsim.spirv.module import Module as Spirv
from refsim.spirv.opcodes import Op
from refsim_gpu import spirv
from refsim_gpu.build_shaders import TARGET, refuse_contractable, renewed, report, run_tool

HERE = Path(__file__).resolve().parent
SOURCES, BINARIES = HERE / "glsl", HERE / "spirv"
RELEASE, DEBUG = ("-O",), ("-O0", "-g")


@dataclass(frozen=True)
class Module:
    """One module: its name in a build folder, its source in glsl/, and what the compiler defines."""

    name: str
    source: str
    definitions: tuple[str, ...] = ()


def _stored(name: str, source: str, *definitions: str) -> tuple[Module, Module]:
    """A packer of weights for both places where they may lie."""
    return (
        Module(f"{name}_buffer", source, ("WEIGHT_BUFFER", *definitions)),
        Module(f"{name}_texture2d", source, definitions),
    )


def _with_fallback(source: str) -> tuple[Module, Module]:
    """A kernel with the packed dot product, and without."""
    return (Module(f"{source}_float", source), Module(f"{source}_fallback_float", source, ("FALLBACK",)))


MODULES: dict[str, Module] = {
    module.name: module
    for module in (
        Module("q8ta_quantize_buffer_float", "q8ta_quantize"),
        Module("q8ta_quantize_texture3d_float", "q8ta_quantize", ("TEXTURE",)),
        Module("q8ta_dequantize_buffer_float", "q8ta_dequantize"),
        Module("q8ta_dequantize_texture3d_float", "q8ta_dequantize", ("TEXTURE",)),
        Module("q8ta_add_buffer", "q8ta_add"),
        Module("q8ta_relu_buffer", "q8ta_relu"),
        Module("q8ta_clone", "q8ta_clone"),
        Module("q8ta_pixel_shuffle", "q8ta_pixel_shuffle"),
        Module("nchw_to_int8x4_buffer", "nchw_to_int8x4"),
        Module("int8x4_buffer_to_nchw", "int8x4_to_nchw"),
        *_with_fallback("q8ta_conv2d"),
        *_with_fallback("q8ta_conv2d_transposed"),
        *_with_fallback("q8ta_conv2d_pw"),
        Module("q8ta_conv2d_pw_unsigned_float", "q8ta_conv2d_pw", ("UNSIGNED_DOT",)),
        Module("q8ta_conv2d_pw_unsigned_buffer_float", "q8ta_conv2d_pw", ("UNSIGNED_DOT", "WEIGHT_BUFFER")),
        Module("q8ta_conv2d_dw_float", "q8ta_conv2d_dw"),
        Module("q8ta_im2col", "q8ta_im2col"),
        *_with_fallback("q8ta_linear"),
        *_with_fallback("q8ta_linear_gemv"),
        *_stored("pack_q8_conv2d_weights", "pack_q8_conv2d_weights"),
        *_stored("pack_q8_conv2d_weights_unsigned", "pack_q8_conv2d_weights", "UNSIGNED_DOT"),
        *_stored("pack_q8_conv2d_dw_weights", "pack_q8_conv2d_dw_weights"),
        *_stored("pack_q8_linear_weight", "pack_q8_linear_weight"),
        *_stored("pack_q8_linear_weight_unsigned", "pack_q8_linear_weight", "UNSIGNED_DOT"),
    )
}


def compiled(
    module: Module, folder: Path, options: Sequence[str] = RELEASE, sources: Path = SOURCES
) -> bytes:
    """The validated SPIR-V of a module, by way of a scratch folder.

    ``sources`` is glsl/ or a changed copy of it. FormatError if a tool refuses the source, or if the driver may fuse
    its arithmetic; MissingDependencyError without the compiler.
    """
    binary, defined = folder / f"{module.name}.spv", [f"-D{name}" for name in module.definitions]
    source = sources / f"{module.source}.comp"
    run_tool(module.name, "glslc", TARGET, *options, *defined, f"-I{sources}", "-o", str(binary), str(source))
    binary.write_bytes(spirv.pin_rounding(binary.read_bytes()))
    refuse_contractable(binary, module.name)
    run_tool(module.name, "spirv-val", "--target-env", "vulkan1.1", str(binary))
    return binary.read_bytes()


def unplaced(code: bytes, sources: Path) -> bytes:
    """The same SPIR-V, whose names of sources do not say where these lay."""
    module = Spirv.parse(code, str(sources)).copy()
    for rows in module.sections.values():
        for at, row in enumerate(rows):
            if row.op == Op.STRING:
                text = row.text(1).removeprefix(f"{sources}/")
                rows[at] = row.with_args(row.args[0], *string_words(text))
    return module.to_bytes()


def build(check: bool) -> list[str]:
    """Names of the modules that were written, or (``check``) that are missing or stale."""
    changed = [path.name for path in BINARIES.glob("*.spv") if path.stem not in MODULES]
    if not check:
        for name in changed:
            (BINARIES / name).unlink()
    with tempfile.TemporaryDirectory() as scratch:
        for module in MODULES.values():
            code, binary = compiled(module, Path(scratch)), BINARIES / f"{module.name}.spv"
            if renewed(binary, code, Path(scratch), check):
                changed.append(binary.name)
    return changed


def put(folder: Path, name: str, source: Path | bytes) -> None:
    """Replace a module of a folder as a compiler does: under another name first."""
    data = source if isinstance(source, bytes) else source.read_bytes()
    (folder / "written").write_bytes(data)
    os.replace(folder / "written", folder / f"{name}.spv")


if __name__ == "__main__":
    sys.exit(report("tests/modules/build.py", build, sys.argv[1:]))
