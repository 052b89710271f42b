"""Several versions of one buffer, from runs that should give the same: what flips between them, and which is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from refsim.bytediff.evidence import Evidence, cells
from refsim.bytediff.facts import summary
from refsim.bytediff.report import Report, diff
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import ParameterError, ShapeError
from refsim.core.meanings import Elements
from refsim.core.qmath import PROFILES
from refsim.ops.base.binding import BoundCase

RIGHT, LEGAL, WRONG, UNKNOWN = "right", "legal", "wrong", "unknown"


@dataclass(frozen=True)
class Version:
    """One distinct content of a buffer. ``wrong`` counts its cells that are not as the operator defines them.

    ``profiles`` are those under which every byte is right. Without the call ``wrong`` is None.
    """

    buffer: PackedBuffer
    wrong: Annotated[int | None, "Elements that are wrong; null where that is not known."]
    profiles: Annotated[tuple[str, ...], "Profiles that allow it."] = ()

    @property
    def verdict(self) -> Annotated[str, "right, legal, wrong or unknown."]:
        """``right``; ``legal`` if another profile than the call's allows it; ``wrong``; ``unknown``."""
        if self.wrong is None:
            return UNKNOWN
        return RIGHT if not self.wrong else LEGAL if self.profiles else WRONG


@dataclass(frozen=True)
class Judgement:
    """What is known about versions of one buffer.

    ``flips`` of its ``elements`` differ between some of them, and ``padding`` cells of padding do. ``pattern`` says
    where the elements that flip lie, and what they have in common. ``report`` is the first version that is wrong beside
    what it should be; None if there is none, or if the call is unknown.
    """

    versions: Annotated[tuple[Version, ...], "The contents, most common first."]
    flips: Annotated[int, "Elements that are not always the same."]
    elements: Elements
    padding: Annotated[int, "Bytes of padding that are not always the same."]
    pattern: Annotated[tuple[str, ...], "What the elements that flip have in common, in sentences."]
    report: Report | None

    @property
    def right(self) -> Annotated[tuple[int, ...], "Numbers of the contents that are right, or legal."]:
        return tuple(i for i, version in enumerate(self.versions) if version.verdict in (RIGHT, LEGAL))


def judge(
    versions: Sequence[PackedBuffer],
    bound: BoundCase | None = None,
    *,
    limit: int = 10,
    title: str = "",
    seen: tuple[str, str] | None = None,
) -> Judgement:
    """Say what differs between versions of one buffer, in which pattern, and which of them is right.

    ``bound`` is the call that wrote them all, with the inputs that it had. Padding that a device may fill with anything
    makes no version wrong, though it counts as flipping. ``limit``, ``title`` and ``seen`` are for the report (`diff`).
    Raises ParameterError without versions, ShapeError if they are not of one tensor or the call writes another.
    """
    if not versions:
        raise ParameterError("versions", "there is none", got=0, need="at least one")
    for buffer in versions:
        if buffer.desc != versions[0].desc:
            raise ShapeError("versions", "of several tensors", got=buffer.desc, need=versions[0].desc)
    if bound is not None and bound.call.out != versions[0].desc:
        raise ShapeError(
            "versions", "the call writes another tensor", got=versions[0].desc, need=bound.call.out
        )
    judged = _judged(versions, bound)
    base = next((v.buffer for v in judged if v.wrong == 0), versions[0])
    ev = Evidence(base, _flipped(base, versions), np.ones(len(cells(base)), bool), bound)
    flips = int(ev.wrong.sum())
    wrong, report = next((v.buffer for v in judged if v.verdict == WRONG), None), None
    if bound is not None and wrong is not None:
        right = bound.call.expected(bound.inputs)
        report = diff(right, wrong, call=bound, device=True, limit=limit, title=title, seen=seen)
    return Judgement(
        judged,
        flips,
        int(ev.values.sum()),
        int((ev.differing & ~ev.values).sum()),
        tuple(summary(ev)) if flips else (),
        report,
    )


def _judged(versions: Sequence[PackedBuffer], bound: BoundCase | None) -> tuple[Version, ...]:
    if bound is None:
        return tuple(Version(buffer, None) for buffer in versions)
    call = bound.call
    compared = call.device_defined() if call.out.is_int8 else np.ones(call.out.words, bool)
    right = cells(call.expected(bound.inputs))

    def wrong(buffer: PackedBuffer, wanted: np.ndarray) -> int:
        return int(((cells(buffer) != wanted) & compared).sum())

    under = {call.target.profile.name: right}
    if any(wrong(buffer, right) for buffer in versions):
        under = {name: cells(call.under(one).expected(bound.inputs)) for name, one in PROFILES.items()}
    return tuple(
        Version(buffer, wrong(buffer, right), tuple(name for name in under if not wrong(buffer, under[name])))
        for buffer in versions
    )


def _flipped(base: PackedBuffer, versions: Sequence[PackedBuffer]) -> PackedBuffer:
    """A buffer that differs from the base wherever one of the versions does, with the first other content."""
    other = PackedBuffer(base.desc)
    held = np.stack([cells(buffer) for buffer in versions])
    first = (held != cells(base)).argmax(axis=0)
    cells(other)[:] = np.take_along_axis(held, first[None], axis=0)[0]
    return other
