"""Where a byte of a buffer belongs: its coordinate, word, lane and block, and whether it is padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from refsim.core import index
from refsim.core.buffer import ROUNDED, ByteKind
from refsim.core.errors import ParameterError
from refsim.core.layout import N
from refsim.core.tensor import TensorDesc


@dataclass(frozen=True)
class Location:
    """One element of a buffer, or of its padding.

    ``byte`` is the byte that was asked for, or the element's first; ``word`` is its 32-bit word, ``lane`` its place
    in that; ``block`` is the block and ``intra`` the element within it. ``index`` is in the tensor's own rank; in
    padding it lies past the tensor's sizes.
    """

    byte: Annotated[int, "Its first byte."]
    word: Annotated[int, "Number of the 32-bit word."]
    lane: Annotated[int, "The byte of the word."]
    block: Annotated[int, "Number of the block."]
    intra: int
    index: Annotated[tuple[int, ...], "Its index, beyond the shape in padding."]
    kind: ByteKind


def at_byte(desc: TensorDesc, byte: int) -> Location:
    """The place of one byte; ParameterError if the buffer has no such byte."""
    if not 0 <= byte < desc.nbytes:
        need = f"0 to {desc.nbytes - 1}"
        if desc.nbytes <= byte < (whole := -(-desc.nbytes // ROUNDED) * ROUNDED):
            need += f"; the buffer ends there, and a device that rounds its size up to {whole} leaves the rest unused"
        raise ParameterError(f"{desc}", "no such byte", got=byte, need=need)
    element = byte // _itemsize(desc)
    w, h, c, n = (int(v) for v in index.coord(desc.meta, 0, desc.hashed, element))
    if index.inside(desc.meta, 0, w, h, c, n):
        kind = ByteKind.VALUE
    else:
        word = (index.coord(desc.meta, 0, desc.hashed, element // 4 * 4 + lane) for lane in range(4))
        shared = any(index.inside(desc.meta, 0, *place) for place in word)
        kind = ByteKind.LANE if shared else ByteKind.WORD
    return _location(desc, byte, _unfolded(desc, (n, c, h, w)), kind)


def at_index(desc: TensorDesc, where: Sequence[int]) -> Location:
    """The place of one element; ParameterError for another rank or an index outside the tensor."""
    if len(where) != len(desc.shape) or not all(0 <= i < s for i, s in zip(where, desc.shape, strict=True)):
        need = f"{len(desc.shape)} numbers, each below {','.join(map(str, desc.shape))}"
        raise ParameterError(f"{desc}", "no such element", got=",".join(map(str, where)), need=need)
    n, c, h, w = _folded(desc, where)
    element = int(index.buf_idx(desc.meta, 0, desc.hashed, w, h, c, n))
    return _location(desc, element * _itemsize(desc), tuple(where), ByteKind.VALUE)


def _itemsize(desc: TensorDesc) -> int:
    return 1 if desc.is_int8 else 4


def _location(desc: TensorDesc, byte: int, where: tuple[int, ...], kind: ByteKind) -> Location:
    element = byte // _itemsize(desc)
    numel = desc.layout.block_numel
    return Location(byte, byte // 4, byte % 4, element // numel, element % numel, where, kind)


def _folded(desc: TensorDesc, where: Sequence[int]) -> tuple[int, int, int, int]:
    """NCHW of an index in the tensor's own rank: missing dims are 0, those beyond four fold into N."""
    n, c, h, w = 0, 0, 0, 0
    *outer, c, h, w = [0] * max(0, 3 - len(where)) + list(where)
    if outer:
        n = int(np.ravel_multi_index(outer, desc.shape[: len(outer)]))
    return n, c, h, w


def _unfolded(desc: TensorDesc, nchw: tuple[int, int, int, int]) -> tuple[int, ...]:
    """The index in the tensor's own rank; dims that it lacks are kept in front where padding makes them nonzero."""
    n, *chw = nchw
    outer: list[int] = []
    for size in reversed(desc.shape[:-N] if len(desc.shape) > N else ()):
        outer.insert(0, n % size)
        n //= size
    if len(desc.shape) > N:
        return (*outer, *chw)
    kept = chw[N - len(desc.shape) :]
    lost = chw[: N - len(desc.shape)]
    return tuple(lost + kept) if any(lost) else tuple(kept)
