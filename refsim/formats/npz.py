"""Read and write .npy and .npz files. Their headers are checked before anything large is read."""

from __future__ import annotations

import os
import re
import struct
import zipfile
from collections.abc import Sequence
from math import prod
from typing import IO, Any

import numpy as np

from refsim.core import choices, size_limit
from refsim.core.atomic_write import replacing
from refsim.core.counted import counted
from refsim.core.errors import FormatError, ShapeError
from refsim.formats.file import LOOKED, held, quote, unreadable
from refsim.formats.reading import archive, member_file, reading

#: Shape and dtype that an array must have. Where None is given instead, any array that is not too large will do.
Wanted = tuple[tuple[int, ...], np.dtype[Any]]

#: Version of the format -> how the length of the header is written.
_LENGTHS = {(1, 0): struct.Struct("<H"), (2, 0): struct.Struct("<I")}
MAGIC = b"\x93NUMPY"
_NEED, _KIND = ".npy or .npz", "a readable array file"
MAX_HEADER, MAX_DIMS = 1 << 14, 32
#: A pair of the header, which every writer makes a dict of three. It is matched and never evaluated.
_PAIR = re.compile(
    r"""\s*['"](descr|fortran_order|shape)['"]\s*:\s*(?:['"]([^'"]*)['"]|(True|False)|\(([0-9,\sL]*)\))\s*(,|(?=\}))"""
)
_DESCR = re.compile(r"[<>|=]?(\?|b1|[iu][1248]|f[248]|c8|c16)")


def read_npy(path: str | os.PathLike[str], wanted: Wanted | None = None) -> np.ndarray:
    """The array of a .npy file. FormatError, ShapeError or LimitError before anything large is read."""
    name = os.fspath(path)
    with reading(name, f"not {_KIND}", _NEED):
        if not os.path.isfile(name):
            raise unreadable(name)
        with open(name, "rb") as file:
            return array_in(file, os.path.getsize(name), name, wanted)


def read_arrays(
    path: str | os.PathLike[str], prefixes: Sequence[str], wanted: Sequence[Wanted | None]
) -> list[np.ndarray]:
    """The arrays of an .npz file, one per entry of ``wanted``; a .npy file stands for a single array.

    They are ``in0``, ``in1``, ... where ``in`` is the first of ``prefixes`` that the file has. If it has none of them,
    they are all of its arrays in order. FormatError, ShapeError or LimitError for a file that does not hold them.
    """
    name = os.fspath(path)
    with reading(name, "cannot be read", "a readable file"):
        if not os.path.isfile(name):
            raise unreadable(name)
        zipped = zipfile.is_zipfile(name)
    if not zipped:
        if len(wanted) != 1:
            with open(name, "rb") as file:
                got = held(file.read(LOOKED))
            raise FormatError(name, "not an .npz file", got=got, need=f"an .npz with {len(wanted)} arrays")
        return [read_npy(name, wanted[0])]
    with archive(name, _KIND) as opened:
        members = members_of(opened)
        chosen = _choose(name, members, prefixes, len(wanted))
        return [
            member_array(opened, f"{one}.npy", f"{name}: {one}", want)
            for one, want in zip(chosen, wanted, strict=True)
        ]


def read_array(path: str | os.PathLike[str], chosen: str | None = None) -> np.ndarray:
    """The array of a .npy file, or the one of an .npz that ``chosen`` names; None: the only one that it holds.

    FormatError, ShapeError or LimitError before anything large is read. The one of an .npz with several arrays and no
    ``chosen`` names them all.
    """
    name = os.fspath(path)
    if not (os.path.isfile(name) and zipfile.is_zipfile(name)):
        if chosen is not None:
            raise FormatError(name, "no .npz, of which an array can be chosen", got=chosen, need="an .npz")
        return read_npy(name)
    with archive(name, _KIND) as opened:
        members = members_of(opened)
        if chosen is None and len(members) != 1:
            what, need = "holds several arrays", f"one of them, such as --array {next(iter(members), '')}"
            if not members:
                what, need = "holds no array", "an .npy, or an .npz of arrays"
            raise FormatError(name, what, got=choices.listed(members) or "none", need=need)
        one = members[0] if chosen is None else chosen
        if one not in members:
            raise FormatError(name, "holds no such array", got=one, need=choices.need(one, members))
        return member_array(opened, f"{one}.npy", f"{name}: {one}")


