"""Bytes of a packed tensor and where they come from, with one step of the way there wrong: NCHW bytes, pixels shuffled.

Part of "one coordinate for another": each step is tried with every other operation and size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction
from refsim.core import index
from refsim.core.buffer import FAR_WORDS, GUARD, GUARD_WORDS, PackedBuffer
from refsim.core.layout import DIM_NAMES
from refsim.ops.base.traits import Family

#: Larger tensors are left alone, and coordinates beyond this are no address.
MOST_ELEMENTS, MOST_COORDINATE = 1 << 14, 1 << 40
#: So many places must lie outside of a buffer, and inside, to say something; so many of these elements are wrong.
LEAST_OUTSIDE, MOSTLY, BY_CHANCE = 8, 0.75, 1 / 64
Step = Callable[[Any, Any], Any]
_BESIDE = GUARD_WORDS + FAR_WORDS
_OPERATIONS: Mapping[str, Step] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "//": lambda a, b: a // np.maximum(b, 1), "%": lambda a, b: a % np.maximum(b, 1),
}  # fmt: skip


def read(ev: Evidence) -> Iterator[Prediction]:
    """The buffer, if elements were read at other places."""
    ways = {Family.STAGE_OUT: _out, Family.STAGE_IN: _in, Family.SHUFFLE: _shuffled}
    found = ways.get(ev.call.op.family) if ev.bound is not None else None
    if found is None or ev.call.out.numel > MOST_ELEMENTS:
        return
    (x,) = ev.inputs.values()
    seen: set[bytes] = set()
    made: np.ndarray | None = None
    for what, word, lane in found(ev):
        values = _taken(x, word, lane)
        if made is None and ev.call.op.family is Family.SHUFFLE:
            made = _requantized(values, ev.logical)  # the first is as it should be
        values = values if made is None else made[values + 128]
        if values.tobytes() not in seen:
            seen.add(values.tobytes())
            cells = ev.with_values(values.reshape(ev.call.out.shape))
            yield Prediction(what, cells)
            outside = ((word < 0) | (word >= len(x.words))).reshape(ev.places.shape)
            yield from _beyond(ev, what, cells, outside)


def _beyond(ev: Evidence, what: str, cells: np.ndarray, outside: np.ndarray) -> Iterator[Prediction]:
    """The same if some places lie outside of the buffer, where anything may be: then those elements are wrong.

    It says something where they are those that are wrong, and where what is read inside comes out as predicted.
    """
    at = ev.places
    wrong, fits = ev.differing[at], cells[at] == ev.got[at]
    count, inside = int(np.count_nonzero(outside)), ~outside
    if count < LEAST_OUTSIDE or np.count_nonzero(inside) < LEAST_OUTSIDE:
        return
    if np.count_nonzero(wrong & outside) < MOSTLY * count or not fits[inside].all():
        return
    if np.count_nonzero(~wrong & outside) > (1 - MOSTLY) * np.count_nonzero(~wrong) + BY_CHANCE * count:
        return  # a place outside would have to hold the right byte too often
    fresh = cells.copy()
    fresh[at[outside]] = ev.got[at[outside]]
    told = f"{what}; {count} of {outside.size} places lie outside of the input, where anything may be"
    yield Prediction(told, fresh, fitted=True, inferred=True)


def _requantized(values: np.ndarray, want: np.ndarray) -> np.ndarray:
    """What becomes of each byte, as the right output tells; of those that it has not, their neighbour's."""
    known, first = np.unique(values.reshape(-1), return_index=True)
    becomes = want.reshape(-1)[first]
    found: np.ndarray = becomes[np.clip(np.searchsorted(known, np.arange(-128, 128)), 0, len(known) - 1)]
    return found.astype(np.int64)


