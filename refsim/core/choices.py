"""What an error says of a name that is not there: what there is, in a short list, and what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

#: Characters of a list, after which only the number of further names is given.
MOST_LISTED = 120
#: Names of a list whose first few say enough.
MOST_NAMED = 4
#: How alike two names must be for one to be taken for a slip of the other.
ALIKE = 0.6
#: What is left of a part that had to be cut.
_LEAST = 48
_DIGITS = "0123456789"
_MEANT = "; did you mean "
#: How a verb shows the whole of a list that its text cuts.
IN_JSON = "--json lists all"
_HIDDEN = re.compile(r"\.\.\. and (\d+) more")


def nearest(name: str, names: Iterable[str], alike: float = ALIKE) -> str | None:
    """The one of ``names`` that is most like ``name``, in either case; None if none is like it, or it is one."""
    from difflib import get_close_matches  # only errors need it

    folded = {one.casefold(): one for one in reversed(list(names))}
    if (near := _numbered(name.casefold(), folded)) is not None:
        return folded[near]
    shared = _shared(name.casefold(), folded)
    rest = {one.removeprefix(shared): one for one in folded if one.startswith(shared)}
    asked_for = name.casefold().removeprefix(shared)
    found = get_close_matches(asked_for, rest, len(rest) or 1, alike)
    near = folded[rest[_first_of_best(asked_for, found)]] if found else None
    return near if near != name else None


def _first_of_best(name: str, found: Sequence[str]) -> str:
    """Of names that are like ``name``, the first in the alphabet of those that are most like it."""
    from difflib import SequenceMatcher

    likeness = {one: SequenceMatcher(None, one, name).ratio() for one in found}
    return min(found, key=lambda one: (-likeness[one], one))


def _numbered(name: str, names: Iterable[str]) -> str | None:
    """Of names that differ from ``name`` in the number at their end alone, that with the nearest; None without any.

    The numbers are as long: what differs in length too is no slip of a count.
    """
    stem = name.rstrip(_DIGITS)
    if stem == name or not stem or name in names:
        return None
    number = int(name[len(stem) :])
    alike = [one for one in names if one.rstrip(_DIGITS) == stem and len(one) == len(name)]
    return min(alike, key=lambda one: (abs(int(one[len(stem) :]) - number), one), default=None)


def _shared(name: str, names: Iterable[str]) -> str:
    """How a name begins, up to ``_``, if at least two of the names begin so: that much does not make it like them."""
    start = name[: name.find("_") + 1]
    return start if sum(one.startswith(start) for one in names) > 1 else ""


def meant(name: str, names: Iterable[str], alike: float = ALIKE) -> str:
    """``; did you mean q8ta_add?``, or nothing."""
    found = nearest(name, names, alike)
    return asked(found) if found else ""


def asked(name: str) -> str:
    """The question at the end of an error's ``need``."""
    return f"{_MEANT}{name}?"


def listed(names: Iterable[str], most: int = MOST_LISTED, hidden: int = 0) -> str:
    """The names with commas between them; a long list is cut after a name, and says how many more there are.

    ``hidden`` names more were there before.
    """
    held = list(names)
    count = len(held)
    while count > 1 and len(", ".join(held[:count])) > most:
        count -= 1
    return first(held, count, hidden=hidden)


def first(names: Iterable[object], count: int = MOST_NAMED, way: str = "", hidden: int = 0) -> str:
    """The first ``count`` names, and how many more there are: the one place where a list is cut.

    ``way`` says how to see all, where there is one; ``hidden`` names more were there before.
    """
    held = [str(name) for name in names]
    hidden += max(0, len(held) - count)
    return ", ".join([*held[:count], *([more(hidden, way)] if hidden else [])])


def more(hidden: int, way: str = "") -> str:
    """The end of a list that is cut: ``... and 7 more``, and in parentheses how to see all."""
    return f"... and {hidden} more" + (f" ({way})" if way else "")


def need(name: str, names: Iterable[str], *others: str) -> str:
    """The ``need`` of an error about ``name``: the names that there are, ``others`` in words, and the likely one."""
    held = list(names)
    return listed([*held, *others]) + meant(name, held)


def cut(text: str, most: int) -> str:
    """At most ``most`` characters of a text: the first names of a list, else its beginning and its end."""
    if len(text) <= most:
        return text
    head, mark, tail = text.partition(_MEANT)
    *names, last = head.split(", ")
    before = _HIDDEN.fullmatch(last)
    names += [] if before else [last]
    hidden = int(before[1]) if before else 0
    room = most - len(mark + tail) - len(", ... and 1000 more")
    if (len(names) > 3 or hidden) and len(names[0]) <= room:
        return listed(names, room, hidden) + mark + tail
    half = max(1, (most - 3) // 2)
    return f"{text[:half]}...{text[-half:]}"


def fitted(parts: Sequence[str], most: int) -> list[str]:
    """The parts in at most ``most`` characters together, if that leaves something of each: the longest gives way."""
    held = list(parts)
    while (over := sum(map(len, held)) - most) > 0:
        longest = max(range(len(held)), key=lambda at: len(held[at]))
        shorter = cut(parts[longest], max(_LEAST, len(held[longest]) - over))
        if len(shorter) >= len(held[longest]):
            break
        held[longest] = shorter
    return held
