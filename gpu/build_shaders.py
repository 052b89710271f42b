"""Build shaders/*.comp to the committed SPIR-V; ``--check`` compares instead of writing.

The includes that follow from operators (`refsim_gpu.build_push`) are written first.

A kernel is compiled by glslc for Vulkan 1.1, unrolled and optimized by spirv-opt, and validated by spirv-val. Drivers
do not unroll loops with literal bounds and keep their arrays in memory, which is four to six times slower on an H200.

Every float operation is marked NoContraction before and after the unrolling. GLSL's `precise` sets this mark, but
copies made by unrolling lose it, and spirv-opt or a driver may fuse an operation without it. A source with ``#pragma
optimize(off)`` is not optimized. Builds of NAME.comp:

NAME.spv            takes any launch
NAME.nodot.spv      the same without the packed dot product, for devices that lack the extension
NAME.VARIANT.spv    for launches that name this variant: one tile of the matrix-like kernels, one window of depthwise
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from refsim.core.errors import FormatError, MissingDependencyError, RefsimError
from refsim.ops.base.registry import OPS
from refsim_gpu import build_push, spirv

SHADERS = build_push.SHADERS
TARGET = "--target-env=vulkan1.1"
# spirv-opt's own -O, parted before passes that copy instructions, and its last part twice: inner loops unroll first
INLINE = (
    "eliminate-dead-branches",
    "merge-return",
    "inline-entry-points-exhaustive",
    "eliminate-dead-functions",
)
UNROLL = (
    "eliminate-dead-code-aggressive",
    "private-to-local",
    "eliminate-local-single-block",
    "eliminate-local-single-store",
    "eliminate-dead-code-aggressive",
    "scalar-replacement=0",
    "convert-local-access-chains",
    "eliminate-local-single-block",
    "eliminate-local-single-store",
    "eliminate-dead-code-aggressive",
    "ssa-rewrite",
    "eliminate-dead-code-aggressive",
    "ccp",
    "eliminate-dead-code-aggressive",
    "loop-unroll",
)
TIDY = (
    "eliminate-dead-branches",
    "redundancy-elimination",
    "combine-access-chains",
    "simplify-instructions",
    "scalar-replacement=0",
    "convert-local-access-chains",
    "eliminate-local-single-block",
    "eliminate-local-single-store",
    "eliminate-dead-code-aggressive",
    "ssa-rewrite",
    "eliminate-dead-code-aggressive",
    "vector-dce",
    "eliminate-dead-inserts",
    "eliminate-dead-branches",
    "simplify-instructions",
    "if-conversion",
    "copy-propagate-arrays",
    "reduce-load-size",
    "eliminate-dead-code-aggressive",
    "merge-blocks",
    "redundancy-elimination",
    "eliminate-dead-branches",
    "merge-blocks",
)
STAGES = (INLINE, UNROLL, TIDY, UNROLL, TIDY)
AS_WRITTEN = "#pragma optimize(off)"
#: Operators' kernels, those of float operators, and what measures a device.
FOLDERS = (SHADERS, SHADERS / "float", SHADERS / "probe")
KERNEL_INCLUDES = ("qmath.glsl", "conv.glsl", "index.glsl")
DOT_INCLUDE = 'include/dot.glsl"'


def variants() -> list[tuple[Path, Path, tuple[str, ...]]]:
    """(source, binary, compiler definitions) of everything that is built."""
    rows = []
    for source in (source for folder in FOLDERS for source in sorted(folder.glob("*.comp"))):
        binary = SHADERS / "spirv" / source.relative_to(SHADERS).with_suffix(".spv")
        rows.append((source, binary, ()))
        text = source.read_text()
        if source.parent == SHADERS and DOT_INCLUDE in text:
            rows.append((source, binary.with_suffix(".nodot.spv"), ("-DREFSIM_NO_DOT",)))
        if source.stem in OPS:
            for variant in OPS[source.stem].variants:
                definitions = tuple(f"-D{key}={value}" for key, value in variant.definitions.items())
                rows.append((source, binary.with_suffix(f".{variant.name}.spv"), definitions))
    return rows


def run_tool(where: str, *command: str) -> None:
    """Run a compiler; FormatError with its message if it fails, MissingDependencyError if it is not installed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise MissingDependencyError(
            command[0], "not installed", need="apt-get install glslc spirv-tools"
        ) from error
    if done.returncode:
        raise FormatError(where, f"{command[0]} refuses it: {done.stderr.strip()}")


def compile_one(source: Path, options: tuple[str, ...], folder: Path) -> bytes:
    """The validated SPIR-V of a source; FormatError if a tool refuses it, or if arithmetic could be fused."""
    where, binary = str(source.relative_to(SHADERS)), folder / "shader.spv"
    text = source.read_text()
    kernel = any(f'include/{name}"' in text for name in KERNEL_INCLUDES)
    level = "-O0" if kernel or AS_WRITTEN in text else "-O"
    run_tool(where, "glslc", TARGET, level, f"-I{SHADERS}", *options, "-o", str(binary), str(source))
    if kernel:
        for passes in STAGES:
            binary.write_bytes(spirv.pin_rounding(binary.read_bytes()))
            flags = [f"--{name}" for name in passes]
            run_tool(where, "spirv-opt", TARGET, *flags, str(binary), "-o", str(binary))
        refuse_contractable(binary, where)
    run_tool(where, "spirv-val", "--target-env", "vulkan1.1", str(binary))
    return binary.read_bytes()


def refuse_contractable(binary: Path, where: str) -> None:
    """FormatError if a driver may fuse some arithmetic of a module."""
    if loose := spirv.contractable(binary.read_bytes()):
        raise FormatError(where, "arithmetic could be fused", got=", ".join(loose[:5]), need="NoContraction")


def compact(code: bytes, folder: Path) -> bytes:
    """The module with its ids numbered in the order in which they appear."""
    binary = folder / "compact.spv"
    binary.write_bytes(code)
    run_tool("compact", "spirv-opt", TARGET, "--compact-ids", str(binary), "-o", str(binary))
    return binary.read_bytes()


def same(code: bytes, other: bytes, folder: Path) -> bool:
    """Whether two modules differ in the numbers of ids at most.

    A constant that a shader has and does not use leaves no instruction behind, but it takes a number.
    """
    return code == other or compact(code, folder) == compact(other, folder)


def build(check: bool) -> list[str]:
    """Names of the files that were written, or (``check``) that are missing or differ in more than numbers of ids."""
    changed = build_push.build(check)
    with tempfile.TemporaryDirectory() as scratch:
        for source, binary, options in variants():
            code = compile_one(source, options, Path(scratch))
            if renewed(binary, code, Path(scratch), check):
                changed.append(str(binary.relative_to(SHADERS)))
    return changed


def renewed(binary: Path, code: bytes, scratch: Path, check: bool) -> bool:
    """Whether a file lacks this code. It is then written, unless ``check``."""
    if binary.is_file() and same(binary.read_bytes(), code, scratch):
        return False
    if not check:
        binary.parent.mkdir(parents=True, exist_ok=True)
        binary.write_bytes(code)
    return True


def report(name: str, build: Callable[[bool], list[str]], arguments: Sequence[str]) -> int:
    """Build or, with ``--check``, compare; print what changed. The exit status of program ``name``."""
    check = "--check" in arguments
    try:
        changed = build(check)
    except RefsimError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return error.exit_status
    for binary in changed:
        print(f"{'stale' if check else 'built'} {binary}")
    return int(check and bool(changed))


if __name__ == "__main__":
    sys.exit(report("refsim_gpu.build_shaders", build, sys.argv[1:]))
