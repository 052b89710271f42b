"""What case.json says, with each field checked when it is read, so that nothing else needs to ask what it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Annotated, Any

import numpy as np

from refsim.core import size_limit
from refsim.core.errors import FormatError
from refsim.formats.file import quote
from refsim.formats.run_identity import RunIdentity
from refsim.formats.typed_json import Must, Sizes, typed

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
