"""Tensors as places in memory: views that NumPy makes, of memory that is never touched, and what kernels are told.

Every float layout is dense with strides, so any move, broadcast or choice of elements is a view, or there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from refsim.core.tensor import TensorDesc

#: Invocations of a workgroup, and along x of a whole grid: a multiple of it that every device takes.
LOCAL, ROW = 64, 1 << 20
#: Workgroups along x of a kernel that has one for each row.
ROW_GROUPS = 1 << 15


class Unfit(Exception):
    """No kernel of the device's computes this; the text says why."""


def placed(desc: TensorDesc, shape: Sequence[int]) -> np.ndarray:
    """A tensor's elements by logical coordinate. Only strides may be read of it, and views be made."""
    w, h, c, n = desc.strides_whcn
    steps = [w, h, c, n]
    for size in reversed(desc.shape[1:-3]):
        steps.append(steps[-1] * size)
    strides = [4 * step for step in reversed(steps[: len(desc.shape)])]
    return reshaped(as_strided(np.zeros(1, np.float32), desc.shape, strides, writeable=False), shape)


def reshaped(view: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The same places in another shape; `Unfit` if no strides describe it."""
    try:
        return np.reshape(view, tuple(shape), copy=False)
    except ValueError:
        raise Unfit("its elements lie in an order that no strides describe") from None


def _first(view: np.ndarray, whole: np.ndarray) -> int:
    places = (v.__array_interface__["data"][0] for v in (view, whole))
    at, begin = places
    return int(at - begin) // 4


@dataclass(frozen=True)
class Operand:
    """A tensor that a kernel reads or writes: its name in a plan, all of it, and the part in the kernel's order."""

    key: Any
    whole: np.ndarray
    view: np.ndarray

    @classmethod
    def of(cls, key: Any, whole: np.ndarray) -> Operand:
        return cls(key, whole, whole)

    def viewed(self, view: np.ndarray) -> Operand:
        return Operand(self.key, self.whole, view)

    @property
    def first(self) -> int:
        """Where the part begins, in words."""
        return _first(self.view, self.whole)


def joined(shape: Sequence[int], operands: Sequence[np.ndarray], most: int) -> list[tuple[int, ...]]:
    """(size, stride of each operand) of the dims that are left, in words, the first operand's fastest first.

    Dims that follow each other in every operand count as one.
    """
    rows = [
        (size, *(view.strides[dim] // 4 for view in operands)) for dim, size in enumerate(shape) if size > 1
    ]
    rows.sort(key=lambda row: row[1:])
    found: list[tuple[int, ...]] = []
    for size, *strides in rows:
        if found and all(s == found[-1][0] * t for s, t in zip(strides, found[-1][1:], strict=True)):
            found[-1] = (found[-1][0] * size, *found[-1][1:])
        else:
            found.append((size, *strides))
    if len(found) > most:
        raise Unfit(f"{len(found)} dims that lie apart; a kernel takes {most}")
    return found


def a_group_each(count: int) -> tuple[int, int, int]:
    """The global size of a kernel that computes one row a workgroup."""
    return (LOCAL * min(count, ROW_GROUPS), -(-count // ROW_GROUPS), 1)


def laid(most: int, **operands: Operand) -> tuple[dict[str, Any], int]:
    """The push words of operands of one shape, the first one's, and the dims that are left: at most ``most``.

    Sizes, each operand's strides, where it begins, and how many elements there are.
    """
    views = [operand.view for operand in operands.values()]
    shape = views[0].shape
    rows = joined(shape, views, most)
    padded = [*rows, *[(1, *[0] * len(views))] * (most - len(rows))]
    words: dict[str, Any] = {
        f"{name}_{dim}": row[at]
        for at, name in enumerate(("SIZE", *operands))
        for dim, row in enumerate(padded)
    }
    words |= {f"{name}_AT": operand.first for name, operand in operands.items()}
    return words | {"COUNT": prod(shape)}, len(rows)


def image_strides(**views: np.ndarray) -> dict[str, int]:
    """The push words of images' strides; dims that a view lacks behind its own have none."""
    return {
        f"{name}_{dim}_STRIDE": step // 4
        for name, view in views.items()
        for dim, step in zip("NCHW", (*view.strides, 0, 0), strict=False)
    }


def in_space(**pairs: Sequence[int]) -> dict[str, int]:
    """The push words of numbers that there are for rows and for columns."""
    return {f"{name}_{dim}": one for name, pair in pairs.items() for dim, one in zip("HW", pair, strict=True)}


def counted(count: int) -> tuple[int, int, int]:
    """The global size of a kernel that computes one element an invocation."""
    return (min(count, ROW), -(-count // ROW), 1)
