"""The wrong modules of docs/shaders.md, as SPIR-V with names and lines, made anew by ``--write``.

They are committed so that the page's commands run where there is no compiler.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from modules import build
from modules.bugs import BUGS, Bug

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
        return build.unplaced(build.compiled(build.MODULES[bug.module], folder, OPTIONS, sources), sources)


if __name__ == "__main__":
    if "--write" in sys.argv:
        for each, bug in EXAMPLES.items():
            binary(each).parent.mkdir(exist_ok=True)
            binary(each).write_bytes(compiled(bug))
    sys.exit(any(binary(each).read_bytes() != compiled(bug) for each, bug in EXAMPLES.items()))
