"""Where wrong bytes came from: the same distance for all of them, or another row, column, channel or image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, distinct, hypothesis
from refsim.bytediff.hypotheses import phases
from refsim.bytediff.invocations import coordinates
from refsim.core import choices
from refsim.core.buffer import ByteKind

#: So many differing cells vote, and so few distinct values among them could be anywhere.
VOTERS, LEAST_VALUES = 160, 6
#: Buffers with more cells are searched no further than this from where a byte belongs.
REACH = 4096
#: The distances with most votes that are tried.
BEST = 3
#: The share of a slice's wrong cells that a source must explain, and how many it must explain at least.
LEAST_SHARE, LEAST_CELLS = 0.9, 3
#: A tensor with longer dims is not searched slice by slice.
LONGEST = 96
#: The bytes of a word that could be anywhere lie closer together than this.
LEAST_RANGE = 4
#: Of lines that are counted shorter so much is left at least: a buffer of zeros would fit where nothing is written.
LEAST_OF_LINE = 0.25
#: Words are not looked for where so many are found by chance.
MOST_BY_CHANCE = 0.1


@hypothesis("values moved")
def moved(ev: Evidence) -> Iterator[Prediction]:
    """Wrong bytes that are right ones of another place, of the output or of another buffer."""
    at = np.flatnonzero(ev.differing & (ev.kinds == ByteKind.VALUE))
    if len(at) < LEAST_VALUES or len(distinct(ev.got[at])) < LEAST_VALUES:
        return
    for name, source in _sources(ev).items():
        for distance in _distances(ev, at, source):
            where = np.arange(len(ev.want)) + distance
            inside = (where >= 0) & (where < len(source))
            fresh = np.where(inside, source[np.where(inside, where, 0)], ev.want)
            unit = "bytes" if ev.desc.is_int8 else "words"
            far = f"{distance:+d} {unit} away" if distance else "at the same place"
            yield Prediction(f"they are those of {name} {far}", fresh, True)
    yield from _slices(ev)
    yield from phases.moved(ev)


def _sources(ev: Evidence) -> Mapping[str, np.ndarray]:
    found = {"the right output": ev.want}
    for name, raw in ev.others.items():
        data = np.ascontiguousarray(raw).view(np.uint8).reshape(-1)
        size = ev.want.dtype.itemsize
        found[name] = data[: len(data) // size * size].view(ev.want.dtype)
    return found


def _distances(ev: Evidence, at: np.ndarray, source: np.ndarray) -> list[int]:
    """How far from their place the wrong values are found most often."""
    voters = at[:: max(1, len(at) // VOTERS)][:VOTERS]
    reach = max(len(source), len(ev.want))
    reach = min(reach, REACH)
    padded = np.zeros(len(ev.want) + 2 * reach, ev.want.dtype)
    count = min(len(source), len(ev.want) + reach)
    padded[reach : reach + count] = source[:count]
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach)[voters]
    votes = (windows == ev.got[voters][:, None]).sum(axis=0)
    best = np.argsort(-votes, kind="stable")[:BEST]
    own = source is ev.want
    found = [int(k) - reach for k in best if 2 * votes[k] >= len(voters)]
    return [distance for distance in found if distance or not own]


def _slices(ev: Evidence) -> Iterator[Prediction]:
    """Whole rows, columns, channels or images that hold those of others: the source of each is inferred."""
    got, want, wrong = ev.got[ev.places], ev.want[ev.places], ev.differing[ev.places]
    for axis, name in ((3, "column"), (2, "row"), (1, "channel"), (0, "image")):
        size = want.shape[axis]
        if not 2 <= size <= LONGEST or want.size > 1 << 15:
            continue
        g, w, d = (np.moveaxis(a, axis, 0).reshape(size, -1) for a in (got, want, wrong))
        source = np.arange(size)
        for place in np.flatnonzero(d.any(axis=1)):
            cells = np.flatnonzero(d[place])
            hits = (w[:, cells] == g[place, cells]).sum(axis=1)
            best = int(hits.argmax())
            if hits[best] >= max(LEAST_CELLS, LEAST_SHARE * len(cells)):
                source[place] = best
        changed = np.flatnonzero(source != np.arange(size))
        if len(changed):
            fresh = ev.with_values(_values(ev, np.take(want, source, axis)))
            yield Prediction(_said(name, source, changed), fresh, True)


def _values(ev: Evidence, cells: np.ndarray) -> np.ndarray:
    return cells if ev.desc.is_int8 else np.ascontiguousarray(cells).view(np.float32)


def _said(name: str, source: np.ndarray, changed: np.ndarray) -> str:
    """The inferred sources in words: a rule where two numbers give all of them."""
    if len(changed) > 2:
        steps = np.unique(np.diff(source[changed]) / np.diff(changed))
        if len(steps) == 1:
            factor = int(steps[0]) if steps[0] == int(steps[0]) else steps[0]
            offset = source[changed[0]] - factor * changed[0]
            at = f"{factor} * i {offset:+g}" if factor != 1 else f"i {offset:+g}"
            return f"{name} i holds {name} {at if factor else f'{offset:g}'}, for {len(changed)} of them"
    listed = choices.first([f"{k} holds {source[k]}" for k in changed])
    return f"{name}s exchanged: {listed}"


@hypothesis("words of other places")
def words(ev: Evidence) -> Iterator[Prediction]:
    """Wrong words that are whole right words of other places: an address is wrong, no value and no lane is."""
    yield from _lines(ev)
    if not ev.in_words:
        return
    elements = (ev.kinds == ByteKind.VALUE).reshape(-1, 4).all(axis=1)
    wrong = ev.differing.reshape(-1, 4).any(axis=1) & elements
    want, got = (np.ascontiguousarray(a).view(np.int32) for a in (ev.want, ev.got))
    telling = wrong & (np.ptp(ev.got.reshape(-1, 4).astype(np.int16), axis=1) >= LEAST_RANGE)
    known = np.isin(got, want[elements])
    if np.count_nonzero(telling & known) < max(LEAST_VALUES, LEAST_SHARE * np.count_nonzero(telling)):
        return
    if len(distinct(got[telling])) < LEAST_VALUES or _by_chance(ev, telling, want[elements]):
        return
    fresh = np.where(wrong & known, got, want).astype(np.int32).view(np.int8)
    at = np.flatnonzero(telling & known)[:3]
    held = ", ".join(f"word {k} holds word {np.flatnonzero(want == got[k])[0]}" for k in at)
    yield Prediction(f"{held}, and so on for {np.count_nonzero(wrong & known)} words", fresh, inferred=True)


def _lines(ev: Evidence) -> Iterator[Prediction]:
    """Elements counted in lines of another length than they have: of a row, of a plane, or of the words of a row."""
    flat, shape = ev.logical.reshape(-1), ev.logical.shape
    number = np.arange(flat.size)
    sizes = {*shape, *(-(-size // 4) * 4 for size in shape)}
    for length in dict.fromkeys((shape[-1], shape[-1] * shape[-2])):
        line, place = number // length, number % length
        for other in sorted({*sizes, length + 1, length - 1, 2 * length, length // 2}):
            if not 1 < length < flat.size or other < 1 or other == length:
                continue
            at = line * other + place
            read = np.where(at < flat.size, flat[np.minimum(at, flat.size - 1)], 0)
            what = f"lines of {length} elements counted as {other}"
            yield Prediction(what, ev.with_values(_values(ev, read.reshape(shape))))
            if LEAST_OF_LINE * length <= other < length:
                short = np.where(place < other, read, 0)
                yield Prediction(f"{what}, 0 beyond", ev.with_values(_values(ev, short.reshape(shape))))


def _by_chance(ev: Evidence, telling: np.ndarray, known: np.ndarray) -> bool:
    """Whether words of the same bytes in another order are found as well: then few bytes are common everywhere."""
    rows = ev.got.reshape(-1, 4)[telling]
    others = (np.ascontiguousarray(np.roll(rows, by, 1)).view(np.int32).reshape(-1) for by in (1, 2, 3))
    return any(np.isin(turned, known).mean() > MOST_BY_CHANCE for turned in others)


@hypothesis("only a part is written")
def unwritten(ev: Evidence) -> Iterator[Prediction]:
    """Elements of one phase, side, range or channel group that hold what the buffer was filled with."""
    at = ev.differing & (ev.kinds == ByteKind.VALUE)
    yield from _ends(ev)
    if np.count_nonzero(at) < LEAST_VALUES or len(distinct(ev.got[at])) > 1:
        return
    if len(distinct(ev.want[at])) < LEAST_VALUES:
        return  # a saturated tensor says nothing
    fill = ev.got[at][0]
    if int(fill) not in ev.fills:
        return  # a kernel may have ended in that value
    box, told = np.ones(at.shape, bool), []
    for dim, along in zip("nchw", coordinates(ev.desc), strict=True):
        first, last = int(along[at].min()), int(along[at].max())
        if (first, last) != (0, int(along[ev.kinds == ByteKind.VALUE].max())):
            box &= (along >= first) & (along <= last)
            told.append(f"{dim} is {first} to {last}" if first < last else f"{dim} is {first}")
    if told:
        fresh = np.where(box, fill, ev.want).astype(ev.want.dtype)
        yield Prediction(f"where {' and '.join(told)}, every element is the same", fresh, True)
    for dim, along in zip("nchw", coordinates(ev.desc), strict=True):
        for modulus in (2, 3, 4, 8):
            if along.max() < modulus:
                continue
            seen = distinct(along[at] % modulus)
            if len(seen) < modulus:
                fresh = np.where(np.isin(along % modulus, seen), fill, ev.want).astype(ev.want.dtype)
                listed = ", ".join(map(str, seen))
                yield Prediction(
                    f"where {dim} % {modulus} is {listed}, every element is the same", fresh, True
                )


def _ends(ev: Evidence) -> Iterator[Prediction]:
    """The first or the last word of the buffer holds what it was filled with: a bound is one off."""
    each = 4 if ev.desc.is_int8 else 1
    for what, part in (("first", slice(each)), ("last", slice(len(ev.want) - each, None))):
        for fill in ev.fills:
            if ev.differing[part].any():
                fresh = ev.want.copy()
                fresh[part] = fill
                yield Prediction(f"the {what} word holds 0x{fill & 0xFFFFFFFF:02X}", fresh, fitted=fill != 0)
