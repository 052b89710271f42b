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


def names(op: str, upstream: Path | None) -> list[str]:
    """All cases of an operator: those of the corpus, and its recordings in the folder ``upstream``."""
    corpus = [case_name(op, number) for number in range(RULES[op].count)]
    return corpus + [one.name for one in recorded_cases(op, upstream)]


def no_case(pattern: str, operators: Collection[str], upstream: Path | None) -> ParameterError:
    """The error for a pattern that fits no case of these operators."""
    fits = [op for op in RULES if any(fnmatchcase(name, pattern) for name in names(op, upstream))]
    first = next(iter(operators))
    recorded = [name for name in names(first, upstream) if name.startswith(UPSTREAM)]
    shown = [f"{first}/00*", *(f"{name[: len(UPSTREAM) + 4]}*" for name in recorded[:1])]
    need = f"a pattern such as {' or '.join(shown)}"
    if fits:
        need += f"; it fits cases of {choices.listed(fits, MOST_LISTED)}"
    return ParameterError(
        "--case", f"no such case of {choices.listed(operators, MOST_LISTED)}", got=repr(pattern),
        need=need + choices.meant(pattern.partition("/")[0], RULES),
    )  # fmt: skip
