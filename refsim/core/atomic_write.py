"""Write files so that a killed process leaves the old file or the new one, never half a file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from refsim.core.errors import FormatError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A binary file that replaces ``path`` when the block ends without an error, and is deleted otherwise.

    If ``path`` is not a regular file (a pipe, /dev/null), it is written to and not replaced. If it is a link, the
    file that it points to is replaced. Raises FormatError, naming the path, if it cannot be written.
    """
    target = Path(os.path.realpath(path))
    named = target if os.path.islink(path) else Path(path)
    if os.path.exists(target) and not target.is_file() and not target.is_dir():
        try:
            with open(target, "wb") as stream:
                yield stream
        except OSError as error:
            raise _unwritable(named, error) from error
        return
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    except OSError as error:
        raise _unwritable(named, error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes it private
        os.replace(temporary, target)
    except OSError as error:
        raise _unwritable(named, error) from error
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a whole file at once; FormatError if that is not possible."""
    with replacing(path) as file:
        file.write(data)


def make_folder(path: str | os.PathLike[str]) -> Path:
    """The folder, created with its parents if it does not exist; FormatError if that is not possible."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise FormatError(
            str(path), "cannot be written", got="a file", need="a folder, or a new name"
        ) from error
    except OSError as error:
        raise _unwritable(Path(path), error) from error
    return Path(path)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _unwritable(path: Path, error: OSError) -> FormatError:
    got = error.strerror or error
    if isinstance(error, FileNotFoundError) and not path.parent.is_dir():
        got = f"no such folder as {path.parent}"
    return FormatError(str(path), "cannot be written", got=got, need="a writable path")
