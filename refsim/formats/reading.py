"""How readers take in files that are not to be trusted: the one place that turns what damage raises into typed errors.

Limits are checked before work is done: sizes of files, sizes that zip files and .npy headers declare. Members of a zip
file are stored or deflated, which can be read piece by piece; the other methods cannot, and are refused.
"""

from __future__ import annotations

import json
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from refsim.core import size_limit
from refsim.core.counted import counted
from refsim.core.errors import FormatError, LimitError
from refsim.formats.file import LOOKED, ZIP, held, meant, quote, read_file, there

#: What the libraries that parse files raise over damaged ones, and what content of another form raises here. Readers
#: keep the block below as small as they can: an error of a kernel or of a definition is none of the file.
DAMAGE: tuple[type[Exception], ...] = (
    OSError, EOFError, zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError,
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError,
)  # fmt: skip
METHODS = {zipfile.ZIP_STORED: "stored", zipfile.ZIP_DEFLATED: "deflated"}
MAX_JSON_BYTES = 1 << 24


@contextmanager
def reading(where: str, what: str = "cannot be read", need: object = None) -> Iterator[None]:
    """Turn whatever a damaged file raises in this block into a FormatError that begins with ``where``.

    Typed errors pass, and so does a MemoryError: what needs much memory is to be refused before it is taken.
    """
    try:
        yield
    except DAMAGE as error:
        raise FormatError(where, what, got=_reason(error), need=need) from error


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, KeyError):
        return f"no {quote(error.args[0] if error.args else '')}"
    if isinstance(error, RecursionError):
        return "nested too deep"
    return quote(str(error) or type(error).__name__)[1:-1]


def parsed(
    data: bytes | memoryview, where: str, need: str, most: int = MAX_JSON_BYTES, what: str = "not JSON"
) -> Any:
    """JSON; LimitError if it is larger than ``most``, FormatError, which begins with ``what``, if it is none."""
    if len(data) > most:
        raise LimitError(where, "too large", got=counted(len(data), "byte"), need=f"<= {most}")
    with reading(where, what, need):
        try:
            return json.loads(bytes(data))
        except UnicodeDecodeError as error:
            raise FormatError(where, what, got=held(data), need=need) from error
        except json.JSONDecodeError as error:
            at = f"{error.msg} in line {error.lineno}, column {error.colno}"
            raise FormatError(where, what, got=at if error.pos else held(data), need=need) from error


def json_file(path: str | os.PathLike[str], need: str, most: int = MAX_JSON_BYTES) -> Any:
    """The content of a JSON file; FormatError or LimitError."""
    return parsed(read_file(path, most), os.fsdecode(path), need, most)


def archive(path: str | os.PathLike[str], kind: str, suffix: str | tuple[str, ...] = "") -> zipfile.ZipFile:
    """An open zip file; FormatError, "not KIND", for anything else, a pipe too. Nothing is unpacked.

    ``suffix``: those of the files that are meant; where there is none, the error then names none of another kind.
    """
    where = os.fsdecode(path)
    with reading(where, f"not {kind}"):
        if not os.path.isfile(path):  # opening a pipe may never end
            raise FormatError(where, f"not {kind}", got=there(path) + meant(path, suffix))
        size_limit.check(where, os.path.getsize(path), size_limit.FILE)
        try:
            return zipfile.ZipFile(path)
        except zipfile.BadZipFile as error:
            with open(path, "rb") as file:
                got = held(file.read(LOOKED))
            raise FormatError(where, f"not {kind}", got=f"{got}, damaged" if got == ZIP else got) from error


@contextmanager
def member_file(archive: zipfile.ZipFile, name: str, where: str) -> Iterator[tuple[IO[bytes], int]]:
    """A member of a zip file, open, and its size; what is raised while it is read becomes a FormatError.

    LimitError before anything is unpacked if it is larger than any value may be; FormatError if it is missing, or
    packed by another method than deflate.
    """
    with reading(where):
        entry = archive.NameToInfo.get(name)
        if entry is None:
            raise FormatError(where, "is missing")
        if entry.compress_type not in METHODS:
            got = zipfile.compressor_names.get(entry.compress_type, entry.compress_type)  # type: ignore[attr-defined]
            raise FormatError(
                where, "packed by a method that is not read", got=got, need="stored or deflated"
            )
        size_limit.check(where, entry.file_size)
        with archive.open(entry) as file:
            yield file, entry.file_size


def member(archive: zipfile.ZipFile, name: str, where: str, most: int | None = None) -> bytes:
    """A whole member of a zip file, of at most ``most`` bytes; raises as `member_file`."""
    with member_file(archive, name, where) as (file, size):
        if most is not None and size > most:
            raise LimitError(where, "too large", got=counted(size, "byte"), need=f"<= {most}")
        return file.read(size)
