"""What each output of a wrong call reads, found by asking its kernel.

An element is changed, and the outputs that change with it read it. Many elements change at once: in turn those whose
number has a certain bit, and those whose number lacks it. So an output tells the number of the one element that it
reads. One that sums products reads an element in each of them: there, all weights but one of each channel are 0. The
definition is asked in the same way, and so is what upstream's kernel is known to do instead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from refsim.core.buffer import PackedBuffer
from refsim.core.counted import counted
from refsim.core.errors import LimitError
from refsim.exec.again import ran
from refsim.exec.executor import Executor
from refsim.ops.base.arg import Arrays, Kind
from refsim.ops.base.binding import BoundCase
from refsim.ops.base.conv import ConvParams, logical_weight
from refsim.ops.base.defect import together

#: What a cause is called that was found by asking.
NAME = "other elements read"
#: An output that reads none of the elements that change, or several.
NONE, SEVERAL = -1, -2
#: What inputs hold that are no indices.
VALUES = (np.int8, np.float32)
#: What an int8 element changes to, from its negative: a product of two of them shows in an output.
FAR = 100
#: So many weights of a channel are looked at, each alone: some at the start, the others spread to the end.
FIRST_TAPS, SPREAD_TAPS = 6, 10
#: Other constants are multiplied by these, so that one product alone shows.
FACTORS = (0, 8, 64, 512)
#: How much is computed for the answers: outputs times weights of one, in all runs together.
MOST_WORK = 3_000_000_000
#: Fewer outputs that change with nothing may do so by chance.
FEW = 4
#: Of so many tensors it is told what is read; and so many weights with which it is right.
MOST_TOLD, MOST_RIGHT = 2, 4


@dataclass(frozen=True)
class Reads:
    """Which element of a tensor each output reads, and which it should: its number, `NONE` or `SEVERAL`.

    ``numbers``: those of the elements by their indices. ``tap``: the one weight of each channel that is not 0; empty
    if weights are as they were. ``clamped``: outputs at a bound, where what is read need not show.
    """

    tensor: str
    numbers: np.ndarray
    got: np.ndarray
    need: np.ndarray
    clamped: np.ndarray
    tap: str = ""

    @property
    def others(self) -> np.ndarray:
        """Where one element is read instead of another."""
        return (self.got != self.need) & (self.got >= 0) & (self.need >= 0)

    def element(self, number: int) -> str:
        """An element by its index."""
        if number < 0:
            return f"{'no element' if number == NONE else 'several elements'} of {self.tensor}"
        return f"{self.tensor}{_index(np.argwhere(self.numbers == number)[0])}"


@dataclass(frozen=True)
class Misread:
    """What outputs read otherwise, and where these are: ``wrong``, of which some are true.

    ``right``: the weights with which all outputs read what they should, among the ``taps`` that were looked at.
    """

    reads: Reads
    wrong: np.ndarray
    right: Sequence[str] = ()
    taps: int = 0

    @property
    def rank(self) -> tuple[int, int]:
        """An output that reads another element says more than one that reads none, or several."""
        return int((self.wrong & self.reads.others).sum()), int(self.wrong.sum())

    def __str__(self) -> str:
        reads = self.reads
        shown = self.wrong & reads.others if self.rank[0] else self.wrong
        at = tuple(np.argwhere(shown)[0])
        got, need = (reads.element(int(which[at])) for which in (reads.got, reads.need))
        where = f"in products with {reads.tap}, " if reads.tap else ""
        count = f"{self.wrong.sum()} of {counted(self.wrong.size, 'output')}"
        if self.right:
            more = ", ..." if len(self.right) > MOST_RIGHT else ""
            count += f"; right with {len(self.right)} of {counted(self.taps, 'weight')}: "
            count += f"{', '.join(self.right[:MOST_RIGHT])}{more}"
        return f"{where}output {_index(at)} reads {got}, need {need} ({count})"


def asked(executor: Executor, bound: BoundCase) -> tuple[str, str] | None:
    """What a wrong call reads otherwise, as the name and the words of a cause; None if nothing is found."""
    found = misread(executor, bound)
    return (NAME, "; ".join(map(str, found[:MOST_TOLD]))) if found else None


def misread(executor: Executor, bound: BoundCase) -> list[Misread]:
    """What outputs of a call read otherwise on an executor, for each tensor; what says most first.

    Only what can be asked is known: int8 and float inputs, int8 weights, other constants that are numbers; of large
    calls some of that, or nothing.
    """
    rows: dict[str, list[Reads]] = defaultdict(list)
    with suppress(Exception):  # a kernel that is broken may raise anything on other inputs; or it was enough
        for one in answers(executor, bound):
            rows[one.tensor].append(one)
    found = []
    for name, of in rows.items():
        wrong = _of_input(of) if name in bound.inputs else [one.others for one in of]
        both = list(zip(of, wrong, strict=True))
        right = [one.tap for one, bad in both if not bad.any()]
        found.append(max((Misread(one, bad, right, len(of)) for one, bad in both), key=lambda one: one.rank))
    return sorted((one for one in found if one.wrong.any()), key=lambda one: one.rank, reverse=True)


def answers(executor: Executor, bound: BoundCase) -> Iterator[Reads]:
    """What each output reads of each tensor that can be asked for, right or not. Raises what the executor raises."""
    return _Asked(executor, bound).all()


def _of_input(rows: Sequence[Reads]) -> list[np.ndarray]:
    """Where the wrong element of an input is read.

    Of products: an output in which one of them shows would show each. Some in which none does, and that no clamp
    holds, read nothing. A constant that does not show may be too small to do so.
    """
    got, need = np.stack([row.got for row in rows]), np.stack([row.need for row in rows])
    if rows[0].tap:
        silent = (got == NONE).all(0)
        silent &= ~np.stack([row.clamped for row in rows]).any(0)
        shown = (got != NONE).any(0) | (silent if silent.sum() >= FEW else False)
        return list((got != need) & (need != SEVERAL) & shown & (need >= 0).any(0))
    return list((got != need) & (need >= 0) & ((got != NONE) | ~rows[0].clamped))


class _Asked:
    """A call whose inputs and constants are replaced, on an executor and by definition."""

    def __init__(self, executor: Executor, bound: BoundCase) -> None:
        self.executor, self.bound = executor, bound
        self.inputs = {name: one.unpack() for name, one in bound.inputs.items()}
        self.consts = {name: one for name, one in bound.call.consts.items() if one is not None}
        defects = [row for row in bound.call.defects if row.values is not None] if executor.foreign else []
        self.defect = together(defects) if defects else None
        depth = max((one[0].size for one in self.consts.values() if one.dtype == np.int8), default=1)
        self.work, self.left = bound.call.out.numel * depth, MOST_WORK

    def all(self) -> Iterator[Reads]:
        """See `answers`."""
        consts = [
            (arg, self.consts[arg.name])
            for arg in self.bound.call.op.of_kind(Kind.CONST)
            if arg.name in self.consts
        ]
        weights = [(arg, array) for arg, array in consts if array.dtype == np.int8]
        for name, array in self.inputs.items():
            if array.dtype in VALUES and not weights:
                yield self._reads(name, *_far(array))
        for arg, array in weights:
            taps = list(_taps(self._numbers(arg.name, array).shape, arg.channels or 0))
            loud = self._loud({arg.name: self._alone(arg.name, array, taps[len(taps) // 2])})
            for tap in taps:
                yield from self._with_tap(arg.name, array, tap, loud)
        for arg, array in consts:
            if array.dtype in (np.int32, np.float32):
                yield self._reads(arg.name, array, 3 * array + array.dtype.type(1 + np.abs(array).max()))

    def _alone(self, name: str, array: np.ndarray, tap: tuple[slice | int, ...]) -> np.ndarray:
        """Weights of which one of each channel is not 0."""
        found = np.zeros_like(array)
        found.flat[self._numbers(name, array)[tap]] = FAR
        return found

    def _loud(self, weights: Arrays) -> Arrays:
        """Other constants with which a product of these weights shows in more outputs, by definition."""
        streams = {name: _far(one) for name, one in self.inputs.items() if one.dtype in VALUES}

        def shown(consts: Arrays) -> int:
            low, high = (
                self._defined(
                    self._replaced({**weights, **consts, **{name: ends[k] for name, ends in streams.items()}})
                )
                for k in (0, 1)
            )
            return int((low != high).sum())

        best: Arrays = {}
        most = shown(best)
        for name, array in self.consts.items():
            for factor in FACTORS if array.dtype == np.float32 else ():
                tried = {**best, name: array * np.float32(factor)}
                if (count := shown(tried)) > most:
                    best, most = tried, count
        return best

    def _with_tap(
        self, name: str, array: np.ndarray, tap: tuple[slice | int, ...], loud: Arrays
    ) -> Iterator[Reads]:
        """In products with one weight of each channel: which inputs are read, and of which channel the weight is."""
        alone = self._alone(name, array, tap)
        told = f"{name}[{', '.join(':' if isinstance(i, slice) else str(i) for i in tap)}]"
        for other, one in self.inputs.items():
            if one.dtype in VALUES:
                yield replace(self._reads(other, *_far(one), {**loud, name: alone}), tap=told)
        yield replace(self._reads(name, -alone, alone, loud), tap=told)

    def _reads(
        self,
        tensor: str,
        before: np.ndarray,
        after: np.ndarray,
        others: Arrays | None = None,
    ) -> Reads:
        """Which of the elements that differ between ``before`` and ``after`` each output reads."""
        others = others or {}
        differ = np.flatnonzero(before != after)
        base = self._outputs({**others, tensor: before})
        number = np.zeros(base.shape, np.int64)
        none, several = np.ones(base.shape, bool), np.zeros(base.shape, bool)
        for bit in range(max(1, (len(differ) - 1).bit_length())):
            has = np.arange(len(differ)) >> bit & 1 == 1
            lacks_it, has_it = (
                self._outputs({**others, tensor: _changed(before, after, differ[at])}) != base
                for at in (~has, has)
            )
            number |= has_it.astype(np.int64) << bit
            none &= ~(lacks_it | has_it)
            several |= lacks_it & has_it
        number = differ[np.minimum(number, len(differ) - 1)]
        got, need, *defective = np.where(several, SEVERAL, np.where(none, NONE, number))
        for known in defective:
            need = np.where(known == got, got, need)
        alike = tensor in self.inputs and not others
        ends = (-128, 127, *(() if alike else (base[1].min(), base[1].max())))
        return Reads(tensor, self._numbers(tensor, before), got, need, np.isin(base[0], ends))

    def _numbers(self, name: str, array: np.ndarray) -> np.ndarray:
        """The numbers of a tensor's elements by their indices: of a window's weights (OC, KH, KW, IC of a group)."""
        numbers, params = np.arange(array.size).reshape(array.shape), self.bound.call.params
        if not (
            isinstance(params, ConvParams)
            and array.dtype == np.int8
            and name in self.consts
            and array.ndim == 2
        ):
            return numbers
        return logical_weight(params, numbers, self.inputs["x"].shape[-3] // params.groups)

    def _outputs(self, arrays: Arrays) -> np.ndarray:
        """The values of the kernel, those of the definition, and those with a known defect if the call has one.

        Raises what the executor raises, and LimitError after too many runs.
        """
        bound = self._replaced(arrays)
        got, error = ran(self.executor, bound)
        if got is None:
            assert error is not None
            raise error
        found = [got.unpack(), self._defined(bound)]
        if self.defect is not None and self.defect.values is not None:
            values = self.defect.values(
                bound.call, {name: one.unpack() for name, one in bound.inputs.items()}
            )
            known = np.where(np.ma.getmaskarray(values), found[0], np.ma.getdata(values))
            found.append(known.astype(found[0].dtype))
        return np.stack(found)

    def _replaced(self, arrays: Arrays) -> BoundCase:
        """The call with other inputs and constants."""
        self.left -= self.work
        if self.left < 0:
            raise LimitError(self.bound.call.op.name, "asked enough", need=f"work <= {MOST_WORK}")
        consts = {name: arrays.get(name, one) for name, one in self.bound.call.consts.items()}
        inputs = {
            name: PackedBuffer.pack(
                arrays.get(name, self.inputs[name]), one.desc.layout, dtype=one.desc.dtype
            )
            for name, one in self.bound.inputs.items()
        }
        return replace(self.bound, call=replace(self.bound.call, consts=consts), inputs=inputs)

    @staticmethod
    def _defined(bound: BoundCase) -> np.ndarray:
        return bound.call.expected(bound.inputs).unpack()


def _far(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays of its shape and dtype whose elements are far apart."""
    far = FAR if array.dtype == np.int8 else np.abs(array).max(initial=0) or 1
    return np.full_like(array, -far), np.full_like(array, far)


def _changed(before: np.ndarray, after: np.ndarray, places: np.ndarray) -> np.ndarray:
    found = before.copy()
    found.flat[places] = after.flat[places]
    return found


def _taps(shape: Sequence[int], channels: int) -> Iterator[tuple[slice | int, ...]]:
    """Indices of single weights of all channels; all of them if they are few."""
    every = list(product(*(range(n) for axis, n in enumerate(shape) if axis != channels)))
    numbers = {*range(min(FIRST_TAPS, len(every))), *np.linspace(0, len(every) - 1, SPREAD_TAPS).astype(int)}
    for tap in (every[number] for number in sorted(numbers)):
        yield (*tap[:channels], slice(None), *tap[channels:])


def _index(index: Sequence[int | np.intp]) -> str:
    return str([int(i) for i in index])
