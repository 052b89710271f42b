"""Edits of the words that a kernel reads: bytes in another order, words of other places, constants left out or stale.

A buffer is edited by what its words hold: bytes, nibbles, whole numbers or floats. No operator is known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations, product

import numpy as np

from refsim.bytediff.search.bench import Step, steps_of
from refsim.bytediff.search.device import (
    IN_WORDS,
    INTEGERS,
    REALS,
    DeviceEdit,
    Read,
    Told,
    first_fit,
    masked,
    of_reals,
    placed,
    placed_by,
    rolled,
    valued,
    words_of,
)
from refsim.bytediff.search.weights import nibbles, weights
from refsim.core.buffer import PackedBuffer
from refsim.ops.base.arg import Arg, Kind
from refsim.ops.base.epilogue import PER_CHANNEL
from refsim.ops.base.spec import Call
from refsim.ops.base.traits import Family

#: (class, in words, what is found in each buffer)
Reads = Iterator[tuple[str, str, Mapping[str, Read]]]
BYTES, NIBBLES, WHOLE, REAL = "bytes", "nibbles", "whole numbers", "floats"
_NEAR, _FOREIGN = "input read at a neighbour", "stale or foreign buffer"
_MISPLACED, _ZP_OF_ROWS, _SCALED = "channel constants misplaced", "zero point of rows", "scale changed"
#: A constant, or an input with a number for each row -> what it is called if its numbers are those of other channels or
#: rows, if they are 0, and if they are others: the first pattern that fits decides.
_NUMBERS = (
    ("^bias", (_MISPLACED, "bias left out", "bias changed")),
    ("^weight_sums of groups", (_MISPLACED, _ZP_OF_ROWS, _ZP_OF_ROWS)),
    ("^weight_sums", (_MISPLACED, "zero point not folded", "zero point folded twice")),
    ("^zp$", (_ZP_OF_ROWS, _ZP_OF_ROWS, _ZP_OF_ROWS)),
    ("^scale$", ("scale of rows", _SCALED, _SCALED)),
    ("scale.* of groups", ("scale of another group", _SCALED, _SCALED)),
    ("", (_MISPLACED, _SCALED, _SCALED)),
)
#: Inputs with a number for each row.
_OF_ROWS = ("scale", "zp")
_AWAY = (1, -1, 4, -4)
_NEARBY = placed_by("read {:+d} word away", lambda by, at: at + by, _AWAY)
_ZERO: Read = valued(lambda word: 0 * word)
#: What a kernel reads for a channel: the number of another one.
_MOVED: dict[str, Read] = {
    **placed_by("of the channel {:+d} away", lambda by, at: at + by, _AWAY),
    "of channel 0 for all": placed(lambda at: 0 * at),
    "of each word's first channel": placed(lambda at: at // 4 * 4),
    **placed_by("of the channel {} * word + lane", lambda by, at: by * (at // 4) + at % 4, (0, 2, 3, 5, 8)),
}


@dataclass(frozen=True, eq=False)
class Buffer:
    """What a dispatch reads: its name there, the argument, and what its words hold."""

    step: Step
    name: str
    arg: Arg
    holds: str

    @property
    def constant(self) -> bool:
        return self.arg.kind is Kind.CONST

    @property
    def value(self) -> np.ndarray:
        """The elements of a constant."""
        value = self.step.call.consts[self.arg.name]
        assert value is not None
        return value


def buffers(step: Step) -> list[Buffer]:
    """All that a dispatch reads, constants first."""
    call, found = step.call, list[Buffer]()
    args = [arg for arg in call.op.args if arg.kind in (Kind.INPUT, Kind.CONST)]
    for name, arg in zip(step.inputs, args, strict=True):
        given = call.descs[arg.name] if arg.kind is Kind.INPUT else call.consts[arg.name]
        if given is not None:
            holds = {"int8": BYTES, "uint8": BYTES, "float32": REAL}.get(np.dtype(given.dtype).name, WHOLE)
            packed = call.op.int4 is not None and arg.name == "weight"
            found.append(Buffer(step, name, arg, NIBBLES if packed else holds))
    return sorted(found, key=lambda each: not each.constant)


def misplaced(name: str) -> str:
    """The class of a constant's numbers that are those of other channels."""
    return first_fit(_NUMBERS, name)[0]


