"""Build shaders/*.comp to the committed SPIR-V; ``--check`` compares instead of writing.

The includes that follow from operators (`refsim_gpu.build_push`) are written first.

A kernel is compiled by glslc for Vulkan 1.1, unrolled and optimized by spirv-opt, and validated by spirv-val. Drivers
do not unroll loops with literal bounds and keep their arrays in memory, which is four to six times slower on an H200.

Every float operation is marked NoContraction before and after the unrolling. GLSL's `precise` sets this mark, but
copies made by unrolling lose it, and spirv-opt or a driver may fuse an operation without it. A source with ``#pragma
optimize(off)`` is not optimized. Builds of NAME.comp:

NAME.spv            takes any launch
NAME.nodot.spv      the same without the packed dot product, for devices that lack the extension
NAME.exact.spv      a float kernel with denormals spelled out, for devices that flush them and cannot do otherwise
NAME.VARIANT.spv    for launches that name this variant: one tile of the matrix-like kernels, one window of depthwise

The kernels on cooperative matrices (shaders/coop) are beyond the compilers that distributions ship: those of
gpu/requirements-shaders.txt build them, and the programs are called with their own libraries. Builds of coop/NAME.comp:

coop/NAME.TILE.spv           for one tile
coop/NAME.TILE.emulated.spv  the same with integer loops in the place of the device's instructions, for any device
coop/NAME.finish.spv         adds up the sums of parts of K
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from refsim.core import choices
from refsim.core.errors import FormatError, MissingDependencyError
from refsim.ops.base import coopmat
from refsim.ops.base.registry import OPS
from refsim_gpu import build_push, spirv
from refsim_gpu.command import command

SHADERS = build_push.SHADERS
TARGET = "--target-env=vulkan1.1"
# spirv-opt's own -O, parted before passes that copy instructions, and its last part twice: inner loops unroll first
INLINE = (
    "eliminate-dead-branches",
    "merge-return",
    "inline-entry-points-exhaustive",
    "eliminate-dead-functions",
)
SPLIT = (
    "scalar-replacement=0",
    "convert-local-access-chains",
    "eliminate-local-single-block",
    "eliminate-local-single-store",
    "eliminate-dead-code-aggressive",
    "ssa-rewrite",
    "eliminate-dead-code-aggressive",
)
UNROLL = (
    "eliminate-dead-code-aggressive",
    "private-to-local",
    "eliminate-local-single-block",
    "eliminate-local-single-store",
    "eliminate-dead-code-aggressive",
    *SPLIT,
    "ccp",
    "eliminate-dead-code-aggressive",
    "loop-unroll",
)
TIDY = (
    "eliminate-dead-branches",
    "redundancy-elimination",
    "combine-access-chains",
    "simplify-instructions",
    *SPLIT,
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
DOT_INCLUDE, ARITHMETIC_INCLUDE = 'include/dot.glsl"', 'include/real.glsl"'
COOP_FOLDER, EMULATED = "coop", "-DREFSIM_EMULATED"
REQUIREMENTS = "gpu/requirements-shaders.txt"


Row = tuple[Path, Path, tuple[str, ...]]


def variants() -> list[Row]:
    """(source, binary, compiler definitions) of everything that is built, but for cooperative matrices."""
    rows: list[Row] = []
    for source in (source for folder in FOLDERS for source in sorted(folder.glob("*.comp"))):
        binary = SHADERS / "spirv" / source.relative_to(SHADERS).with_suffix(".spv")
        rows.append((source, binary, ()))
        text = source.read_text()
        if source.parent == SHADERS and DOT_INCLUDE in text:
            rows.append((source, binary.with_suffix(".nodot.spv"), ("-DREFSIM_NO_DOT",)))
        if ARITHMETIC_INCLUDE in text:
            rows.append((source, binary.with_suffix(f".{spirv.EXACT}.spv"), ("-DREFSIM_SPELLED_OUT",)))
        if source.stem in OPS:
            for variant in OPS[source.stem].variants:
                definitions = tuple(f"-D{key}={value}" for key, value in variant.definitions.items())
                rows.append((source, binary.with_suffix(f".{variant.name}.spv"), definitions))
    return rows


def coop_variants() -> list[Row]:
    """The same of the kernels on cooperative matrices."""
    rows: list[Row] = []
    for source in sorted((SHADERS / COOP_FOLDER).glob("*.comp")):
        stem = SHADERS / "spirv" / COOP_FOLDER / source.stem
        rows.append((source, stem.with_suffix(f".{coopmat.FINISH}.spv"), ("-DREFSIM_FINISH",)))
        for tile in coopmat.TILES:
            definitions = tuple(f"-D{key}={value}" for key, value in tile.definitions.items())
            rows.append((source, stem.with_suffix(f".{tile.name}.spv"), definitions))
            if tile in coopmat.EMULATED_TILES:
                ending = f".{tile.name}{coopmat.EMULATED}.spv"
                rows.append((source, stem.with_suffix(ending), (*definitions, EMULATED)))
    return rows


@cache
def coop_tools() -> Path:
    """Where the packages of `REQUIREMENTS` lie; MissingDependencyError if they are not installed."""
    found = find_spec("cmeel")
    folder = Path(str(found.origin)).parents[1] / "cmeel.prefix" if found is not None else Path()
    if found is None or not (folder / "bin" / "glslang").is_file():
        need = f"pip install --require-hashes -r {REQUIREMENTS}"
        what = f"no compiler of cooperative matrices; all but some builds of shaders/{COOP_FOLDER} need none"
        raise MissingDependencyError("glslang", what, need=need)
    return folder


def system_tool(name: str) -> str:
    """The first program of that name on the PATH that is none of `REQUIREMENTS`.

    Those are newer than Debian's and refuse some of its shaders. MissingDependencyError if there is no other.
    """
    for folder in os.get_exec_path():
        found = shutil.which(name, path=folder)
        if found is None or "cmeel.prefix" in Path(found).resolve().parts:
            continue
        with open(found, "rb") as file:
            if b"from cmeel" not in file.read(500):  # the scripts that these packages put beside python
                return found
    raise MissingDependencyError(name, "not installed", need="apt-get install glslc spirv-tools")


def run_tool(where: str, *command: str, coop: bool = False) -> None:
    """Run a compiler; FormatError with its message if it fails, MissingDependencyError if it is not installed.

    ``coop``: one of those that know cooperative matrices.
    """
    environment = dict(os.environ)
    if coop:
        folder = coop_tools()
        command = (str(folder / "bin" / command[0]), *command[1:])
        environment["LD_LIBRARY_PATH"] = str(folder / "lib")
    else:
        command = (system_tool(command[0]), *command[1:])
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        said = (done.stderr + done.stdout).strip()
        raise FormatError(where, f"{Path(command[0]).name} refuses it: {said}")


def compile_one(source: Path, options: tuple[str, ...], folder: Path) -> bytes:
    """The validated SPIR-V of a source; FormatError if a tool refuses it, or if arithmetic could be fused."""
    where, binary = str(source.relative_to(SHADERS)), folder / "shader.spv"
    text = source.read_text()
    kernel = any(f'include/{name}"' in text for name in KERNEL_INCLUDES)
    level = "-O0" if kernel or AS_WRITTEN in text else "-O"
    coop = needs_matrices(source, options)
    ends = (f"-I{SHADERS}", *options, "-o", str(binary), str(source))
    if coop:
        run_tool(where, "glslang", "-V", "--quiet", "--target-env", "vulkan1.1", *ends, coop=True)
    else:
        run_tool(where, "glslc", TARGET, level, *ends)
    if kernel:
        for passes in STAGES:
            binary.write_bytes(spirv.pin_rounding(binary.read_bytes()))
            flags = [f"--{name}" for name in passes]
            run_tool(where, "spirv-opt", TARGET, *flags, str(binary), "-o", str(binary), coop=coop)
        refuse_contractable(binary, where)
    run_tool(where, "spirv-val", "--target-env", "vulkan1.1", str(binary), coop=coop)
    return binary.read_bytes()


def needs_matrices(source: Path, options: Sequence[str]) -> bool:
    """Whether a build has the device's own matrices in it."""
    return source.parent.name == COOP_FOLDER and not {EMULATED, "-DREFSIM_FINISH"} & set(options)


