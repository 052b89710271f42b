"""What ET-VK's own kernels are known to compute otherwise than the operator means, on any device.

A certificate must tell a wrong device from a kernel that is wrong everywhere. Each row says to which calls it applies,
and what such a kernel gives: for another call, or for a part of the bytes, with the others left as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.ops.base.binding import BoundCase
from refsim.ops.base.spec import Call
from refsim.ops.base.traits import Family


@dataclass(frozen=True)
class Known:
    """One such defect: its name, what it is, where it shows, and what the kernel writes instead."""

    name: str
    what: str
    applies: Callable[[Call], bool]
    call: Callable[[Call], Call] = lambda call: call
    written: Callable[[Call], np.ndarray | None] = lambda call: None

    def expected(self, bound: BoundCase, fill: int) -> tuple[PackedBuffer, np.ndarray]:
        """What the defective kernel makes of a buffer that holds ``fill`` everywhere, and which bytes are certain."""
        call = self.call(bound.call)
        written = self.written(call)
        buffer, defined = call.expected(bound.inputs), call.device_defined()
        if written is not None:
            elements = buffer.kinds() == ByteKind.VALUE
            buffer.raw[elements & ~written] = fill
            defined &= elements
        return buffer, defined


def _first_of(call: Call, inner: int) -> np.ndarray:
    """One bool per byte: an element of the first of all that lie along the outer dims, ``inner`` dims are left."""
    shape = call.out.shape
    inside = np.zeros((prod(shape[:-inner]), prod(shape[-inner:])), np.int8)
    inside[0] = 1
    return PackedBuffer.pack(inside.reshape(shape), call.out.layout).raw != 0


def _outer(call: Call, inner: int) -> int:
    return prod(call.out.shape[:-inner])


KNOWN = (
    Known(
        "alpha",
        "the kernel ignores alpha",
        lambda call: getattr(call.params, "alpha", 1.0) != 1.0,
        call=lambda call: replace(call, params=replace(call.params, alpha=1.0)),
    ),
    Known(
        "batch",
        "the kernel computes batch 0 only; the others are never written",
        lambda call: call.op.family in (Family.CONVOLUTION, Family.DEPTHWISE) and _outer(call, 3) > 1,
        written=lambda call: _first_of(call, 3),
    ),
    Known(
        "rows",
        "with leading dims the kernel computes the rows of the first plane only; the others are never written",
        lambda call: call.op.family is Family.LINEAR and _outer(call, 2) > 1,
        written=lambda call: _first_of(call, 2),
    ),
)


def known(call: Call) -> Known | None:
    """The known defect that shows in a call, or None."""
    return next((row for row in KNOWN if row.applies(call)), None)
