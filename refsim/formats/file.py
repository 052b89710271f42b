"""Read a file that is not to be trusted, and quote what it holds in errors."""

from __future__ import annotations

import os
import stat

from refsim.core.errors import FormatError


def read_file(path: str | os.PathLike[str]) -> memoryview:
    """The bytes of a regular file; raises FormatError if there is none."""
    name = os.fsdecode(path)
    try:
        # asked before opening: a device may never end, and a pipe may never open
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise FormatError(name, "cannot be read", got="no regular file", need="a readable file")
        with open(path, "rb") as file:
            return view(file.read())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FormatError(name, "cannot be read", got=reason, need="a readable file") from error


def view(data: bytes | bytearray | memoryview) -> memoryview:
    """A read-only byte view of ``data``; nothing is copied."""
    return memoryview(data).cast("B").toreadonly()


def quote(content: object) -> str:
    """``content`` as an error shows it: escaped, since files carry control characters, and short."""
    text = repr(content)
    return text if len(text) <= 80 else text[:77] + "..."
