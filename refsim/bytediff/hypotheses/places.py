"""Causes in where a kernel reads: 4-bit weights by another word or shift, rows of an input at another stride."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, hypothesis
from refsim.bytediff.hypotheses import grouped_floats, grouped_rows, tiles
from refsim.bytediff.hypotheses.int4 import int4_predicted, int4_weights
from refsim.bytediff.rerun import rerun
from refsim.core.buffer import GUARD, PackedBuffer
from refsim.ops.base import group_linear, group_weights
from refsim.ops.base.int4 import COLUMNS, ROWS, WORDS, ZERO
from refsim.ops.base.traits import WINDOWED, Family

#: Weights and outputs of more elements are not read again in every way.
MOST_WEIGHTS, MOST_OUTPUTS, MOST_QUANTIZED = 1 << 17, 1 << 16, 1 << 12
#: Elements that are read at once: lanes of a vector, or a line of a tile.
SIZES = (2, 4, 8, 16, 32, 64)


@hypothesis("nibbles of other places", needs_call=True)
def nibbles(ev: Evidence) -> Iterator[Prediction]:
    """A 4-bit weight read from another word, byte or half of a byte: one number of its address is another one."""
    found = int4_weights(ev)
    if found is None or found[0].size > MOST_WEIGHTS or ev.call.out.numel > MOST_OUTPUTS:
        return
    values, scales = found
    assert ev.call.op.int4 is not None
    words = ev.call.op.int4.blocks.words(values).astype(np.int64)
    seen = {values.tobytes()}
    for what, word, shift in _read(ev.call.op.int4.blocks.columns_first, *values.shape):
        inside = (word >= 0) & (word < len(words))
        nibble = (words[np.where(inside, word, 0)] >> np.clip(shift, 0, 63) & 15) - ZERO
        made = np.where(inside, nibble, -ZERO).astype(np.int8)
        if made.tobytes() not in seen:
            seen.add(made.tobytes())
            yield from int4_predicted(ev, what, made, scales)
    word, shift = _own(ev.call.op.int4.blocks.columns_first, *values.shape)
    for what, taken in _bits(words[word].astype(np.int32), shift.astype(np.int32)):
        yield from int4_predicted(ev, what, taken.astype(np.int64) - ZERO, scales)
    half = shift % 8 // 4 * 4
    masked = words[word] >> half & 0x0F0F0F0F  # the nibbles of one half, each alone in its byte
    for each in (0, 2, 4, 5, 6, 7, 9, 12, 16):
        taken = masked >> np.minimum(each * (shift // 8), 63) & 15
        yield from int4_predicted(ev, f"bytes of masked nibbles {each} bits apart", taken - ZERO, scales)
    # by kernels that load a byte and not a word; native ones have neighbours along K in a byte
    if ev.call.op.family is not Family.LOOKUP:
        byte = (words[word] >> shift // 8 * 8 & 255).astype(np.int32)
        for what, taken in _bits(byte, (shift % 8).astype(np.int32)):
            yield from int4_predicted(ev, f"{what}, of a byte", taken.astype(np.int64) - ZERO, scales)
    yield from _pairs(ev, values, scales)


def _pairs(ev: Evidence, values: np.ndarray, scales: np.ndarray) -> Iterator[Prediction]:
    """The same of bytes that hold neighbours along K, and halves of theirs that lie elsewhere in the byte."""
    raw = values.astype(np.int32) + ZERO
    byte = np.repeat(raw[:, 0::2] | raw[:, 1::2] << 4, 2, 1)
    half = np.arange(values.shape[1]) % 2 + 0 * raw
    found = {}
    for step in (2, 3, 5, 6, 8):
        found[f"halves {step} bits apart"] = byte >> step * half & 15
        found[f"the upper half {step} bits apart, not masked"] = np.where(half, byte >> step, byte & 15)
    found["the lower half not masked"] = np.where(half, byte >> 4, byte)
    found |= dict(_bits(byte, 4 * half))
    for what, taken in found.items():
        yield from int4_predicted(
            ev, f"{what}, of a byte of two along K", taken.astype(np.int64) - ZERO, scales
        )


def _bits(words: np.ndarray, shift: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """A nibble taken out of its word by another operation; before 8 is subtracted."""
    yield "the word shifted to the left", (words << shift) & 15
    yield "the bits of the mask set, not kept", (words >> shift) | 15
    yield "the bits of the mask turned", (words >> shift) ^ 15
    for mask in (7, 14, 16, 30, 31):
        yield f"masked by {mask} instead of 15", (words >> shift) & mask


def _own(by_strips: bool, rows: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """(word, shift) of every weight as they should be."""
    n, c = np.arange(rows)[:, None], np.arange(k)[None, :]
    if by_strips:
        return (n // ROWS * (k // COLUMNS) + c // COLUMNS) * WORDS + n % WORDS, 8 * (
            c % 4
        ) + n % ROWS // 4 * 4
    return (c // COLUMNS * -(-rows // ROWS) + n // ROWS) * WORDS + n % ROWS // 2, 8 * (c % 4) + n % 2 * 4


def _read(by_strips: bool, rows: int, k: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(what is another, word, shift) of every weight [rows, K]. ``by_strips``: blocks of `HALVES`, else of `PAIRS`."""
    n, c = np.arange(rows)[:, None], np.arange(k)[None, :]
    strip, column = n // ROWS + 0 * c, c // COLUMNS + 0 * n
    slow, fast, count = (strip, column, k // COLUMNS) if by_strips else (column, strip, -(-rows // ROWS))
    names = ("strip of rows", "block of columns") if by_strips else ("block of columns", "strip of rows")
    own = slow * count + fast
    within, half = (n % WORDS, n % ROWS // WORDS) if by_strips else (n % ROWS // 2, n % 2)

    def at(
        block: np.ndarray,
        inner: np.ndarray = within,
        byte: np.ndarray = c % COLUMNS,
        each: int = WORDS,
        bits: int = 8,
        upper: np.ndarray = half,
        step: int = 4,
    ) -> tuple[np.ndarray, np.ndarray]:
        return block * each + inner + 0 * own, bits * byte + step * upper + 0 * own

    for other in dict.fromkeys(
        (count + 1, count - 1, 2 * count, 0, 1, *(k // part for part in (1, 2, 3, 5, 6, 7, 8)))
    ):
        yield f"blocks counted in rows of {other} instead of {count}", *at(slow * other + fast)
    units = ((n, ROWS), (c, COLUMNS)) if by_strips else ((c, COLUMNS), (n, ROWS))
    for number, (axis, unit) in enumerate(units):
        for size in (unit + 1, unit - 1, 2 * unit, unit // 2, 1):
            other = axis // size + 0 * own
            block = other * count + fast if number == 0 else slow * count + other
            yield f"{names[number]} from {size} instead of {unit}", *at(block)
        for by in (1, -1):
            yield f"the {names[number]} {by:+d} away", *at(own + by * (count if number == 0 else 1))
        yield f"{names[number]} left out", *at(fast if number == 0 else slow * count)
    yield f"{names[0]} added to the count", *at(slow + count + fast)
    yield f"{names[1]} taken away", *at(slow * count - fast)
    yield f"{names[1]} multiplied", *at(slow * count * fast)
    for each in (WORDS + 1, WORDS - 1, 2 * WORDS, WORDS // 2, 1):
        yield f"blocks {each} words apart", *at(own, each=each)
    inners = {f"row % {size}": n % size for size in (2, 3, 5, 8)} | {
        f"row // {size}": n // size for size in (1, 4)
    }
    inners |= {f"row % 8 // {size}": n % ROWS // size for size in (2, 3, 4)}
    inners |= {
        "0": 0 * n,
        "column % 4": c % COLUMNS,
        "one more": within + 1,
        "one less": within - 1,
        "minus it": -within,
    }
    inners |= {f"row & {mask}": n & mask for mask in (1, 2, 6, 7, -3, -4)} | {
        "row | 3": n | 3,
        "row ^ 3": n ^ 3,
    }
    for what, inner in inners.items():
        yield f"the word of a block: {what}", *at(own, inner + 0 * c)
    bytes_of = {f"column % {size}": c % size for size in (2, 3, 5, 8)} | {
        "column // 4": c // COLUMNS,
        "column": c,
    }
    for what, byte in (
        bytes_of | {"0": 0 * c, "3 - column % 4": 3 - c % COLUMNS, "row % 4": n % WORDS}
    ).items():
        yield f"the byte of a word: {what}", *at(own, byte=byte % 8 + 0 * n)
    for bits in (4, 7, 9, 16):
        yield f"bytes {bits} bits apart", *at(own, bits=bits)
    halves = {
        "always the low": 0 * n,
        "always the high": 0 * n + 1,
        "the other": 1 - half,
        "by the column": c % 2,
    }
    halves |= {f"row % 8 // {size}": n % ROWS // size for size in (2, 3, 4, 5)}
    halves |= {f"row % {size}": n % size for size in (2, 3, 4)} | {"row // 8": n // 8 % 2}
    for step in (2, 3, 5, 8, -4):
        yield f"halves of a byte {step} bits apart", *at(own, step=step)
    for mask in (2, 3, 5, 6, 8, -4):
        yield f"halves of a byte moved by row & {mask}", *at(own, upper=(n & mask) + 0 * c, step=1)
    for what, upper in halves.items():
        yield f"the half of a byte: {what}", *at(own, upper=upper + 0 * c)


# --- rows of an input -------------------------------------------------------------------------------------


@hypothesis("rows read at another stride", needs_call=True)
def rows(ev: Evidence) -> Iterator[Prediction]:
    """Rows of an input that begin elsewhere than one after the other: half as far, twice as far, a word further."""
    if ev.call.op.family in WINDOWED or ev.call.op.channel_dim != -1:
        return
    for name, x in ev.arrays.items():
        if x.ndim < 2 or x.shape[-1] < 2 or x.size == x.shape[-1]:
            continue
        for what, moved in (*_strides(x), *_of_four(x)):
            cells = rerun(ev, inputs={name: moved})
            if cells is not None:
                yield Prediction(f"rows of {name} {what}", cells)
    for name, buffer in ev.inputs.items():
        for what, moved in _lines(buffer):
            cells = rerun(ev, inputs={name: moved})
            if cells is not None:
                yield Prediction(f"lines of {name} {what}", cells)
    yield from _of_quantized(ev)
    yield from tiles.rows(ev)
    yield from grouped_rows.inputs(ev)
    yield from grouped_floats.inputs(ev)
    if ev.call.op.family is Family.GROUP_LINEAR and ev.call.out.shape[-2] > 1:
        q = group_weights.quantized(ev.call, ev.arrays) - ev.arrays["zp"][..., None].astype(np.int32)
        for what, moved in _strides(q):
            yield Prediction(f"quantized rows {what}", _of_differences(ev, moved))


def _lines(buffer: PackedBuffer) -> Iterator[tuple[str, np.ndarray]]:
    """An input whose lines of memory, of whole words, are read further apart or less far; guard words behind it."""
    shape = buffer.desc.shape
    if (
        buffer.desc.layout.block_numel > 4
        or len(shape) < 2
        or buffer.data.size % (count := buffer.unpack().size // shape[-1])
    ):
        return
    each = buffer.data.size // count
    if count < 2 or buffer.data.reshape(count, each)[:, : shape[-1]].tobytes() != buffer.unpack().tobytes():
        return  # lines that lie otherwise
    behind = np.full(-(-count * each * buffer.data.itemsize // 4), GUARD, np.int32).view(buffer.data.dtype)
    memory = np.concatenate([buffer.data, behind])
    line, element = np.arange(count)[:, None], np.arange(shape[-1])[None, :]
    word = max(1, 4 // buffer.data.itemsize)
    for other in dict.fromkeys(
        (2 * each, each // 2, shape[-1], 2 * shape[-1], each + word, each - word, word, 0)
    ):
        at = line * other + element
        if other != each and at.max() < len(memory):
            yield f"{other} elements apart instead of {each}", memory[at].reshape(shape)


def _of_differences(ev: Evidence, q: np.ndarray) -> np.ndarray:
    """Cells for rows that are quantized, with their zero points taken off."""
    call = ev.call
    values, scales = group_weights.weights_of(call)
    none = np.zeros_like(group_weights.own_sums(call))
    zp = np.zeros(q.shape[:-1], np.int32)
    adj = group_linear.adjusted(q, zp, values, none, call.params.group)
    bits = call.target.profile.flags
    return ev.with_values(group_linear.scaled(adj, ev.arrays["scale"], scales.T, call.consts["bias"], bits))


def _strides(x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The rows of an array, read at other places of its flat elements; 0 beyond them."""
    flat, k = x.reshape(-1), x.shape[-1]
    row, element = np.arange(flat.size // k)[:, None], np.arange(k)[None, :]
    strides = dict.fromkeys((k // 2, k // 4, 2 * k, 4 * k, 0, 1, k + 1, k - 1, k + 4, k - 4))
    places = {f"{each} elements apart instead of {k}": row * each + element for each in strides if each != k}
    places |= {f"{by:+d} elements away": row * k + element + by for by in (1, -1, 2, -2, 4, -4, k, -k)}
    places |= {
        "that begin at the row and the length of rows added": row + k + element,
        "that begin at the block, not at 4 times the block": row * (k // 4) + 4 + element,
    }
    places |= {"backwards": row * k + k - 1 - element, "every second element": row * k + 2 * element}
    places |= {
        f"of {size} elements read again and again": row * k + element % size
        for size in (2, 4, 8, 16, 32, 64)
        if size < k
    }
    for what, at in places.items():
        inside = (at >= 0) & (at < flat.size)
        yield what, np.where(inside, flat[np.where(inside, at, 0)], 0).astype(x.dtype).reshape(x.shape)


def _of_quantized(ev: Evidence) -> Iterator[Prediction]:
    """Rows of floats that are quantized by fours before they meet bytes of weights."""
    call = ev.call
    if not call.op.takes_floats or call.op.expand is None or call.out.numel > MOST_QUANTIZED:
        return
    x = ev.arrays["x"]
    for what, read in grouped_rows.read_by_fours(x.reshape(-1, x.shape[-1])):
        cells = rerun(ev, inputs={"x": read.reshape(x.shape)})
        if cells is not None:
            yield Prediction(f"x: {what}", cells)


def _of_four(x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Rows that are taken four at a time, with another one of the four, or of those beside them."""
    flat, (height, k) = x.reshape(-1), x.shape[-2:]
    row = np.arange(flat.size // k)
    number = row % height % 4
    for what, other in (
        ("the first row of each four for all", 0 * number), ("the rows of each four taken away", -number),
        ("the rows of each four backwards", 3 - number), ("every second row of each four on", 2 * number),
        ("each row of four twice", number // 2), ("rows of each four exchanged in pairs", number ^ 1),
    ):  # fmt: skip
        source = row - number + other
        inside = (source >= 0) & (source < len(row))
        if height > 1 and not np.array_equal(source, row):
            held = flat.reshape(-1, k)[np.where(inside, source, 0)]
            yield what, np.where(inside[:, None], held, 0).astype(x.dtype).reshape(x.shape)
