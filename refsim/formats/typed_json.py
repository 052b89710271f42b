"""Dataclasses out of JSON that nobody vouches for: the types of the fields say what each key must be.

A type is ``str``, ``bool``, ``int``, ``float`` (a whole number will do), ``Any``, a dataclass, ``tuple[X, ...]``,
``Mapping[str, X]`` or ``X | None``. `Must`, in an ``Annotated`` type, asks for more; a text there says what the key
means. A key may be missing where its field has a default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from refsim.core.errors import FormatError
from refsim.formats.file import quote

T = TypeVar("T")
_ABSENT = object()
#: What a value of a type is called.
_WORDS = {str: "a text", bool: "true or false", int: "a whole number", float: "a number", Any: "a value"}


@dataclass(frozen=True)
class Must:
    """What a value must be besides: ``holds`` says whether it is, ``need`` says it in words."""

    holds: Callable[[Any], bool]
    need: str


def one_of(*allowed: str) -> Must:
    return Must(allowed.__contains__, f"one of {', '.join(allowed)}")


def up_to(most: int) -> Must:
    return Must(lambda number: 0 <= number <= most, f"0 to {most}")


#: A shape of at most 8 dims, a number of things, and a digest.
Sizes = Annotated[tuple[Annotated[int, up_to(2**31 - 1)], ...], Must(lambda s: len(s) <= 8, "up to 8 sizes")]
Count = Annotated[int, up_to(2**40)]
Sha256 = Annotated[str, Must(lambda text: len(text) == 64, "a SHA-256 of 64 hexadecimal digits")]


def typed(kind: type[T], content: Any, where: str) -> T:
    """The dataclass of a parsed object; FormatError, naming the key, for anything else. Other keys are not read."""
    if not isinstance(content, dict):
        _refuse(where, content, "an object")
    found = {}
    for name, said, optional in _rows(kind):  # type: ignore[arg-type]  # mypy: a class is Hashable
        held = content.get(name, _ABSENT)
        if held is not _ABSENT or not optional:
            found[name] = _value(said, held, f"{where}: {name}")
    return kind(**found)


@cache
def _rows(kind: type) -> list[tuple[str, Any, bool]]:
    """Name and type of each field, and whether it has a default."""
    types = get_type_hints(kind, include_extras=True)
    return [
        (row.name, types[row.name], row.default is not MISSING or row.default_factory is not MISSING)
        for row in fields(kind)
    ]


def _value(said: Any, held: Any, where: str) -> Any:
    origin, inside = get_origin(said), get_args(said)
    if origin is Annotated:
        made = _value(inside[0], held, where)
        for must in inside[1:]:
            if isinstance(must, Must) and not must.holds(made):
                _refuse(where, held, must.need)
        return made
    if origin in (Union, UnionType):
        (other,) = (one for one in inside if one is not NoneType)
        return None if held is None else _value(other, held, where)
    if origin is tuple:
        if not isinstance(held, list):
            _refuse(where, held, "a list")
        return tuple(_value(inside[0], item, f"{where}[{number}]") for number, item in enumerate(held))
    if origin is Mapping:
        if not isinstance(held, dict):
            _refuse(where, held, "an object")
        return {name: _value(inside[1], item, f"{where}: {quote(name)}") for name, item in held.items()}
    if is_dataclass(said):
        return typed(said, held, where)  # type: ignore[arg-type]
    if said is Any and held is not _ABSENT:
        return held
    if type(held) is not said and not (said is float and type(held) is int):
        _refuse(where, held, _WORDS[said])
    return held


def _refuse(where: str, held: Any, need: str) -> NoReturn:
    got = "nothing" if held is _ABSENT else quote(held)
    raise FormatError(where, "does not fit", got=got, need=need)
