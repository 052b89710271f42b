"""Which calls of a kernel change from run to run: the large ones, those behind some operator, or any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from refsim.core.buffer import PackedBuffer
from refsim.device.verdicts import WRONG, Triage


@dataclass(frozen=True)
class Tendency:
    """Of ``calls`` of ``operator``, ``changing`` are wrong in some runs, and not alike in all."""

    operator: Annotated[str, "The operator with most calls that change from run to run."]
    changing: Annotated[int, "Its calls that change."]
    calls: Annotated[int, "All its calls."]
    least: Annotated[
        int, "Elements of the smallest call that changes, where all that do not are smaller; else 0."
    ] = 0
    behind: Annotated[tuple[str, ...], "Operators in front of each call that changes, and of no other."] = ()
    before: Annotated[tuple[str, ...], "Operators behind each call that changes, and behind no other."] = ()


def tendency(runs: Sequence[Triage]) -> Tendency | None:
    """Of the operator with most calls that change; None if none does."""
    changing = _changing(runs)
    rows = [v.row for v in runs[0].verdicts]
    counts = Counter(row.operator for row in rows if row.value in changing)
    if not counts:
        return None
    operator = counts.most_common(1)[0][0]
    split: tuple[list[int], list[int]] = ([], [])
    for at, row in enumerate(rows):
        if row.operator == operator:
            split[row.value not in changing].append(at)
    yes, no = split
    if not no:
        return Tendency(operator, len(yes), len(yes))
    sizes = [[_elements(runs[0], rows[at].value) for at in some] for some in split]
    least = min(sizes[0]) if min(sizes[0]) > max(sizes[1]) else 0

    def beside(step: int) -> tuple[str, ...]:
        near = [
            {rows[at + step].operator if 0 <= at + step < len(rows) else "" for at in some} for some in split
        ]
        return () if near[0] & near[1] else tuple(sorted(near[0]))

    return Tendency(operator, len(yes), len(yes) + len(no), least, beside(-1), beside(1))


def _changing(runs: Sequence[Triage]) -> set[str]:
    """The values whose operators are wrong in some runs, and not alike in all."""
    wrong: set[str] = set()
    texts: dict[str, set[str]] = {}
    for run in runs:
        for v in run.verdicts:
            texts.setdefault(v.row.value, set()).add(v.text)
            if v.verdict == WRONG:
                wrong.add(v.row.value)
    return {value for value in wrong if len(texts[value]) > 1}


def _elements(run: Triage, value: str) -> int:
    held = run.collected.held.get(value)
    if held is None:
        return 0
    return held.desc.numel if isinstance(held, PackedBuffer) else held.size
