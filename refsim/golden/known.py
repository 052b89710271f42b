"""What a device writes whose kernel has one of the defects that its operator lists (`Upstream.defects`).

A certificate must tell a wrong device from a kernel that is wrong everywhere.
"""

from __future__ import annotations

import numpy as np

from refsim.core.buffer import ByteKind, PackedBuffer, offsets
from refsim.ops.base.binding import BoundCase
from refsim.ops.base.defect import Defect


def expected(bound: BoundCase, defect: Defect, fill: int) -> tuple[PackedBuffer, np.ndarray] | None:
    """What the defective kernel makes of a buffer that holds ``fill`` everywhere, and which bytes are certain.

    None for a defect that gives no values.
    """
    if defect.values is None:
        return None
    values = defect.values(bound.call, {name: buffer.unpack() for name, buffer in bound.inputs.items()})
    buffer, certain = bound.call.expected(bound.inputs), bound.call.device_defined()
    unwritten, at = np.ma.getmaskarray(values), offsets(bound.call.out)
    found = PackedBuffer.pack(np.ma.getdata(values), bound.call.out.layout)
    elements = buffer.kinds() == ByteKind.VALUE
    buffer.raw[elements] = found.raw[elements]
    if unwritten.any():
        buffer.raw[at[unwritten.reshape(at.shape)]] = fill
        certain &= elements  # where a kernel stops, it writes no padding either
    certain[at[defect.unknown(bound.call, values).reshape(at.shape)]] = False
    return buffer, certain
