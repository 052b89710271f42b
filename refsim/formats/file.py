"""Read a file that is not to be trusted, and quote what it holds in errors."""

from __future__ import annotations

import os
import stat

from refsim.core import size_limit
from refsim.core.counted import counted
from refsim.core.errors import FormatError, LimitError


def read_file(path: str | os.PathLike[str], most: int | None = None) -> memoryview:
    """The bytes of a regular file. FormatError if there is none, LimitError if it has more than ``most`` bytes."""
    name = os.fsdecode(path)
    try:
        # asked before opening: a device may never end, and a pipe may never open
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise FormatError(name, "cannot be read", got="no regular file", need="a readable file")
        if most is not None and found.st_size > most:
            raise LimitError(name, "too large", got=counted(found.st_size, "byte"), need=f"<= {most}")
        size_limit.check(name, found.st_size, size_limit.FILE)
        with open(path, "rb") as file:
            return view(file.read(found.st_size))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FormatError(name, "cannot be read", got=reason, need="a readable file") from error


def view(data: bytes | bytearray | memoryview) -> memoryview:
    """A read-only byte view of ``data``; nothing is copied."""
    return memoryview(data).cast("B").toreadonly()


def quote(content: object) -> str:
    """``content`` as an error shows it: escaped, since files carry control characters, and short."""
    try:
        text = repr(content)
    except RecursionError:
        return "..."
    return text if len(text) <= 80 else text[:77] + "..."
