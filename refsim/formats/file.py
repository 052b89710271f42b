"""Read a file that is not to be trusted, and quote what it holds in errors."""

from __future__ import annotations

import os
import stat
from itertools import islice
from pathlib import Path

from refsim.core import choices, size_limit
from refsim.core.counted import counted
from refsim.core.errors import FormatError, LimitError

#: How alike two names of files must be, and how many of a folder are looked at.
_ALIKE, _MOST_NAMES = 0.75, 10_000
FOLDER, ZIP = "a folder", "a zip file"
#: How files begin, at which byte, and what they are then.
_MAGICS = (
    (0, b"PK\x03\x04", ZIP), (0, b"PK\x05\x06", ZIP), (0, b"\x93NUMPY", "an array (.npy)"),
    (4, b"ET12", "a .pte"), (4, b"VH00", "a delegate blob"), (4, b"ED00", "an ETDump"),
    (0, b"\x03\x02\x23\x07", "a SPIR-V module"), (0, b"SQLite format 3", "a database"), (0, b"\x7fELF", "a program"),
)  # fmt: skip
#: How much of a file of another kind is quoted, and looked at for that.
_SHOWN, LOOKED = 16, 64


def read_file(path: str | os.PathLike[str], most: int | None = None, suffix: str = "") -> memoryview:
    """The bytes of a regular file. FormatError if there is none, LimitError if it has more than ``most`` bytes.

    ``suffix`` is that of the files that are meant; the error then names none of another kind.
    """
    name = os.fsdecode(path)
    try:
        # asked before opening: a device may never end, and a pipe may never open
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise unreadable(name, suffix)
        if most is not None and found.st_size > most:
            raise LimitError(name, "too large", got=counted(found.st_size, "byte"), need=f"<= {most}")
        size_limit.check(name, found.st_size, size_limit.FILE)
        with open(path, "rb") as file:
            return view(file.read(found.st_size))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise unreadable(name, suffix) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FormatError(name, "cannot be read", got=reason, need="a readable file") from error


def unreadable(path: str | os.PathLike[str], suffix: str = "") -> FormatError:
    """The error where no file can be read: what is there, and which file was probably meant."""
    some = _some(path, suffix)
    need = f"a file of it, such as {some}" if some else f"a {suffix} file" if suffix else "a readable file"
    return FormatError(os.fsdecode(path), "cannot be read", got=there(path), need=need + meant(path, suffix))


def there(path: str | os.PathLike[str]) -> str:
    """What lies where a file was to be, in words."""
    name = os.fsdecode(path)
    if os.path.isdir(name):
        return FOLDER
    if os.path.isfile(name):
        return "a file"
    if os.path.lexists(name):
        return "no regular file" if os.path.exists(name) else "a link to nothing"
    parent = os.path.dirname(name)
    if parent and os.path.isdir(parent) and not enters(parent):
        return f"a path in {parent}, which you may not enter"
    if not parent or os.path.isdir(parent):
        return "no such file"
    return f"{parent}, which is no folder" if os.path.exists(parent) else f"no such folder as {parent}"


def enters(folder: str) -> bool:
    """Whether this process may look at what is in a folder."""
    return os.access(folder, os.X_OK, effective_ids=os.access in os.supports_effective_ids)


def closed(error: PermissionError) -> FormatError:
    """The error where this process may not read or write: it names the folder that it cannot enter, if there is one."""
    name = os.fsdecode(error.filename or "a file")
    above = [os.fspath(one) for one in reversed(Path(name).parents)]
    where = next((one for one in above if os.path.isdir(one) and not enters(one)), name)
    return FormatError(where, "no access", got=error.strerror, need="the right to read it, or to write there")


def meant(path: str | os.PathLike[str], suffix: str | tuple[str, ...] = "") -> str:
    """``; did you mean X?``: what lies beside a path that leads nowhere and has nearly its name; or nothing."""
    name = os.fsdecode(path)
    near = "" if not name or os.path.lexists(name) else _near(name, suffix)
    return choices.asked(near) if near else ""


def _near(name: str, suffix: str | tuple[str, ...]) -> str:
    """What has nearly the name of a path that leads nowhere, or is in a folder of nearly its name; empty if nothing."""
    parent, last = os.path.split(name.rstrip("/"))
    if parent and not os.path.lexists(parent):
        above = _near(parent, "")
        inside = os.path.join(above, last)
        if not above or os.path.lexists(inside):
            return inside if above else ""
        return _near(inside, suffix)
    near = choices.nearest(last, _names(parent or ".", suffix), _ALIKE)
    return os.path.join(parent, near) if near else ""


def _some(path: str | os.PathLike[str], suffix: str) -> str:
    """A file of a folder, if there is one of the kind that is meant."""
    name = os.fsdecode(path)
    found = [one for one in _names(name, suffix) if os.path.isfile(os.path.join(name, one))] if suffix else []
    return os.path.join(name, found[0]) if found else ""


def _names(folder: str, suffix: str | tuple[str, ...]) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, _MOST_NAMES)]
    except (OSError, ValueError):
        return []
    return sorted(name for name in names if name.endswith(suffix) and not name.startswith("."))


def view(data: bytes | bytearray | memoryview) -> memoryview:
    """A read-only byte view of ``data``; nothing is copied."""
    return memoryview(data).cast("B").toreadonly()


def held(data: bytes | bytearray | memoryview) -> str:
    """What a file holds that is not what a reader wants, in words: ``a zip file``, ``text: 'hello'``."""
    start = bytes(data[:LOOKED])
    if not start:
        return "an empty file"
    for at, magic, what in _MAGICS:
        if start.startswith(magic, at):
            return what
    text = start.decode(errors="ignore")
    if text.encode() in (start, start[: len(text.encode())]) and len(start) - len(text.encode()) < 4:
        line = text.strip().splitlines()[0] if text.strip() else ""
        if all(letter.isprintable() or letter.isspace() for letter in text):
            return f"text: {quote(line[:_SHOWN] + ('...' if len(line) > _SHOWN else ''))}"
    return f"bytes that begin with {start[:8].hex(' ')}"


def quote(content: object) -> str:
    """``content`` as an error shows it: escaped, since files carry control characters, and short."""
    try:
        text = repr(content)
    except RecursionError:
        return "..."
    return text if len(text) <= 80 else text[:77] + "..."
