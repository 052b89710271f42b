"""Edits of the words that a kernel reads: bytes in another order, words of other places, constants left out or stale.

A buffer is edited by what its words hold: bytes, nibbles, whole numbers or floats. No operator is known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations, product
from typing import Any

import numpy as np

from refsim.bytediff.search.bench import Step, steps_of
from refsim.bytediff.search.device import (
    APART,
    IN_FOURS,
    IN_WORDS,
    DeviceEdit,
    Read,
    Told,
    apart,
    bits,
    of_four,
    real,
    rolled,
    words_of,
)
from refsim.bytediff.search.weights import NIBBLES_WRONG, nibbles, weights
from refsim.core.buffer import PackedBuffer
from refsim.ops.base.arg import Arg, Kind
from refsim.ops.base.epilogue import PER_CHANNEL
from refsim.ops.base.spec import Call
from refsim.ops.base.traits import Family

BYTES, NIBBLES, WHOLE, REAL = "bytes", "nibbles", "whole numbers", "floats"
#: Arguments that are one number for each channel or row -> (class if it is another number, class if it is 0).
_PER_CHANNEL = {
    "weight_sums": ("channel constants misplaced", "zero point not folded"),
    "zp": ("zero point of rows", "zero point of rows"),
    "bias": ("channel constants misplaced", "bias left out"),
    "scale": ("scale of rows", "scale changed"),
}
_MISPLACED = ("channel constants misplaced", "scale changed")
_UNREAD = ("stale or foreign buffer", "read before it was written")


def edits(
    steps: list[Step],
    arrays: Mapping[str, np.ndarray],
    others: Mapping[str, np.ndarray],
    previous: Call | None,
) -> Iterator[DeviceEdit]:
    """The edits of every buffer that a dispatch of a call reads; ``arrays`` are the words of those of the call."""
    given = {
        "input": [row for row in _buffers(steps) if row[2].kind is Kind.INPUT],
        "constant": [row for row in _buffers(steps) if row[2].kind is Kind.CONST],
    }
    for number, name, arg, holds in (*given["constant"], *given["input"]):
        step = steps[number]
        for found, detail, read in _read(step, arg, holds):
            yield DeviceEdit(found, f"{name} {detail}", read={name: read}, only=number)
        if arg.kind is Kind.INPUT:
            yield from _foreign(number, name, others)
            if name in arrays:
                yield from _changed(number, step, name, arg, arrays[name])
    for number, step in enumerate(steps):
        names = [name for at, name, _, _ in given["constant"] if at == number and name in PER_CHANNEL]
        if names:
            yield from _vectors(number, step, names)
        inputs = [name for at, name, _, _ in given["input"] if at == number]
        if len(inputs) > 1:
            none = dict.fromkeys(inputs, _nothing)
            yield DeviceEdit(_UNREAD[0], f"{' and '.join(inputs)} {_UNREAD[1]}", read=none, only=number)
        yield from _of_other_rows(number, step, {
            name: arrays[name] for at, name, arg, _ in given["input"]
            if at == number and name in arrays and arg.name in _PER_CHANNEL
        })  # fmt: skip
    yield from _inputs_exchanged(steps, others)
    held = {name: step for number, name, arg, _ in given["constant"] if (step := steps[number])}
    for name, other in permutations(held, 2):
        if held[name] is held[other]:
            words = held[other].call.words(other)
            read = words_of(words)
            yield DeviceEdit(misplaced(name), f"{name} read from the words of {other}", read={name: read})
    for before in () if previous is None else steps_of(previous):
        stale = {
            name: words_of(before.call.words(name))
            for name in held
            if before.call.consts.get(name) is not None and held[name].call.consts.get(name) is not None
        }
        vectors = {name: read for name, read in stale.items() if name in PER_CHANNEL}
        for chosen in (stale, vectors, *({name: read} for name, read in stale.items())):
            if chosen:
                yield DeviceEdit("stale constant", f"{', '.join(chosen)} of the call before", read=chosen)


def _buffers(steps: list[Step]) -> list[tuple[int, str, Arg, str]]:
    """(dispatch, name of the buffer, argument, what its words hold) of all that is read."""
    found = []
    for number, step in enumerate(steps):
        args = [arg for arg in step.call.op.args if arg.kind in (Kind.INPUT, Kind.CONST)]
        for name, arg in zip(step.inputs, args, strict=True):
            if arg.kind is Kind.INPUT:
                found.append((number, name, arg, _kind(step.call.descs[arg.name].dtype)))
            elif (value := step.call.consts[arg.name]) is not None:
                packed = step.call.op.int4 is not None and arg.name == "weight"
                found.append((number, name, arg, NIBBLES if packed else _kind(value.dtype)))
    return found


def constants(step: Step) -> list[tuple[str, Arg, str]]:
    """(name of the buffer, argument, what its words hold) of the constants of a dispatch."""
    return [(name, arg, holds) for _, name, arg, holds in _buffers([step]) if arg.kind is Kind.CONST]


def _shape(step: Step, arg: Arg) -> tuple[int, ...]:
    """The shape of a constant that there is."""
    value = step.call.consts[arg.name]
    assert value is not None
    return value.shape


def _kind(dtype: Any) -> str:
    return {"int8": BYTES, "uint8": BYTES, "float32": REAL}.get(np.dtype(dtype).name, WHOLE)


def misplaced(name: str) -> str:
    """The class of a constant's numbers that are those of other channels."""
    return _PER_CHANNEL.get(name, _MISPLACED)[0]


