"""Build tests/modules/own/glsl to right/*.spv, and the wrong twins to wrong/*.spv; ``--check`` compares instead.

The wrong twins keep names and lines, so that the verdict can name a line. They are committed, as the right ones are, so
that the commands of docs/own-kernels.md run where there is no compiler.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from modules.build import RELEASE, Module, compiled
from modules.example import _renamed
from refsim.spirv.module import Module as Spirv
from refsim_gpu.build_shaders import same

HERE = Path(__file__).resolve().parent
SOURCES, RIGHT, WRONG = HERE / "glsl", HERE / "right", HERE / "wrong"
TABLES = "refsim.toml"


@dataclass(frozen=True)
class Twin:
    """A kernel, and an edit that makes it wrong: ``op`` is its operator, ``cause`` what the diff must say."""

    name: str
    op: str
    right: str
    wrong: str
    cause: str


TWINS = (
    Twin("pointwise", "q8ta_conv2d_pw", "c4 < ic4s", "c4 < in_channels / 4", "reduction too short"),
    Twin(
        "sum",
        "q8ta_add",
        "real_value(b, k, b_scale, b_zp)",
        "real_value(b, k, b_scale, a_zp)",
        "another tensor's quantization",
    ),
)


def code(twin: Twin, wrong: bool, folder: Path) -> bytes:
    """The SPIR-V of a kernel or of its wrong twin."""
    sources = folder / ("wrong" if wrong else "right")
    sources.mkdir(exist_ok=True)
    text = (SOURCES / f"{twin.name}.comp").read_text()
    if text.count(twin.right) != 1:
        raise ValueError(f"{twin.name}: {text.count(twin.right)} places for the edit")
    (sources / f"{twin.name}.comp").write_text(text.replace(twin.right, twin.wrong) if wrong else text)
    options = (*RELEASE, "-g") if wrong else RELEASE
    module = Spirv.parse(compiled(Module(twin.name, twin.name), folder, options, sources), twin.name).copy()
    for rows in module.sections.values():
        rows[:] = [_renamed(row, f"{sources}/") for row in rows]
    return module.to_bytes()


def build(check: bool) -> list[str]:
    """Names of the modules that were written, or (``check``) that are stale."""
    changed = []
    with tempfile.TemporaryDirectory() as scratch:
        for twin in TWINS:
            for wrong, target in ((False, RIGHT), (True, WRONG)):
                found, file = code(twin, wrong, Path(scratch)), target / f"{twin.name}.spv"
                if not file.is_file() or not same(file.read_bytes(), found, Path(scratch)):
                    changed.append(f"{target.name}/{file.name}")
                    if not check:
                        file.write_bytes(found)
    if not check:
        shutil.copyfile(RIGHT / TABLES, WRONG / TABLES)
    return changed


if __name__ == "__main__":
    names = build("--check" in sys.argv)
    print("\n".join(names))
    sys.exit(int(bool(names) and "--check" in sys.argv))
