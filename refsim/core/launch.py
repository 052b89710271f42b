"""Launch: one dispatch, described completely, computed once, and given unchanged to every executor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from refsim.core.errors import LimitError
from refsim.core.push import MAX_PUSH_WORDS
from refsim.core.tensor import TensorDesc

PLANE_ROW = 1 << 15  # planes of a global size are folded into rows of this many: grids are limited to 65535
Triple = tuple[int, int, int]


def check_counts(out: TensorDesc, what: str, size: Triple) -> None:
    """Of a launch that writes ``out``, where the size is computed: LimitError if it is 0 or less along an axis."""
    if min(size) < 1:
        raise LimitError(str(out), f"{what} that counts nothing", got=size, need="at least 1 along each axis")


def plane_words(out: TensorDesc) -> int:
    """Words of one plane: the contiguous part of a buffer in which the two slowest dims do not change."""
    per_block = out.layout.block_numel // (4 if out.is_int8 else 1)
    return out.strides_whcn[out.layout.dim_order[1]] * per_block


def plane_global_size(out: TensorDesc) -> Triple:
    """The global size of a kernel that computes each word by itself: x is the word in a plane, y and z are the plane.

    The word's number is (y * PLANE_ROW + z) * plane words + x.
    """
    words_each = plane_words(out)
    planes = out.words // words_each
    size = (words_each, -(-planes // PLANE_ROW), min(planes, PLANE_ROW))
    check_counts(out, "global size", size)
    return size


def column_local(out: TensorDesc, columns: int) -> Triple:
    """The workgroup of a kernel with words of channels along x and groups of ``columns`` columns along y.

    It has 64 invocations. Neighbouring invocations write neighbouring words of the output.
    """

    def within(extent: int, most: int) -> int:
        return min(most, 1 << (extent - 1).bit_length())

    w, _, c, _ = out.sizes_whcn
    if out.layout.block_transposed:
        y = within(-(-w // columns), 64)
        local = (64 // y, y, 1)
    else:
        x = within(-(-c // 4), 8)
        local = (x, 64 // x, 1)
    check_counts(out, "workgroup", local)
    return local


@dataclass(frozen=True)
class Launch:
    """One dispatch of one kernel.

    ``global_size`` is how many output words there are to compute along x, y and z; each invocation computes
    ``tile`` of them, a workgroup has ``local`` invocations, and ``grid`` workgroups cover it.
    ``spec`` are specialization words (layouts, flags), ``push`` the push words (sizes, strides, parameters). A
    device gets ``local``, ``tile`` and ``spec`` as its specialization constants, in that order. ``variant`` names a
    build of the shader for launches like this one: the same bytes, faster.
    """

    shader: str
    out: TensorDesc
    spec: tuple[int, ...]
    push: tuple[int, ...]
    global_size: Triple
    local: Triple = (64, 1, 1)
    tile: Triple = (1, 1, 1)
    grid: Triple = field(default=(0, 0, 0))
    variant: str = ""

    def __post_init__(self) -> None:
        if len(self.push) > MAX_PUSH_WORDS:
            raise LimitError(
                self.shader, "too many push words", got=len(self.push), need=f"<= {MAX_PUSH_WORDS}"
            )
        check_counts(self.out, "workgroup", self.local)
        check_counts(self.out, "tile", self.tile)
        if self.grid == (0, 0, 0):
            x, y, z = (
                -(-extent // (local * tile))
                for extent, local, tile in zip(self.global_size, self.local, self.tile, strict=True)
            )
            object.__setattr__(self, "grid", (x, y, z))

    @property
    def reached(self) -> Triple:
        """The part of the global size that the grid reaches: all of it, unless the launch is wrong."""
        x, y, z = (
            min(extent, groups * local * tile)
            for extent, groups, local, tile in zip(
                self.global_size, self.grid, self.local, self.tile, strict=True
            )
        )
        return (x, y, z)

    def invocation(self, item: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """(workgroup, invocation within it) that computes a work item; arrays do too."""
        number = [along // tile for along, tile in zip(item, self.tile, strict=True)]
        groups = [along // local for along, local in zip(number, self.local, strict=True)]
        return groups, [along % local for along, local in zip(number, self.local, strict=True)]

    @property
    def invocations(self) -> int:
        return prod(self.grid) * prod(self.local)