def _shuffled(ev: Evidence) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Of each upscaled pixel its place in the input, where it is one of r * r channels; the right way first."""
    (x,) = ev.inputs.values()
    r = int(ev.call.params.upscale)
    n, c, h, w = np.indices(ev.call.out.sizes_whcn[::-1], np.int64)

    def place(changed: Mapping[str, Any]) -> np.ndarray:
        of = {"column": w // r, "row": h // r, "x": w % r, "y": h % r, "wide": r, "square": r, **changed}
        channel = changed.get("channel", (c * of["wide"] + of["y"]) * of["square"] + of["x"])
        return _place(x, [of["column"], of["row"], channel, n])

    own = place({})
    yield from _whole("the right place", own)
    for name, along, across in (("column", w, h), ("row", h, w)):
        for what, other in (
            ("left as it is", along), ("% r", along % r), ("* r", along * r), ("+ 1", along // r + 1),
            ("- 1", along // r - 1), (f"// {r + 1}", along // (r + 1)), ("of the other", across // r), ("0", 0 * along),
        ):  # fmt: skip
            yield from _whole(f"{name} of the input: {what}", place({name: other}))
    for name, along, across in (("x", w, h), ("y", h, w)):
        for what, other in (
            ("left as it is", along), ("// r", along // r), ("+ 1", along % r + 1), ("turned", r - 1 - along % r),
            (f"% {r + 1}", along % (r + 1)), ("of the other", across % r), ("0", 0 * along),
            ("taken away", -(along % r)),
        ):  # fmt: skip
            yield from _whole(f"{name} within the pixel: {what}", place({name: other}))
    for name, what in (("wide", "channels of a pixel's row"), ("square", "rows of a pixel")):
        for apart in dict.fromkeys((r + 1, r - 1, 2 * r, r * r, 1, 0)):
            if apart != r:
                yield from _whole(f"{what} {apart} apart instead of {r}", place({name: apart}))
    for what, channel in (
        ("column and row within the pixel exchanged", (c * r + w % r) * r + h % r),
        ("all of one offset before those of the next", ((h % r) * r + w % r) * ev.call.out.sizes_whcn[2] + c),
        ("r added to the channel", (c + r + h % r) * r + w % r), ("r added to the row", c * r + h % r + r + w % r),
    ):  # fmt: skip
        yield from _whole(f"channel: {what}", place({"channel": channel}))
    yield from _split(own)


def _taken(buffer: PackedBuffer, word: np.ndarray, lane: np.ndarray) -> np.ndarray:
    """Lanes of words; beside the buffer there are guard words, and behind these probably nothing."""
    words = buffer.words.astype(np.int64)
    inside = (word >= 0) & (word < len(words))
    beside = (word >= -_BESIDE) & (word < len(words) + _BESIDE)
    held = np.where(inside, words[np.where(inside, word, 0)], np.where(beside, int(GUARD), 0))
    shift = np.where(lane < 0, 63, np.minimum(8 * np.maximum(lane, 0), 63))
    found: np.ndarray = ((held >> shift & 255) ^ 128) - 128
    return found


def _split(at: np.ndarray) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(what, word, lane) of a byte's place, with another word or lane."""
    word, lane = at // 4, at % 4
    for size in (1, 2, 3, 5, 8):
        yield f"word place // {size} instead of place // 4", at // size, lane
        yield f"lane place % {size} instead of place % 4", word, at % size
    for what, other in (
        ("place % 4", lane),
        ("4 * place", 4 * at),
        ("place + 4", at + 4),
        ("place - 4", at - 4),
    ):
        yield f"word {what} instead of place // 4", other, lane
    for what, other in (
        ("place // 4", word),
        ("4 * place", 4 * at),
        ("0", 0 * at),
        ("3 - place % 4", 3 - lane),
    ):
        yield f"lane {what} instead of place % 4", word, other
    yield "word and lane exchanged", lane, word
    for by in (1, -1, 4, -4):
        yield f"the byte {by:+d} away", (at + by) // 4, (at + by) % 4


def _sizes(ev: Evidence, packed: Any) -> dict[str, int]:
    """Sizes that may stand for others, by name."""
    found = {name: packed.sizes_whcn[dim] for dim, name in enumerate(DIM_NAMES)}
    return found | {"1": 1, "the number of elements": ev.call.out.numel}


