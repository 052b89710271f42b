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
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from refsim.core import choices, size_limit
from refsim.core.buffer import PackedBuffer
from refsim.core.counted import counted
from refsim.core.errors import FormatError, ParameterError, RefsimError
from refsim.core.layout import layout
from refsim.core.no_clobber import must_be_new
from refsim.core.qmath import PROFILES, Profile
from refsim.core.tensor import TensorDesc
from refsim.formats.file import quote, read_file
from refsim.formats.profiles import of_fields
from refsim.formats.reading import member, parsed
from refsim.formats.run_identity import KEY, RunIdentity
from refsim.formats.typed_json import Must, Sizes, typed
from refsim.ops.base.arg import Kind
from refsim.ops.base.binding import BoundCase
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call
from refsim.ops.base.target import Target

SCHEMA = 1
#: Where case.json says which value of a model the output is.
VALUE = "value"
#: What a constant of an operator may be.
CONST_DTYPES = ("int8", "uint8", "int32", "float32")
_NEED = "a case.json as refsim extract writes it"


@dataclass(frozen=True)
class CaseFile:
    """A file of the case: the argument that it holds, its shape, layout or dtype, and its digest."""

    name: str
    file: str
    sha256: str
    shape: Sizes
    layout: str = ""
    dtype: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of a constant."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Description:
    """The content of case.json. ``params`` are as `OpSpec.make_params` takes them.

    ``profile`` is the name of a known one, or the fields of another. ``run``: which run of a model the call is of, and
    ``value``: which value of it the output is; empty where that is not known.
    """

    op: str
    params: Mapping[str, Any]
    inputs: tuple[CaseFile, ...]
    constants: tuple[CaseFile, ...]
    output: CaseFile
    profile: Annotated[Any, Must(lambda held: isinstance(held, str | dict), "a name, or the fields of one")]
    mali: bool
    seed: int
    style: str
    poison: bool
    note: str
    run: RunIdentity = field(default_factory=RunIdentity)
    value: str = ""


def described(content: Any, where: str) -> Description:
    """The description in a parsed case.json; FormatError or LimitError that names what does not fit."""
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        got = content.get("schema") if isinstance(content, dict) else type(content).__name__
        raise FormatError(
            where, "not a case of this schema", got=quote(got), need=f"schema {SCHEMA}; {_NEED}"
        )
    found = typed(Description, content, where)
    for row in (*found.inputs, found.output):
        if not row.layout:
            raise FormatError(f"{where}: {quote(row.name)}", "has no layout", need=_NEED)
    for row in found.constants:
        place = f"{where}: {quote(row.name)}"
        if row.dtype not in CONST_DTYPES:
            raise FormatError(place, "unknown dtype", got=quote(row.dtype), need=", ".join(CONST_DTYPES))
        size_limit.check(place, row.nbytes)
    params = {name: tuple(held) if isinstance(held, list) else held for name, held in found.params.items()}
    return replace(found, params=params)


CASE_JSON = "case.json"
#: Beside a case: what a device gave for its output.
ACTUAL = "actual.bin"
MAX_JSON_BYTES = 1 << 20


@dataclass(frozen=True)
class Stored:
    """A case read back: the call with its inputs, the bytes that its output must have, and which run it is of.

    ``value``: which value of a model the output is; empty where that is not known.
    """

    name: str
    bound: BoundCase
    expected: PackedBuffer
    run: RunIdentity = field(default_factory=RunIdentity)
    value: str = ""


def sha256(data: bytes | memoryview | np.ndarray) -> str:
    return hashlib.sha256(data.tobytes() if isinstance(data, np.ndarray) else data).hexdigest()


# --- writing ---------------------------------------------------------------------------------------------


