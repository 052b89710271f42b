"""When values are needed, and memory shared between those that are never needed at once.

One notion of lifetime and one order of planning, the largest first, serve both kinds of plan: memory objects of a
serialized graph (refsim.graph.memory), and places in one block of bytes (the native executor's).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from refsim.core.errors import GraphError

#: Bytes that places in a block are aligned to: a line of the processor's caches.
ALIGN = 64

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Lifetime:
    """The first and the last step that need a value, both included; -1 is before the first step."""

    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        """Whether some step needs both."""
        return self.first <= other.last and other.first <= self.last


def lifetimes(
    steps: Sequence[tuple[Iterable[Key], Iterable[Key]]],
    inputs: Iterable[Key],
    outputs: Iterable[Key],
    always: Collection[Key] = (),
) -> dict[Key, Lifetime]:
    """Of every value that is given or written; ``steps`` are the values that each step reads, and those it writes.

    A value lives from the step that writes it (inputs: from before the first) to the last that reads it (outputs: to
    the end, the number of steps). Those in ``always`` live from before the first step to the end.
    """
    first: dict[Key, int] = dict.fromkeys(inputs, -1)
    last: dict[Key, int] = {}
    for number, (reads, writes) in enumerate(steps):
        writes = tuple(writes)
        for value in writes:
            first.setdefault(value, number)
        for value in (*reads, *writes):  # needed once even if nobody reads it
            last[value] = number
    last |= dict.fromkeys(outputs, len(steps))
    return {
        value: Lifetime(-1, len(steps)) if value in always else Lifetime(begin, last.get(value, begin))
        for value, begin in first.items()
    }


@dataclass(frozen=True)
class Claim(Generic[Key]):
    """A value that needs memory: its name, its size in bytes, and when."""

    name: Key
    nbytes: int
    life: Lifetime


def largest_first(wanted: Iterable[Claim[Key]]) -> list[Claim[Key]]:
    """The order in which memory is given out; among equals the earliest, then by name."""
    return sorted(wanted, key=lambda a: (-a.nbytes, a.life.first, a.name))


def live(wanted: Sequence[Claim[Any]]) -> int:
    """Bytes of the largest set that a step needs at once: no plan can do with less."""
    steps = {a.life.first for a in wanted}
    return max((sum(a.nbytes for a in wanted if a.life.first <= n <= a.life.last) for n in steps), default=0)


# --- memory objects --------------------------------------------------------------------------------------


def objects(wanted: Iterable[Claim[Key]]) -> dict[Key, int]:
    """The memory object of each: the smallest large enough that is free while it lives, else a new one.

    Objects are numbered by their first use.
    """
    found: list[list[Claim[Key]]] = []
    for wants in largest_first(wanted):
        for members in reversed(found):  # an object is as large as its first member: the smallest come first
            if not any(wants.life.overlaps(other.life) for other in members):
                members.append(wants)
                break
        else:
            found.append([wants])
    found.sort(key=lambda members: min((a.life.first, a.name) for a in members))
    return {a.name: number for number, members in enumerate(found) for a in members}


# --- places in one block ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class BlockPlace(Generic[Key]):
    """Where a value lies in the block, in bytes."""

    wants: Claim[Key]
    offset: int

    @property
    def end(self) -> int:
        return self.offset + self.wants.nbytes


def places(wanted: Iterable[Claim[Key]]) -> dict[Key, BlockPlace[Key]]:
    """The place of each: as low as those allow that are needed at once with it, aligned to `ALIGN`."""
    placed: list[BlockPlace[Key]] = []
    ordered = largest_first(wanted)
    for wants in ordered:
        at = 0
        for other in sorted((p for p in placed if p.wants.life.overlaps(wants.life)), key=lambda p: p.offset):
            if at + wants.nbytes <= other.offset:
                break
            at = max(at, -(-other.end // ALIGN) * ALIGN)
        placed.append(BlockPlace(wants, at))
    check(placed)
    found = {place.wants.name: place for place in placed}
    missing = [str(wants.name) for wants in ordered if wants.name not in found]
    if missing:
        raise GraphError("memory plan", "a value has no place", got=", ".join(missing))
    return found


def check(placed: Sequence[BlockPlace[Any]]) -> None:
    """GraphError if two values that are needed at once overlap in memory."""
    ordered = sorted(placed, key=lambda p: p.offset)
    for at, place in enumerate(ordered):
        for other in ordered[at + 1 :]:
            if other.offset >= place.end:
                break
            if place.wants.life.overlaps(other.wants.life):
                raise GraphError(
                    "memory plan",
                    f"{place.wants.name} and {other.wants.name} share memory while both are needed",
                    got=f"bytes {place.offset} to {place.end} and {other.offset} to {other.end}",
                )


def size(placed: Iterable[BlockPlace[Any]]) -> int:
    """Bytes of the block."""
    return max((place.end for place in placed), default=0)
