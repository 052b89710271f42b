"""Causes in what ran: tiles that no invocation computed, batches, stale buffers, padding, stray writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, cells, hypothesis, once
from refsim.bytediff.invocations import work_items
from refsim.bytediff.rerun import chained, each_input, has_weights, quantized, rerun
from refsim.core.buffer import GUARD, ByteKind, PackedBuffer
from refsim.core.launch import Launch
from refsim.core.tensor import TensorDesc
from refsim.ops.base.epilogue import PER_CHANNEL
from refsim.ops.base.traits import BY_ROWS

Left = tuple[str, np.ndarray, bool]


@once
def _before(ev: Evidence) -> list[Left]:
    """What the memory may have held before: (in words, cells, whether that was read off the differences).

    The bytes of another buffer count if most wrong cells hold them.
    """
    found: list[Left] = []
    for fill in ev.fills:
        found.append((f"{_shown(ev, fill)} is left there", np.full_like(ev.want, fill), fill != 0))
    for name, raw in ev.others.items():
        held = np.ascontiguousarray(raw).view(np.uint8).reshape(-1)
        if len(held) >= ev.desc.nbytes:
            stale = held[: ev.desc.nbytes].view(ev.want.dtype)
            if 2 * np.count_nonzero((stale == ev.got) & ev.differing) > np.count_nonzero(ev.differing):
                found.append((f"the bytes of {name} are left there", stale, False))
    return found


def _left(ev: Evidence, what: str, missing: np.ndarray, fitted: bool = False) -> Iterator[Prediction]:
    """Cells, or words, that nobody wrote hold what was there before."""
    cells_ = missing if len(missing) == len(ev.want) else np.repeat(missing, len(ev.want) // len(missing))
    if cells_.any():
        for left, before, read_off in _before(ev):
            yield Prediction(f"{what}: {left}", np.where(cells_, before, ev.want), fitted or read_off)


@hypothesis("nothing written")
def nothing_written(ev: Evidence) -> Iterator[Prediction]:
    """No invocation ran: the whole buffer holds what was there before."""
    for left, before, read_off in _before(ev):
        if before.min() == before.max():  # the bytes of another buffer are that buffer
            yield Prediction(f"no byte: {left}", before, read_off)


def _shown(ev: Evidence, fill: int) -> str:
    return f"0x{fill & (0xFF if ev.desc.is_int8 else 0xFFFFFFFF):02X}"


_FITTED = "everything from there on"


@hypothesis("last tile missing")
def tile_missing(ev: Evidence) -> Iterator[Prediction]:
    """Invocations at the end of an axis never ran: the grid was rounded down, or limited."""
    yield from _ends_of_images(ev)
    if ev.launch is None:
        first = ev.differing.argmax() // 4 * 4 if ev.desc.is_int8 else ev.differing.argmax()
        yield from _left(ev, f"everything from cell {first} on", np.arange(len(ev.want)) >= first, True)
        return
    for axis, name in enumerate("xyz"):
        for limit, what in _limits(ev, ev.launch, ev.items, axis):
            missing = ev.items[axis] >= limit
            if not missing.all():
                size = ev.launch.global_size[axis]
                said = f"{name} >= {limit} of {size} not computed ({what})"
                yield from _left(ev, said, missing, what == _FITTED)
    rounded = _beyond_whole_groups(ev.launch, ev.items)
    yield from _left(ev, "the grid rounded down along every axis", rounded)
    if ev.bound is not None and ev.call.op.expand is not None:
        yield from _parts_rounded_down(ev)


def _ends_of_images(ev: Evidence) -> Iterator[Prediction]:
    """The last columns, rows or channels of every image not computed, as by an executor that works row by row."""
    wrong = ev.differing[ev.places]
    for axis, name in ((3, "w"), (2, "h"), (1, "c")):
        along = np.flatnonzero(wrong.any(axis=tuple(a for a in range(4) if a != axis)))
        if len(along) and along[0]:
            missing = np.zeros(len(ev.want), bool)
            missing[np.moveaxis(ev.places, axis, 0)[along[0] :]] = True
            yield from _left(ev, f"{name} >= {along[0]} of every image not computed", missing, True)


def _beyond_whole_groups(launch: Launch, items: np.ndarray) -> np.ndarray:
    """Words of the output that are left out if every axis of the grid is rounded down, but not to zero."""
    missing = np.zeros(launch.out.words, bool)
    for axis, along in enumerate(items):
        group = launch.local[axis] * launch.tile[axis]
        missing |= along >= max(1, launch.global_size[axis] // group) * group
    return missing


def _parts_rounded_down(ev: Evidence) -> Iterator[Prediction]:
    """A composite operator whose grids are rounded down: those of its intermediate buffers alone, or all."""
    assert ev.launch is not None
    launches = [step.launch for step in ev.call.dispatches()]

    def rounded(number: int, buffer: PackedBuffer) -> PackedBuffer:
        fresh = PackedBuffer(buffer.desc)
        fresh.words[:] = np.where(
            _beyond_whole_groups(launches[number], work_items(launches[number])), 0, buffer.words
        )
        return fresh

    found = chained(ev, rounded)
    if found is not None:
        yield Prediction("the grids of the first dispatches rounded down", found)
        both = found.reshape(ev.launch.out.words, -1).copy()
        both[_beyond_whole_groups(ev.launch, ev.items)] = 0
        yield Prediction("the grids of all dispatches rounded down", both.reshape(-1))


def _limits(ev: Evidence, launch: Launch, items: np.ndarray, axis: int) -> Iterator[tuple[int, str]]:
    extent, tile, local = launch.global_size[axis], launch.tile[axis], launch.local[axis]
    yield extent // (local * tile) * (local * tile), "grid rounded down"
    yield extent // tile * tile, "part of a tile dropped"
    yield extent - 1, "one short"
    yield max(launch.grid[axis] - 1, 0) * local * tile, "one workgroup short"
    differing = np.flatnonzero(ev.differing.reshape(len(items[axis]), -1).any(axis=1))
    if len(differing):
        yield int(items[axis][differing].min()), _FITTED


@hypothesis("batch ignored")
def batch_ignored(ev: Evidence) -> Iterator[Prediction]:
    """The batch index fixed at 0 in a read or in a write."""
    if ev.bound is not None and ev.call.op.family in BY_ROWS and len(ev.call.out.shape) > 2:
        missing = np.zeros(len(ev.want), bool)
        missing[np.setdiff1d(ev.places, ev.places[0, 0])] = True
        yield from _left(ev, "rows of the first plane alone are written", missing)
    if ev.bound is not None:
        for name, x, buffer in each_input(ev):
            # where input and output have the batches alike, the prediction below is the same
            alike = len(ev.inputs) == 1 and buffer.desc.sizes_whcn[3] == ev.desc.sizes_whcn[3]
            if buffer.desc.sizes_whcn[3] > 1 and not alike:
                cells_ = rerun(ev, inputs={name: np.broadcast_to(x[:1], x.shape)})
                if cells_ is not None:
                    yield Prediction(f"{name} read from batch 0 alone", cells_)
    if ev.desc.sizes_whcn[3] < 2:
        return
    values = ev.logical
    yield Prediction(
        "every batch computed from batch 0", ev.with_values(np.broadcast_to(values[:1], values.shape))
    )
    first = ev.places[0].max() + 1 if ev.desc.layout.dim_order[0] == 3 else 0
    yield from _left(ev, "batch 0 alone is written", np.arange(len(ev.want)) >= first)
    for left, before, read_off in _before(ev):
        last = before.copy()
        last[ev.places[0]] = values[-1]
        yield Prediction(f"every batch written to the place of batch 0: {left}", last, read_off)


@hypothesis("stale or foreign buffer")
def stale_buffer(ev: Evidence) -> Iterator[Prediction]:
    """Bytes of another buffer, of an earlier run, or of an intermediate buffer that was not yet written."""
    for name, raw in ev.others.items():
        other = np.frombuffer(np.ascontiguousarray(raw), ev.want.dtype)
        if len(other) >= len(ev.want):
            other = other[: len(ev.want)]
            yield Prediction(f"the bytes of {name}", other)
            yield from _overlaid(ev, name, other)
    yield from _scratch(ev, "read before it was written", _zeroed)
    if ev.bound is not None:
        for arg, x in ev.arrays.items():
            unread = rerun(ev, inputs={arg: np.zeros_like(x)})
            if unread is not None:
                yield Prediction(f"{arg} read before it was written", unread)
    for name, raw in ev.others.items():
        yield from _scratch(ev, f"holding {name}", lambda b, raw=raw: _refilled(b, raw))  # type: ignore[misc]
        if ev.bound is not None:
            yield from _inputs_holding(ev, name, raw)


def _inputs_holding(ev: Evidence, name: str, raw: np.ndarray) -> Iterator[Prediction]:
    """An input's memory still held another buffer's bytes, from its first byte on, when the kernel read it."""
    for arg, buffer in ev.inputs.items():
        desc = buffer.desc
        other = PackedBuffer.from_raw(buffer.raw.tobytes(), desc.shape, desc.layout, desc.dtype)
        count = min(len(raw), len(other.raw))
        other.raw[:count] = np.asarray(raw).view(np.uint8)[:count]
        found = rerun(ev, inputs={arg: other.unpack()})
        if found is not None:
            yield Prediction(f"{arg} held {name} when it was read", found)


def _overlaid(ev: Evidence, name: str, other: np.ndarray) -> Iterator[Prediction]:
    differing = np.flatnonzero(ev.differing)
    if len(differing):
        first, last = differing[0], differing[-1] + 1
        fresh = ev.want.copy()
        fresh[first:last] = other[first:last]
        yield Prediction(f"the bytes of {name} from place {first} to {last - 1}", fresh, True)


def _scratch(ev: Evidence, what: str, change: Callable[[PackedBuffer], PackedBuffer]) -> Iterator[Prediction]:
    """A composite operator that reads something else from its intermediate buffer."""
    if ev.bound is not None and ev.call.op.expand is not None:
        found = chained(ev, lambda number, buffer: change(buffer))
        if found is not None:
            yield Prediction(f"the intermediate buffer {what}", found)


def _zeroed(buffer: PackedBuffer) -> PackedBuffer:
    return PackedBuffer(buffer.desc)


def _refilled(buffer: PackedBuffer, raw: np.ndarray) -> PackedBuffer:
    other = PackedBuffer(buffer.desc)
    count = min(len(raw), len(other.raw))
    other.raw[:count] = np.asarray(raw).view(np.uint8)[:count]
    return other


@hypothesis("stale constant", needs_call=True)
def stale_constant(ev: Evidence) -> Iterator[Prediction]:
    """A parameter or constant of the call that ran before."""
    call, before = ev.call, None if ev.previous is None else ev.previous.call
    if before is None:
        return
    mine, theirs = vars(call.params), vars(before.params)
    names = [name for name in mine if name in theirs and theirs[name] != mine[name]]
    quantization = [name for name in names if name.endswith(("scale", "zp"))]
    for chosen in (names, quantization, *([name] for name in names)):
        found = rerun(ev, params={name: theirs[name] for name in chosen}) if chosen else None
        if found is not None:
            yield Prediction(f"{', '.join(chosen)} of the call before", found)
    consts = {
        name: value
        for name, value in before.consts.items()
        if value is not None and (own := call.consts.get(name)) is not None and own.shape == value.shape
    }
    for group in (list(consts), *([name] for name in consts)):
        found = rerun(ev, consts={name: consts[name] for name in group}) if group else None
        if found is not None:
            yield Prediction(f"{', '.join(group)} of the call before", found)
    yield from _stale_sizes(ev, before.out)


def _stale_sizes(ev: Evidence, before: TensorDesc) -> Iterator[Prediction]:
    """Elements beyond the sizes of the call before are not computed."""
    inside = np.ones(ev.logical.shape, bool)
    for axis, size in enumerate(reversed(before.sizes_whcn)):
        keep = np.arange(inside.shape[axis]) < size
        inside &= keep.reshape([-1 if a == axis else 1 for a in range(4)])
    missing = np.zeros(len(ev.want), bool)
    missing[ev.places[~inside]] = True
    yield from _left(ev, "elements beyond the sizes of the call before not computed", missing)


@hypothesis("padding leaked")
def padding_leaked(ev: Evidence) -> Iterator[Prediction]:
    """Padding computed from the inputs' padding, or padding written with another byte."""
    padding = ev.kinds != ByteKind.VALUE
    differing = ev.differing & padding
    if differing.any():
        values, counts = np.unique(ev.got[differing], return_counts=True)
        for kinds, what in (
            ((ByteKind.LANE,), "lane padding"),
            ((ByteKind.WORD,), "word padding"),
            ((ByteKind.LANE, ByteKind.WORD), "padding"),
        ):
            fresh = ev.want.copy()
            fresh[np.isin(ev.kinds, kinds)] = values[counts.argmax()]
            yield Prediction(f"{what} holds {_shown(ev, int(values[counts.argmax()]))}", fresh, True)
    if ev.launch is not None and has_weights(ev) and ev.desc.is_int8:
        yield from _from_constants(ev)
    if ev.bound is not None and all(b.desc.is_int8 for b in ev.inputs.values()):
        yield from _from_padding(ev)


