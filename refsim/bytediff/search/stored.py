"""Edits of what is stored, of any kernel and without one: right values at other places, or what was there before.

Each predicts the whole buffer without a kernel. Where other values themselves are wrong, `device` has the edits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, distinct, once
from refsim.bytediff.search.device import IN_WORDS, loaded, rolled
from refsim.core import choices, index
from refsim.core.buffer import ByteKind, offsets
from refsim.core.layout import DIM_NAMES, FLOAT_LAYOUTS, FOREIGN, INT8_LAYOUTS, C, H, W
from refsim.core.qmath import QMAX, QMIN
from refsim.core.tensor import TensorDesc

NOTHING, PADDING = "nothing written", "padding leaked"
#: Of wrong addresses: several elements go to one cell.
SHARED = "address"
#: So few distinct values among the wrong elements could be anywhere.
LEAST_VALUES = 6
#: How many differing cells vote for a distance, how far it is at most, and how many distances are tried.
VOTERS, REACH, BEST = 160, 4096, 3
#: The share of wrong cells that must come from elsewhere, and how many at least.
LEAST_SHARE, LEAST_CELLS = 0.9, 3
#: A tensor with longer dims, or more elements, is not searched slice by slice.
LONGEST, MOST_ELEMENTS = 96, 1 << 15


def predictions(ev: Evidence) -> Iterator[Prediction]:
    """What the buffer would hold by each edit, specific ones first."""
    yield from _unwritten(ev)
    yield from _batches(ev)
    yield from _rounded_apart(ev)
    yield from _words(ev)
    yield from _addresses(ev)
    yield from _padding(ev)
    yield from _foreign(ev)
    at = np.flatnonzero(ev.wrong)
    if len(distinct(ev.got[at])) >= LEAST_VALUES:
        yield from _distances(ev, at)
        yield from _slices(ev)
        yield from _elsewhere(ev)


# --- what nobody wrote --------------------------------------------------------------------------------------


@once
def _before(ev: Evidence) -> list[tuple[str, np.ndarray, bool]]:
    """What the memory may have held before: (in words, cells, whether that was read off the differences).

    The bytes of another buffer count if most wrong cells hold them.
    """
    shown = 0xFF if ev.desc.is_int8 else 0xFFFFFFFF
    found = [
        (f"0x{fill & shown:02X} is left there", np.full_like(ev.want, fill), fill != 0) for fill in ev.fills
    ]
    for name, held in _as_long(ev).items():
        if 2 * np.count_nonzero((held == ev.got) & ev.differing) > np.count_nonzero(ev.differing):
            found.append((f"the bytes of {name} are left there", held, False))
    return found


def _as_long(ev: Evidence) -> dict[str, np.ndarray]:
    """Where other buffers begin, as many cells as the output has; of those that are large enough."""
    size = len(ev.want)
    return {name: held[:size] for name, held in ev.foreign.items() if len(held) >= size}


def _unwritten(ev: Evidence) -> Iterator[Prediction]:
    """Cells that nobody wrote hold what was there before."""
    for left, before, fitted in _before(ev):
        if before.min() == before.max():  # the bytes of another buffer are that buffer
            yield Prediction(NOTHING, f"no byte: {left}", before)  # one byte says all: little was read off
        for name, what, missing, read_off in _missing(ev):
            if missing.any() and not missing.all():  # all of it is what was there before
                held = np.where(missing, before, ev.want)
                yield Prediction(name, f"{what}: {left}", held, fitted or read_off)


def _missing(ev: Evidence) -> Iterator[tuple[str, str, np.ndarray, bool]]:
    """(class, in words, bool per cell: whether nobody wrote it, whether that was read off the differences)."""
    tile = "last tile missing"
    n, c, h, w = ev.coordinates
    if ev.bound is not None and ev.call.op.channel_dim == -1:  # an image is a plane of rows
        yield "batch ignored", "rows of the first plane alone are written", (n > 0) | (c > 0), False
    yield "batch ignored", "batch 0 alone is written", n > 0, False
    cells, wrong = np.arange(len(ev.want)), ev.differing
    for name, along in (("w", w), ("h", h), ("c", c)) if wrong.any() else ():
        if first := int(along[wrong].min()):
            yield tile, f"{name} >= {first} of every image not computed", along >= first, True
    yield tile, f"everything from cell {wrong.argmax()} on", cells >= wrong.argmax(), True
    each = 4 // ev.want.itemsize
    for what, end in (("first", cells < each), ("last", cells >= len(cells) - each)):
        yield "only a part is written", f"the {what} word", end, False
    if (launch := ev.launch) is None:
        return
    rounded = np.zeros(len(cells), bool)
    for axis, (name, items) in enumerate(zip("xyz", ev.items, strict=True)):
        extent, each = launch.global_size[axis], launch.tile[axis]
        group = each * launch.local[axis]
        for limit, what in (
            (extent // group * group, "grid rounded down"),
            (extent // each * each, "part of a tile dropped"),
            (extent - 1, "one short"),
            (max(launch.grid[axis] - 1, 0) * group, "one workgroup short"),
        ):
            yield tile, f"{name} >= {limit} of {extent} not computed ({what})", items >= limit, False
        rounded |= items >= max(1, extent // group) * group  # but not to zero
    yield tile, "the grid rounded down along every axis", rounded, False


def _batches(ev: Evidence) -> Iterator[Prediction]:
    """The batch index fixed at 0 in a write, or wherever it is used."""
    values = ev.logical
    if len(values) < 2:
        return
    every = np.broadcast_to(values[:1], values.shape)
    yield Prediction("batch ignored", "every batch computed from batch 0", ev.with_cells(every))
    for left, before, fitted in _before(ev):
        last = before.copy()
        last[ev.places[0]] = values[-1]
        said = f"every batch written to the place of batch 0: {left}"
        yield Prediction("batch ignored", said, last, fitted)


def _rounded_apart(ev: Evidence) -> Iterator[Prediction]:
    """The terms of a sum rounded to the output's steps before they are added."""
    form = ev.call.op.affine and ev.call.op.affine(ev.call.params) if ev.bound is not None else None
    if form is None or len(form.terms) < 2 or form.relu:
        return
    with np.errstate(all="ignore"):
        scaled = (
            np.float32(term.factor)
            * ((ev.arrays[name].astype(np.float32) - np.float32(term.zp)) * np.float32(term.scale))
            for name, term in zip(ev.inputs, form.terms, strict=True)
        )
        total = sum(np.rint(term * form.inv) for term in scaled)
    cells = np.clip(total + form.zp, QMIN, QMAX).astype(np.int8)
    said = "terms rounded to steps of the output before they are added"
    yield Prediction("order of the epilogue", said, ev.with_cells(cells))


