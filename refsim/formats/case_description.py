"""What case.json says, with each field checked when it is read, so that nothing else needs to ask what it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from refsim.core import size_limit
from refsim.core.errors import FormatError
from refsim.formats.file import quote
from refsim.formats.limits import sizes
from refsim.formats.reading import reading
from refsim.formats.run_identity import RunIdentity, from_sidecar

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
    shape: tuple[int, ...]
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
    profile: str | Mapping[str, Any]
    mali: bool
    seed: int
    style: str
    poison: bool
    note: str
    run: RunIdentity
    value: str


def described(content: Any, where: str) -> Description:
    """The description in a parsed case.json; FormatError or LimitError that names what does not fit."""
    with reading(where, "not a case", _NEED):
        if content["schema"] != SCHEMA:
            raise FormatError(where, "unknown schema", got=quote(content["schema"]), need=SCHEMA)
        return Description(
            _text(content, "op", where),
            {str(key): _value(value) for key, value in content["params"].items()},
            tuple(_file(row, f"{where}: inputs[{at}]", "layout") for at, row in enumerate(content["inputs"])),
            tuple(
                _file(row, f"{where}: constants[{at}]", "dtype")
                for at, row in enumerate(content["constants"])
            ),
            _file(content["output"], f"{where}: output", "layout"),
            content["profile"] if isinstance(content["profile"], dict) else _text(content, "profile", where),
            bool(content["mali"]),
            int(content["seed"]),
            _text(content, "style", where),
            bool(content["poison"]),
            str(content["note"]),
            from_sidecar(content),
            str(content.get(VALUE, "")),
        )


def _file(row: Any, place: str, kind: str) -> CaseFile:
    held = CaseFile(
        _text(row, "name", place),
        _text(row, "file", place),
        _text(row, "sha256", place),
        sizes(f"{place}.shape", row["shape"]),
        **{kind: _text(row, kind, place)},
    )
    if kind == "dtype":
        if held.dtype not in CONST_DTYPES:
            raise FormatError(
                f"{place}: {held.name}", "unknown dtype", got=held.dtype, need=", ".join(CONST_DTYPES)
            )
        size_limit.check(f"{place}: {held.name}", held.nbytes)
    return held


def _text(row: Any, key: str, place: str) -> str:
    if not isinstance(row[key], str):
        raise FormatError(f"{place}.{key}", "not a text", got=quote(row[key]))
    return row[key]


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
