"""PackedBuffer: a tensor's bytes as they lie in GPU memory, between guard words, with a kind for each byte."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import numpy as np
from numpy.lib.stride_tricks import as_strided

from refsim.core import html, index, size_limit
from refsim.core.counted import counted
from refsim.core.errors import GuardError, LayoutError, RawBufferError, ShapeError
from refsim.core.layout import C, H, Layout, N, W
from refsim.core.tensor import TensorDesc

#: Before and after each buffer, on devices too: 1 KiB, which a write that is off by a row or a block hardly passes.
GUARD_WORDS = 256
#: Devices allocate buffers in units of so many bytes.
ROUNDED = 16
ALIGN = 64  # a line of memory; the guard words are several
GUARD = np.int32(0x5A3C_C3A5)
#: Words beyond the guard words, on both sides, that hold the same and are checked as well; a read finds no zeros there.
#: Only the host has them: a device gets the guard words alone.
FAR_WORDS = 1024
#: A kernel may read so many words outside of an input; what it finds is known: guard words, then zeros, as on devices.
OUTSIDE = 1 << 16
#: What every byte of an output is before a device writes it, where that can be chosen.
FILL = 0x5A


class ByteKind(IntEnum):
    """Where a byte lies: an element, padding in a word that also holds one, or padding in a word without."""

    VALUE = 0
    LANE = 1
    WORD = 2

    @property
    def label(self) -> str:
        """In words."""
        return ("value", "lane padding", "word padding")[self]


def offsets(desc: TensorDesc) -> np.ndarray:
    """Index of every element in the buffer, in elements: int64 in NCHW order, with dims folded to four."""
    w, h, c, n = (np.arange(size, dtype=np.int64) for size in desc.sizes_whcn)
    return index.buf_idx(
        desc.meta,
        0,
        desc.hashed,
        w[None, None, None, :],
        h[None, None, :, None],
        c[None, :, None, None],
        n[:, None, None, None],
    )


def blocks_view(desc: TensorDesc, data: np.ndarray) -> np.ndarray:
    """A buffer's elements in logical order, (N, blocks of C, C in a block, H..., H..., W..., W...), without a copy.

    If you merge each block dim with the dim before it, you get the padded NCHW array. Like `offsets`, this follows
    from the layout's row alone, but it copies whole runs of memory where `offsets` would gather single elements.
    """
    layout = desc.layout
    order = layout.dim_order
    stored = [desc.blocks_whcn[dim] for dim in order] + [layout.outer_block, layout.inner_block]
    if max(layout.align) == 1:
        grid = data.reshape(stored)
    else:
        steps = [desc.strides_whcn[dim] * layout.block_numel for dim in order] + [layout.inner_block, 1]
        grid = as_strided(data, stored, [step * data.itemsize for step in steps])
    grid = grid[..., None]  # the dim without blocks gets a block of one element
    within = {layout.outer: 4, layout.inner: 5}
    return grid.transpose(
        order.index(N), *(at for d in (C, H, W) for at in (order.index(d), within.get(d, 6)))
    )


def as_laid(desc: TensorDesc) -> tuple[int, ...]:
    """The shape of an array whose bytes are the buffer: blocks in their order, then the dims of a block.

    (1, 2, 5, 5, 4) for 1x8x5x5 in NC4HW4.
    """
    block = (desc.layout.outer_block, desc.layout.inner_block)
    return (*(desc.blocks_whcn[dim] for dim in desc.layout.dim_order), *(size for size in block if size > 1))


def holds_elements(given: object, desc: TensorDesc) -> bool:
    """Whether this is an array of an int8 tensor's elements, which lacks its padding, and not its bytes.

    An array of one dim is bytes wherever it has as many as the buffer.
    """
    if not isinstance(given, np.ndarray) or given.dtype != np.int8 or not desc.is_int8:
        return False
    return given.shape == desc.shape and (given.ndim > 1 or given.nbytes != desc.nbytes)


def unpacked(desc: TensorDesc, data: np.ndarray) -> np.ndarray:
    """The logical array, in the tensor's own rank, of a buffer's elements."""
    view = blocks_view(desc, data)
    w, h, c, n = desc.sizes_whcn
    whole = view.reshape(_padded(view))  # a copy, unless the buffer is in logical order already
    found = np.ascontiguousarray(whole[:n, :c, :h, :w]).reshape(desc.shape)
    return found.copy() if np.may_share_memory(found, data) else found


def _padded(view: np.ndarray) -> tuple[int, int, int, int]:
    """NCHW sizes with padding, of what `blocks_view` gives."""
    n, c, c_block, h, h_block, w, w_block = view.shape
    return (n, c * c_block, h * h_block, w * w_block)


def byte_kinds(desc: TensorDesc) -> np.ndarray:
    """ByteKind of every byte: uint8, one per byte. A float buffer has no padding: no float layout has blocks."""
    if not desc.is_int8:
        return np.full(desc.nbytes, ByteKind.VALUE, np.uint8)
    kinds = np.full(desc.nbytes, ByteKind.LANE, np.uint8)
    at = offsets(desc)
    try:
        kinds[at] = ByteKind.VALUE
    except IndexError:
        raise _outside(desc, at) from None
    words = np.append(kinds, np.full(-len(kinds) % 4, ByteKind.LANE, np.uint8)).reshape(-1, 4)
    words[(words != ByteKind.VALUE).all(axis=1)] = ByteKind.WORD
    return words.reshape(-1)[: desc.nbytes]


def _outside(desc: TensorDesc, at: np.ndarray) -> LayoutError:
    """What is said of a layout that puts elements outside of the buffer."""
    place = tuple(int(k) for k in np.argwhere((at < 0) | (at >= desc.nbytes))[0])
    return LayoutError(
        str(desc),
        "its layout would write out of bounds",
        got=f"cell {int(at[place])} for element {list(place)} (n, c, h, w), strides {desc.strides_whcn} (w, h, c, n)",
        need=f"cells below {desc.nbytes}",
    )


class PackedBuffer:
    """A buffer of 32-bit words that holds one tensor.

    ``words`` (int32) is the buffer itself; it begins at a multiple of `ALIGN` bytes. ``raw`` (uint8) and ``data``
    (of the tensor's dtype) are views of the same memory. There are `GUARD_WORDS` guard words before it and after it,
    and ``memory`` is all of this together. Beyond lie `FAR_WORDS` more on both sides. `check_guards` reports one that
    was overwritten. LimitError for a buffer that is larger than `refsim.core.size_limit` allows.
    """

    def __init__(self, desc: TensorDesc) -> None:
        if desc.nbytes > size_limit.LEAST:  # the text alone takes as long as a small buffer
            size_limit.check(f"buffer of {desc}", desc.nbytes)
        self.desc = desc
        self._lie_in(desc.words + 2 * (GUARD_WORDS + FAR_WORDS))
        self._around[: FAR_WORDS + GUARD_WORDS] = GUARD
        self._around[-FAR_WORDS - GUARD_WORDS :] = GUARD

    def __repr__(self) -> str:
        return f"PackedBuffer({self.desc.dtype} {self.desc}, {counted(self.desc.nbytes, 'byte')})"

    def _repr_html_(self) -> str:
        """The map of the first elements, for notebooks."""
        desc, size, most = self.desc, self.data.itemsize, html.ROWS * html.ACROSS
        at = offsets(desc).reshape(-1)
        held = {int(at[n]): np.unravel_index(n, desc.shape or (1,)) for n in np.flatnonzero(at < most)}
        kinds = byte_kinds(desc)[::size]
        cells = []
        for number, value in enumerate(self.data[:most]):
            kind = ByteKind(kinds[number])
            index = f" [{', '.join(map(str, held[number]))}]" if number in held else ""
            cells.append((f"{value:.4g}", f"byte {number * size}: {kind.label}{index}", kind.value))
        labels = [kind.label for kind in ByteKind]
        return html.drawn(repr(self), cells, labels, size, max(0, len(self.data) - most))

    def _lie_in(self, count: int) -> None:
        """Take so many words of zeros."""
        block = np.zeros(count + ALIGN // 4, np.int32)
        first = -block.ctypes.data % ALIGN // 4
        self._around = block[first : first + count]
        self.memory = self._around[FAR_WORDS:-FAR_WORDS]
        self.words = self.memory[GUARD_WORDS:-GUARD_WORDS]

    def __getstate__(self) -> tuple[TensorDesc, np.ndarray]:
        # one array: several would come out of a pickle as copies, with no guards around the words
        return self.desc, self._around

    def __setstate__(self, state: tuple[TensorDesc, np.ndarray]) -> None:
        self.desc, around = state
        self._lie_in(around.size)
        self._around[:] = around

    @property
    def raw(self) -> np.ndarray:
        return self.words.view(np.uint8)[: self.desc.nbytes]

    @property
    def data(self) -> np.ndarray:
        return self.words.view(self.desc.dtype)[: self.desc.buffer_numel]

    @classmethod
    def pack(
        cls,
        array: np.ndarray,
        layout: Layout | str,
        *,
        lane: int = 0,
        word: int = 0,
        dtype: str = "",
    ) -> PackedBuffer:
        """Lay out a logical array (NCHW; int8 for a packed layout, else float32, or what ``dtype`` says).

        ``lane`` and ``word`` are the bytes given to the two kinds of padding. Raises ShapeError,
        RawBufferError for another dtype.

        >>> refsim.PackedBuffer.pack(np.ones((1, 3, 2, 2), np.int8), "4W4C").raw.tolist()
        [1, 1, 1, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        """
        array = np.asarray(array)  # a tensor of torch perhaps
        desc = TensorDesc(array.shape, layout, dtype)  # type: ignore[arg-type]
        buffer = cls(desc)
        if array.dtype != buffer.data.dtype:
            raise RawBufferError(f"pack to {desc}", "wrong dtype", got=array.dtype, need=buffer.data.dtype)
        w, h, c, n = desc.sizes_whcn
        view = blocks_view(desc, buffer.data)
        whole = np.zeros(_padded(view), array.dtype)
        whole[:n, :c, :h, :w] = array.reshape(n, c, h, w)
        view[...] = whole.reshape(view.shape)
        if (lane or word) and desc.is_int8:
            kinds = byte_kinds(desc)
            buffer.data[kinds == ByteKind.LANE] = lane
            buffer.data[kinds == ByteKind.WORD] = word
        return buffer

    @classmethod
    def from_raw(
        cls, raw: bytes | np.ndarray, shape: tuple[int, ...], layout: Layout | str, dtype: str = ""
    ) -> PackedBuffer:
        """A buffer with these bytes; RawBufferError if their number, or that rounded up to 16, does not fit.

        >>> refsim.PackedBuffer.from_raw(bytes(range(32)), (1, 3, 2, 2), "4W4C").unpack()[0, 1].tolist()
        [[1, 5], [17, 21]]
        """
        desc = TensorDesc(tuple(shape), layout, dtype)  # type: ignore[arg-type]
        data = (
            np.frombuffer(raw, np.uint8)
            if isinstance(raw, bytes | bytearray | memoryview)
            else raw.view(np.uint8)
        )
        rounded = -(-desc.nbytes // ROUNDED) * ROUNDED
        if data.size not in (desc.nbytes, rounded):
            raise RawBufferError(
                f"raw buffer for {desc}",
                "wrong size",
                got=counted(data.size, "byte"),
                need=f"{desc.nbytes}"
                + (f", or {rounded} as a device allocates it" if rounded != desc.nbytes else ""),
            )
        buffer = cls(desc)
        buffer.raw[:] = data.reshape(-1)[: desc.nbytes]
        return buffer

    def unpack(self) -> np.ndarray:
        """The logical array (NCHW), a copy in the tensor's own rank and dtype. Quantized values stay quantized."""
        return unpacked(self.desc, self.data)

    def kinds(self) -> np.ndarray:
        """ByteKind of each byte; see `byte_kinds`."""
        return byte_kinds(self.desc)

    def elements(self) -> np.ndarray:
        """The bytes of the elements without padding, in the buffer's order: uint8."""
        return self.raw[self.kinds() == ByteKind.VALUE]

    def poison(self, rng: np.random.Generator) -> PackedBuffer:
        """A copy with random bytes in its padding. No value that is computed from it may change."""
        other = PackedBuffer(self.desc)
        other.raw[:] = self.raw
        padding = self.kinds() != ByteKind.VALUE
        other.raw[padding] = rng.integers(0, 256, int(padding.sum()), np.uint8)
        return other

    def check_guards(self, where: str) -> None:
        """GuardError, which holds this buffer, if a guard word was overwritten; ``where`` begins the message."""
        wide = FAR_WORDS + GUARD_WORDS
        for name, guard, first, nearest in (
            ("before", self._around[:wide], -wide, -1),
            ("behind", self._around[-wide:], self.desc.words, 0),
        ):
            broken = np.flatnonzero(guard != GUARD)
            if broken.size:
                at = first + int(broken[nearest])
                error = GuardError(
                    where, f"wrote {name} the buffer of {self.desc}", got=f"a write to word {at}"
                )
                error.buffer = self
                raise error

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PackedBuffer)
            and self.desc == other.desc
            and np.array_equal(self.raw, other.raw)
        )

    __hash__ = None  # type: ignore[assignment]


