"""What upstream's kernel of an operator is known to do wrong, where executors here do what the operator means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from refsim.ops.base.arg import Arrays


@dataclass(frozen=True)
class Defect:
    """One defect: a name, a sentence for people, and the values that it leaves.

    ``applies(call)``: whether a call shows it. ``values(call, arrays)``: the output with the defect, masked (numpy.ma)
    where no invocation writes; what stands there is chance. None where upstream's runtime refuses the call.
    ``strays(call)``: one bool for each element of the output, whether it is computed from memory behind a tensor, so
    that nothing is known of it. ``textures``: only tensors in textures show it, those in buffers do not. ``in_host``:
    the kernel is right, and upstream's host calls it with wrong arguments. ``instead(call)``: the call whose right
    result the defective kernel gives, as far as it writes; None where it is the same call, or there is no such call.
    ``inner``: of a kernel that computes the first of what lies along the outer dims, the dims of the output in each.
    """

    name: str
    note: str
    applies: Callable[[Any], bool]
    values: Callable[[Any, Arrays], np.ndarray] | None = None
    strays: Callable[[Any], np.ndarray] | None = None
    textures: bool = False
    in_host: bool = False
    instead: Callable[[Any], Any] | None = None
    inner: int | None = None

    def unknown(self, call: Any, values: np.ndarray) -> np.ndarray:
        """Where ``values`` say nothing although something is written: one bool for each element."""
        if self.strays is None:
            return np.zeros(values.shape, bool)
        return self.strays(call) & ~np.ma.getmaskarray(values)


def together(rows: Sequence[Defect]) -> Defect:
    """Several defects that one call shows at once: what each changes, and unwritten what any leaves unwritten."""

    def values(call: Any, arrays: Arrays) -> np.ndarray:
        right = call.define(arrays)
        found = np.ma.masked_array(right.copy(), np.zeros(right.shape, bool))
        for row in rows:
            assert row.values is not None
            one = row.values(call, arrays)
            changed = np.ma.getdata(one) != right
            found.data[changed] = np.ma.getdata(one)[changed]
            found.mask |= np.ma.getmaskarray(one)
        return found

    def strays(call: Any) -> np.ndarray:
        return np.logical_or.reduce([row.strays(call) for row in rows if row.strays is not None])

    return Defect(
        " and ".join(row.name for row in rows),
        "; ".join(row.note for row in rows),
        lambda call: all(row.applies(call) for row in rows),
        values,
        strays if any(row.strays for row in rows) else None,
    )


def first_only(name: str, note: str, inner: int) -> Defect:
    """The kernel computes the first of all that lie along the outer dims, ``inner`` dims of the output are left."""

    def several(call: Any) -> bool:
        return prod(call.out.shape[:-inner]) > 1

    def values(call: Any, arrays: Arrays) -> np.ndarray:
        found = call.define(arrays)
        mask = np.ones((prod(found.shape[:-inner]), prod(found.shape[-inner:])), bool)
        mask[0] = False
        return np.ma.masked_array(found, mask.reshape(found.shape))

    return Defect(name, note, several, values, inner=inner)


#: What all convolutions of upstream have in common, and all linear operators.
FIRST_BATCH = first_only(
    "first-batch", "upstream's kernel computes batch 0 only, the others are never written", 3
)
#: What the operators that work element by element have in common.
FIRST_OF_FOUR_DIMS = first_only(
    "first-of-four-dims",
    "upstream's kernel knows four dims: it computes the first of what more dims hold, the others are never written",
    4,
)
FIRST_PLANE = first_only(
    "first-plane", "upstream's kernel computes the first plane of rows only, the others are never written", 2
)
FIRST_ROW = first_only(
    "first-row", "upstream's kernel computes row 0 only, the other rows are never written", 1
)