def edits(
    steps: list[Step],
    arrays: Mapping[str, np.ndarray],
    others: Mapping[str, np.ndarray],
    previous: Call | None,
) -> Iterator[DeviceEdit]:
    """The edits of every buffer that a dispatch of a call reads; ``arrays`` are the words of those of the call."""
    for number, step in enumerate(steps):
        given = buffers(step)
        for each in given:
            told = _read(each), _foreign(each, given, others), _changed(each, arrays.get(each.name))
            for found, detail, read in chain(*told):
                yield DeviceEdit(found, f"{each.name} {detail}", read={each.name: read}, only=number)
        inputs = [each for each in given if not each.constant]
        for found, detail, reads in chain(_constants(step, given, previous), _inputs(inputs, arrays)):
            yield DeviceEdit(found, detail, read=reads, only=number)


def _read(each: Buffer) -> Told:
    """(class, in words, what is found) of one buffer."""
    name, step = each.arg.name, each.step
    if each.holds is NIBBLES:
        yield from nibbles(step)
    if each.holds is BYTES:
        yield from ((found, f"read with {what}", read) for found, what, read in IN_WORDS)
    if name == "weight" and each.holds is BYTES:
        yield from weights(step)
    if name == "weight_sums":
        yield from _sums(each)
    if name in _OF_ROWS or (each.constant and name != "weight"):
        yield from _numbers(each)
    if not each.constant:
        yield from ((_NEAR, what, read) for what, read in _NEARBY.items())


