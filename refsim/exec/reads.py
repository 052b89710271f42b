"""What each output of a wrong call reads, found by asking its kernel.

Some elements change, and the outputs that change with them read them. To find the one element that an output reads, the
call runs twice for each bit of that element's number: once all elements that have the bit change, once all others. Some
random choices check the answer. An output that sums products reads several elements. So all weights are 0 then, but one
of each output channel. The definition is asked in the same way, and so is what upstream's kernel is known to do.
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
from refsim.core.errors import LimitError, RefsimError, UnsupportedError
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
#: How much is computed for the answers, outputs times weights of one in all runs together; and how many runs there are.
MOST_WORK, MOST_RUNS = 3_000_000_000, 4000
#: So many random choices of elements must change an output, or not, as the one does that it reads.
CHECKS = 6
#: Fewer outputs that change with nothing may do so by chance.
FEW = 4
#: Of so many tensors it is told what is read; and so many weights with which it is right.
MOST_TOLD, MOST_RIGHT = 2, 4


@dataclass(frozen=True)
class Reads:
    """Which element of a tensor each output reads, and which it should: its number, `NONE` or `SEVERAL`.

    ``numbers``: those of the elements by their indices. ``tap``: the one weight of each channel that is not 0; empty
    if no weights were replaced. ``clamped``: outputs at a bound, where what is read need not show.
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
    """What outputs read otherwise, and which do, of those that ``differ``: ``wrong``, of which some are true.

    ``right``: the weights with which all outputs read what they should, among the ``taps`` that show in any.
    """

    reads: Reads
    wrong: np.ndarray
    differ: int
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
        count = f"{self.wrong.sum()} of {counted(self.differ, 'wrong output')}"
        if self.right:
            more = ", ..." if len(self.right) > MOST_RIGHT else ""
            count += f"; no difference with {len(self.right)} of {counted(self.taps, 'weight')} tried: "
            count += f"{', '.join(self.right[:MOST_RIGHT])}{more}"
        return f"{where}output {_index(at)} changes with {got}, need {need} ({count})"


def misread_cause(executor: Executor, bound: BoundCase, differ: np.ndarray) -> tuple[str, str] | None:
    """What outputs that ``differ`` read otherwise, as the name and the words of a cause; None if nothing is found.

    ``differ``: bool, of the output's shape.
    """
    found = misread(executor, bound, differ)
    return (NAME, "; ".join(map(str, found[:MOST_TOLD]))) if found else None


def misread(executor: Executor, bound: BoundCase, differ: np.ndarray | None = None) -> list[Misread]:
    """What outputs of a call read otherwise on an executor, for each tensor; what says most first.

    Only outputs that ``differ`` are looked at, by default all. Only what can be asked is known: int8 and float inputs,
    int8 weights, other constants that are numbers; of large calls some of that, or nothing.
    """
    differ = np.ones(bound.call.out.shape, bool) if differ is None else differ
    rows: dict[str, list[Reads]] = defaultdict(list)
    with suppress(RefsimError):  # a kernel that is broken may refuse other inputs; or it was enough
        for one in probe(executor, bound):
            rows[one.tensor].append(one)
    found = []
    for name, of in rows.items():
        wrong = _of_input(of) if name in bound.inputs else [one.others for one in of]
        both = [(one, bad & differ) for one, bad in zip(of, wrong, strict=True) if (one.need >= 0).any()]
        right = [one.tap for one, bad in both if not bad.any()]
        told = [Misread(one, bad, int(differ.sum()), right, len(both)) for one, bad in both if bad.any()]
        if told:
            found.append(max(told, key=lambda one: one.rank))
    return sorted(found, key=lambda one: one.rank, reverse=True)


def probe(executor: Executor, bound: BoundCase) -> Iterator[Reads]:
    """What each output reads of each tensor that can be asked for, right or not.

    Raises what the executor raises, UnsupportedError for what is no error of refsim, and LimitError after many runs.
    """
    return _Probe(executor, bound).all()


def _of_input(rows: Sequence[Reads]) -> list[np.ndarray]:
    """Where the wrong element of an input is read.

    Of products: an output in which one of them shows would show each, so one that must not be read says as much as one
    that must. Some outputs in which none shows, and that no clamp holds, read nothing. If that is all of them, their
    values may be wrong alone.
    """
    got, need = np.stack([row.got for row in rows]), np.stack([row.need for row in rows])
    if (got == NONE).all():
        return list(np.zeros(got.shape, bool))
    if rows[0].tap:
        silent = (got == NONE).all(0)
        silent &= ~np.stack([row.clamped for row in rows]).any(0)
        shown = (got != NONE).any(0) | (silent if silent.sum() >= FEW else False)
        return list((got != need) & (need != SEVERAL) & shown & (need >= 0).any(0))
    return list((got != need) & (need >= 0) & ((got != NONE) | ~rows[0].clamped))