def refuse_contractable(binary: Path, where: str) -> None:
    """FormatError if a driver may fuse some arithmetic of a module."""
    if loose := spirv.contractable(binary.read_bytes()):
        raise FormatError(where, "arithmetic could be fused", got=choices.first(loose), need="NoContraction")


def compact(code: bytes, folder: Path, coop: bool = False) -> bytes:
    """The module with its ids numbered in the order in which they appear."""
    binary = folder / "compact.spv"
    binary.write_bytes(code)
    run_tool("compact", "spirv-opt", TARGET, "--compact-ids", str(binary), "-o", str(binary), coop=coop)
    return binary.read_bytes()


def same(code: bytes, other: bytes, folder: Path, coop: bool = False) -> bool:
    """Whether two modules differ in the numbers of ids at most.

    A constant that a shader has and does not use leaves no instruction behind, but it takes a number.
    """
    return code == other or compact(code, folder, coop) == compact(other, folder, coop)


def build(check: bool, rows: Sequence[Row] | None = None) -> Iterator[str]:
    """Names of the files that were written, or (``check``) that are missing or differ in more than numbers of ids.

    What needs the compilers of `REQUIREMENTS` comes last: without them all else is built before the error.
    """
    yield from build_push.build(check)
    rows = variants() + coop_variants() if rows is None else rows
    with tempfile.TemporaryDirectory() as scratch:
        for source, binary, options in sorted(rows, key=lambda row: needs_matrices(row[0], row[2])):
            code = compile_one(source, options, Path(scratch))
            if renewed(binary, code, Path(scratch), check, needs_matrices(source, options)):
                yield str(binary.relative_to(SHADERS))


def renewed(binary: Path, code: bytes, scratch: Path, check: bool, coop: bool = False) -> bool:
    """Whether a file lacks this code. It is then written, unless ``check``. ``coop``: the device's own matrices."""
    if binary.is_file() and same(binary.read_bytes(), code, scratch, coop):
        return False
    if not check:
        binary.parent.mkdir(parents=True, exist_ok=True)
        binary.write_bytes(code)
    return True


def report(name: str, build: Callable[[bool], Iterable[str]], arguments: Sequence[str]) -> int:
    """Build or, with ``--check``, compare; print what changed, also before an error. The exit status of ``name``."""
    check = "--check" in arguments

    @command(name)
    def run() -> int:
        changed = False
        for binary in build(check):
            changed = True
            print(f"{'stale' if check else 'built'} {binary}", flush=True)
        return int(check and changed)

    return run()


if __name__ == "__main__":
    sys.exit(report("refsim_gpu.build_shaders", build, sys.argv[1:]))
