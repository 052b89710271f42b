"""Folders of SPIR-V modules: how their files end, and what a path is that is none."""

from __future__ import annotations

import os

from refsim.core.errors import FormatError
from refsim.formats.file import meant, there

SUFFIX = ".spv"


def no_folder(path: str | os.PathLike[str]) -> FormatError:
    """The error for a path that should be a folder of modules and is none: of one module, the folder is named."""
    name = os.fspath(path)
    if name.endswith(SUFFIX) and os.path.isfile(name):
        need = f"the folder that it lies in, {os.path.dirname(name) or os.curdir}"
        return FormatError(name, "is one module", need=need)
    need = f"a folder with {SUFFIX} files{meant(name)}"
    return FormatError(name, "not a folder of modules", got=there(name), need=need)
