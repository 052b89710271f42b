"""Finds built SPIR-V by shader name and refuses what would take the process down."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from refsim.core.errors import FormatError, MissingDependencyError

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
    """``code`` itself; FormatError if it must not be given to a driver.

    Kompute crashes on an empty module, and silently drops a partial word at the end.
    """
    if len(code) < HEADER_BYTES or len(code) % 4:
        raise FormatError(
            where, "not SPIR-V", got=f"{len(code)} bytes", need="whole words, a header of 5 or more"
        )
    (magic,) = struct.unpack_from("<I", code)
    if magic != MAGIC:
        raise FormatError(where, "not SPIR-V", got=f"magic {magic:#010x}", need=f"{MAGIC:#010x}")
    return code


# --- instructions, as far as rounding needs them ------------------------------------------------------------

OP_EXT_INST, OP_DECORATE, NO_CONTRACTION, FMA = 12, 71, 42, 50
FLOAT_ARITHMETIC = frozenset((127, 129, 131, 133))  # OpFNegate, OpFAdd, OpFSub, OpFMul
FIRST_TYPE, LAST_TYPE = 19, 39


def instructions(code: bytes) -> Iterator[tuple[int, ...]]:
    """The words of each instruction, opcode first, its length left out."""
    words = struct.unpack(f"<{len(code) // 4}I", code)
    at = HEADER_BYTES // 4
    while at < len(words):
        length = words[at] >> 16
        yield (words[at] & 0xFFFF, *words[at + 1 : at + max(length, 1)])
        at += max(length, 1)


def contractable(code: bytes) -> list[str]:
    """The instructions that a driver may fuse: float arithmetic without NoContraction, and every Fma."""
    rows = list(instructions(code))
    pinned = {row[1] for row in rows if row[0] == OP_DECORATE and row[2] == NO_CONTRACTION}
    loose = [
        f"%{row[2]} (opcode {row[0]})" for row in rows if row[0] in FLOAT_ARITHMETIC and row[2] not in pinned
    ]
    return loose + [f"%{row[2]} (Fma)" for row in rows if row[0] == OP_EXT_INST and row[4] == FMA]


def pin_rounding(code: bytes) -> bytes:
    """The module with NoContraction on all of its float arithmetic.

    GLSL's `precise` puts it there, but spirv-opt loses it on the copies that unrolling makes.
    """
    rows = list(instructions(code))
    pinned = {row[1] for row in rows if row[0] == OP_DECORATE and row[2] == NO_CONTRACTION}
    loose = [row[2] for row in rows if row[0] in FLOAT_ARITHMETIC and row[2] not in pinned]
    first_type = next(i for i, row in enumerate(rows) if FIRST_TYPE <= row[0] <= LAST_TYPE)
    rows[first_type:first_type] = [(OP_DECORATE, number, NO_CONTRACTION) for number in loose]
    body = [word for row in rows for word in (len(row) << 16 | row[0], *row[1:])]
    return code[:HEADER_BYTES] + struct.pack(f"<{len(body)}I", *body)
