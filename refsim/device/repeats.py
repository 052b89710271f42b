"""Several runs of one program with the same inputs: which gave the same bytes, and where the others part from them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np

from refsim.bytediff.versions import judge
from refsim.core.buffer import PackedBuffer, raw_of
from refsim.core.counted import form
from refsim.core.meanings import OperatorName
from refsim.device.collect import Collected
from refsim.device.verdicts import FOLLOWS, LEGAL, SAME, UNKNOWN, WRONG, Triage


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
    """Of the operator with most calls that change: wrong in some runs, and not alike in all. None if none does."""
    wrong = {v.row.value for run in runs for v in run.wrong}
    changing = {value for value, told in _texts(runs).items() if value in wrong and len(told) > 1}
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


def _texts(runs: Sequence[Triage]) -> dict[str, dict[str, list[str]]]:
    """Value -> verdict about its operator -> the numbers of the runs that have it."""
    found: dict[str, dict[str, list[str]]] = {}
    for number, run in enumerate(runs):
        for v in run.verdicts:
            found.setdefault(v.row.value, {}).setdefault(v.text, []).append(str(number))
    return found


def _elements(run: Triage, value: str) -> int:
    held = run.collected.held.get(value)
    if held is None:
        return 0
    return held.desc.numel if isinstance(held, PackedBuffer) else held.size


@dataclass(frozen=True)
class Repeats:
    """Several runs with the same inputs."""

    groups: Annotated[tuple[tuple[int, ...], ...], "Numbers of the runs that gave the same bytes everywhere."]
    first: Annotated[str, "The first value whose elements part; without one, whose padding does."] = ""
    operator: OperatorName = ""
    elements: Annotated[int, "Elements that differ."] = 0
    of: Annotated[int, "Of how many."] = 0
    padding: Annotated[int, "Bytes of padding that differ."] = 0
    pattern: Annotated[tuple[str, ...], "What the differing elements have in common, in sentences."] = ()
    right: Annotated[
        tuple[int, ...], "Groups in which the operator is right, or legal, on its own inputs."
    ] = ()
    unjudged: Annotated[tuple[int, ...], "Groups in which that is not known."] = ()
    judged: Annotated[int | None, "A run in which it is wrong: the pattern is that of its inputs."] = None
    padding_first: Annotated[str, "A value before it whose padding alone parts; else empty."] = ""
    shown: Annotated[int, "The run that the nodes are of: the one with most wrong operators."] = 0
    verdicts: Annotated[
        Mapping[str, str], "Value -> which verdict its operator has in which runs, where they do not agree."
    ] = field(default_factory=dict)
    elsewhere: Annotated[
        Mapping[str, tuple[int, str]],
        "Value -> the first run in which its operator is wrong, and the cause there, where it is not in the run shown.",
    ] = field(default_factory=dict)
    tends: Annotated[Tendency | None, "Which calls change; null if none does."] = None

    @property
    def rare(self) -> Annotated[int, "Runs that did not give the most common result."]:
        return sum(map(len, self.groups)) - max(map(len, self.groups))


def repeats(runs: Sequence[Triage]) -> Repeats:
    """Which runs gave the same bytes, and where the others part from them."""
    groups: dict[bytes, list[int]] = {}
    for number, run in enumerate(runs):
        groups.setdefault(_digest(run.collected), []).append(number)
    numbered = tuple(tuple(members) for members in groups.values())
    if len(numbered) == 1:
        return Repeats(numbered)
    distinct = [runs[members[0]].collected for members in numbered]
    parted = [
        name for name in distinct[0].held if len({raw_of(one.held[name]).tobytes() for one in distinct}) > 1
    ]
    first = next((name for name in parted if len({_values(one.held[name]) for one in distinct}) > 1), "")
    spare = "" if first == next(iter(parted), "") else parted[0]
    own = len({b"".join(array.tobytes() for array in one.own) for one in distinct}) > 1
    if not first and own:
        found = Repeats(numbered, first="an output that no delegate gives")
    else:
        found = _parted(numbered, [runs[members[0]] for members in numbered], first or spare)
    before = spare if spare != found.first else ""
    shown = worst(runs)
    return replace(
        found, padding_first=before, shown=shown, verdicts=_disagreed(runs), elsewhere=_elsewhere(runs, shown),
        tends=tendency(runs),
    )  # fmt: skip


def worst(runs: Sequence[Triage]) -> int:
    """The number of the run with most wrong operators; of equal ones the first."""
    return max(range(len(runs)), key=lambda number: (len(runs[number].wrong), len(runs[number].suspects)))


def _disagreed(runs: Sequence[Triage]) -> dict[str, str]:
    """Value -> the verdicts about its operator other than `SAME`, each with its runs, where they are not all alike."""
    return {
        value: ", ".join(
            f"{text} in {form(len(numbers), 'run', 'runs')} {', '.join(numbers)}"
            for text, numbers in told.items()
            if text != SAME
        )
        for value, told in _texts(runs).items()
        if len(told) > 1
    }


def _elsewhere(runs: Sequence[Triage], shown: int) -> dict[str, tuple[int, str]]:
    """Value -> (run, cause): the first run in which its operator is wrong, where it is not in the run ``shown``."""
    here = {v.row.value for v in runs[shown].wrong}
    found: dict[str, tuple[int, str]] = {}
    for number, run in enumerate(runs):
        for v in run.wrong:
            if v.row.value not in here:
                found.setdefault(v.row.value, (number, v.cause))
    return found


def _values(held: PackedBuffer | np.ndarray) -> bytes:
    """The bytes of the elements, without padding."""
    return (held.elements() if isinstance(held, PackedBuffer) else held).tobytes()


def _digest(collected: Collected) -> bytes:
    whole = hashlib.sha256()
    for name in collected.held:
        whole.update(raw_of(collected.held[name]).tobytes())
    for array in collected.own:
        whole.update(array.tobytes())
    return whole.digest()


def _parted(groups: tuple[tuple[int, ...], ...], distinct: Sequence[Triage], name: str) -> Repeats:
    """What differs between the groups in the first value at which they part."""
    held = [run.collected.held[name] for run in distinct]
    found = [next((v for v in run.verdicts if v.row.value == name), None) for run in distinct]
    info = distinct[0].collected.infos[name]
    operator = found[0].row.operator if found[0] is not None else str(info.get("operator", ""))
    buffers = [one for one in held if isinstance(one, PackedBuffer)]
    if len(buffers) < len(held):
        # as unsigned numbers, of which NaN equals itself
        cells = np.stack(
            [np.asarray(one).reshape(-1).view(f"u{np.asarray(one).dtype.itemsize}") for one in held]
        )
        apart = (cells != cells[0]).any(axis=0)
        return Repeats(groups, name, operator, int(apart.sum()), apart.size)
    kinds = [UNKNOWN if v is None else v.verdict for v in found]
    wrong = next((n for n, v in enumerate(found) if v is not None and v.verdict == WRONG and v.row.own), None)
    chosen = found[wrong or 0]
    judged = judge(buffers, None if chosen is None else chosen.row.own)
    return Repeats(
        groups, name, operator, judged.flips, judged.elements, judged.padding, judged.pattern,
        right=tuple(n for n, kind in enumerate(kinds) if kind in (SAME, LEGAL)),
        unjudged=tuple(n for n, kind in enumerate(kinds) if kind in (UNKNOWN, FOLLOWS)),
        judged=None if wrong is None else groups[wrong][0],
    )  # fmt: skip
