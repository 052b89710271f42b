"""Mutations of .npy files: the text of the header, its length, the version."""

from __future__ import annotations

import io
import random
import struct

import numpy as np

from tests.fuzz import plain

MAGIC = b"\x93NUMPY"
_DESCRS = (
    "'<f4'", "'|i1'", "'|O'", "'<U999999999'", "'|V2000000000'", "[('a', '<f4')]", "'f4'", "'<f3'", "''", "3", "None",
    "'<M8[ns]'", "'>f8'", "'<i8'", "('<f4', (1000000,))", "'<f4,' * 3", "'|S0'", "'float32'",
)  # fmt: skip
_SHAPES = (
    "()", "(0,)", "(-1,)", "(1L, 2L)", "(2147483648, 2147483648)", "(1e9,)", "(True,)", "3", "'a'", "(1,) * 9",
    "(0, 9223372036854775807)", "(9223372036854775808, 0)", "(((1,),),)", "(99999999999999999999999,)", "(1, 2, 3",
)  # fmt: skip


def mutate(rng: random.Random, data: bytes) -> bytes:
    """A .npy file whose header says something else, or one that is damaged."""
    if data[:6] != MAGIC or rng.random() < 0.15:
        return plain.mutate(rng, data)
    wide = data[6] >= 2
    size = struct.unpack_from("<I" if wide else "<H", data, 8)[0]
    start = 12 if wide else 10
    header, body = data[start : start + size].decode("latin-1"), data[start + size :]
    version = data[6:8]
    way = rng.randrange(7)
    if way == 0:
        header = plain.mutate_text(rng, header)
    elif way == 1:
        header = _literal(header, "descr", rng.choice(_DESCRS))
    elif way == 2:
        header = _literal(header, "shape", rng.choice(_SHAPES))
    elif way == 3:
        deep = rng.choice((50, 99, 101, 1000, 3000))
        header = _literal(header, "shape", rng.choice("([{-~") * deep)
    elif way == 4:
        version = bytes((rng.choice((0, 1, 2, 3, 4, 255)), rng.choice((0, 0, 1))))
    elif way == 5:
        body = body[: rng.randrange(len(body) + 1)]
    else:
        header = header.replace("False", rng.choice(("True", "0", "None", "1e5", "[]")))
    text = header.encode("utf-8", "surrogatepass")
    length = len(text) if rng.random() < 0.95 else rng.choice((0, 1, len(text) - 1, 0xFFFF))
    wide = version[0] in (2, 3)
    head = struct.pack("<I" if wide else "<H", length % (2**32 if wide else 2**16))
    return MAGIC + version + head + text + body


def _literal(header: str, key: str, value: str) -> str:
    before, found, rest = header.partition(f"'{key}': ")
    depth = 0
    for at, char in enumerate(rest):
        depth += (char in "([") - (char in ")]")
        if char in ",}" and depth <= 0:
            return f"{before}{found}{value}{rest[at:]}"
    return header


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()
