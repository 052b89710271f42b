"""Which regions of a buffer an error fills: lanes, words, blocks, channels, invocations or workgroups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from refsim.bytediff.evidence import Evidence, numbered
from refsim.bytediff.invocations import coordinates
from refsim.core.buffer import ByteKind

#: Of the elements in the regions that hold an error, at least this part is wrong, or the regions mean nothing.
#: Wrong bytes of a race are right by chance now and then, more often where many are the zero point.
LEAST_DENSITY = 0.4
#: A coarse region stands for finer ones if it is filled nearly as well as these are.
NEARLY = 0.9
#: Elements that are fewer fill a region by chance.
FEW = 4


@dataclass(frozen=True)
class Region:
    """One way to divide a buffer. ``touched`` of its ``of`` regions hold an error.

    ``errors`` of the ``elements`` in these are wrong.
    """

    name: Annotated[str, "What the regions are: tiles, lanes, channels..."]
    touched: Annotated[int, "Regions with an element that differs."]
    of: Annotated[int, "How many regions there are."]
    errors: Annotated[int, "Elements that differ in those."]
    elements: Annotated[int, "Elements of those."]

    @property
    def density(self) -> float:
        return self.errors / self.elements

    def __str__(self) -> str:
        return (
            f"in {self.touched} of {self.of} {self.name}: {self.errors} of the {self.elements} elements there"
        )


Divide = Callable[[Evidence], np.ndarray | None]


def regions(ev: Evidence) -> list[Region]:
    """All ways to divide the buffer, and how the differing elements lie in each; empty if no element differs."""
    values = ev.kinds == ByteKind.VALUE
    errors = ev.differing & values
    if not errors.any():
        return []
    found = []
    for name, divide in DIVISIONS.items():
        numbers = divide(ev)
        if numbers is not None:
            _, at = np.unique(numbers[values], return_inverse=True)
            counts, wrong = np.bincount(at), np.bincount(at[errors[values]], minlength=int(at.max()) + 1)
            hit = wrong > 0
            found.append(Region(name, int(hit.sum()), len(counts), int(wrong.sum()), int(counts[hit].sum())))
    return found


def formed(ev: Evidence) -> Region | None:
    """The regions that the differing elements fill: the coarsest that say nearly all; None if they are scattered."""
    filled = [
        r for r in regions(ev) if 2 * r.touched <= r.of and r.errors >= FEW and r.density >= LEAST_DENSITY
    ]
    best = max((r.density for r in filled), default=0.0)
    return min((r for r in filled if r.density >= NEARLY * best), key=lambda r: r.touched, default=None)


# --- ways to divide a buffer: the number of each cell's region -------------------------------------------


def _lanes(ev: Evidence) -> np.ndarray | None:
    return np.arange(len(ev.want)) % 4 if ev.desc.is_int8 else None


def _words(ev: Evidence) -> np.ndarray | None:
    return np.arange(len(ev.want)) // 4 if ev.desc.is_int8 else None


def _blocks(ev: Evidence) -> np.ndarray | None:
    numel = ev.desc.layout.block_numel
    return np.arange(len(ev.want)) // numel if numel > 4 else None


def _along(dim: int) -> Divide:
    return lambda ev: coordinates(ev.desc)[dim]


def _launched(groups: bool) -> Divide:
    def divide(ev: Evidence) -> np.ndarray | None:
        if ev.launch is None:
            return None
        group, invocation = ev.launch.invocation(list(ev.items))
        numbers = numbered(group if groups else [*group, *invocation])
        return np.repeat(numbers, 4 if ev.desc.is_int8 else 1)

    return divide


DIVISIONS: dict[str, Divide] = {
    "workgroups": _launched(True),
    "invocations (the tile that each writes)": _launched(False),
    "batches": _along(0),
    "channels": _along(1),
    "rows": _along(2),
    "columns": _along(3),
    "lanes of the words": _lanes,
    "blocks": _blocks,
    "words": _words,
}
