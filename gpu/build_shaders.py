"""Build shaders/*.comp to the committed SPIR-V; ``--check`` compares instead of writing.

Each is compiled by glslc -O for Vulkan 1.1 and validated by spirv-val. A shader that uses the packed dot product is
built twice, the second time without the extension, as NAME.nodot.spv.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from refsim.errors import FormatError, MissingDependencyError, RefsimError

SHADERS = Path(__file__).resolve().parent.parent / "shaders"
TARGET = "--target-env=vulkan1.1"
DOT_INCLUDE = 'include/dot.glsl"'


def variants() -> list[tuple[Path, Path, tuple[str, ...]]]:
    """(source, binary, compiler definitions) of everything that is built."""
    rows = []
    for source in sorted(SHADERS.glob("*.comp")) + sorted((SHADERS / "probe").glob("*.comp")):
        binary = SHADERS / "spirv" / source.relative_to(SHADERS).with_suffix(".spv")
        rows.append((source, binary, ()))
        if source.parent == SHADERS and DOT_INCLUDE in source.read_text():
            rows.append((source, binary.with_suffix(".nodot.spv"), ("-DREFSIM_NO_DOT",)))
    return rows


def compile_one(source: Path, definitions: tuple[str, ...], folder: Path) -> bytes:
    """The validated SPIR-V of a source; FormatError with the compiler's words if it is refused."""
    binary = folder / "shader.spv"
    command = ["glslc", TARGET, "-O", f"-I{SHADERS}", *definitions, "-o", str(binary), str(source)]
    for step in (command, ["spirv-val", "--target-env", "vulkan1.1", str(binary)]):
        try:
            done = subprocess.run(step, capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            raise MissingDependencyError(
                step[0], "not installed", need="apt-get install glslc spirv-tools"
            ) from error
        if done.returncode:
            raise FormatError(
                str(source.relative_to(SHADERS)), f"{step[0]} refuses it: {done.stderr.strip()}"
            )
    return binary.read_bytes()


def build(check: bool) -> list[str]:
    """Names of the binaries that were written, or (``check``) that are missing or differ."""
    changed = []
    with tempfile.TemporaryDirectory() as scratch:
        for source, binary, definitions in variants():
            code = compile_one(source, definitions, Path(scratch))
            if not binary.is_file() or binary.read_bytes() != code:
                changed.append(str(binary.relative_to(SHADERS)))
                if not check:
                    binary.parent.mkdir(parents=True, exist_ok=True)
                    binary.write_bytes(code)
    return changed


def main(arguments: list[str]) -> int:
    check = "--check" in arguments
    try:
        changed = build(check)
    except RefsimError as error:
        print(f"refsim_gpu.build_shaders: {error}", file=sys.stderr)
        return error.exit_status
    for name in changed:
        print(f"{'stale' if check else 'built'} {name}")
    return int(check and bool(changed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
