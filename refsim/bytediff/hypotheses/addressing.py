"""Causes in the address of a byte: another layout, exchanged dims or lanes, transposed blocks.

Each is tried as a wrong write of the output. If the call is known, each is also tried as a wrong read of every int8
input and of the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, hypothesis
from refsim.bytediff.rerun import (
    convolve,
    each_input,
    has_weights,
    is_convolution,
    is_depthwise,
    logical_weight,
    replaced,
    rerun,
)
from refsim.core import index
from refsim.core.buffer import PackedBuffer, offsets
from refsim.core.layout import FLOAT_LAYOUTS, FOREIGN, INT8_LAYOUTS, C, H, W
from refsim.core.tensor import TensorDesc

#: A wrong rule: tensor -> cell of every element, NCHW. Cells may lie outside of the buffer.
Addresses = Callable[[TensorDesc], np.ndarray]


def _moved(ev: Evidence, what: str, addresses: Addresses, *, write: bool = True) -> Iterator[Prediction]:
    """The predictions of one wrong address rule: as a write of the output, then as a read of each input."""
    if write:
        yield Prediction(f"output written {what}", written(ev, addresses(ev.desc)))
    if ev.bound is None:
        return
    for name, _, buffer in each_input(ev):
        cells = rerun(ev, inputs={name: gathered(buffer, addresses(buffer.desc))})
        if cells is not None:
            yield Prediction(f"{name} read {what}", cells)


def written(ev: Evidence, at: np.ndarray) -> np.ndarray:
    """The expected elements scattered to other cells of a zeroed buffer; writes beyond it are dropped."""
    fresh = np.zeros_like(ev.want)
    to, values = at.reshape(-1), ev.logical.reshape(-1)
    if at.min() < 0 or at.max() >= len(fresh):
        inside = (to >= 0) & (to < len(fresh))
        to, values = to[inside], values[inside]
    fresh[to] = values
    same = values == ev.got[to]  # where several elements go to one cell, any of them may have come last
    fresh[to[same]] = values[same]
    return fresh


def gathered(buffer: PackedBuffer, at: np.ndarray) -> np.ndarray:
    """Elements read from other cells, in the tensor's own rank; reads beyond the buffer give 0."""
    if at.min() >= 0 and at.max() < len(buffer.data):
        return buffer.data[at].reshape(buffer.desc.shape)
    inside = (at >= 0) & (at < len(buffer.data))
    values = np.where(inside, buffer.data[np.where(inside, at, 0)], 0).astype(buffer.data.dtype)
    return values.reshape(buffer.desc.shape)


def _by_meta(desc: TensorDesc, meta: tuple[int, ...], hashed: int | None = None) -> np.ndarray:
    w, h, c, n = (np.arange(size, dtype=np.int64) for size in desc.sizes_whcn)
    return index.buf_idx(
        meta,
        0,
        desc.hashed if hashed is None else hashed,
        w[None, None, None, :],
        h[None, None, :, None],
        c[None, :, None, None],
        n[:, None, None, None],
    )


@hypothesis("another layout's strides")
def other_layout(ev: Evidence) -> Iterator[Prediction]:
    """A buffer was addressed as if it lay in another layout."""
    for row in (*INT8_LAYOUTS, *FOREIGN) if ev.desc.is_int8 else FLOAT_LAYOUTS:
        if row != ev.desc.layout:
            as_row = written(ev, offsets(TensorDesc(ev.desc.shape, row)))
            yield Prediction(f"output written as {row}", as_row)
    if ev.bound is not None:
        yield from _layouts_exchanged(ev)
        yield from _strides_of_others(ev)
    for row in INT8_LAYOUTS if ev.bound is not None else ():
        for name, _, buffer in each_input(ev):
            if row is not buffer.desc.layout:
                at = offsets(TensorDesc(buffer.desc.shape, row))
                cells = rerun(ev, inputs={name: gathered(buffer, at)})
                if cells is not None:
                    yield Prediction(f"{name} read as {row}", cells)
                at = _by_meta(buffer.desc, buffer.desc.meta, row.hashed)
                cells = rerun(ev, inputs={name: gathered(buffer, at)})
                if cells is not None:
                    yield Prediction(f"{name} read with the blocks of {row} and its own strides", cells)


