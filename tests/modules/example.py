"""The wrong module of docs/shaders.md, as SPIR-V with names and lines: example/, made anew by ``--write``.

It is committed so that the page's commands run where there is no compiler.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from modules import build
from modules.bugs import BUGS
from refsim.spirv.instruction import Instruction, string_words
from refsim.spirv.module import Module
from refsim.spirv.opcodes import Op

BUG = next(bug for bug in BUGS if bug.id == "conv-border-zero")
BINARY = build.HERE / "example" / f"{BUG.module}.spv"
OPTIONS = ("-O", "-g")


def compiled() -> bytes:
    """The SPIR-V; sources are named as in glsl/, wherever they lay when they were compiled."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        sources = BUG.sources(folder / "glsl")
        code = build.compiled(build.MODULES[BUG.module], folder, OPTIONS, sources)
        module = Module.parse(code, BINARY.name).copy()
        for rows in module.sections.values():
            rows[:] = [_renamed(row, f"{sources}/") for row in rows]
    return module.to_bytes()


def _renamed(row: Instruction, prefix: str) -> Instruction:
    if row.op != Op.STRING:
        return row
    return row.with_args(row.args[0], *string_words(row.text(1).replace(prefix, "")))


if __name__ == "__main__":
    if "--write" in sys.argv:
        BINARY.parent.mkdir(exist_ok=True)
        BINARY.write_bytes(compiled())
    sys.exit(BINARY.read_bytes() != compiled())
