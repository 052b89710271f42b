"""How many of something, in words: the one rule for singular and plural."""

from __future__ import annotations


def counted(count: int, noun: str, verb: str = "") -> str:
    """``1 byte`` and ``2 bytes``; with a verb ``1 byte differs`` and ``0 bytes differ``.

    ``noun`` and ``verb`` are the words for one and for many: ``byte``, ``differ``. A noun of several words takes its
    plural at the end.
    """
    text = f"{count} {form(count, noun, f'{noun}s')}"
    return f"{text} {form(count, f'{verb}s', verb)}" if verb else text


def form(count: int, one: str, many: str) -> str:
    """The word, or the words, that stand beside one of something, or beside several or none."""
    return one if count == 1 else many


def first_or_last(count: int, *nouns: str) -> str:
    """So many at either end: ``the first or last row or column``, ``the first or last 3 rows``."""
    return f"the first or last {f'{count} ' if count > 1 else ''}{' or '.join(form(count, n, f'{n}s') for n in nouns)}"


def numbered(count: int, noun: str) -> str:
    """The numbers of so many things, counted from 0: ``0 to 3``, ``0, the only device``."""
    return (
        f"0 to {count - 1}"
        if count > 1
        else f"0, the only {noun}"
        if count
        else f"a {noun}, but there is none"
    )
