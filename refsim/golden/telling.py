"""The cases of an operator in the order in which they say most about a kernel that nobody has looked at yet.

First come the cases that have shown a seeded bug (`rules.TELLING`). Then comes a spread over layouts, sizes, tails,
groups, zero points and styles of data: each case adds as many features (`refsim.golden.coverage`) as any that is left.
Then come the recordings of upstream's own kernel and the rest of the spread. Within each part small cases come first,
and those of which upstream's kernel has a known defect come after all of it, because they hide what else is wrong.

Programs for a device get fewer (`choose`): of each operator that a serialized graph can name and that reads or writes
packed int8, those that have shown a seeded bug, and a spread over the corpus with a few large ones, whose workgroups
are several along each axis.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from fnmatch import fnmatchcase
from functools import cache, cached_property
from itertools import zip_longest
from math import gcd, prod
from pathlib import Path

import numpy as np

from refsim.core import choices
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import ParameterError, RefsimError
from refsim.core.layout import layout
from refsim.formats import recordings
from refsim.formats.recordings import Recording
from refsim.golden import coverage
from refsim.golden.rules import RULES, TELLING, case, case_name
from refsim.golden.store import DigestEntry
from refsim.ops.base.arg import Kind
from refsim.ops.base.binding import BoundCase, bind, bound_of
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import OpSpec
from refsim.ops.base.target import Behaviour, Target
from refsim.ops.flat.call import flat_array, laid_flat, meant_flat

UPSTREAM = "upstream"
#: How many cases of an operator the spread is chosen from, and how large one of them may be (elements of its inputs).
POOL, SMALL, LARGE, LARGE_CASES, HIDDEN_CASES = 160, 12_000, 200_000, 4, 8
#: A new combination of layouts is worth as much as so many other features.
LAYOUTS = 3
# the first of these that shares no factor with the number of slots, or of combinations: so that all are reached
_STEPS, _TURNS = (37, 41, 43), (7, 11, 13)
_COMBINATION = "layouts"


@dataclass(frozen=True, eq=False)
class TellingCase:
    """A case of the corpus, or a recording of upstream's kernel: ``OPERATOR/NUMBER``, or ``upstream/ID``.

    ``flat``: with the meaning and the tensors that a runtime with flat storage gives it. ``runtime``: whose it is.
    """

    name: str
    op: str
    case: Case | None = None
    recording: Recording | None = None
    flat: bool = False
    runtime: Behaviour = field(default_factory=Behaviour)

    @cached_property
    def bound(self) -> BoundCase:
        """The call with its inputs."""
        packed = self.packed
        if not self.flat:
            return packed
        call = laid_flat(packed.call)
        inputs = {
            name: PackedBuffer.pack(flat_array(call, buffer.unpack()), call.descs[name].layout)
            for name, buffer in packed.inputs.items()
        }
        return BoundCase(packed.case, call, inputs)

    @cached_property
    def packed(self) -> BoundCase:
        """The same with packed tensors."""
        found = self._drawn()
        return replace(found, call=meant_flat(found.call)) if self.flat else found

    def _drawn(self) -> BoundCase:
        if self.case is not None:
            return bind(self.case, Target(runtime=self.runtime))
        recording = self.recording
        assert recording is not None
        found = bound_of(recording.call(), recording.inputs())
        return replace(found, case=replace(found.case, note=recording.id))

    @cached_property
    def expected(self) -> PackedBuffer:
        """The output by definition."""
        return self.bound.call.expected(self.bound.inputs)

    @cached_property
    def recorded(self) -> np.ndarray | None:
        """The bytes that upstream's kernel wrote on lavapipe, uint8; None for a case of the corpus."""
        return None if self.recording is None else self.recording.raw[: self.bound.call.out.nbytes]

    @cached_property
    def hidden(self) -> bool:
        """Whether upstream's kernel has a known defect here, which hides what else is wrong."""
        return not all(row.in_host for row in self.bound.call.defects)

    @property
    def elements(self) -> int:
        """Elements of all inputs together."""
        if self.case is not None:
            return sum(prod(shape) for shape, _ in self.case.inputs.values())
        return sum(prod(desc.shape) for desc in self.bound.call.descs.values())