def _from_constants(ev: Evidence) -> Iterator[Prediction]:
    """Padding lanes computed as if they were channels, from whatever lies behind the constants."""
    call = ev.call
    channels = call.out.shape[call.op.channel_dim]
    beyond = -channels % 4
    if not beyond:
        return
    shape = list(ev.logical.shape)
    axis = 1 if call.op.channel_dim == -3 else 3
    shape[axis] = beyond
    for what, fill in (
        ("the last channel's constants again", None),
        ("the guard words behind the constants", GUARD),
    ):
        consts: dict[str, np.ndarray | None] = {}
        for name in PER_CHANNEL:
            value = call.consts[name]
            if value is None:
                consts[name] = None
            elif fill is None:
                consts[name] = np.repeat(value[-1:], beyond)
            else:
                consts[name] = np.full(beyond, fill, np.int32).view(value.dtype)
        with np.errstate(all="ignore"):
            lanes = quantized(ev, np.zeros(shape, np.int64), consts)
        fresh = ev.want.copy()
        fresh[_lane_places(ev, axis, beyond)] = lanes
        yield Prediction(f"padding lanes computed from {what}", fresh)


def _lane_places(ev: Evidence, axis: int, beyond: int) -> np.ndarray:
    """Cells of the lanes beyond the channels, shaped as the elements with that many channels."""
    last = np.take(ev.places, [ev.places.shape[axis] - 1], axis)
    steps = np.arange(1, beyond + 1).reshape([-1 if a == axis else 1 for a in range(4)])
    return last + steps


