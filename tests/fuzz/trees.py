"""Mutations of JSON: other types, absurd numbers, deep nesting, missing and doubled keys."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from tests.fuzz import plain

_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 7, 128, 2**31, 2**31 - 1, -(2**31), 2**40, 2**63, 2**64, 10**30, -(10**30),
    0.5, 1e-60, 1e-320, 1e308, float("nan"), float("inf"), float("-inf"), 2.0**-60, -0.0,
    "", "0", "nan", "int8", "float32", "4W4C", "4C", "W", "relu", "../x", "/etc/passwd", "\x1b[31mred",
    "\u202edrawkcab", "a\nb", "x" * 3000, "\x00", "\ud800",
    [], {}, [[]], [0], [1, 1, 1, 1], [2**31, 2**31], [1] * 9, [1.5, 2], ["a"], [None], [[1, 2], "W"], {"a": 1},
)  # fmt: skip


def mutate(rng: random.Random, data: bytes) -> bytes:
    """A JSON file with other content; now and then its text is damaged instead."""
    if rng.random() < 0.1:
        return plain.mutate(rng, data)
    if rng.random() < 0.1:
        return plain.mutate_text(rng, data.decode()).encode("utf-8", "surrogatepass")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):  # a mutant of a mutant
        return plain.mutate(rng, data)
    return dump(rng, tree(rng, content))


def tree(rng: random.Random, content: Any) -> Any:
    """Parsed JSON with some of its values changed."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        content = _changed(rng, copy.deepcopy(content))
    return content


def dump(rng: random.Random, content: Any) -> bytes:
    text = json.dumps(content)
    if rng.random() < 0.03:  # nested deeper than a parser goes
        text = text.replace("1", "[" * 100_000, 1)
    if rng.random() < 0.03:
        text = text.replace("0", rng.choice(plain.NUMBERS), 1)
    return text.encode("utf-8", "surrogatepass")


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of everything in it."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield content, key
            yield from _places(value)
    elif isinstance(content, list):
        for at, value in enumerate(content):
            yield content, at
            yield from _places(value)


def _changed(rng: random.Random, content: Any) -> Any:
    places = list(_places(content))
    if not places or rng.random() < 0.01:
        return rng.choice(_VALUES)
    holder, key = rng.choice(places)
    rng.choice(_WAYS)(rng, holder, key, places)
    return content


def _other(rng: random.Random, holder: Any, key: Any, places: Any) -> None:
    holder[key] = rng.choice(_VALUES)


def _near(rng: random.Random, holder: Any, key: Any, places: Any) -> None:
    value = holder[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _swap(rng, holder, key, places)
    holder[key] = rng.choice(
        (value + 1, value - 1, -value, value * 2, value * 1000, float(value), value * 2**32, 0)
    )
    return None


def _gone(rng: random.Random, holder: Any, key: Any, places: Any) -> None:
    del holder[key]


def _swap(rng: random.Random, holder: Any, key: Any, places: Any) -> None:
    """The value of another place."""
    other, there = rng.choice(places)
    holder[key] = copy.deepcopy(other[there])


def _more(rng: random.Random, holder: Any, key: Any, places: Any) -> None:
    value = holder[key]
    if isinstance(holder, list):
        holder.extend([copy.deepcopy(value)] * rng.choice((1, 1, 5)))
    elif isinstance(value, list):
        value.append(rng.choice(_VALUES))
    else:
        holder[f"{key}{rng.choice('xyz_')}"] = value


def _deep(rng: random.Random, holder: Any, key: Any, places: Any) -> None:
    for _ in range(rng.choice((1, 2, 60))):
        holder[key] = [holder[key]] if rng.random() < 0.7 else {"a": holder[key]}


def _renamed(rng: random.Random, holder: Any, key: Any, places: Any) -> None:
    if isinstance(holder, dict):
        holder[rng.choice(("", "op", "shape", "\x1b]0;x\x07", "value", "name"))] = holder.pop(key)
    else:
        _swap(rng, holder, key, places)


_WAYS: tuple[Callable[[random.Random, Any, Any, Any], None], ...] = (
    _other, _other, _near, _near, _near, _gone, _swap, _more, _deep, _renamed,
)  # fmt: skip
