"""What a diff has to explain: the two buffers, and the call that should have written them, if it is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import TypeVar

import numpy as np

from refsim.bytediff.invocations import Coordinates, Geometry, Writer, coordinates, work_items, writers
from refsim.core.buffer import FILL, ByteKind, PackedBuffer, byte_kinds, offsets
from refsim.core.launch import Launch
from refsim.core.tensor import TensorDesc
from refsim.ops.base.binding import BoundCase
from refsim.ops.base.spec import Call

T = TypeVar("T")


@dataclass(frozen=True)
class Evidence:
    """An expected and an actual buffer of one tensor.

    A *cell* is room for one element, be it a value or padding: a byte of an int8 tensor, a word of a float one.
    ``compared`` masks the cells that count. ``bound`` is the call that should have written the buffer, ``previous`` a
    call that ran before it on the same device. ``others`` are raw bytes of other buffers by name. ``geometry`` is how
    the buffer's kernel was launched, where that is not refsim's own launch. So many ``guards`` (words) were on both
    sides of each buffer that it read; beyond them were zeros.
    """

    expected: PackedBuffer
    actual: PackedBuffer
    compared: np.ndarray
    bound: BoundCase | None = None
    previous: BoundCase | None = None
    others: Mapping[str, np.ndarray] = field(default_factory=dict)
    geometry: Geometry | None = None
    guards: int = 0

    @property
    def desc(self) -> TensorDesc:
        return self.expected.desc

    @property
    def in_words(self) -> bool:
        """Whether it is int8 in whole words, as all of ExecuTorch's layouts are."""
        return self.desc.is_int8 and self.desc.nbytes % 4 == 0

    @cached_property
    def want(self) -> np.ndarray:
        """Cells of the expected buffer."""
        return cells(self.expected)

    @cached_property
    def got(self) -> np.ndarray:
        """Cells of the actual buffer."""
        return cells(self.actual)

    @cached_property
    def differing(self) -> np.ndarray:
        """Bool per cell."""
        return (self.want != self.got) & self.compared

    @cached_property
    def right(self) -> np.ndarray:
        """Cells that the call gives, whatever ``expected`` holds; there must be a ``bound``."""
        return cells(self.call.expected(self.inputs))

    @cached_property
    def expected_right(self) -> bool:
        """Whether ``expected`` is what the call gives, as far as a device must give it; it is without a call."""
        return self.bound is None or self._is_right(self.want)

    @cached_property
    def reversed(self) -> bool:
        """Whether ``actual`` is what the call gives, and ``expected`` is not."""
        return not self.expected_right and self._is_right(self.got)

    @property
    def turned(self) -> Evidence:
        """The same with the two buffers exchanged."""
        return replace(self, expected=self.actual, actual=self.expected)

    @cached_property
    def faulty(self) -> np.ndarray:
        """Bool per cell: differing, and not since ``expected`` alone is wrong there."""
        return self.differing if self.expected_right else self.differing & (self.got != self.right)

    def _is_right(self, held: np.ndarray) -> bool:
        wrong = (held != self.right) & self.compared
        return not bool((wrong & self.call.device_defined() if self.desc.is_int8 else wrong).any())

    @cached_property
    def kinds(self) -> np.ndarray:
        """ByteKind per cell."""
        return byte_kinds(self.desc)[:: self.want.itemsize]

    @cached_property
    def values(self) -> np.ndarray:
        """Bool per cell: an element, and no padding."""
        return self.kinds == ByteKind.VALUE

    @cached_property
    def wrong(self) -> np.ndarray:
        """Bool per cell: an element that differs."""
        return self.differing & self.values

    @cached_property
    def coordinates(self) -> Coordinates:
        """(n, c, h, w) of every cell."""
        return coordinates(self.desc)

    @cached_property
    def foreign(self) -> dict[str, np.ndarray]:
        """The other buffers by name, as cells; what is less than a cell at their ends is left out."""
        size = self.want.itemsize
        found = {}
        for name, raw in self.others.items():
            held = np.ascontiguousarray(raw).view(np.uint8).reshape(-1)
            found[name] = held[: len(held) // size * size].view(self.want.dtype)
        return found

    @property
    def call(self) -> Call:
        """The call that should have written the buffer; there must be a ``bound``."""
        assert self.bound is not None
        return self.bound.call

    @property
    def inputs(self) -> Mapping[str, PackedBuffer]:
        """The call's input buffers by argument; there must be a ``bound``."""
        assert self.bound is not None
        return self.bound.inputs

    @cached_property
    def launch(self) -> Launch | None:
        """The dispatch that writes the buffer, if the call is known."""
        if self.geometry is not None:
            return self.geometry.launch
        steps = [] if self.bound is None else self.call.dispatches()
        return steps[-1].launch if steps else None

    @cached_property
    def items(self) -> np.ndarray:
        """The work item (x, y, z) that writes each cell: int64 (3, cells); there must be a ``launch``."""
        assert self.launch is not None
        of_words = work_items(self.launch) if self.geometry is None else self.geometry.items
        return np.repeat(of_words, 4 // self.want.itemsize, axis=1)

    def writers(self, words: np.ndarray) -> Sequence[Writer | None]:
        """Who writes each of these words, if the launch is known."""
        if not len(words) or self.launch is None:
            return [None] * len(words)
        of_words = work_items(self.launch, words) if self.geometry is None else self.geometry.items[:, words]
        return writers(self.launch, of_words)

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """The call's inputs as logical arrays."""
        return {name: buffer.unpack() for name, buffer in self.inputs.items()}

    @cached_property
    def fills(self) -> tuple[int, ...]:
        """What a cell may hold that no kernel wrote: 0, what outputs begin as, or another byte that fills memory.

        No kernel ends in that byte: it is no bound of a clamp and no zero point, in floats the same four times.
        """
        values, counts = np.unique(self.got[self.differing], return_counts=True)
        common = int(values[counts.argmax()]) if len(values) else 0
        params = {} if self.bound is None else vars(self.call.params)
        if self.desc.is_int8:
            computed = common in (-128, 127, params.get("out_zp"), params.get("zp"))
        else:
            computed = common != int(np.array([common] * 4).astype(np.int8).view(np.int32)[0])
        return tuple(dict.fromkeys((0, self.unwritten if computed else common, self.unwritten)))

    @cached_property
    def unwritten(self) -> int:
        """What memory was filled with, if a differing cell holds it; else 0."""
        before = FILL if self.desc.is_int8 else 0x01010101 * FILL
        return before if before in self.got[self.differing] else 0

    def with_cells(self, cells: np.ndarray) -> np.ndarray:
        """Cells of the expected buffer with other elements, NCHW."""
        fresh = self.want.copy()
        fresh[self.places] = cells.reshape(self.places.shape)
        return fresh

    @cached_property
    def places(self) -> np.ndarray:
        """Cell of every element, NCHW."""
        return offsets(self.desc)

    @cached_property
    def logical(self) -> np.ndarray:
        """The expected elements, NCHW with exactly four dims."""
        return self.want[self.places]


def once(make: Callable[[Evidence], T]) -> Callable[[Evidence], T]:
    """A function that computes only once for each evidence, and keeps it there, as a cached property does."""
    name = f"{make.__module__}.{make.__qualname__}"

    @wraps(make)
    def found(ev: Evidence) -> T:
        kept: dict[str, T] = vars(ev)
        if name not in kept:
            kept[name] = make(ev)
        return kept[name]

    return found


def cells(buffer: PackedBuffer) -> np.ndarray:
    """int8 per byte of an int8 buffer, int32 (the bits) per element of a float one."""
    return buffer.data if buffer.desc.is_int8 else buffer.words


def distinct(values: np.ndarray) -> np.ndarray:
    """The different whole numbers among these, ascending: what np.unique gives, which hashes and is much slower."""
    ordered = np.sort(values, axis=None, kind="stable")
    first = np.ones(ordered.size, bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


def numbered(parts: Sequence[np.ndarray]) -> np.ndarray:
    """For each column of these rows of whole numbers, which of the different columns it is, in ascending order."""
    code = np.zeros(np.shape(parts[0]), np.int64)
    for part in parts:
        low = int(np.min(part))
        code = code * (int(np.max(part)) - low + 1) + part - low
    found: np.ndarray = np.unique(code, return_inverse=True)[1].reshape(-1)
    return found


@dataclass(frozen=True)
class Prediction:
    """What the buffer would hold by one cause: its class, in words, and the cells.

    ``fitted`` says that a part of the prediction was read off the differences themselves. One that fits as well without
    that is more credible. ``inferred``: most of it was, such as a number for each channel; it comes after all others.
    """

    name: str
    detail: str
    cells: np.ndarray
    fitted: bool = False
    inferred: bool = False
