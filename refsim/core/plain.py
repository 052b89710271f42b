"""Values as plain data, for JSON: a field or a property of a dataclass is a key if its annotation says what it means.

``bytes: Annotated[int, "Its size."]`` is a key with its type and its meaning, which `refsim schema` prints and
docs/json.md lists; a field without a meaning stays inside. ``place: Annotated[Location, FLAT]`` puts the keys of
another value among those of its owner.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, NamedTuple, get_args, get_origin

#: As a meaning: the keys of the value stand among those of its owner.
FLAT = "(its keys stand here)"


class Column(NamedTuple):
    """In the annotation of a key: tables of such objects have a column for it (`refsim.core.result`).

    ``head`` stands above it, the key's name without one. ``drop``: the how-manieth it is that a narrow terminal leaves
    out; 0: it stays. ``show`` makes the cell of a value.
    """

    head: str = ""
    drop: int = 0
    show: Callable[[Any], object] | None = None


class JsonKey(NamedTuple):
    """A key of an object: its name, its type, what it means, and its column in tables, if it has one."""

    name: str
    type: Any
    meaning: str
    column: Column | None = None


def plain(value: Any) -> Any:
    """Dicts, lists, strings, numbers, booleans and None.

    >>> plain({"a": (1, None)})
    {'a': [1, None]}
    """
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(held) for key, held in value.items()}
    if isinstance(value, list | tuple | set | frozenset) and not keys(type(value)):
        return [plain(held) for held in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    found: dict[str, Any] = {}
    for key in keys(type(value)):  # type: ignore[arg-type]  # mypy: a class is Hashable
        held = plain(getattr(value, key.name))
        found |= held if key.meaning == FLAT else {key.name: held}
    if found or not is_dataclass(value):
        return found if found else value.item()  # a scalar of NumPy
    return {field.name: plain(getattr(value, field.name)) for field in fields(value)}


@cache
def keys(kind: type[Any]) -> tuple[JsonKey, ...]:
    """The keys of a class: those of its bases first, fields before properties."""
    found: dict[str, JsonKey] = {}
    for one in reversed(kind.__mro__):
        space = vars(sys.modules[one.__module__])
        for name, said in _annotations(one):
            said = getattr(said, "__forward_arg__", said)  # of a NamedTuple
            if isinstance(said, str):
                inline = said.startswith("Annotated[")
                said = eval(said, space, {one.__name__: one}) if inline else space.get(said)
            if get_origin(said) is Annotated:
                inner, *more = get_args(said)  # a type with checks of its own says these, too
                meaning = next((one for one in reversed(more) if isinstance(one, str)), None)
                if meaning is not None:
                    column = next((one for one in more if isinstance(one, Column)), None)
                    found[name] = JsonKey(name, inner, meaning, column)
    return tuple(found.values())


def _annotations(kind: type) -> Iterator[tuple[str, Any]]:
    yield from vars(kind).get("__annotations__", {}).items()
    for name, member in vars(kind).items():
        getter = getattr(member, "fget", getattr(member, "func", None))
        if getter is not None and "return" in getattr(getter, "__annotations__", {}):
            yield name, getter.__annotations__["return"]
