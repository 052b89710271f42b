"""Which functions of the sources return a value, while something runs once more: the first of them made it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import refsim

#: The sources of the package that is imported; a checkout may itself lie in a folder of its name.
SOURCES = str(Path(refsim.__file__).parent)
#: So deep a value is looked for in what a function returns, and in no longer tuples and lists.
DEEP, LONG = 4, 16


#: So many functions are told that a value came through.
MOST = 3


def told(places: Sequence[str]) -> str:
    """The first of these places, and who handed it on."""
    return ", handed on by ".join(list(dict.fromkeys(places))[:MOST])


def by(run: Callable[[], object], is_it: Callable[[Any], bool]) -> list[str]:
    """``FILE: FUNCTION`` of every function of refsim that returns such a value, a helper before who called it."""
    found: list[str] = []

    def watch(frame: FrameType, event: str, value: Any) -> None:
        code = frame.f_code
        own = code.co_filename.startswith(f"{SOURCES}/")
        if event == "return" and own and not code.co_name.startswith("<") and is_it(value):
            found.append(f"refsim{code.co_filename.removeprefix(SOURCES)}: {code.co_name}")

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        run()
    finally:
        sys.setprofile(before)
    return found


def holds(wanted: object) -> Callable[[Any], bool]:
    """Whether a value is the wanted one, or a tuple, list or dataclass that has it somewhere inside."""

    def within(value: Any, deep: int) -> bool:
        if type(value) is type(wanted) and value == wanted:
            return True
        if deep == 0:
            return False
        if isinstance(value, tuple | list):
            return len(value) <= LONG and any(within(each, deep - 1) for each in value)
        if is_dataclass(value) and not isinstance(value, type):
            return any(within(getattr(value, field.name, None), deep - 1) for field in fields(value))
        return False

    return lambda value: within(value, DEEP)