# --- right values at other places ------------------------------------------------------------------------


def _words(ev: Evidence) -> Iterator[Prediction]:
    """Bytes of every word in another order, or every word at another place."""
    if ev.desc.nbytes % 4:
        return
    ways = [(name, f"output {what}", read) for name, what, read in IN_WORDS]
    for by in (1, -1, 2, -2, 4, -4):
        ways.append(("write out of bounds", f"every word written {by:+d} words off", rolled(-by)))
    for name, said, read in ways:
        yield Prediction(name, said, loaded(ev.expected.words, read).view(ev.want.dtype))


def _addresses(ev: Evidence) -> Iterator[Prediction]:
    """Elements written to the cells of a wrong address rule."""
    for name, what, at in _rules(ev.desc):
        # where several elements go to one cell, it is read off which of them came last
        yield Prediction(name, f"output written {what}", _written(ev, at), fitted=name == SHARED)
    turned = np.ascontiguousarray(ev.logical.swapaxes(-1, -2)).reshape(ev.logical.shape)
    yield Prediction("H and W exchanged", "output rows written as columns", ev.with_cells(turned))
    size = ev.desc.sizes_whcn[ev.desc.layout.dim_order[-1]]
    if not ev.desc.is_int8 and size % 4:
        apart = -(-size // 4) * 4
        at = ev.places // size * apart + ev.places % size
        said = f"rows of {size} floats written {apart} floats apart"
        yield Prediction("rows apart", said, _written(ev, at))


def _rules(desc: TensorDesc) -> Iterator[tuple[str, str, np.ndarray]]:
    """(class, in words, cell of every element, which may lie outside)."""
    for row in (*INT8_LAYOUTS, *FOREIGN) if desc.is_int8 else FLOAT_LAYOUTS:
        if row != desc.layout:
            yield "another layout's strides", f"as {row}", offsets(TensorDesc(desc.shape, row))
    places = _places(desc)
    for a, b in combinations((W, H, C), 2):
        name = "C and another dim exchanged" if b == C else "H and W exchanged"
        said = f"with the strides of {DIM_NAMES[b]} and {DIM_NAMES[a]} exchanged"
        yield name, said, _at(desc, places, {a: desc.strides_whcn[b], b: desc.strides_whcn[a]})
    w, h, c, n = places
    yield "H and W exchanged", "with row and column exchanged", _at(desc, (h, w, c, n))
    at, layout, turned = offsets(desc), desc.layout, "block transposed"
    size = layout.block_numel
    outer, inner = at % size // layout.inner_block, at % size % layout.inner_block
    yield turned, "with blocks transposed", at // size * size + inner * layout.outer_block + outer
    yield turned, "with the words of blocks transposed", at // size * size + outer // 4 * 4 + at % 4
    yield turned, "with squares of 4 x 4 words transposed", _squares(desc)
    slow, fast = layout.dim_order[2:]
    grid = _at(desc, places, {slow: 1, fast: desc.blocks_whcn[slow]})
    yield turned, "with the block grid transposed", grid
    for dim, name in ((W, "column"), (H, "row"), (C, "channel")):
        folded = [along // 4 + along % 4 if at == dim else along for at, along in enumerate(places)]
        yield SHARED, f"with the number of each four {name}s for the place of the first", _at(desc, folded)


def _places(desc: TensorDesc) -> list[np.ndarray]:
    """w, h, c and n of every element, NCHW."""
    n, c, h, w = np.indices(desc.sizes_whcn[::-1], np.int64)
    return [w, h, c, n]


def _at(desc: TensorDesc, places: Sequence[np.ndarray], other: Mapping[int, int] | None = None) -> np.ndarray:
    """The cells of places (w, h, c, n), where some dims have ``other`` strides."""
    strides = {**dict(enumerate(desc.strides_whcn)), **(other or {})}
    found: np.ndarray = index.buf_idx((*desc.sizes_whcn, *strides.values()), 0, desc.hashed, *places)
    return found


def _squares(desc: TensorDesc) -> np.ndarray:
    """Four neighbours along the outer dim by four words of the inner one; what would fall outside is dropped."""
    coords, layout = _places(desc), desc.layout
    word, lane, row = coords[layout.inner] // 4, coords[layout.inner] % 4, coords[layout.outer]
    coords[layout.inner] = (word // 4 * 4 + row % 4) * 4 + lane
    coords[layout.outer] = row // 4 * 4 + word % 4
    return np.where(index.inside(desc.meta, 0, *coords), _at(desc, coords), -1)


def _written(ev: Evidence, at: np.ndarray) -> np.ndarray:
    """The expected elements scattered to other cells of a buffer as it began; writes beyond it are dropped."""
    fresh = np.full_like(ev.want, ev.unwritten)
    to, values = at.reshape(-1), ev.logical.reshape(-1)
    inside = (to >= 0) & (to < len(fresh))
    to, values = to[inside], values[inside]
    fresh[to] = values
    same = values == ev.got[to]  # where several elements go to one cell, any of them may have come last
    fresh[to[same]] = values[same]
    return fresh


def _distances(ev: Evidence, at: np.ndarray) -> Iterator[Prediction]:
    """Wrong cells that are those of the output, or of another buffer, at one distance."""
    voters = at[:: max(1, len(at) // VOTERS)][:VOTERS]
    for name, source in {"the right output": ev.want, **ev.foreign}.items():
        reach = min(max(len(source), len(ev.want)), REACH)
        padded = np.zeros(len(ev.want) + 2 * reach, ev.want.dtype)
        count = min(len(source), len(ev.want) + reach)
        padded[reach : reach + count] = source[:count]
        windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach)[voters]
        votes = (windows == ev.got[voters][:, None]).sum(axis=0)
        for distance in (int(k) - reach for k in np.argsort(-votes, kind="stable")[:BEST]):
            if 2 * votes[distance + reach] >= len(voters) and (distance or source is not ev.want):
                where = np.arange(len(ev.want)) + distance
                inside = (where >= 0) & (where < len(source))
                fresh = np.where(inside, source[np.where(inside, where, 0)], ev.want)
                far = f"{distance:+d} {'bytes' if ev.desc.is_int8 else 'words'} away"
                yield Prediction("values moved", f"they are those of {name} {far}", fresh, fitted=True)


def _slices(ev: Evidence) -> Iterator[Prediction]:
    """Whole rows, columns, channels or images that hold those of others: the source of each is inferred."""
    got, want, wrong = ev.got[ev.places], ev.want[ev.places], ev.differing[ev.places]
    for axis, name in ((3, "column"), (2, "row"), (1, "channel"), (0, "image")):
        size = want.shape[axis]
        if not 2 <= size <= LONGEST or want.size > MOST_ELEMENTS:
            continue
        g, w, d = (np.moveaxis(a, axis, 0).reshape(size, -1) for a in (got, want, wrong))
        source = np.arange(size)
        for place in np.flatnonzero(d.any(axis=1)):
            cells = np.flatnonzero(d[place])
            hits = (w[:, cells] == g[place, cells]).sum(axis=1)
            if hits.max() >= max(LEAST_CELLS, LEAST_SHARE * len(cells)):
                source[place] = hits.argmax()
        changed = np.flatnonzero(source != np.arange(size))
        if len(changed):
            steps = distinct(source[changed] - changed)
            listed = choices.first([f"{k} holds {source[k]}" for k in changed])
            said = f"{name}s exchanged: {listed}"
            if len(steps) == 1:
                said = f"{name} i holds {name} i {steps[0]:+d}, for {len(changed)} of them"
            yield Prediction("values moved", said, ev.with_cells(np.take(want, source, axis)), fitted=True)


def _elsewhere(ev: Evidence) -> Iterator[Prediction]:
    """Wrong words that are whole right words of other places: an address is wrong, no value and no lane is."""
    if not ev.in_words:
        return
    elements = ev.values.reshape(-1, 4).all(axis=1)
    wrong = ev.differing.reshape(-1, 4).any(axis=1) & elements
    want, got = ev.expected.words, ev.actual.words
    telling = wrong & (np.ptp(ev.got.reshape(-1, 4).astype(np.int16), axis=1) >= 4)
    known = np.isin(got, want[elements])
    if np.count_nonzero(telling & known) < max(LEAST_VALUES, LEAST_SHARE * np.count_nonzero(telling)):
        return
    # words of the same bytes in another order are found as well where few bytes are common everywhere
    rows = ev.got.reshape(-1, 4)[telling]
    turned = (np.ascontiguousarray(np.roll(rows, by, 1)).view(np.int32).reshape(-1) for by in (1, 2, 3))
    few = len(distinct(got[telling])) < LEAST_VALUES
    if few or any(np.isin(row, want[elements]).mean() > 0.1 for row in turned):
        return
    fresh = np.where(wrong & known, got, want).astype(np.int32).view(np.int8)
    at = np.flatnonzero(telling & known)[:3]
    held = ", ".join(f"word {k} holds word {np.flatnonzero(want == got[k])[0]}" for k in at)
    said = f"{held}, and so on for {np.count_nonzero(wrong & known)} words"
    yield Prediction("words of other places", said, fresh, inferred=True)


# --- padding, other buffers, and what was right before ---------------------------------------------------------


def _padding(ev: Evidence) -> Iterator[Prediction]:
    """Padding that holds what no kernel of its operator leaves there."""
    parts = {kind.label: ev.kinds == kind for kind in (ByteKind.LANE, ByteKind.WORD)}
    for what, mine in {**parts, "padding": ~ev.values}.items():
        held = distinct(ev.got[mine & ev.differing])
        if len(held):
            said = f"0x{int(held[0]) & 0xFF:02X}" if len(held) == 1 else f"{len(held)} different bytes"
            yield Prediction(PADDING, f"{what} holds {said}", np.where(mine, ev.got, ev.want), fitted=True)


def _foreign(ev: Evidence) -> Iterator[Prediction]:
    """Bytes of another buffer, everywhere or in one stretch; or a stretch of the output's own."""
    at = np.flatnonzero(ev.differing)
    if not len(at):
        return
    first, last = at[0], at[-1] + 1
    foreign = "stale or foreign buffer"
    for name, other in _as_long(ev).items():
        yield Prediction(foreign, f"the bytes of {name}", other)
        fresh = np.concatenate((ev.want[:first], other[first:last], ev.want[last:]))
        said = f"the bytes of {name} from place {first} to {last - 1}"
        yield Prediction(foreign, said, fresh, fitted=True)
    if not ev.in_words:
        return
    first, last = first // 4, (last + 3) // 4
    stretch, held = ev.actual.words[first:last], ev.expected.words
    begins = held[: len(held) - len(stretch) + 1] == stretch[0]
    for begin in np.flatnonzero(begins & (held[len(stretch) - 1 :] == stretch[-1])):
        if begin != first and np.array_equal(held[begin : begin + len(stretch)], stretch):
            said = f"words {first} to {last - 1} hold those that belong at word {begin}"
            fresh = np.concatenate((held[:first], stretch, held[last:])).view(np.int8)
            yield Prediction("write out of bounds", said, fresh, fitted=True)
            return
