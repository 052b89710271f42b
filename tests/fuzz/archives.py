"""Mutations of zip files: members, methods, sizes, and the two places where these are written."""

from __future__ import annotations

import io
import random
import struct
import zipfile
from collections.abc import Callable

from tests.fuzz import plain

Mutate = Callable[[random.Random, bytes], bytes]
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_LOCAL, _CENTRAL, _END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
#: Fields of a central directory's entry: offset, struct code.
_FIELDS = (*((at, "<H") for at in (8, 10, 28, 30, 32)), *((at, "<I") for at in (16, 20, 24, 42)))


def unpacked(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members:
            entry = zipfile.ZipInfo(name or "x", (1980, 1, 1, 0, 0, 0))
            archive.writestr(entry, content, method)
    return file.getvalue()


def mutate(rng: random.Random, data: bytes, member: Callable[[str], Mutate]) -> bytes:
    """A zip file with other members, or with a directory that lies. ``member(name)`` mutates the content of one."""
    way = rng.random()
    if way < 0.1:
        return plain.mutate(rng, data)
    if way < 0.35:
        return _lying(rng, data)
    members = list(unpacked(data).items())
    if way < 0.5:
        members = _arranged(rng, members)
    else:
        for _ in range(rng.choice((1, 1, 2))):
            at = rng.randrange(len(members))
            name, content = members[at]
            members[at] = (name, member(name)(rng, content))
    method = rng.choice(_METHODS) if rng.random() < 0.2 else zipfile.ZIP_DEFLATED
    made = packed(members, method)
    return _lying(rng, made) if rng.random() < 0.1 else made


def _arranged(rng: random.Random, members: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    at = rng.randrange(len(members))
    name, content = members[at]
    way = rng.randrange(6)
    if way == 0:
        del members[at]
    elif way == 1:
        members[at] = (
            rng.choice(("../x", "a\x1b[2Jb", "\u202ex.json", "d/", name + "x", name[1:], "case.json")),
            content,
        )
    elif way == 2:
        members[at] = (name, bytes(rng.choice((0, 1, 1 << 16, 1 << 23))))
    elif way == 3:
        members[at] = (name, rng.choice(members)[1])
    elif way == 4:
        members[at] = (name, b"")
    else:
        rng.shuffle(members)
    return members or [("x", b"")]


def _lying(rng: random.Random, data: bytes) -> bytes:
    """Sizes, methods, names and offsets in the directory or beside the members."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2))):
        signature, shift = rng.choice(((_CENTRAL, 0), (_CENTRAL, 0), (_LOCAL, -2), (_END, None)))
        places = [at for at in range(len(data)) if data.startswith(signature, at)]
        if not places:
            continue
        at = rng.choice(places)
        offset, code = rng.choice(_FIELDS)
        if shift is None:
            offset, code = rng.choice(((4, "<H"), (8, "<H"), (10, "<H"), (12, "<I"), (16, "<I"), (20, "<H")))
        else:
            offset += shift
        width = struct.calcsize(code)
        if at + offset + width <= len(changed):
            (old,) = struct.unpack_from(code, changed, at + offset)
            values = (*plain.WORDS, old + 1, old - 1, old * 2, 8, 9, 12, 14, 93, 99, 64 << 20)
            struct.pack_into(code, changed, at + offset, rng.choice(values) % 256**width)
    return bytes(changed)