def contents(
    bound: BoundCase,
    expected: PackedBuffer,
    note: str = "",
    run: RunIdentity | None = None,
    value: str = "",
) -> dict[str, bytes]:
    """File name -> bytes of a case; ``run``: the run of a model that the call is of, and ``value`` what it writes."""
    call, files = bound.call, {}
    tensors = []
    for name, buffer in bound.inputs.items():
        files[f"in_{name}.bin"] = buffer.raw.tobytes()
        tensors.append(_tensor(name, buffer.desc, f"in_{name}.bin", files))
    constants = []
    for name, const in call.consts.items():
        if const is not None:
            files[f"const_{name}.bin"] = np.ascontiguousarray(const).tobytes()
            constants.append(
                {"name": name, "dtype": str(const.dtype), "shape": list(const.shape)}
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
        "profile": _named(call.target.profile),
        "mali": call.target.mali,
        "seed": bound.case.seed,
        "style": bound.case.style,
        "poison": bound.case.poison,
        "note": note or bound.case.note,
    }
    if run is not None:
        info[KEY] = run.as_json()
    if value:
        info[VALUE] = value
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
    must_be_new(folder)
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
        if self._archive is not None:
            return member(self._archive, f"{self.where.rpartition('!')[2]}/{name}", where, limit)
        assert self._folder is not None
        path = self._folder / name
        if not os.path.isfile(path):  # Path.is_file raises for a name that is too long
            raise FormatError(where, "is missing", need="a regular file")
        return bytes(read_file(path, limit))


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
        content = parsed(files.read(CASE_JSON, MAX_JSON_BYTES), where, "a case")
        return _stored(files, name, described(content, where))
    except RefsimError as error:
        raise (
            error
            if error.where.startswith(files.where)
            else type(error)(f"{where}: {error.where}", error.what, got=error.got, need=error.need)
        ) from error


def _stored(files: Files, name: str, info: Description) -> Stored:
    op = OPS[info.op]
    target = Target(_profile(info.profile, f"{files.where}/{CASE_JSON}"), info.mali)
    params = op.make_params(info.params)
    args = {arg.name: arg for arg in op.of_kind(Kind.INPUT)}
    descs = {
        row.name: args[row.name].desc(row.shape, row.layout)
        if row.name in args
        else TensorDesc(row.shape, layout(row.layout))
        for row in info.inputs
    }
    consts: dict[str, np.ndarray | None] = {arg.name: None for arg in op.of_kind(Kind.CONST)}
    for row in info.constants:
        data = np.frombuffer(_bytes(files, row, row.nbytes), np.dtype(row.dtype))
        consts[row.name] = data.reshape(row.shape)
    out = info.output
    call = op.bind(params, descs, consts, out.layout, out_shape=out.shape, target=target)
    inputs = {
        row.name: PackedBuffer.from_raw(
            _bytes(files, row, descs[row.name].nbytes), row.shape, row.layout, descs[row.name].dtype
        )
        for row in info.inputs
    }
    expected = PackedBuffer.from_raw(_bytes(files, out, call.out.nbytes), call.out.shape, call.out.layout)
    case = Case(
        op.name,
        info.params,
        {row.name: (row.shape, row.layout) for row in info.inputs},
        out.layout,
        info.seed,
        note=info.note,
        style=info.style,
        poison=info.poison,
    )
    return Stored(name, BoundCase(case, _in_order(call, inputs), inputs), expected, info.run, info.value)


def _in_order(call: Call, inputs: dict[str, PackedBuffer]) -> Call:
    for arg in call.op.of_kind(Kind.INPUT):
        if arg.name not in inputs:
            raise FormatError(call.op.name, "an input is missing", got=", ".join(inputs), need=arg.name)
    return call


def _named(profile: Profile) -> str | dict[str, Any]:
    """The name of a known profile, or the fields of one that was measured elsewhere."""
    return profile.name if PROFILES.get(profile.name) == profile else asdict(profile)


def _profile(given: str | Mapping[str, Any], where: str) -> Profile:
    if not isinstance(given, str):
        return of_fields(given, where)
    if given not in PROFILES:
        raise ParameterError(
            "numerics profile", "unknown", got=repr(given), need=choices.need(given, PROFILES)
        )
    return PROFILES[given]


def _bytes(files: Files, row: CaseFile, size: int) -> bytes:
    """A file of exactly that size and the digest that case.json states."""
    data = files.read(row.file, size)
    where = f"{files.where}/{row.file}"
    if len(data) != size:
        raise FormatError(where, "wrong size", got=counted(len(data), "byte"), need=size)
    if sha256(data) != row.sha256:
        raise FormatError(
            where, "not the bytes that case.json describes", got=sha256(data)[:16], need=row.sha256[:16]
        )
    return data