def _out(ev: Evidence) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Of each number in NCHW order the place in the packed input."""
    (x,) = ev.inputs.values()
    size = _sizes(ev, x.desc)
    number = np.arange(ev.call.out.numel, dtype=np.int64)

    def place(changed: Mapping[str, tuple[str, int]], order: tuple[int, ...] = (0, 1, 2, 3)) -> np.ndarray:
        rest, coords = number, []
        for name in DIM_NAMES[:3]:
            for part, symbol in (("the coordinate", "%"), ("what is left", "//")):
                how, by = changed.get(f"{name}: {part}", (symbol, size[name]))
                found = np.clip(_OPERATIONS[how](rest, by), -MOST_COORDINATE, MOST_COORDINATE)
                if part == "the coordinate":
                    coords.append(found)
                else:
                    rest = found
        coords.append(rest)
        return _place(x, [coords[dim] for dim in order])

    for name in DIM_NAMES[:3]:
        for part, symbol in (("the coordinate", "%"), ("what is left", "//")):
            step = f"{name}: {part}"
            for other in _OPERATIONS:
                if other != symbol:
                    yield from _whole(
                        f"{step} by {other} instead of {symbol}", place({step: (other, size[name])})
                    )
            for what, by in size.items():
                if by != size[name]:
                    yield from _whole(f"{step} by {what} instead of {name}", place({step: (symbol, by)}))
        for what, by in size.items():
            if by != size[name]:
                both = {f"{name}: the coordinate": ("%", by), f"{name}: what is left": ("//", by)}
                yield from _whole(f"{name} counted by {what}", place(both))
    yield from _split(place({}))


def _place(x: PackedBuffer, coords: list[np.ndarray]) -> np.ndarray:
    found: np.ndarray = index.buf_idx(x.desc.meta, 0, x.desc.hashed, *coords)
    return found


def _whole(what: str, at: np.ndarray) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    yield what, at // 4, at % 4


def _in(ev: Evidence) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Of each element of the packed output its number in NCHW order."""
    out = ev.call.out
    size = _sizes(ev, out)
    n, c, h, w = np.indices(out.sizes_whcn[::-1], np.int64)
    coords = {"W": w, "H": h, "C": c, "N": n}

    def number(changed: Mapping[str, tuple[str, int]], of: Mapping[str, np.ndarray]) -> np.ndarray:
        found = of["N"]
        for outer, inner in (("N", "C"), ("C", "H"), ("H", "W")):
            how, by = changed.get(f"{outer} times {inner}", ("*", size[inner]))
            found = np.clip(_OPERATIONS[how](found, by), -MOST_COORDINATE, MOST_COORDINATE)
            how, _ = changed.get(f"plus {inner}", ("+", 0))
            found = np.clip(_OPERATIONS[how](found, of[inner]), -MOST_COORDINATE, MOST_COORDINATE)
        return found

    for outer, inner in (("N", "C"), ("C", "H"), ("H", "W")):
        for other in _OPERATIONS:
            if other != "*":
                step = {f"{outer} times {inner}": (other, size[inner])}
                yield from _whole(
                    f"{outer} {other} {inner} instead of {outer} * {inner}", number(step, coords)
                )
            if other != "+":
                yield from _whole(
                    f"{other} instead of + before {inner}", number({f"plus {inner}": (other, 0)}, coords)
                )
        for what, by in size.items():
            if by != size[inner]:
                step = {f"{outer} times {inner}": ("*", by)}
                yield from _whole(f"{outer} times {what} instead of {inner}", number(step, coords))
    for name in DIM_NAMES:
        for other in DIM_NAMES:
            if other != name:
                yield from _whole(f"{other} for {name}", number({}, {**coords, name: coords[other]}))
    inner = DIM_NAMES[out.layout.inner]
    first = {**coords, inner: coords[inner] // 4 * 4}
    yield from _whole("the first lane's for all", number({}, first))
    yield from _split(number({}, coords))