def _from_padding(ev: Evidence) -> Iterator[Prediction]:
    """Padding computed as if it were elements, from the padding of the inputs."""
    wide = {name: _whole(buffer) for name, buffer in ev.inputs.items()}
    out = _whole_shape(ev.desc)
    if any(array.shape != out for array in wide.values()) or not ev.desc.is_int8:
        return
    call = ev.call
    try:
        values = call.op.define(call.params, call.target, **wide, **call.consts)
    except ValueError:  # the operator knows its shape
        return
    if values.shape == out:
        whole = cells(PackedBuffer.pack(values, ev.desc.layout))
        for kinds, what in (
            ((ByteKind.LANE,), "lanes"),
            ((ByteKind.WORD,), "words"),
            ((1, 2), "lanes and words"),
        ):
            fresh = np.where(np.isin(ev.kinds, kinds), whole, ev.want)
            yield Prediction(f"padding {what} computed from the inputs' padding", fresh)


def _whole_shape(desc: TensorDesc) -> tuple[int, ...]:
    w, h, c, n = (blocks * desc.layout.block_extent(dim) for dim, blocks in enumerate(desc.blocks_whcn))
    return n, c, h, w


def _whole(buffer: PackedBuffer) -> np.ndarray:
    """All of a buffer as elements, NCHW."""
    return PackedBuffer.from_raw(buffer.raw, _whole_shape(buffer.desc), buffer.desc.layout).unpack()


@hypothesis("write out of bounds")
def out_of_bounds(ev: Evidence) -> Iterator[Prediction]:
    """Bytes of this or another buffer's elements overwritten in one stretch by values that belong elsewhere."""
    differing = np.flatnonzero(ev.differing)
    if not len(differing) or not ev.in_words:
        return
    first, last = differing[0] // 4 * 4, differing[-1] // 4 * 4 + 4
    stretch = ev.got[first:last]
    held, there = ev.want.view(np.int32), stretch.view(np.int32)
    # where its first word and its last are, the words between are compared
    begins, ends = held[: len(held) - len(there) + 1] == there[0], held[len(there) - 1 :] == there[-1]
    for at in 4 * np.flatnonzero(begins & ends):
        if at != first and np.array_equal(ev.want[at : at + len(stretch)], stretch):
            fresh = ev.want.copy()
            fresh[first:last] = stretch
            detail = f"words {first // 4} to {last // 4 - 1} hold those that belong at word {at // 4}"
            yield Prediction(detail, fresh, True)
            break
    words = ev.want.reshape(-1, 4)
    for by in (1, -1, 2, -2, 4, -4):
        yield Prediction(f"every word written {by:+d} words off", np.roll(words, by, 0).reshape(-1))
