"""Finds built SPIR-V by shader name and refuses what would take the process down."""

from __future__ import annotations

import struct
from pathlib import Path

from refsim.errors import FormatError, MissingDependencyError

MAGIC = 0x07230203
HEADER_BYTES = 20

HERE = Path(__file__).resolve().parent
# an installed package carries the binaries next to its modules; a checkout keeps them next to their sources
FOLDERS = (HERE / "spirv", HERE.parent / "shaders" / "spirv")


def load(name: str) -> bytes:
    """The SPIR-V of ``name``, e.g. ``probe/selftest``.

    Raises MissingDependencyError if it was not built, FormatError if it is not SPIR-V.
    """
    for folder in FOLDERS:
        path = folder / f"{name}.spv"
        if path.is_file():
            return check(path.read_bytes(), str(path))
    searched = ", ".join(str(folder) for folder in FOLDERS)
    raise MissingDependencyError(name, "no built SPIR-V", got=f"nothing under {searched}", need=f"{name}.spv")


def exists(name: str) -> bool:
    """Whether ``name`` was built."""
    return any((folder / f"{name}.spv").is_file() for folder in FOLDERS)


def check(code: bytes, where: str) -> bytes:
    """``code`` itself, if it can be given to a driver.

    Kompute crashes on an empty module and cuts off a trailing partial word without a word about it.
    """
    if len(code) < HEADER_BYTES or len(code) % 4:
        raise FormatError(
            where, "not SPIR-V", got=f"{len(code)} bytes", need="whole words, a header of 5 or more"
        )
    (magic,) = struct.unpack_from("<I", code)
    if magic != MAGIC:
        raise FormatError(where, "not SPIR-V", got=f"magic {magic:#010x}", need=f"{MAGIC:#010x}")
    return code