def ordered(
    op: str, count: int, upstream: Path | None = None, layouts: Mapping[str, Collection[str]] | None = None
) -> Iterator[TellingCase]:
    """About ``count`` cases of the corpus, and all recordings of the operator in the folder ``upstream`` that bind.

    The first ones come at once, the others are chosen only when they are asked for. ``layouts`` are those that a
    kernel takes, by argument; cases of others are left out.
    """
    fit = _combinations(op, layouts or {})
    numbers = [number for number in TELLING[op] if number % len(OPS[op].layouts) in fit]
    told = sorted((_candidate(op, number) for number in numbers), key=lambda one: one.elements)
    yield from (one for one in told if not one.hidden)
    corpus, hidden = _corpus(op, count, fit)
    recorded = sorted(recorded_cases(op, upstream), key=lambda one: one.elements)
    half = len(corpus) // 2
    yield from corpus[:half]
    rest = [one for pair in zip_longest(recorded, corpus[half:]) for one in pair if one is not None]
    yield from sorted((*rest, *(one for one in told if one.hidden), *hidden), key=lambda one: one.hidden)


def matching(op: str, pattern: str, upstream: Path | None = None) -> list[TellingCase]:
    """Every case of the operator, corpus and recordings, whose name matches a shell pattern; small ones first."""
    found: Iterable[TellingCase] = ()
    if not pattern.startswith(UPSTREAM):
        names = {number: case_name(op, number) for number in range(RULES[op].count)}
        found = [_candidate(op, number) for number, name in names.items() if fnmatchcase(name, pattern)]
    recorded = [one for one in recorded_cases(op, upstream) if fnmatchcase(one.name, pattern)]
    return sorted((*found, *recorded), key=lambda one: (one.hidden, one.elements))


def recorded_cases(op: str, upstream: Path | None) -> Iterator[TellingCase]:
    """The recordings of an operator, without those that refsim refuses."""
    path = None if upstream is None else upstream / f"{op}.zip"
    if path is None or not path.is_file():
        return
    for recording in recordings.read(path):
        one = TellingCase(f"{UPSTREAM}/{recording.id}", op, recording=recording)
        try:
            one.bound  # noqa: B018  (whether it binds)
        except RefsimError:
            continue
        yield one


def _candidate(op: str, number: int) -> TellingCase:
    return TellingCase(case_name(op, number), op, case(op, number))


def _combinations(op: str, layouts: Mapping[str, Collection[str]]) -> frozenset[int]:
    """Numbers of the combinations of layouts of an operator that these allow."""
    names = [arg.name for arg in (*OPS[op].of_kind(Kind.INPUT), OPS[op].output)]
    return frozenset(
        number
        for number, rows in enumerate(OPS[op].layouts)
        if all(str(row) in layouts.get(name, (str(row),)) for name, row in zip(names, rows, strict=True))
    )


def _corpus(op: str, count: int, fit: Collection[int]) -> tuple[list[TellingCase], list[TellingCase]]:
    """(A spread of small cases and a few large ones, a few with a known defect), without the telling ones."""
    told = TELLING[op]
    pool = [
        _candidate(op, number) for number in _numbers(op, max(POOL, 3 * count), fit) if number not in told
    ]
    small = [one for one in pool if one.elements <= SMALL]
    large = [one for one in pool if SMALL < one.elements <= LARGE and not one.hidden][:LARGE_CASES]
    clean, hidden = ([one for one in small if one.hidden is wanted] for wanted in (False, True))
    return [*_spread(op, clean, max(0, count - len(told))), *large], _spread(
        op, hidden, min(count, HIDDEN_CASES)
    )


def _numbers(op: str, most: int, fit: Collection[int]) -> list[int]:
    """Case numbers of an operator, spread over combinations of its layouts and over their slots."""
    combinations, total = len(OPS[op].layouts), RULES[op].spread
    slots = total // combinations
    step = next(number for number in _STEPS if gcd(number, slots) == 1)
    turn = next(number for number in _TURNS if gcd(number, combinations) == 1)
    places = (((5 + step * k) % slots, turn * k % combinations) for k in range(total))
    found = dict.fromkeys(
        slot * combinations + combination for slot, combination in places if combination in fit
    )
    return list(found)[:most]


def _spread(op: str, pool: Sequence[TellingCase], count: int) -> list[TellingCase]:
    """Candidates of the corpus, each adding as much as possible to what those before show; at most ``count``."""
    features = [row for row in coverage.FEATURES if row.applies(OPS[op])]
    left = {one: _shown(one, features) for one in pool}
    found: list[TellingCase] = []
    while left and len(found) < count:
        if not any(left.values()):  # everything was shown: once more, with those that are left
            left = {one: _shown(one, features) for one in left}
        best = max(left, key=lambda one: (_worth(left[one]), _room(one), -one.elements))
        fresh = left.pop(best)
        left = {one: shown - fresh for one, shown in left.items()}
        found.append(best)
    return found


