"""Layouts of the user's own, in a small TOML file: the order of dims, cut or not, what is padded and aligned."""

from __future__ import annotations

import sys
from typing import Any

from refsim.core import choices
from refsim.core.errors import FormatError, LayoutError
from refsim.core.layout import DIM_NAMES, Layout, layout
from refsim.formats.file import quote, read_file

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SUFFIX = ".toml"
#: Key -> what it must be.
KEYS = {"order": "dims, slowest first: n c/4 h w c%4", "pad": "{ w = 8 }", "align": "{ c = 16 }, in bytes"}
_MAX_BYTES = 1 << 16


def named(value: str) -> Layout:
    """The layout of a name, a text as `refsim.core.layout` reads it, or a file ``.toml`` with `KEYS`.

    LayoutError for a name or an order that is none; FormatError for a file that is something else.
    """
    if not value.endswith(SUFFIX):
        return layout(value)
    try:
        content = tomllib.loads(bytes(read_file(value, _MAX_BYTES)).decode())
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise FormatError(value, "not TOML", got=str(error)[:200] or "nested too deeply") from error
    for key in content:
        if key not in KEYS:
            raise FormatError(value, "unknown key", got=quote(key), need=choices.need(key, KEYS))
    if not isinstance(order := content.get("order"), str):
        raise FormatError(value, "order", got=quote(order), need=KEYS["order"])
    parts = [order, *(part for key in ("pad", "align") for part in _parts(value, key, content.get(key, {})))]
    try:
        return layout(" ".join(parts))
    except LayoutError as error:
        raise FormatError(value, error.what, got=error.got, need=error.need) from error


def _parts(where: str, key: str, held: Any) -> list[str]:
    """A table of the file as parts of a text."""
    letters = DIM_NAMES.lower()
    if not isinstance(held, dict) or not all(
        dim in letters and type(by) is int and 0 < by < 10_000 for dim, by in held.items()
    ):
        raise FormatError(where, key, got=quote(held), need=KEYS[key])
    return [f"{key}:{dim}={by}" for dim, by in held.items()]
