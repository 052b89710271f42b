"""Places for buffers in one block of memory, shared between those that are never needed at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from refsim.core.errors import GraphError

ALIGN = 64


@dataclass(frozen=True)
class Span:
    """A buffer: its size in bytes, and the first and last step that need it, both included."""

    name: str
    nbytes: int
    first: int
    last: int

    def meets(self, other: Span) -> bool:
        """Whether some step needs both."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Place:
    """Where a span lies."""

    span: Span
    offset: int

    @property
    def end(self) -> int:
        return self.offset + self.span.nbytes


def plan(spans: Iterable[Span]) -> dict[str, Place]:
    """Places by name: the largest first, each as low as those allow that are needed at once with it."""
    placed: list[Place] = []
    for span in sorted(spans, key=lambda s: (-s.nbytes, s.first, s.name)):
        at = 0
        for other in sorted((p for p in placed if p.span.meets(span)), key=lambda p: p.offset):
            if at + span.nbytes <= other.offset:
                break
            at = max(at, -(-other.end // ALIGN) * ALIGN)
        placed.append(Place(span, at))
    check(placed)
    return {place.span.name: place for place in placed}


def check(places: Sequence[Place]) -> None:
    """GraphError if two spans that are needed at once overlap in memory."""
    ordered = sorted(places, key=lambda p: p.offset)
    for at, place in enumerate(ordered):
        for other in ordered[at + 1 :]:
            if other.offset >= place.end:
                break
            if place.span.meets(other.span):
                raise GraphError(
                    "memory plan",
                    f"{place.span.name} and {other.span.name} share memory while both are needed",
                    got=f"bytes {place.offset} to {place.end} and {other.offset} to {other.end}",
                )


def size(places: Iterable[Place]) -> int:
    """Bytes of the block."""
    return max((place.end for place in places), default=0)


def live(spans: Sequence[Span]) -> int:
    """Bytes of the largest set of spans that a step needs at once: no plan can do with less."""
    steps = {span.first for span in spans}
    return max((sum(s.nbytes for s in spans if s.first <= step <= s.last) for step in steps), default=0)
