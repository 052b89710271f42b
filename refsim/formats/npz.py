"""Read and write .npy and .npz files. Their headers are checked before anything large is read."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import IO, Any

import numpy as np

from refsim.core.atomic_write import replacing
from refsim.core.errors import FormatError, LimitError, ShapeError
from refsim.core.tensor import MAX_BYTES

#: Shape and dtype that an array must have. Where None is given instead, any array of at most MAX_BYTES will do.
Wanted = tuple[tuple[int, ...], np.dtype[Any]]

_DAMAGED = (OSError, ValueError, EOFError, KeyError, SyntaxError, zipfile.BadZipFile, zlib.error,
            NotImplementedError, RuntimeError)  # fmt: skip
_HEADERS: dict[tuple[int, int], Callable[..., Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_npy(path: str | os.PathLike[str], wanted: Wanted | None = None) -> np.ndarray:
    """The array of a .npy file. FormatError, ShapeError or LimitError before anything large is read."""
    name = os.fspath(path)
    with _damage(name):
        _check_regular(name)
        with open(name, "rb") as file:
            return _read_array(file, os.path.getsize(name), name, wanted)


def read_arrays(
    path: str | os.PathLike[str], prefixes: Sequence[str], wanted: Sequence[Wanted]
) -> list[np.ndarray]:
    """The arrays of an .npz file, one per entry of ``wanted``; a .npy file stands for a single array.

    They are ``in0``, ``in1``, ... where ``in`` is the first of ``prefixes`` that the file has. If it has none of them,
    they are all of its arrays in order. FormatError, ShapeError or LimitError for a file that does not hold them.
    """
    name = os.fspath(path)
    with _damage(name):
        _check_regular(name)
        if not zipfile.is_zipfile(name):
            if len(wanted) != 1:
                raise FormatError(name, "not an .npz file", need=f"{len(wanted)} arrays")
            return [read_npy(name, wanted[0])]
        with zipfile.ZipFile(name) as archive:
            members = [n for n in archive.namelist() if n.endswith(".npy")]
            chosen = _choose(name, members, prefixes, len(wanted))
            arrays = []
            for member, want in zip(chosen, wanted, strict=True):
                size = archive.getinfo(member).file_size
                with archive.open(member) as file:
                    arrays.append(_read_array(file, size, f"{name}: {member.removesuffix('.npy')}", want))
            return arrays


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
        if f"{prefix}0.npy" in members:
            chosen = [f"{prefix}{i}.npy" for i in range(count)]
            break
    else:
        chosen = members
    missing = [n for n in chosen if n not in members]
    if missing or len(chosen) != count:
        raise FormatError(
            name,
            "does not hold the arrays that are needed",
            got=", ".join(n.removesuffix(".npy") for n in members) or "none",
            need=", ".join(f"{prefixes[0]}{i}" for i in range(count)),
        )
    return chosen


def _read_array(file: IO[bytes], size: int, where: str, wanted: Wanted | None) -> np.ndarray:
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise FormatError(where, "unknown .npy version", got=version, need="1.0 or 2.0")
    shape, fortran, dtype = _HEADERS[version](file)
    if dtype.hasobject or dtype.names is not None:
        raise FormatError(where, "holds objects", got=dtype, need="numbers")
    if wanted is not None and (tuple(shape), dtype) != (tuple(wanted[0]), wanted[1]):
        raise ShapeError(
            where, "does not fit", got=f"{dtype} {list(shape)}", need=f"{wanted[1]} {list(wanted[0])}"
        )
    nbytes = prod(shape) * dtype.itemsize
    if nbytes > MAX_BYTES:
        raise LimitError(where, "array too large", got=f"{nbytes} bytes", need=f"<= {MAX_BYTES}")
    if nbytes > size:
        raise FormatError(where, "shorter than it says", got=f"{size} bytes", need=nbytes)
    data = file.read(nbytes)
    if len(data) != nbytes:
        raise FormatError(where, "ends too early", got=f"{len(data)} bytes of data", need=nbytes)
    array: np.ndarray = np.frombuffer(data, dtype)
    return array.reshape(shape[::-1]).transpose() if fortran else array.reshape(shape)


def _check_regular(name: str) -> None:
    if not os.path.exists(name):
        raise FormatError(name, "cannot be read", got="no such file", need="a readable file")
    if not os.path.isfile(name):
        raise FormatError(name, "cannot be read", got="no regular file", need="a readable file")


@contextmanager
def _damage(name: str) -> Iterator[None]:
    """What NumPy and zipfile raise over a damaged file, as FormatError."""
    try:
        yield
    except _DAMAGED as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FormatError(name, "not a readable array file", got=reason, need=".npy or .npz") from error
