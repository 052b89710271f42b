"""What a failed comparison says in one line: how two buffers differ and why, or which choice is another one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from refsim.bytediff import diff
from refsim.core.buffer import PackedBuffer

#: Causes and lines of a pattern that are said.
MOST = 3
#: Letters of what a line belongs to, and of each line.
MOST_LETTERS = 160
#: Where a choice was made, and through whose hands it came, in `choices`.
CHOSEN = re.compile(r"(?:chosen in|handed on by) (\S+\.(?:py|comp|glsl))")


def buffers(expected: PackedBuffer, actual: PackedBuffer, call: Any = None) -> str:
    """How two buffers of one tensor differ: the causes that fit, with ``call`` what wrote them, and where it is."""
    if expected.desc != actual.desc:
        return f"{actual.desc} instead of {expected.desc}"
    report = diff(expected, actual, call=call, limit=1)
    wrong = int(np.count_nonzero(expected.raw != actual.raw))
    causes = [f"{each.name} ({each.fit})" for each in report.causes[:MOST] if not each.weak]
    where = [*report.pattern[:MOST], *report.facts[:1]]
    return "; ".join((f"{wrong} of {expected.raw.size} bytes differ", *causes, *where))


def choices(written: Sequence[str], found: Sequence[str], file: Callable[[str, str, str], str]) -> str:
    """The first choice that is not the one written down; "" if all are.

    A line that is indented belongs to the one above it. ``file``: where the choice of a line was made, from the line it
    belongs to, the line that is written down, and itself.
    """
    other = [n for n, (a, b) in enumerate(zip(written, found, strict=False)) if a != b]
    if not other and len(written) == len(found):
        return ""
    first = other[0] if other else min(len(written), len(found))
    if first >= len(found):
        return f"{len(written) - len(found)} lines are missing, the first is {written[first]!r}"
    whose = next((line for line in reversed(found[: first + 1]) if not line.startswith(" ")), "")
    before = written[first] if first < len(written) else "nothing"
    return (
        f"{len(other)} of {len(found)} lines differ, first of {_short(whose)}: {_changed(before, found[first])}; "
        f"chosen in {file(whose, before, found[first])}"
    )


def choice(found: object, wanted: object, file: str) -> str:
    """What was chosen, if it is not what was ``wanted``, and where; "" if it is."""
    return "" if found == wanted else f"{found} instead of {wanted}; chosen in {file}"


def _short(text: str) -> str:
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}..."


def _changed(before: str, after: str) -> str:
    """The words that are others, where two lines have the same number of them."""
    old, new = before.split(), after.split()
    if len(old) != len(new):
        return f"{_short(before.strip())!r} is written, {_short(after.strip())!r} found"
    return _short(", ".join(f"{b} was {a}" for a, b in zip(old, new, strict=True) if a != b))