def raw_of(held: PackedBuffer | np.ndarray) -> np.ndarray:
    """The bytes of a value as they lie, padding included, uint8."""
    return (
        held.raw if isinstance(held, PackedBuffer) else np.ascontiguousarray(held).reshape(-1).view(np.uint8)
    )


def surrounded(words: np.ndarray) -> np.ndarray:
    """A copy of an array that lies among guard words: who reads beyond it finds no zeros, as in a fresh heap."""
    around = GUARD_WORDS * GUARD.itemsize
    block = np.full((words.nbytes + 2 * around + ALIGN + 3) // 4, GUARD, np.int32).view(np.uint8)
    first = -block.ctypes.data % ALIGN + around
    copy = block[first : first + words.nbytes].view(words.dtype).reshape(words.shape)
    copy[...] = words
    return copy


def with_outside(words: np.ndarray, guards: int = GUARD_WORDS) -> np.ndarray:
    """A copy of an input's words (int32), with what a kernel finds behind and, counting from the end, in front of them.

    These are so many guard words on both sides, and zeros in between.
    """
    found = np.zeros(words.size + OUTSIDE, np.int32)
    found[: words.size] = words
    found[words.size : words.size + guards] = found[len(found) - guards :] = GUARD
    return found


@contextmanager
def guarded(where: str, *buffers: PackedBuffer) -> Iterator[None]:
    """Check the guards of all buffers when the block ends."""
    yield
    for buffer in buffers:
        buffer.check_guards(where)


@contextmanager
def naming(file: str) -> Iterator[None]:
    """Errors about the bytes of a raw buffer name its file."""
    try:
        yield
    except RawBufferError as error:
        raise RawBufferError(f"{file}: {error.where}", error.what, got=error.got, need=error.need) from error


def same_shape(where: str, name: str, got: tuple[int, ...], need: tuple[int, ...]) -> None:
    """ShapeError unless two shapes are equal."""
    if tuple(got) != tuple(need):
        raise ShapeError(where, f"{name} has the wrong shape", got=list(got), need=list(need))
