"""Which regions of a buffer an error fills: lanes, words, blocks, channels, invocations or workgroups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from refsim.bytediff.evidence import Evidence
from refsim.bytediff.within import divisions
from refsim.core.buffer import ByteKind

#: Of the elements in the regions that hold an error, at least this part is wrong, or the regions mean nothing.
#: Wrong bytes of a race are right by chance now and then, more often where many are the zero point.
LEAST_DENSITY = 0.4
#: A coarse region stands for finer ones if it is filled nearly as well as these are.
NEARLY = 0.9
#: Elements that are fewer fill a region by chance.
FEW = 4
#: The ways to divide a buffer; of equal ones the first is told.
DIVISIONS = (
    "workgroups", "invocations (the tile that each writes)", "images", "channels", "rows", "columns",
    "lanes of the words", "blocks", "words",
)  # fmt: skip


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


def regions(ev: Evidence) -> list[Region]:
    """All ways to divide the buffer, and how the differing elements lie in each; empty if no element differs."""
    values = ev.kinds == ByteKind.VALUE
    errors = ev.differing & values
    found = []
    for name in DIVISIONS if errors.any() else ():
        if (numbers := divisions(ev).get(name)) is not None:
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
