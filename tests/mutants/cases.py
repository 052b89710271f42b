"""Cases of the corpus in a mutated copy: which are tried, and the outcome on what comes out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import numpy as np

from mutants.mutant import Mutant
from mutants.outcome import CRASHED, STOPPED, SURVIVED, Outcome, differs, refused
from mutants.tree import build, execute
from refsim.bytediff import diff
from refsim.core.buffer import PackedBuffer
from refsim.formats.cases import contents
from refsim.golden import coverage, rules
from refsim.golden.store import DigestEntry
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.base.styles import SPREAD

#: How many cases are tried: the first few, and the rest if those show nothing.
COUNT, FEW = 48, 10
#: Elements of all inputs together: kernels run one invocation after another here, and a small case mostly shows as
#: much. A few large ones come last, for they alone have several workgroups along each axis.
SMALL, LARGE, LARGE_COUNT = 40_000, 200_000, 4


def chosen(op: str, count: int = COUNT) -> list[tuple[str, Case]]:
    """(name, case) of an operator's cases that are tried: styles in turn, within each those first that show most."""
    total, combinations = rules.RULES[op].spread, len(OPS[op].layouts)
    slots = total // combinations
    numbers = {(5 + 37 * k) % slots * combinations + (7 * k) % combinations: None for k in range(4 * count)}
    found = [(f"{op}/{n:04d}", rules.case(op, n)) for n in numbers]
    small = [row for row in found if size(row[1]) <= SMALL][:count]
    large = [row for row in found if SMALL < size(row[1]) <= LARGE][:LARGE_COUNT]
    small.sort(key=lambda row: -_telling(row[1]))
    by_style = [[row for row in small if row[1].style == style] for style in _STYLES]
    rule = rules.RULES[op]
    hard = [(f"{op}/{n:04d}", rules.case(op, n)) for n in range(rule.spread, rule.count)]
    spread = [row for rows in zip_longest(*by_style) for row in rows if row is not None]
    return [*spread, *(row for row in hard if size(row[1]) <= LARGE), *large]


#: A position shows an exchange best.
_STYLES = ("position", *(style for style in SPREAD if style != "position"))


def size(case: Case) -> int:
    return sum(int(np.prod(shape)) for shape, _ in case.inputs.values())


def _telling(case: Case) -> int:
    """How much a case can show: batches, rows, columns and channels, each up to what adds nothing more."""
    sizes = coverage.shape4(case)
    return sum(min(size, most) for size, most in zip(sizes, (2, 9, 4, 9), strict=True))


def twin(case: Case) -> Case:
    """The same shapes and layouts with other data and another quantization."""
    changes = {}
    for name, value in case.params.items():
        if name.endswith("scale"):
            changes[name] = value * 1.5
        elif name.endswith("zp"):
            changes[name] = (value + 128 + 57) % 256 - 128
    return replace(case, params={**case.params, **changes}, seed=case.seed ^ 1)


@dataclass(frozen=True)
class _Tried:
    """A case, its twin if there is one, and the name under which the copy finds it."""

    name: str
    key: str
    bound: BoundCase
    other: BoundCase | None


def run(mutant: Mutant, root: Path, count: int) -> Outcome:
    """Run cases in the copy at ``root`` and judge what comes out."""
    found = chosen(mutant.subject, count)
    if any(edit.file.startswith("shaders/") for edit in mutant.edits):
        stopped = build(root, shaders(mutant.subject), mutant.variants)
        if stopped:
            return refused(mutant, "", 0, stopped, STOPPED)
    for begin, end in ((0, FEW), (FEW, len(found))):
        outcome = _tried(mutant, found[begin:end], root) if begin < len(found) else None
        if outcome is not None:
            return replace(outcome, tried=begin + outcome.tried)
    return Outcome(mutant, SURVIVED, tried=len(found))


def shaders(op: str) -> list[str]:
    found = {step.launch.shader for _, case in chosen(op, 6) for step in bind(case).call.dispatches()}
    return sorted(found)


def _tried(mutant: Mutant, part: Sequence[tuple[str, Case]], root: Path) -> Outcome | None:
    folder = root / "cases"
    shutil.rmtree(folder, ignore_errors=True)
    tried = list(_written(mutant, part, folder))
    mode = "drawn" if mutant.drawn else mutant.twin or "plain"
    message = execute(root, folder, "cases", mutant.executor, mode)
    for number, each in enumerate(tried, 1):
        outcome = _judged(mutant, each, number, folder, message)
        if outcome is not None:
            return outcome
    return None


def _written(mutant: Mutant, part: Sequence[tuple[str, Case]], folder: Path) -> Iterator[_Tried]:
    """The cases as the copy will find them, in the order in which it runs them."""
    for number, (name, case) in enumerate(part):
        mine = bind(case)
        other = bind(twin(case)) if mutant.twin else None
        order = [mine] if other is None else [other, mine] if mutant.twin == "before" else [mine, other]
        for place, bound in enumerate(order):
            _write(folder / f"{number:03d}-{place}", bound)
        yield _Tried(name, f"{number:03d}-{order.index(mine)}", mine, other)


def _write(folder: Path, bound: BoundCase) -> None:
    folder.mkdir(parents=True)
    expected = PackedBuffer(bound.call.out)  # the child only runs the case
    for name, data in contents(bound, expected).items():
        (folder / name).write_bytes(data)
    text = {"op": bound.case.op, "line": DigestEntry(0, bound.case, "").line}
    (folder / "line.json").write_text(json.dumps(text))


def _judged(mutant: Mutant, tried: _Tried, number: int, folder: Path, message: str) -> Outcome | None:
    """None if the case came out right."""
    error, out = folder / f"{tried.key}.error", folder / f"{tried.key}.out"
    if error.exists():
        return refused(mutant, tried.name, number, error.read_text())
    if not out.exists():
        return Outcome(mutant, CRASHED, tried.name, number, message=message or (folder / "error").read_text())
    expected = tried.bound.call.expected(tried.bound.inputs)
    actual = PackedBuffer.from_raw(out.read_bytes(), expected.desc.shape, expected.desc.layout)
    if np.array_equal(actual.raw, expected.raw):
        return None
    other = tried.other
    others = {} if other is None else {"the other call's output": other.call.expected(other.inputs).raw}
    report = diff(expected, actual, call=tried.bound, previous=other, others=others, limit=1)
    return differs(mutant, tried.name, number, report)