def _shown(one: TellingCase, features: Sequence[coverage.Feature]) -> frozenset[str]:
    assert one.case is not None
    names = {row.name for row in features if row.has(one.case)}
    return frozenset({*names, f"{_COMBINATION} {' '.join(coverage.layouts(one.case))}"})


def _worth(shown: frozenset[str]) -> int:
    return len(shown) + LAYOUTS * any(name.startswith(_COMBINATION) for name in shown)


def _room(one: TellingCase) -> int:
    """Batches, rows, columns and channels of a case, each up to what adds nothing more."""
    assert one.case is not None
    return sum(min(size, most) for size, most in zip(coverage.shape4(one.case), (2, 9, 4, 9), strict=True))


# --- programs for a device -------------------------------------------------------------------------------

#: How many cases of an operator are exported, for how many bytes of tensors and constants, and how many large ones.
EXPORTED, EXPORTED_BYTES, EXPORTED_LARGE = 170, 640_000, 6
SMALL_BYTES, LARGE_BYTES = 6_000, 160_000
# neither shares a factor with the number of slots, so that all are reached, and by each combination in another order
_STEP, _TURN = 37, 7


class Size(Enum):
    """Which cases are meant: those whose data is small, the large ones, or both."""

    SMALL = "small"
    LARGE = "large"
    ALL = "all"


def exportable() -> tuple[str, ...]:
    """The operators with a packed int8 tensor that a serialized graph can name and that have one output."""
    return tuple(
        sorted(name for name, op in OPS.items() if op.serialized and not op.siblings and _packed(op))
    )


def _packed(op: OpSpec) -> bool:
    tensors = (*op.of_kind(Kind.INPUT), op.output)
    plain = any(arg.plain for arg in tensors)  # graphs keep these in no packed layout
    return not plain and any(row.packed_int8 for arg in tensors for row in arg.layouts)


def choose(
    operators: Sequence[str] = (), layouts: Sequence[str] = (), size: Size = Size.ALL
) -> Iterator[DigestEntry]:
    """The cases to export, by operator and number; all operators if none is named.

    ``layouts``: only cases in which a tensor has one of these. ParameterError for an operator that cannot be exported,
    LayoutError for an unknown layout.
    """
    known = exportable()
    if unknown := [name for name in operators if name not in known]:
        raise ParameterError(
            "golden export",
            "not an operator of a graph with packed int8 (refsim golden export --help lists all)",
            got=unknown[0],
            need=choices.need(unknown[0], known),
        )
    wanted = {str(layout(name)) for name in layouts}
    for op in operators or known:
        for number in sorted(_exported(op)):
            one = case(op, number)
            if wanted and not wanted & {*coverage.layouts(one)}:
                continue
            if size is not Size.ALL and (nbytes_of(bind(one)) > SMALL_BYTES) is (size is Size.SMALL):
                continue
            yield DigestEntry(number, one)


def layouts_of(operators: Sequence[str]) -> list[str]:
    """The layouts that tensors of these operators have, in all cases that are exported."""
    return sorted(
        {name for op in operators for number in _exported(op) for name in coverage.layouts(case(op, number))}
    )


@cache
def _exported(op: str) -> frozenset[int]:
    """The numbers that are chosen of an operator: telling ones, then a spread within the limits."""
    found = set(TELLING[op])
    combinations, count = len(OPS[op].layouts), RULES[op].spread
    slots = count // combinations
    total = large = 0
    for place in range(slots):
        for combination in range(combinations):
            number = (5 + _STEP * place + _TURN * combination) % slots * combinations + combination
            if len(found) >= EXPORTED:
                return frozenset(found)
            one = case(op, number)
            elements = sum(
                prod(shape) for shape, _ in one.inputs.values()
            )  # a quick look, before they are drawn
            if number in found or elements > LARGE_BYTES:
                continue
            nbytes = nbytes_of(bind(one))
            is_large = nbytes > SMALL_BYTES
            if (
                nbytes > LARGE_BYTES
                or (is_large and large == EXPORTED_LARGE)
                or total + nbytes > EXPORTED_BYTES
            ):
                continue
            total += nbytes
            large += is_large
            found.add(number)
    return frozenset(found)


def nbytes_of(bound: BoundCase) -> int:
    """Bytes of a case in a file and in its outputs: inputs, constants, output."""
    consts = [bound.call.consts[arg.name] for arg in bound.call.op.of_kind(Kind.CONST)]
    stored = sum(buffer.desc.nbytes for buffer in bound.inputs.values())
    return stored + sum(value.nbytes for value in consts if value is not None) + bound.call.out.nbytes
