"""What an error says of a pattern that fits no case: where it was looked for, where it fits, and one that does."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase
from pathlib import Path

from refsim.core import choices
from refsim.core.errors import ParameterError
from refsim.golden.rules import RULES, case_name
from refsim.golden.telling import UPSTREAM, recorded_cases

#: Characters of the operators that one part of the error lists.
MOST_LISTED = 70
_GLOB = "*?["


def names(op: str, upstream: Path | None) -> list[str]:
    """All cases of an operator: those of the corpus, and its recordings in the folder ``upstream``."""
    corpus = [case_name(op, number) for number in range(RULES[op].count)]
    return corpus + [one.name for one in recorded_cases(op, upstream)]


def no_case(pattern: str, operators: Collection[str], upstream: Path | None) -> ParameterError:
    """The error for a pattern that fits no case of these operators."""
    fits = [op for op in RULES if any(fnmatchcase(name, pattern) for name in names(op, upstream))]
    first = _meant(pattern, operators) or next(iter(operators))
    need = f"a pattern such as {first}/00*"
    recorded = next((name for name in names(first, upstream) if name.startswith(UPSTREAM)), None)
    need += "" if recorded is None else f" or {recorded[: len(UPSTREAM) + 4]}*"
    if fits:
        need += f"; it fits cases of {choices.listed(fits, MOST_LISTED)}"
    return ParameterError(
        "--case", f"no such case of {choices.listed(operators, MOST_LISTED)}", got=repr(pattern),
        need=need + _question(pattern, operators),
    )  # fmt: skip


def _meant(pattern: str, operators: Collection[str]) -> str | None:
    """The operator that the part before the slash seems to be; None where it is one, or is a pattern."""
    head = pattern.partition("/")[0]
    if head in operators:
        return head
    if head == UPSTREAM or head in RULES or any(sign in head for sign in _GLOB):
        return None
    return choices.nearest(head, operators)


def _question(pattern: str, operators: Collection[str]) -> str:
    """Did you mean the same of another operator? Only if that fits a case."""
    op, (head, _, rest) = _meant(pattern, operators), pattern.partition("/")
    if op is None or op == head:
        return ""
    other = f"{op}/{rest or '*'}"
    return choices.asked(other) if any(fnmatchcase(name, other) for name in names(op, None)) else ""