def _strides_of_others(ev: Evidence) -> Iterator[Prediction]:
    """A tensor addressed with the strides of another one of the call, which has another shape."""
    descs = {name: buffer.desc for name, buffer in ev.inputs.items()}
    for other, desc in {**descs, "the output": ev.desc}.items():
        for name, buffer in ev.inputs.items():
            if desc.meta == buffer.desc.meta or desc.is_int8 != buffer.desc.is_int8:
                continue
            cells = rerun(ev, inputs={name: gathered(buffer, _by_meta(buffer.desc, desc.meta))})
            if cells is not None:
                yield Prediction(f"{name} read with the strides of {other}", cells)
        if desc.meta != ev.desc.meta and desc.is_int8 == ev.desc.is_int8:
            at = _by_meta(ev.desc, desc.meta)
            yield Prediction(f"output written with the strides of {other}", written(ev, at))


def _layouts_exchanged(ev: Evidence) -> Iterator[Prediction]:
    """Input and output addressed with the blocks of the other's layout, each with its own strides."""
    for name, _, buffer in each_input(ev):
        if not ev.desc.is_int8 or buffer.desc.layout is ev.desc.layout:
            continue
        read = gathered(buffer, _by_meta(buffer.desc, buffer.desc.meta, ev.desc.hashed))
        values = rerun(ev, inputs={name: read})
        if values is not None:
            at = _words_by(ev.desc, buffer.desc.hashed)
            inside = (at >= 0) & (at < len(values))
            for fill in ev.fills:
                fresh = np.full_like(values, fill)
                fresh[at[inside]] = values[ev.places][inside]
                yield Prediction(f"the layout words of {name} and of the output exchanged", fresh, fill != 0)


def _words_by(desc: TensorDesc, hashed: int) -> np.ndarray:
    """Where elements go if words of a layout are addressed with the blocks of another."""
    coords = list(np.indices(desc.sizes_whcn[::-1], np.int64)[::-1])
    lane = coords[desc.layout.inner] % 4
    coords[desc.layout.inner] = coords[desc.layout.inner] - lane
    at: np.ndarray = index.buf_idx(desc.meta, 0, hashed, *coords) // 4 * 4 + lane
    return at


