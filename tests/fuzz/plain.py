"""Mutations that know nothing of the format: bits, words, cuts, repeats, and pieces of text."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable

#: What a word of a damaged file may say: nothing, absurd sizes, small lies.
WORDS = (0, 1, 2, 3, 7, 0x7F, 0xFF, 0xFFFF, 0x00010000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF)
NUMBERS = ("0", "-1", "1e999", "NaN", "9" * 5000, "1.5", "2147483648", "-9223372036854775809", "4294967296")


def _flip(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _bytes(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    data[at : at + rng.choice((1, 2, 16))] = rng.randbytes(rng.choice((1, 2, 16)))


def _word(rng: random.Random, data: bytearray) -> None:
    if len(data) >= 8:
        code, width = rng.choice((("<I", 4), ("<H", 2), ("<Q", 8)))
        value = rng.choice(WORDS) if rng.random() < 0.8 else rng.getrandbits(32)
        at = rng.randrange(len(data) - width + 1)
        struct.pack_into(code, data, at // width * width if rng.random() < 0.5 else at, value % 256**width)


def _nudge(rng: random.Random, data: bytearray) -> None:
    """A word plus or minus a little: offsets and sizes that are nearly right."""
    if len(data) >= 4:
        at = rng.randrange(len(data) - 3) // 4 * 4
        (value,) = struct.unpack_from("<I", data, at)
        struct.pack_into("<I", data, at, (value + rng.choice((-8, -4, -1, 1, 4, 8, 64))) % 2**32)


def _cut(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data)) :]


def _drop(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.choice((1, 4, 32))]


def _repeat(rng: random.Random, data: bytearray) -> None:
    at, size = rng.randrange(len(data)), rng.choice((4, 32, 256))
    data[at:at] = data[at : at + size] * rng.choice((1, 3))


def _copy(rng: random.Random, data: bytearray) -> None:
    """A piece of the file over another piece of it."""
    size = rng.choice((4, 8, 32))
    if len(data) > size:
        a, b = rng.randrange(len(data) - size), rng.randrange(len(data) - size)
        data[a : a + size] = data[b : b + size]


_WAYS: tuple[Callable[[random.Random, bytearray], None], ...] = (
    _flip, _flip, _bytes, _word, _word, _nudge, _cut, _drop, _repeat, _copy,
)  # fmt: skip


def mutate(rng: random.Random, data: bytes) -> bytes:
    """Some of these mutations, one after the other."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if changed:
            rng.choice(_WAYS)(rng, changed)
    return bytes(changed)


def mutate_text(rng: random.Random, text: str) -> str:
    """Numbers, brackets and words of a text exchanged for others."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind = rng.randrange(5)
        tokens = [m.span() for m in re.finditer(r"\w+|[^\w\s]", text)]
        if not tokens:
            return text
        start, stop = rng.choice(tokens)
        if kind == 0:
            text = text[:start] + rng.choice(NUMBERS) + text[stop:]
        elif kind == 1:
            other = rng.choice(tokens)
            text = text[:start] + text[slice(*other)] + text[stop:]
        elif kind == 2:
            text = text[:start] + text[stop:]
        elif kind == 3:
            text = (
                text[:start]
                + rng.choice("([{-~\"'\\\n\x00\u202e,:L") * rng.choice((1, 2, 300, 9000))
                + text[start:]
            )
        else:
            text = mutate(rng, text.encode("utf-8", "replace")).decode("latin-1")
    return text


def mutate_header(rng: random.Random, data: bytes) -> bytes:
    """A .npy file whose header has another text, or that is damaged anywhere. formats/test_reading.py has the worst."""
    start = 10
    (size,) = struct.unpack_from("<H", data.ljust(start, b"\0"), start - 2)
    if rng.random() < 0.3:
        return mutate(rng, data)
    header = mutate_text(rng, data[start : start + size].decode("latin-1")).encode("utf-8", "surrogatepass")
    length = len(header) if rng.random() < 0.95 else rng.choice(WORDS)
    return data[: start - 2] + struct.pack("<H", length % 2**16) + header + data[start + size :]
