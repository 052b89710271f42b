"""How a buffer comes out: the same, legal under other numerics, a defect that upstream's kernel has too, or wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from refsim.core.buffer import FILL, ByteKind, PackedBuffer, offsets
from refsim.core.qmath import PROFILES, Profile
from refsim.ops.base.binding import BoundCase
from refsim.ops.base.defect import Defect, together

#: How a buffer can come out, best first.
SAME, LEGAL, KNOWN_DEFECT, WRONG = "same", "legal", "known", "wrong"


@dataclass(frozen=True)
class Judged:
    """``profiles``: under which the bytes are legal. ``defect``: the known one that gives these bytes."""

    verdict: Annotated[str, "same, legal, known, wrong or missing."]
    profiles: Annotated[
        tuple[str, ...], "Profiles under which the bytes are legal, or those of the defect."
    ] = ()
    known: Defect | None = None

    @property
    def defect(
        self,
    ) -> Annotated[str | None, "The known defect of upstream's kernel that gives these bytes."]:
        return None if self.known is None else self.known.name

    def __str__(self) -> str:
        if self.defect is not None:
            return f"known defect of upstream: {self.defect}"
        return f"legal under {', '.join(self.profiles)}" if self.verdict == LEGAL else self.verdict


def judged(
    bound: BoundCase,
    actual: PackedBuffer,
    fill: int = FILL,
    profiles: Iterable[Profile] = tuple(PROFILES.values()),
    defects: bool = True,
) -> Judged:
    """Judge what a device wrote, in all bytes that upstream's kernel defines.

    Where a kernel with a known defect writes nothing, the buffer must still hold ``fill``. ``profiles`` are the
    numerics that the device may have; those that the call is bound with are always allowed. Without ``defects``,
    what upstream's kernel does wrong is wrong.
    """
    own = bound.call.target.profile
    if same(bound, actual, own):
        return Judged(SAME)
    allowed = {own.name: own, **{profile.name: profile for profile in profiles}}
    legal = tuple(name for name, profile in allowed.items() if same(bound, actual, profile))
    if legal:
        return Judged(LEGAL, legal)
    found = bound.call.defects if defects else ()
    valued = [row for row in found if row.values is not None]
    for row in (*found, *([together(valued)] if len(valued) > 1 else ())):
        cases = {name: replace(bound, call=bound.call.under(profile)) for name, profile in allowed.items()}
        wrong = {name: defective(case, row, fill) for name, case in cases.items()}
        shown = tuple(name for name, one in wrong.items() if one is not None and _equal(*one, actual))
        if shown:
            return Judged(KNOWN_DEFECT, shown, row)
    return Judged(WRONG)


def same(bound: BoundCase, actual: PackedBuffer, profile: Profile) -> bool:
    """Whether every byte that upstream's kernel defines is the definition's."""
    call = bound.call.under(profile)
    return _equal(call.expected(bound.inputs), call.device_defined(), actual)


def _equal(expected: PackedBuffer, compared: np.ndarray, actual: PackedBuffer) -> bool:
    return bool(np.array_equal(expected.raw[compared], actual.raw[compared]))


def defective(bound: BoundCase, defect: Defect, fill: int) -> tuple[PackedBuffer, np.ndarray] | None:
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