def _foreign(each: Buffer, given: list[Buffer], others: Mapping[str, np.ndarray]) -> Told:
    """The words of another buffer."""
    for other in given:
        if each.constant and other.constant and other is not each:
            held = each.step.call.words(other.name)
            yield misplaced(each.name), f"read from the words of {other.name}", words_of(held)
    for name, raw in () if each.constant else others.items():
        if name != f"input {each.name}" and len(raw) >= 4:
            words = np.frombuffer(np.ascontiguousarray(raw).tobytes()[: len(raw) // 4 * 4], np.int32)
            yield _FOREIGN, f"held {name} when it was read", words_of(words)


def _changed(each: Buffer, words: np.ndarray | None) -> Told:
    """The elements of an input moved along a dim, or those at one of its ends taken to lie outside."""
    if words is None:
        return
    desc = each.step.call.descs[each.arg.name]
    x = PackedBuffer.from_raw(words.tobytes(), desc.shape, desc.layout, desc.dtype).unpack()

    def packed(elements: np.ndarray) -> Read:
        return words_of(PackedBuffer.pack(elements, desc.layout, dtype=desc.dtype).words)

    zp = getattr(each.step.call.params, "in_zp", 0)
    ranged = each.step.call.op.family is Family.ROW_RANGE
    moved, edge = ("range of rows", "range of rows") if ranged else (_NEAR, "edge of the input")
    dims = zip(range(-1, -x.ndim - 1, -1), ("column", "row", "channel", "image"), strict=False)
    for axis, dim in ((axis, dim) for axis, dim in dims if x.shape[axis] > 1):
        for by in (1, -1):
            yield moved, f"read {by:+d} {dim} away", packed(np.roll(x, -by, axis))
        for (which, at), fill in product((("first", 0), ("last", -1)), dict.fromkeys((zp, 0))):
            fresh = x.copy()
            np.moveaxis(fresh, axis, 0)[at] = fill
            outside = "the zero point" if fill == zp else "0"
            yield edge, f"without its {which} {dim}, which is read as {outside}", packed(fresh)
    if (r := getattr(each.step.call.params, "upscale", 1)) > 1:
        slowest = x.reshape(*x.shape[:-3], r * r, -1, *x.shape[-2:]).swapaxes(-3, -4).reshape(x.shape)
        pixels = "with the pixels of an upscaled pixel as the slowest part of the channels"
        yield "C and another dim exchanged", pixels, packed(slowest)


# --- constants for each channel, inputs for each row --------------------------------------------------------


def _numbers(each: Buffer) -> Told:
    """A number for each channel or row; scales of grouped weights are one for each group of a channel."""
    group = each.value.shape[-1] if each.constant and each.step.call.op.int4 is not None else 0
    misplaced, none, changed = first_fit(_NUMBERS, each.arg.name + (" of groups" if group else ""))
    moved = {**(_of_groups(group) if group and "scale" in each.arg.name else {}), **_MOVED}
    yield from ((misplaced, what, read) for what, read in moved.items())
    yield none, "taken as 0", _ZERO
    if each.holds is REAL:
        yield from ((changed, what, valued(partial(of_reals, other))) for what, other in REALS.items())
    else:
        for what, other in INTEGERS.items():
            found = "zero point one off" if what.startswith("one") else changed
            yield found, f"{what}: the zero point is added" if what == "negated" else what, valued(other)


def _of_groups(group: int) -> dict[str, Read]:
    """What is read for a group of so many channels: the number of another one."""
    return {
        "of the group before": rolled(-group),
        "of the group before, in a circle": lambda words, at, size: words[(at - group) % size],
        "of the group behind": rolled(group),
        "of the group behind, in a circle": lambda words, at, size: words[(at + group) % size],
        "of the first group for all": placed(lambda at: at % group),
        "stored by groups, read by rows": lambda words, at, size: words[at % group * (size // group) + at // group],
        "stored by rows, read by groups":
            lambda words, at, size: words[at % (size // group) * group + at // (size // group)],
    }  # fmt: skip


def _sums(each: Buffer) -> Told:
    """Weight sums that are not those of the output channels' own weights."""
    right, weight = each.value, each.step.call.consts["weight"]
    assert weight is not None
    dims = range(weight.ndim)
    summed: dict[str, tuple[int, ...]] = {"everything": tuple(dims)}
    for axis in dims:
        summed[f"all dims of the weights but {axis}"] = tuple(dim for dim in dims if dim != axis)
        summed[f"dim {axis} of the weights alone"] = (axis,)
    for what, axes in summed.items():
        sums = np.resize(weight.sum(axes, dtype=np.int32), right.shape)
        if not np.array_equal(sums, right):
            yield "weight sums over the wrong dimension", f"summed over {what}", words_of(sums.reshape(-1))


# --- several buffers at once --------------------------------------------------------------------------------


def _each(names: Iterable[str]) -> list[tuple[str, ...]]:
    """All of them together, and each alone."""
    together = tuple(names)
    return [together, *((name,) for name in together if len(together) > 1)] if together else []


def _constants(step: Step, given: list[Buffer], previous: Call | None) -> Reads:
    """All numbers of a channel: of another one, missing beyond the last whole word, or those of the call before."""
    names = [each.name for each in given if each.constant]
    vectors = [name for name in names if name in PER_CHANNEL]
    whole = step.call.out.shape[step.call.op.channel_dim] // 4 * 4 if vectors else 0
    for chosen in _each(vectors):
        said = f"{', '.join(chosen)} missing beyond the last whole word of channels"
        yield _MISPLACED, said, dict.fromkeys(chosen, masked(lambda at: -1 * (at < whole)))
    for what, read in _MOVED.items() if len(vectors) > 1 else ():
        yield _MISPLACED, f"{', '.join(vectors)} {what}", dict.fromkeys(vectors, read)
    for before in () if previous is None else steps_of(previous):
        theirs = [name for name in names if before.call.consts.get(name) is not None]
        stale = {name: words_of(before.call.words(name)) for name in theirs}
        for chosen in dict.fromkeys((*_each(stale), tuple(name for name in vectors if name in stale))):
            reads = {name: stale[name] for name in chosen}
            yield "stale constant", f"{', '.join(chosen)} of the call before", reads


def _inputs(inputs: list[Buffer], arrays: Mapping[str, np.ndarray]) -> Reads:
    """Inputs that are not written yet, or exchanged."""
    for chosen in _each(each.name for each in inputs):
        yield _FOREIGN, f"{' and '.join(chosen)} read before it was written", dict.fromkeys(chosen, _ZERO)
    given = [each.name for each in inputs if each.name in arrays and each.holds is BYTES]
    for one, other in combinations(given, 2):
        exchanged = {one: words_of(arrays[other]), other: words_of(arrays[one])}
        yield "operands exchanged", f"{one} and {other} exchanged", exchanged
