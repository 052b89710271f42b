"""The wrong modules of docs/shaders.md, as SPIR-V with names and lines, made anew by ``--write``.

They are committed so that the page's commands run where there is no compiler.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from modules import build
from modules.bugs import BUGS, Bug
from refsim.spirv.instruction import Instruction, string_words
from refsim.spirv.module import Module
from refsim.spirv.opcodes import Op

#: Folder -> the bug of the one module in it.
EXAMPLES = {
    folder: next(bug for bug in BUGS if bug.id == id)
    for folder, id in (("example", "conv-border-zero"), ("repairable", "pw-last-word"))
}
OPTIONS = ("-O", "-g")


def binary(folder: str) -> Path:
    """Where the module of an example lies."""
    return build.HERE / folder / f"{EXAMPLES[folder].module}.spv"


BUG, BINARY = EXAMPLES["example"], binary("example")


def compiled(bug: Bug = BUG) -> bytes:
    """The SPIR-V; sources are named as in glsl/, wherever they lay when they were compiled."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        sources = bug.sources(folder / "glsl")
        code = build.compiled(build.MODULES[bug.module], folder, OPTIONS, sources)
        module = Module.parse(code, bug.module).copy()
        for rows in module.sections.values():
            rows[:] = [_renamed(row, f"{sources}/") for row in rows]
    return module.to_bytes()


def _renamed(row: Instruction, prefix: str) -> Instruction:
    if row.op != Op.STRING:
        return row
    return row.with_args(row.args[0], *string_words(row.text(1).replace(prefix, "")))


if __name__ == "__main__":
    if "--write" in sys.argv:
        for each, bug in EXAMPLES.items():
            binary(each).parent.mkdir(exist_ok=True)
            binary(each).write_bytes(compiled(bug))
    sys.exit(any(binary(each).read_bytes() != compiled(bug) for each, bug in EXAMPLES.items()))