def members_of(archive: zipfile.ZipFile) -> list[str]:
    """The names of the arrays in an .npz file."""
    return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def member_array(archive: zipfile.ZipFile, name: str, where: str, wanted: Wanted | None = None) -> np.ndarray:
    """The array in a member of a zip file; FormatError, ShapeError or LimitError before anything large is read."""
    with member_file(archive, name, where) as (file, size):
        return array_in(file, size, where, wanted)


def write_npz(path: str | os.PathLike[str], arrays: dict[str, np.ndarray]) -> None:
    """Write an .npz file; the file appears whole or not at all."""
    with replacing(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def write_npy(path: str | os.PathLike[str], array: np.ndarray) -> None:
    """Write a .npy file; the file appears whole or not at all."""
    with replacing(path) as file:
        np.save(file, array)


def _choose(name: str, members: list[str], prefixes: Sequence[str], count: int) -> list[str]:
    for prefix in prefixes:
        if f"{prefix}0" in members:
            chosen = [f"{prefix}{i}" for i in range(count)]
            break
    else:
        chosen = members
    missing = [n for n in chosen if n not in members]
    if missing or len(chosen) != count:
        raise FormatError(
            name,
            "does not hold the arrays that are needed",
            got=", ".join(members) or "none",
            need=", ".join(f"{prefixes[0]}{i}" for i in range(count)),
        )
    return chosen


def array_in(file: IO[bytes], size: int, where: str, wanted: Wanted | None = None) -> np.ndarray:
    """The array of an open .npy file of at most ``size`` bytes; for use within `reading`."""
    shape, fortran, dtype = _header(file, where)
    if wanted is not None and (shape, dtype) != (tuple(wanted[0]), wanted[1]):
        raise ShapeError(
            where, "does not fit", got=f"{dtype} {list(shape)}", need=f"{wanted[1]} {list(wanted[0])}"
        )
    nbytes = prod(shape) * dtype.itemsize
    size_limit.check(where, nbytes)
    if nbytes > size:
        raise FormatError(where, "shorter than it says", got=counted(size, "byte"), need=nbytes)
    data = file.read(nbytes)
    if len(data) != nbytes:
        raise FormatError(where, "ends too early", got=f"{counted(len(data), 'byte')} of data", need=nbytes)
    array: np.ndarray = np.frombuffer(data, dtype)
    return array.reshape(shape[::-1]).transpose() if fortran else array.reshape(shape)


def _header(file: IO[bytes], where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns come first, and dtype."""
    start = file.read(8)
    if start[:6] != MAGIC or len(start) < 8:
        raise FormatError(where, f"not {_KIND}", got=held(start), need="an .npy, or an .npz of arrays")
    length = _LENGTHS.get((start[6], start[7]))
    if length is None:
        raise FormatError(where, "unknown .npy version", got=f"{start[6]}.{start[7]}", need="1.0 or 2.0")
    (size,) = length.unpack(file.read(length.size))
    if size > MAX_HEADER:
        raise FormatError(where, "header too long", got=counted(size, "byte"), need=f"<= {MAX_HEADER}")
    text = file.read(size).decode("latin-1")
    found = _pairs(text)
    if len(text) != size or len(found) != 3:
        need = "a dict of descr, fortran_order and shape; no records, no objects"
        raise FormatError(where, "not the header of an array", got=quote(text), need=need)
    if not _DESCR.fullmatch(found["descr"]):
        raise FormatError(where, "does not hold numbers", got=quote(found["descr"]), need="such as '<f4'")
    sizes = [part.strip().removesuffix("L") for part in found["shape"].split(",")]
    if sizes[-1] == "":
        del sizes[-1]
    elif len(sizes) == 1:  # "(3)" is a number in brackets
        raise FormatError(where, "not a shape", got=f"({found['shape']})", need="such as (3,)")
    shape = tuple(int(part) if part.isdecimal() and len(part) < 20 else -1 for part in sizes)
    if any(not 0 <= part < 1 << 63 for part in shape) or len(shape) > MAX_DIMS:
        raise FormatError(
            where, "not a shape", got=quote(f"({found['shape']})"), need=f"up to {MAX_DIMS} sizes"
        )
    return shape, found["fortran_order"] == "True", np.dtype(found["descr"])


def _pairs(text: str) -> dict[str, str]:
    """The keys and values of a header; nothing if it is not written as one."""
    found: dict[str, str] = {}
    body = text.strip()
    at = 1 if body.startswith("{") else len(body)
    while match := _PAIR.match(body, at):
        key, at = match[1], match.end()
        kind = {"descr": 2, "fortran_order": 3, "shape": 4}[key]
        if key in found or match[kind] is None:
            return {}
        found[key] = match[kind]
    return found if body[at:].strip() == "}" else {}
