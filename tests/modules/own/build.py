"""Build tests/modules/own/glsl to right/*.spv, and the wrong twins to wrong/*.spv; ``--check`` compares instead.

The wrong twins keep names and lines, so that the verdict can name a line. They are committed, as the right ones are, so
that the commands of docs/own-kernels.md run where there is no compiler.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from modules.build import RELEASE, Module, compiled, unplaced
from modules.seed import Seed
from refsim_gpu.build_shaders import renewed, report

HERE = Path(__file__).resolve().parent
SOURCES, RIGHT, WRONG = HERE / "glsl", HERE / "right", HERE / "wrong"
TABLES = "refsim.toml"
#: The edits that make the kernels wrong.
TWINS = tuple(
    Seed(name, op, f"{name}.comp", right, wrong, (cause,))
    for name, op, right, wrong, cause in (
        ("pointwise", "q8ta_conv2d_pw", "c4 < ic4s", "c4 < in_channels / 4", "reduction too short"),
        ("sum", "q8ta_add", "b_scale, b_zp)", "b_scale, a_zp)", "another tensor's quantization"),
    )
)


def code(twin: Seed, wrong: bool, folder: Path) -> bytes:
    """The SPIR-V of a kernel or of its wrong twin."""
    sources = twin.sown(SOURCES, folder / "wrong") if wrong else SOURCES
    options = (*RELEASE, "-g") if wrong else RELEASE
    return unplaced(compiled(Module(twin.id, twin.id), folder, options, sources), sources)


def build(check: bool) -> Iterator[str]:
    """Names of the modules that were written, or (``check``) that are stale."""
    for twin in TWINS:
        for wrong, target in ((False, RIGHT), (True, WRONG)):
            with tempfile.TemporaryDirectory() as scratch:
                found, file = code(twin, wrong, Path(scratch)), target / f"{twin.id}.spv"
                if renewed(file, found, Path(scratch), check):
                    yield f"{target.name}/{file.name}"
    if not check:
        shutil.copyfile(RIGHT / TABLES, WRONG / TABLES)


if __name__ == "__main__":
    sys.exit(report("tests/modules/own/build.py", build, sys.argv[1:]))