class _Probe:
    """A call whose inputs and constants are replaced, on an executor and by definition."""

    def __init__(self, executor: Executor, bound: BoundCase) -> None:
        self.executor, self.bound = executor, bound
        self.inputs = {name: one.unpack() for name, one in bound.inputs.items()}
        self.consts = {name: one for name, one in bound.call.consts.items() if one is not None}
        args = [arg for arg in bound.call.op.of_kind(Kind.CONST) if arg.name in self.consts]
        self.weights = {arg.name: arg.channels or 0 for arg in args if self.consts[arg.name].dtype == np.int8}
        self.sums = any(self.consts[arg.name].dtype in (np.int8, np.uint8) for arg in args)
        defects = [row for row in bound.call.defects if row.values is not None] if executor.foreign else []
        self.defective = together(defects).values if defects else None
        depths = (
            self.consts[name].size // self.consts[name].shape[dim] for name, dim in self.weights.items()
        )
        work = bound.call.out.numel * max(depths, default=1)
        self.work, self.left = max(work, MOST_WORK // MOST_RUNS), MOST_WORK

    def all(self) -> Iterator[Reads]:
        """See `probe`."""
        for name, array in self.inputs.items():
            if array.dtype in VALUES and not self.sums:
                yield self._reads(name, *_two_levels(array))
        for name, channels in self.weights.items():
            taps = list(_taps(self._numbers(name, self.consts[name]).shape, channels))
            visible = self._visible({name: self._alone(name, taps[len(taps) // 2])})
            for tap in taps:
                yield from self._with_tap(name, tap, visible)
        for name, array in self.consts.items():
            if array.dtype in (np.int32, np.float32):
                away = np.where(array < 0, -1, 1).astype(array.dtype) * (1 + np.abs(array).max())
                yield self._reads(name, array, (array + away).astype(array.dtype))

    def _alone(self, name: str, tap: tuple[slice | int, ...]) -> np.ndarray:
        """Weights of which one of each channel is not 0."""
        found = np.zeros_like(self.consts[name])
        found.flat[self._numbers(name, found)[tap]] = FAR
        return found

    def _visible(self, weights: Arrays) -> Arrays:
        """Other constants with which a product of these weights shows in more outputs, by definition."""
        streams = {name: _two_levels(one) for name, one in self.inputs.items() if one.dtype in VALUES}

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
            for factor in () if name in weights else FACTORS if array.dtype == np.float32 else (0,):
                tried = {**best, name: array * array.dtype.type(factor)}
                if (count := shown(tried)) > most:
                    best, most = tried, count
        return best

    def _with_tap(self, name: str, tap: tuple[slice | int, ...], others: Arrays) -> Iterator[Reads]:
        """In products with one weight of each channel: which inputs are read, and of which channel the weight is."""
        alone = self._alone(name, tap)
        told = f"{name}[{', '.join(':' if isinstance(i, slice) else str(i) for i in tap)}]"
        for other, one in self.inputs.items():
            if one.dtype in VALUES:
                yield self._reads(other, *_two_levels(one), {**others, name: alone}, told)
        yield self._reads(name, -alone, alone, others, told)

    def _reads(
        self, tensor: str, before: np.ndarray, after: np.ndarray, others: Arrays | None = None, tap: str = ""
    ) -> Reads:
        """Which of the elements that differ between ``before`` and ``after`` each output reads."""
        others = others or {}
        differ = np.flatnonzero(before != after)
        base = self._outputs({**others, tensor: before})
        number = np.zeros(base.shape, np.int64)
        none, one = np.ones(base.shape, bool), np.ones(base.shape, bool)
        for bit in range(max(1, (len(differ) - 1).bit_length())):
            has = np.arange(len(differ)) >> bit & 1 == 1
            lacks_it, has_it = (
                self._outputs({**others, tensor: _changed(before, after, differ[at])}) != base
                for at in (~has, has)
            )
            number |= has_it.astype(np.int64) << bit
            none &= ~(lacks_it | has_it)
            one &= lacks_it ^ has_it
        place = np.minimum(number, len(differ) - 1)
        for chosen in (
            np.random.default_rng(0).random((CHECKS, len(differ))) < 0.5
        ):  # most of several would do as well
            changed = self._outputs({**others, tensor: _changed(before, after, differ[chosen])}) != base
            one &= changed == chosen[place]
            none &= ~changed
        number = differ[place]
        got, need, *defective = np.where(none, NONE, np.where(one, number, SEVERAL))
        for known in defective:
            need = np.where(known == got, got, need)
        # of elements that are all alike, outputs are as well: then only the bounds of int8 say that they are clamped
        ends = (-128, 127, *((base[1].min(), base[1].max()) if tap or tensor in self.consts else ()))
        return Reads(tensor, self._numbers(tensor, before), got, need, np.isin(base[0], ends), tap)

    def _numbers(self, name: str, array: np.ndarray) -> np.ndarray:
        """The numbers of a tensor's elements by their indices: of a window's weights (OC, KH, KW, IC of a group)."""
        numbers, params = np.arange(array.size).reshape(array.shape), self.bound.call.params
        if name not in self.weights or not isinstance(params, ConvParams) or array.ndim != 2:
            return numbers
        return logical_weight(params, numbers, self.inputs["x"].shape[-3] // params.groups)

    def _outputs(self, arrays: Arrays) -> np.ndarray:
        """The values (of floats the bits) of the kernel, of the definition, and with a known defect if there is one.

        Raises what `probe` raises.
        """
        bound = self._replaced(arrays)
        try:
            got, error = ran(self.executor, bound)
        except Exception as other:  # a broken kernel may raise anything
            raise UnsupportedError(self.executor.name, "runs no other inputs", got=repr(other)) from other
        if got is None:
            assert error is not None
            raise error
        found = [got.unpack(), self._defined(bound)]
        if self.defective is not None:
            values = self.defective(bound.call, {name: one.unpack() for name, one in bound.inputs.items()})
            known = np.where(np.ma.getmaskarray(values), found[0], np.ma.getdata(values))
            found.append(known.astype(found[0].dtype))
        both = np.stack(found)
        return both.view(np.int32) if both.dtype == np.float32 else both

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


def _two_levels(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays of its shape and dtype whose elements are far apart."""
    far = FAR if array.dtype == np.int8 else np.abs(array[np.isfinite(array)]).max(initial=0) or 1
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
