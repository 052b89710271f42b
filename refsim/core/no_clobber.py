"""Nothing is written over: what must be new, what may not replace its own source, and the next name that is free."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

from refsim.core.errors import FormatError, ParameterError


def must_be_new(folder: str | os.PathLike[str]) -> None:
    """FormatError if something is where a new folder is to be."""
    if os.path.lexists(folder):
        what = "already exists" if os.path.isdir(folder) else "is a file, and a folder is made"
        raise FormatError(os.fspath(folder), what, need=f"the name of a new folder, such as {free(folder)}")


def not_itself(path: str | os.PathLike[str], source: str | os.PathLike[str], what: str) -> None:
    """ParameterError if what is to be written at ``path`` would replace ``source``, from which it is made."""
    if os.path.exists(path) and os.path.exists(source) and os.path.samefile(path, source):
        need = "another name for what is written"
        raise ParameterError(os.fspath(path), f"is the {what} itself", need=need)


def free(path: str | os.PathLike[str], folder: bool = True) -> str:
    """The path if nothing is there, else the first of ``case-2``, ``case-3``...; a file keeps its suffix."""
    if not os.path.lexists(path):
        return os.fspath(path)
    target = Path(path)
    if target.name in ("", ".."):
        target = target.resolve()
    suffix = "" if folder else target.suffix
    stem = target.name.removesuffix(suffix)
    counted = re.fullmatch(r"(.+)-([1-9]\d{0,5})", stem)
    stem, last = (counted[1], int(counted[2])) if counted else (stem, 1)
    names = (target.with_name(f"{stem}-{number}{suffix}") for number in itertools.count(last + 1))
    return str(next(name for name in names if not os.path.lexists(name)))