def _read(step: Step, arg: Arg, holds: str) -> Told:
    """(class, in words, what is found) of one buffer."""
    if holds is NIBBLES:
        yield from nibbles(step)
    if holds in (BYTES, NIBBLES):
        yield from ((NIBBLES_WRONG if holds is NIBBLES and name == "byte order" else name, f"read with {what}", read)
                    for name, what, read in IN_WORDS)  # fmt: skip
    if arg.name == "weight" and holds is BYTES:
        yield from weights(step)
    if arg.name == "weight_sums":
        yield from _sums(step)
    if arg.kind is Kind.CONST and arg.name != "weight":
        yield from _per_channel(arg.name, holds, 0 if step.call.op.int4 is None else _shape(step, arg)[-1])
    elif arg.kind is Kind.INPUT:
        yield from _rows(step, arg, holds)
        yield from _shares(step, arg, holds)
        near = "input read at a neighbour"
        yield from ((near, f"read {by:+d} word away", rolled(by)) for by in (1, -1, 4, -4))
        for which, by in IN_FOURS:
            yield near, f"word {which} of each four read {by:+d} away", of_four(which, by)
        strides = dict.fromkeys((*APART, *step.call.descs[arg.name].strides_whcn))
        yield from (
            (near, f"read with the words of each four {by} apart", apart(by)) for by in strides if by != 1
        )
        yield *_UNREAD, _nothing


def _nothing(words: Any, at: Any, size: int) -> Any:
    return 0 * at


