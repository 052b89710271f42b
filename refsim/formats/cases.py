"""A case as files: case.json, and raw bytes of the inputs, the constants and the expected output.

They lie in a folder or a zip file, and are all that it takes to repeat the call. case.json has the SHA-256 of each.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from refsim.core.buffer import PackedBuffer
from refsim.core.errors import FormatError, LimitError, ParameterError, RefsimError
from refsim.core.qmath import PROFILES
from refsim.core.tensor import MAX_BYTES, TensorDesc
from refsim.ops.base.binding import BoundCase
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call, Kind, Target

SCHEMA = 1
CASE_JSON = "case.json"
MAX_JSON_BYTES = 1 << 20


@dataclass(frozen=True)
class Stored:
    """A case read back: the call with its inputs, and the bytes that its output must have."""

    name: str
    bound: BoundCase
    expected: PackedBuffer


def sha256(data: bytes | np.ndarray) -> str:
    return hashlib.sha256(
        data if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes()
    ).hexdigest()


# --- writing ---------------------------------------------------------------------------------------------


def contents(bound: BoundCase, expected: PackedBuffer, note: str = "") -> dict[str, bytes]:
    """File name -> bytes of a case."""
    call, files = bound.call, {}
    tensors = []
    for name, buffer in bound.inputs.items():
        files[f"in_{name}.bin"] = buffer.raw.tobytes()
        tensors.append(_tensor(name, buffer.desc, f"in_{name}.bin", files))
    constants = []
    for name, value in call.consts.items():
        if value is not None:
            files[f"const_{name}.bin"] = np.ascontiguousarray(value).tobytes()
            constants.append(
                {"name": name, "dtype": str(value.dtype), "shape": list(value.shape)}
                | _file(f"const_{name}.bin", files)
            )
    files["out.bin"] = expected.raw.tobytes()
    info = {
        "schema": SCHEMA,
        "op": call.op.name,
        "params": {key: _plain(value) for key, value in vars(call.params).items() if value is not None},
        "inputs": tensors,
        "constants": constants,
        "output": _tensor("out", call.out, "out.bin", files),
        "profile": call.target.profile.name,
        "mali": call.target.mali,
        "seed": bound.case.seed,
        "style": bound.case.style,
        "poison": bound.case.poison,
        "note": note or bound.case.note,
    }
    files[CASE_JSON] = (json.dumps(info, indent=1) + "\n").encode()
    return files


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _file(name: str, files: Mapping[str, bytes]) -> dict[str, Any]:
    return {"file": name, "bytes": len(files[name]), "sha256": sha256(files[name])}


def _tensor(name: str, desc: TensorDesc, file: str, files: Mapping[str, bytes]) -> dict[str, Any]:
    return {"name": name, "shape": list(desc.shape), "layout": desc.layout.name} | _file(file, files)


def write_folder(folder: str | os.PathLike[str], files: Mapping[str, bytes]) -> Path:
    """Write the files into a new folder, which appears whole or not at all: it is made under another name.

    A name may have folders in it.
    """
    target = Path(folder)
    if target.exists():
        raise FormatError(str(target), "already exists", need="a name that is free")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise FormatError(str(target), "cannot be written", got=error.strerror or error) from error
    try:
        for name, data in files.items():
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            (temporary / name).write_bytes(data)
        temporary.chmod(0o755)
        temporary.rename(target)
    except OSError as error:
        raise FormatError(str(target), "cannot be written", got=error.strerror or error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def add_to_zip(archive: zipfile.ZipFile, name: str, files: Mapping[str, bytes]) -> None:
    """Put a case into a zip file. The same case always gives the same bytes."""
    for file in sorted(files):
        entry = zipfile.ZipInfo(f"{name}/{file}", (1980, 1, 1, 0, 0, 0))
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = 0o644 << 16
        archive.writestr(entry, files[file], compresslevel=9)


# --- reading ---------------------------------------------------------------------------------------------


class Files:
    """The files of one case, in a folder or in a zip file. None is read that is larger than expected."""

    def __init__(
        self, where: str, folder: Path | None = None, archive: zipfile.ZipFile | None = None
    ) -> None:
        self.where, self._folder, self._archive = where, folder, archive

    def read(self, name: str, limit: int) -> bytes:
        """The whole file; FormatError if it is missing, damaged or larger than ``limit``."""
        where = f"{self.where}/{name}"
        if os.path.basename(name) != name or name in ("", ".", ".."):
            raise FormatError(where, "not a plain file name", need="a name without folders")
        try:
            if self._folder is not None:
                path = self._folder / name
                self._check(where, path.stat().st_size if path.is_file() else -1, limit)
                return path.read_bytes()
            assert self._archive is not None
            entry = f"{self.where.rpartition('!')[2]}/{name}"
            self._check(where, self._archive.getinfo(entry).file_size, limit)
            return self._archive.read(entry)
        except KeyError as error:
            raise FormatError(where, "is missing") from error
        except (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise FormatError(
                where, "cannot be read", got=getattr(error, "strerror", None) or error
            ) from error

    @staticmethod
    def _check(where: str, size: int, limit: int) -> None:
        if size < 0:
            raise FormatError(where, "is missing", need="a regular file")
        if size > limit:
            raise LimitError(where, "too large", got=f"{size} bytes", need=f"<= {limit}")


def read_folder(folder: str | os.PathLike[str]) -> Stored:
    """A case directory. FormatError, LimitError, or what `OpSpec.bind` raises, naming the file."""
    path = Path(folder)
    if path.name == CASE_JSON:
        path = path.parent
    return read(Files(str(path), folder=path), path.name)


def read(files: Files, name: str) -> Stored:
    """A case from its files."""
    where = f"{files.where}/{CASE_JSON}"
    try:
        info = json.loads(files.read(CASE_JSON, MAX_JSON_BYTES))
        if info["schema"] != SCHEMA:
            raise FormatError(where, "unknown schema", got=info["schema"], need=SCHEMA)
        return _stored(files, name, info)
    except RefsimError as error:
        raise (
            error
            if error.where.startswith(files.where)
            else type(error)(f"{where}: {error.where}", error.what, got=error.got, need=error.need)
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise FormatError(where, "not a case", got=repr(error)[:200], need="see docs/formats.md") from error


def _stored(files: Files, name: str, info: dict[str, Any]) -> Stored:
    op = OPS[info["op"]]
    target = Target(_profile(info["profile"]), bool(info["mali"]))
    params = op.make_params({key: _tuple(value) for key, value in info["params"].items()})
    args = {arg.name: arg for arg in op.of_kind(Kind.INPUT)}
    descs = {
        row["name"]: args[row["name"]].desc(_shape(row), row["layout"])
        if row["name"] in args
        else TensorDesc(_shape(row), row["layout"])
        for row in info["inputs"]
    }
    consts: dict[str, np.ndarray | None] = {arg.name: None for arg in op.of_kind(Kind.CONST)}
    for row in info["constants"]:
        consts[row["name"]] = _constant(files, row)
    out = info["output"]
    call = op.bind(params, descs, consts, out["layout"], out_shape=_shape(out), target=target)
    inputs = {
        row["name"]: PackedBuffer.from_raw(
            _bytes(files, row, descs[row["name"]].nbytes),
            _shape(row),
            row["layout"],
            descs[row["name"]].dtype,
        )
        for row in info["inputs"]
    }
    expected = PackedBuffer.from_raw(_bytes(files, out, call.out.nbytes), call.out.shape, call.out.layout)
    case = Case(
        op.name,
        {key: _tuple(value) for key, value in info["params"].items()},
        {row["name"]: (_shape(row), row["layout"]) for row in info["inputs"]},
        out["layout"],
        int(info["seed"]),
        note=str(info["note"]),
        style=str(info["style"]),
        poison=bool(info["poison"]),
    )
    return Stored(name, BoundCase(case, _in_order(call, inputs), inputs), expected)


def _in_order(call: Call, inputs: dict[str, PackedBuffer]) -> Call:
    for arg in call.op.of_kind(Kind.INPUT):
        if arg.name not in inputs:
            raise FormatError(call.op.name, "an input is missing", got=", ".join(inputs), need=arg.name)
    return call


def _profile(name: str) -> Any:
    if name not in PROFILES:
        raise ParameterError("numerics profile", "unknown", got=repr(name), need=", ".join(PROFILES))
    return PROFILES[name]


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _shape(row: Mapping[str, Any]) -> tuple[int, ...]:
    shape = tuple(row["shape"])
    if not all(isinstance(size, int) and 0 <= size < 1 << 31 for size in shape) or len(shape) > 8:
        raise FormatError(str(row.get("name")), "not a shape", got=list(shape), need="up to 8 sizes")
    return shape


#: What a constant of an operator may be.
_CONST_DTYPES = ("int8", "uint8", "int32", "float32")


def _constant(files: Files, row: Mapping[str, Any]) -> np.ndarray:
    dtype, shape = row["dtype"], _shape(row)
    if dtype not in _CONST_DTYPES:
        raise FormatError(
            f"{files.where}: {row['name']}", "unknown dtype", got=dtype, need=", ".join(_CONST_DTYPES)
        )
    size = prod(shape) * np.dtype(dtype).itemsize
    if size > MAX_BYTES:
        raise LimitError(
            f"{files.where}: {row['name']}", "too large", got=f"{size} bytes", need=f"<= {MAX_BYTES}"
        )
    return np.frombuffer(_bytes(files, row, size), np.dtype(dtype)).reshape(shape)


def _bytes(files: Files, row: Mapping[str, Any], size: int) -> bytes:
    """A file of exactly that size and the digest that case.json states."""
    data = files.read(row["file"], size)
    where = f"{files.where}/{row['file']}"
    if len(data) != size:
        raise FormatError(where, "wrong size", got=f"{len(data)} bytes", need=size)
    if sha256(data) != row["sha256"]:
        raise FormatError(
            where, "not the bytes that case.json describes", got=sha256(data)[:16], need=row["sha256"][:16]
        )
    return data
