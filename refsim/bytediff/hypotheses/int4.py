"""Causes in 4-bit weights with a scale for each group: nibbles, their order in words, groups; and the order of sums."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, hypothesis
from refsim.bytediff.rerun import rerun
from refsim.ops.base.int4 import COLUMNS, HALVES, PAIRS, ZERO, NibbleBlocks

#: Calls with more products are left to the search.
MOST_PRODUCTS = 1 << 22


def int4_cells(ev: Evidence, values: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Cells of the buffer for other weights."""
    assert ev.call.op.int4 is not None
    with np.errstate(all="ignore"):
        return ev.with_values(ev.call.op.int4.compute(ev.call, ev.arrays, values, scales))


def int4_predicted(ev: Evidence, detail: str, values: np.ndarray, scales: np.ndarray) -> Iterator[Prediction]:
    """The buffer for other weights; none where there are too many products to try them."""
    if values.size * (ev.call.out.numel // ev.call.out.shape[-1]) <= MOST_PRODUCTS:
        yield Prediction(detail, int4_cells(ev, values, scales))


def int4_weights(ev: Evidence) -> tuple[np.ndarray, np.ndarray] | None:
    """Values [rows, K] and scales [rows, groups] of 4-bit weights; None for other operators."""
    return None if ev.call.op.int4 is None else ev.call.op.int4.values(ev.call)


@hypothesis("nibbles read wrong", needs_call=True)
def nibbles(ev: Evidence) -> Iterator[Prediction]:
    """The two values of a byte exchanged, the 8 not taken from a nibble, or its highest bit taken for a sign."""
    found = int4_weights(ev)
    if found is None:
        return
    values, scales = found
    raw = values.astype(np.int16) + ZERO
    swapped = values.reshape(len(values), -1, 2)[:, :, ::-1].reshape(values.shape)
    for what, changed in (
        ("the two nibbles of a byte exchanged", swapped),
        ("8 not taken from a nibble", raw),
        ("a nibble's highest bit taken for its sign", (raw ^ ZERO) - ZERO),
        *((f"{zero} taken from a nibble instead of 8", raw - zero) for zero in (7, 9, 4, 16, 128, -8)),
        ("the highest bit of a nibble left out", (raw & 7) - ZERO),
        ("the low nibble of a byte read twice", np.repeat(values[:, 0::2], 2, axis=1)),
        ("the high nibble of a byte read twice", np.repeat(values[:, 1::2], 2, axis=1)),
    ):
        yield from int4_predicted(ev, what, changed, scales)


@hypothesis("weights laid out for another kernel", needs_call=True)
def blocks(ev: Evidence) -> Iterator[Prediction]:
    """Words of 4-bit weights that were laid out in another way than the one in which the kernel reads them."""
    found = int4_weights(ev)
    if found is None:
        return
    values, scales = found
    assert ev.call.op.int4 is not None
    own = ev.call.op.int4.blocks
    for other, what in _layouts(own):
        read = own.values(other.words(values), *values.shape)
        yield from int4_predicted(ev, what, read, scales)


def _layouts(own: NibbleBlocks) -> Iterator[tuple[NibbleBlocks, str]]:
    for other in (HALVES, PAIRS):
        if other is not own:
            yield other, f"laid out in {other.name}, read in {own.name}"
    turned = not own.columns_first
    first = "columns" if turned else "rows"
    yield NibbleBlocks(own.name, own.low, own.high, turned), f"blocks stored with {first} first"
    yield (
        NibbleBlocks(own.name, own.high, own.low, own.columns_first),
        "low and high nibbles exchanged in the words",
    )
    for other in (HALVES, PAIRS):
        if other is not own:
            mixed = NibbleBlocks(own.name, other.low, other.high, own.columns_first)
            yield mixed, f"rows of a block in {other.name}"


@hypothesis("scale of another group", needs_call=True)
def groups(ev: Evidence) -> Iterator[Prediction]:
    """Scales of another group or another row, or groups of another size."""
    found = int4_weights(ev)
    if found is None:
        return
    values, scales = found
    count = scales.shape[1]
    size = values.shape[1] // count
    if count > 1:
        for by, what in ((1, "before"), (-1, "after")):
            yield from int4_predicted(ev, f"scale of the group {what}", values, np.roll(scales, by, axis=1))
        yield from int4_predicted(
            ev, "scale of the first group for all", values, np.repeat(scales[:, :1], count, 1)
        )
        turned = np.resize(scales.T.reshape(-1), scales.shape)
        yield from int4_predicted(ev, "scales stored by groups, read by rows", values, turned)
        turned = scales.reshape(count, -1).T
        yield from int4_predicted(ev, "scales stored by rows, read by groups", values, turned)
        place = np.arange(values.shape[1])
        for other in (size * 2, size // 2, 32, 64):
            if other > 0:
                read = scales[:, np.minimum(place // other, count - 1)]
                yield from int4_predicted(ev, f"groups of {other} instead of {size}", values, read)
    for by, what in ((1, "before"), (-1, "after"), (4, "four before"), (-4, "four after")):
        yield from int4_predicted(ev, f"scales of the row {what}", values, np.roll(scales, by, axis=0))
    yield from int4_predicted(ev, "scales left out", values, np.ones_like(scales))


@hypothesis("order of float sums", needs_call=True)
def order(ev: Evidence) -> Iterator[Prediction]:
    """The terms of a float sum added in another order, or a bias of another output."""
    grouped = ev.call.op.int4
    if grouped is None or grouped.orders is None:
        return
    for what, values in grouped.orders(ev.call, ev.arrays):
        yield Prediction(f"added up as {what}", ev.with_values(values))
    bias = ev.call.consts.get("bias")
    if bias is None:
        return
    for changed, what in (
        (None, "left out"),
        (np.roll(bias, 4), "of the output 4 before"),
        (np.roll(bias, -4), "of the output 4 after"),
    ):
        cells = rerun(ev, consts={"bias": changed})
        if cells is not None:
            yield Prediction(f"bias {what}", cells)
    for name, other in ev.call.consts.items():  # bound, or named, in its place
        if other is None or name == "bias" or other.itemsize != bias.itemsize or other.size < bias.size:
            continue
        words = np.ascontiguousarray(other).reshape(-1)[: bias.size].view(np.float32)
        cells = rerun(ev, consts={"bias": words})
        if cells is not None:
            yield Prediction(f"bias read from the words of {name}", cells)


@hypothesis("float sum too short", needs_call=True)
def short(ev: Evidence) -> Iterator[Prediction]:
    """The last elements along K left out of the sum, or the last of its lanes."""
    found = int4_weights(ev)
    if found is None or ev.call.op.int4 is None or ev.call.op.int4.orders is None:
        return
    values, scales = found
    size = values.shape[1] // scales.shape[1]
    for left_out, what in ((4, "the last block of four"), (1, "the last element"), (size, "the last group")):
        kept = np.where(np.arange(values.shape[1]) < values.shape[1] - left_out, values, 0)
        yield from int4_predicted(ev, f"{what} left out", kept, scales)
    within = np.where(np.arange(values.shape[1]) % size < size - 4, values, 0)
    yield from int4_predicted(ev, "the last block of each group left out", within, scales)
    lanes = 1 if ev.call.op.int4.lanes is None else ev.call.op.int4.lanes(ev.call)
    if lanes > 1:
        lane = np.arange(values.shape[1]) // COLUMNS % lanes
        kept = np.where(lane < lanes - 1, values, 0)
        yield from int4_predicted(ev, f"the last of {lanes} lanes left out", kept, scales)
        for part in dict.fromkeys((2, 4, lanes)):
            kept = np.where(lane < lanes // part, values, 0)
            what = f"all but the first {lanes // part} of {lanes} lanes left out"
            yield from int4_predicted(ev, what, kept, scales)