@hypothesis("rows apart")
def rows_apart(ev: Evidence) -> Iterator[Prediction]:
    """Rows of floats written as if each filled whole texels; what lies beyond the buffer is dropped."""
    size = ev.desc.sizes_whcn[ev.desc.layout.dim_order[-1]]
    if ev.desc.is_int8 or size % 4 == 0:
        return
    apart = -(-size // 4) * 4
    at = ev.places // size * apart + ev.places % size
    yield Prediction(f"rows of {size} floats written {apart} floats apart", written(ev, at))


@hypothesis("block transposed")
def block_transposed(ev: Evidence) -> Iterator[Prediction]:
    """Inner and outer dim exchanged within each block, or the blocks of a row in the other order."""
    yield from _moved(ev, "with blocks transposed", _transposed_block)
    yield from _moved(ev, "with the words of blocks transposed", _transposed_words)
    yield from _moved(ev, "with squares of 4 x 4 words transposed", _transposed_squares)
    yield from _moved(ev, "with the block grid transposed", _transposed_grid)
    if has_weights(ev):
        yield from _weights_transposed(ev)


def _transposed_block(desc: TensorDesc) -> np.ndarray:
    at, layout = offsets(desc), desc.layout
    block, intra = at // layout.block_numel, at % layout.block_numel
    outer, inner = intra // layout.inner_block, intra % layout.inner_block
    return block * layout.block_numel + inner * layout.outer_block + outer


def _transposed_words(desc: TensorDesc) -> np.ndarray:
    """The same mistake in a kernel that moves whole words: each goes to where the rule puts its first lane."""
    at, size = offsets(desc), desc.layout.block_numel
    return at // size * size + at % size // desc.layout.inner_block // 4 * 4 + at % 4


def _transposed_squares(desc: TensorDesc) -> np.ndarray:
    """Squares of 4 x 4 words transposed: four neighbours along the outer dim by four words of the inner one.

    Kernels that turn vectors do this. What would fall outside of the tensor is dropped.
    """
    w, h, c, n = (np.arange(size, dtype=np.int64) for size in desc.sizes_whcn)
    coords = list(np.broadcast_arrays(w, h[:, None], c[:, None, None], n[:, None, None, None]))
    word, lane = coords[desc.layout.inner] // 4, coords[desc.layout.inner] % 4
    row = coords[desc.layout.outer]
    coords[desc.layout.inner] = (word // 4 * 4 + row % 4) * 4 + lane
    coords[desc.layout.outer] = row // 4 * 4 + word % 4
    inside = np.logical_and.reduce([a < size for a, size in zip(coords, desc.sizes_whcn, strict=True)])
    return np.where(inside, index.buf_idx(desc.meta, 0, desc.hashed, *coords), -1)


def _transposed_grid(desc: TensorDesc) -> np.ndarray:
    """The two fastest dims of the block grid exchanged."""
    slow, fast = desc.layout.dim_order[2:]
    strides = list(desc.strides_whcn)
    strides[slow], strides[fast] = 1, desc.blocks_whcn[slow]
    return _by_meta(desc, (*desc.sizes_whcn, *strides))


def _weights_transposed(ev: Evidence) -> Iterator[Prediction]:
    """Weights with output and input channels exchanged within each block of 4 x 4."""
    cells = weights_rearranged(ev, lambda blocks: blocks.swapaxes(-1, -3))
    if cells is not None:
        yield Prediction("weights read with 4 x 4 blocks transposed", cells)


def weights_rearranged(ev: Evidence, change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray | None:
    """Cells with weights changed in blocks (..., 4 output channels, input words, 4 lanes)."""
    if not is_convolution(ev):
        weight = ev.call.consts["weight"]
        assert weight is not None
        return rerun(ev, consts={"weight": _in_blocks(weight, change)})
    weight = logical_weight(ev)
    out, kh, kw, channels = weight.shape
    if is_depthwise(ev):
        return None  # its words hold no two input channels
    flat = weight.transpose(1, 2, 0, 3).reshape(kh * kw, out, channels)
    changed = np.stack([_in_blocks(tap, change) for tap in flat]).reshape(kh, kw, out, channels)
    return convolve(ev, weight=changed.transpose(2, 0, 1, 3))


def _in_blocks(weight: np.ndarray, change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    out, channels = weight.shape
    padded = np.zeros((-(-out // 4) * 4, -(-channels // 4) * 4), weight.dtype)
    padded[:out, :channels] = weight
    blocks = padded.reshape(-1, 4, padded.shape[1] // 4, 4)
    return change(blocks).reshape(padded.shape)[:out, :channels]


@hypothesis("lanes rotated")
def lanes_rotated(ev: Evidence) -> Iterator[Prediction]:
    """The four bytes of a word begin at another lane."""
    for by in (1, 2, 3) if ev.in_words else ():
        yield Prediction(f"output words rotated by {by}", rolled(ev, by))
    for by in (1, 2, 3):
        yield from _moved(
            ev,
            f"with lanes rotated by {by}",
            lambda desc, by=by: _in_word(desc, lambda lane: (lane + by) % 4),  # type: ignore[misc]
            write=False,
        )
        if has_weights(ev):
            cells = weights_rearranged(ev, lambda blocks, by=by: np.roll(blocks, by, -1))  # type: ignore[misc]
            if cells is not None:
                yield Prediction(f"weights read with lanes rotated by {by}", cells)


def rolled(ev: Evidence, by: int) -> np.ndarray:
    """Every word of the expected buffer, padding too, with its lanes moved up."""
    return np.roll(ev.want.reshape(-1, 4), by, 1).reshape(-1)


def _in_word(desc: TensorDesc, move: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    at = offsets(desc)
    return at // 4 * 4 + move(at % 4)


@hypothesis("byte order")
def byte_order(ev: Evidence) -> Iterator[Prediction]:
    """Bytes of a word highest first, or its halves exchanged."""
    for what, order in (("reversed", [3, 2, 1, 0]), ("in pairs exchanged", [1, 0, 3, 2])):
        if ev.in_words or not ev.desc.is_int8:
            yield Prediction(f"output bytes {what}", _by_order(ev, order))
        move = np.array(order)
        yield from _moved(
            ev,
            f"with bytes {what}",
            lambda desc, move=move: _in_word(desc, lambda lane: move[lane]),  # type: ignore[misc]
            write=False,
        )
        if has_weights(ev):
            cells = weights_rearranged(ev, lambda blocks, order=order: blocks[..., order])  # type: ignore[misc]
            if cells is not None:
                yield Prediction(f"weights read with bytes {what}", cells)


def _by_order(ev: Evidence, order: list[int]) -> np.ndarray:
    raw = np.ascontiguousarray(ev.want).view(np.uint8).reshape(-1, 4)[:, order]
    return np.ascontiguousarray(raw).reshape(-1).view(ev.want.dtype)


@hypothesis("H and W exchanged")
def hw_exchanged(ev: Evidence) -> Iterator[Prediction]:
    """Rows and columns exchanged: in an address, in the image, or in a window's pairs."""
    yield Prediction("output rows written as columns", ev.with_values(_as_columns(ev.logical)))
    yield from _moved(ev, "with the strides of H and W exchanged", lambda desc: _exchanged(desc, H, W))
    yield from _moved(ev, "with row and column exchanged", _swapped_coordinates)
    if is_convolution(ev):
        yield from _pairs_exchanged(ev)
    if ev.bound is not None and hasattr(ev.call.params, "upscale"):
        yield from _subpixel_exchanged(ev)


def _as_columns(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values.swapaxes(-1, -2)).reshape(values.shape)


def _exchanged(desc: TensorDesc, a: int, b: int) -> np.ndarray:
    strides = list(desc.strides_whcn)
    strides[a], strides[b] = strides[b], strides[a]
    return _by_meta(desc, (*desc.sizes_whcn, *strides))


def _swapped_coordinates(desc: TensorDesc) -> np.ndarray:
    w, h, c, n = (np.arange(size, dtype=np.int64) for size in desc.sizes_whcn)
    return index.buf_idx(
        desc.meta,
        0,
        desc.hashed,
        h[None, None, :, None],
        w[None, None, None, :],
        c[None, :, None, None],
        n[:, None, None, None],
    )


def _pairs_exchanged(ev: Evidence) -> Iterator[Prediction]:
    params = ev.call.params
    names = [name for name in params.pairs() if name != "output_padding"]
    for chosen in [[name] for name in names] + [names]:
        changed = replaced(params, **{name: getattr(params, name)[::-1] for name in chosen})
        cells = None if changed is None or changed == params else convolve(ev, params=changed)
        if cells is not None:
            yield Prediction(f"{' and '.join(chosen)} exchanged", cells)


def _subpixel_exchanged(ev: Evidence) -> Iterator[Prediction]:
    """Pixel shuffle with oh % r and ow % r exchanged."""
    r, x = ev.call.params.upscale, ev.arrays["x"]
    split = x.reshape(*x.shape[:-3], -1, r, r, *x.shape[-2:])
    cells = rerun(ev, inputs={"x": split.swapaxes(-3, -4).reshape(x.shape)})
    if cells is not None:
        yield Prediction("row and column within the upscaled pixel exchanged", cells)


@hypothesis("C and another dim exchanged")
def channels_exchanged(ev: Evidence) -> Iterator[Prediction]:
    """Channels and rows, or channels and columns, exchanged in an address."""
    for dim, name in ((H, "H"), (W, "W")):
        yield from _moved(
            ev,
            f"with the strides of C and {name} exchanged",
            lambda desc, dim=dim: _exchanged(desc, C, dim),  # type: ignore[misc]
        )
    if ev.bound is not None and hasattr(ev.call.params, "upscale"):
        r, x = ev.call.params.upscale, ev.arrays["x"]
        outside = x.reshape(*x.shape[:-3], r * r, -1, *x.shape[-2:])
        cells = rerun(ev, inputs={"x": outside.swapaxes(-3, -4).reshape(x.shape)})
        if cells is not None:
            yield Prediction("the pixels of an upscaled pixel are the slowest part of the channels", cells)