def _foreign(number: int, name: str, others: Mapping[str, np.ndarray]) -> Iterator[DeviceEdit]:
    for other, raw in others.items():
        if other != f"input {name}" and len(raw) >= 4:
            words = np.frombuffer(np.ascontiguousarray(raw).tobytes()[: len(raw) // 4 * 4], np.int32)
            detail = f"{name} held {other} when it was read"
            yield DeviceEdit("stale or foreign buffer", detail, read={name: words_of(words)}, only=number)


def _inputs_exchanged(steps: list[Step], others: Mapping[str, np.ndarray]) -> Iterator[DeviceEdit]:
    """Two inputs of bytes bound in each other's place."""
    inputs = [row for row in _buffers(steps) if row[3] is BYTES and row[2].kind is Kind.INPUT]
    for number in range(len(steps)):
        given = [name for at, name, _, _ in inputs if at == number]
        raw = {name: others.get(f"input {name}") for name in given}
        if len(given) == 2 and all(words is not None for words in raw.values()):
            words = [np.frombuffer(np.ascontiguousarray(raw[name]).tobytes(), np.int32) for name in given]
            read = dict(zip(given, map(words_of, reversed(words)), strict=True))
            yield DeviceEdit("operands exchanged", f"{' and '.join(given)} exchanged", read=read, only=number)


def _of_other_rows(number: int, step: Step, words: Mapping[str, np.ndarray]) -> Iterator[DeviceEdit]:
    """All that is one number for each row, of another row."""
    for what, by in (("before", 1), ("behind", -1)) if len(words) > 1 else ():
        read = {}
        for name, held in words.items():
            desc = step.call.descs[name]
            buffer = PackedBuffer.from_raw(held.tobytes(), desc.shape, desc.layout, desc.dtype)
            moved = np.roll(buffer.unpack(), by, -1)
            read[name] = words_of(PackedBuffer.pack(moved, desc.layout, dtype=desc.dtype).words)
        yield DeviceEdit("scale of rows", f"{' and '.join(words)} of the row {what}", read=read, only=number)


def _changed(number: int, step: Step, name: str, arg: Arg, words: np.ndarray) -> Iterator[DeviceEdit]:
    """An input of the call with other elements."""
    desc = step.call.descs[arg.name]
    held = PackedBuffer.from_raw(words.tobytes(), desc.shape, desc.layout, desc.dtype)
    for found, detail, values in _elements(held.unpack(), step.call):
        elements = np.ascontiguousarray(values, desc.dtype)
        other = PackedBuffer.pack(elements, desc.layout, dtype=desc.dtype)
        found = "range of rows" if step.call.op.family is Family.ROW_RANGE else found
        yield DeviceEdit(found, f"{name} {detail}", read={name: words_of(other.words)}, only=number)


def _elements(x: np.ndarray, call: Call) -> Iterator[tuple[str, str, np.ndarray]]:
    """(class, in words, elements) of an input read at a neighbour, or taken to end early."""
    for axis, dim in zip(range(-1, -x.ndim - 1, -1), ("column", "row", "channel", "image"), strict=False):
        if x.shape[axis] > 1:
            for by in (1, -1, *((4, -4) if dim in ("column", "channel") and x.shape[axis] > 4 else ())):
                yield "input read at a neighbour", f"read {by:+d} {dim} away", np.roll(x, -by, axis)
            zp = getattr(call.params, "in_zp", 0)
            for (which, at), fill in product((("first", 0), ("last", -1)), dict.fromkeys((zp, 0))):
                fresh = x.copy()
                np.moveaxis(fresh, axis, 0)[at] = fill
                outside = "the zero point" if fill == zp else "0"
                yield "edge of the input", f"without its {which} {dim}, which is read as {outside}", fresh
    if call.op.family is Family.LOOKUP:
        rows = len(call.given("weight")[0])
        yield "edge of the input", "taken as the nearest row of the table", np.clip(x, 0, rows - 1)
        yield (
            "edge of the input",
            "taken as a row from the table's end if they are less than 0",
            x + rows * (x < 0),
        )
    if call.op.family is Family.ROW_RANGE:
        fresh = x.copy()
        fresh[..., 0], fresh[..., -1] = x.min(), x.max()
        yield "", "with the least and the greatest value of all rows in each", fresh
    if (r := getattr(call.params, "upscale", 1)) > 1:
        slowest = x.reshape(*x.shape[:-3], r * r, -1, *x.shape[-2:]).swapaxes(-3, -4).reshape(x.shape)
        pixels = "with the pixels of an upscaled pixel as the slowest part of the channels"
        yield "C and another dim exchanged", pixels, slowest


# --- constants for each channel, inputs for each row --------------------------------------------------------


def _per_channel(name: str, holds: str, group: int = 0) -> Told:
    """One number for each channel; with a ``group`` for each of so many channels, and so for each group of them."""
    misplaced, none = _PER_CHANNEL.get(name, _MISPLACED)
    if group and name == "weight_sums":
        none = "zero point of rows"
    if group and "scale" in name:
        misplaced = "scale of another group"
        for what, by in (("before", -group), ("behind", group)):
            yield misplaced, f"of the group {what}", rolled(by)
            yield misplaced, f"of the group {what}, in a circle", _in_a_circle(by)
        yield misplaced, "of the first group for all", lambda words, at, size: words[at % group]
        for what, rows in (("by groups, read by rows", True), ("by rows, read by groups", False)):
            yield misplaced, f"stored {what}", _turned(group, rows)
    yield from ((misplaced, what, read) for what, read in _MOVED.items())
    yield none, "taken as 0", lambda words, at, size: 0 * at
    if holds is REAL:
        changed = "bias changed" if name == "bias" else "scale changed"
        for what, scaled in (("doubled", 2.0), ("halved", 0.5), ("negated", -1.0)):
            yield changed, what, _times(scaled)
        yield changed, "taken as 1", lambda words, at, size: 0 * at + 0x3F800000
    elif name == "weight_sums":
        twice = "zero point of rows" if group else "zero point folded twice"
        yield twice, "doubled", lambda words, at, size: 2 * words[at]
        yield "zero point one off", "one too large", lambda words, at, size: words[at] + 1
        yield "zero point one off", "one too small", lambda words, at, size: words[at] - 1
        yield (
            twice,
            "negated: the zero point is added",
            lambda words, at, size: -words[at],
        )


def _turned(group: int, rows: bool) -> Read:
    """Words of rows as long as a group that are those of columns, or the other way round."""

    def read(words: Any, at: Any, size: int) -> Any:
        count = size // group
        return words[at % group * count + at // group if rows else at % count * group + at // count]

    return read


def _in_a_circle(by: int) -> Read:
    return lambda words, at, size: words[(at + by) % size]


def _spread(factor: int) -> Read:
    return lambda words, at, size: words[factor * (at // 4) + at % 4]


#: What a kernel reads for a channel: the number of another one.
_MOVED: dict[str, Read] = {
    **{f"of the channel {by:+d} away": rolled(by) for by in (1, -1, 4, -4)},
    "of channel 0 for all": lambda words, at, size: words[0 * at],
    "of each word's first channel": lambda words, at, size: words[at // 4 * 4],
    **{f"of the channel {factor} * word + lane": _spread(factor) for factor in (0, 2, 3, 5, 8)},
}


def _vectors(number: int, step: Step, names: list[str]) -> Iterator[DeviceEdit]:
    """All numbers of a channel taken from another one, or missing beyond the last whole word."""
    whole = step.call.out.shape[step.call.op.channel_dim] // 4 * 4
    missing = "missing beyond the last whole word of channels"
    for what, read in {missing: lambda words, at, size: words[at] * (at < whole), **_MOVED}.items():
        for chosen in (names, *([[name] for name in names] if what is missing else [])):
            edit = dict.fromkeys(chosen, read)
            yield DeviceEdit(_MISPLACED[0], f"{', '.join(chosen)} {what}", read=edit, only=number)


def _sums(step: Step) -> Told:
    """Weight sums that are not those of the output channels' own weights."""
    right, stored = step.call.consts["weight_sums"], step.call.consts["weight"]
    assert right is not None and stored is not None
    found = "weight sums over the wrong dimension"
    for axis in range(stored.ndim):
        others = tuple(other for other in range(stored.ndim) if other != axis)
        for what, dims in (
            (f"all dims of the weights but {axis}", others),
            (f"dim {axis} of the weights alone", axis),
        ):
            sums = np.resize(stored.sum(dims, dtype=np.int32).reshape(-1), right.shape)
            if not np.array_equal(sums, right):
                yield found, f"summed over {what}", words_of(sums.reshape(-1))
    everything = np.full(right.size, stored.sum(dtype=np.int32))
    yield found, "summed over everything", words_of(everything)


def _times(factor: float) -> Read:
    def read(words: Any, at: Any, size: int) -> Any:
        with np.errstate(all="ignore"):
            return bits(real(words[at]) * np.float32(factor))

    return read


def _shares(step: Step, arg: Arg, holds: str) -> Told:
    """What some of the invocations that share the sum over a single row have summed is left out of it."""
    count, row = step.launch.local[2], step.call.descs[arg.name]
    if count == 1 or row.numel != row.shape[-1]:
        return
    number, each = np.arange(count), 1 if holds is BYTES else 4  # words that an invocation reads at once
    found = "reduction too short"
    half = 1
    while half < count:
        yield found, f"by the first {half} of {count} invocations alone", _heard(number < half, each)
        upper = number % (2 * half) < half
        yield found, f"without the upper half at step {half} of the reduction", _heard(upper, each)
        half *= 2
    for part in sorted({count - 1, count // 2}):
        yield found, f"without the share of invocation {part} of {count}", _heard(number != part, each)


def _heard(kept: np.ndarray, each: int) -> Read:
    return lambda words, at, size: words[at] * kept[at // each % len(kept)]


def _rows(step: Step, arg: Arg, holds: str) -> Told:
    """An input with one number for each row, such as its scale."""
    if arg.name in _PER_CHANNEL:
        yield from _per_channel(arg.name, holds)
