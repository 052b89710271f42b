"""The pattern of an error: what the differing elements have in common. One small rule finds one property."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from refsim.bytediff.evidence import Evidence, distinct
from refsim.bytediff.invocations import coordinates
from refsim.core.buffer import ByteKind
from refsim.core.counted import first_or_last

DIMS = "nchw"
#: Fewer differing elements than this may share a property by chance.
FEW = 4
PADDING_ONLY = "padding only: every element is right"


class Differences:
    """The differing element cells of a buffer, with their coordinates."""

    def __init__(self, ev: Evidence) -> None:
        self.ev = ev
        self.values = ev.differing & (ev.kinds == ByteKind.VALUE)
        self.at = np.flatnonzero(self.values)

    @cached_property
    def coordinates(self) -> dict[str, np.ndarray]:
        """Dim -> coordinate of each differing element."""
        return {d: along[self.at] for d, along in zip(DIMS, coordinates(self.ev.desc), strict=True)}

    @cached_property
    def sizes(self) -> dict[str, int]:
        return dict(zip(DIMS, reversed(self.ev.desc.sizes_whcn), strict=True))

    @cached_property
    def step(self) -> np.ndarray:
        """Actual minus expected (int8 tensors)."""
        return self.ev.got[self.at].astype(np.int64) - self.ev.want[self.at].astype(np.int64)


Rule = Callable[[Differences], Iterator[str]]


def summary(ev: Evidence) -> list[str]:
    """Sentences that hold for all differing elements; one about the padding if no element differs."""
    if not ev.differing.any():
        return []
    d = Differences(ev)
    if not len(d.at):
        return [PADDING_ONLY]
    return list(dict.fromkeys(line for rule in RULES for line in rule(d)))


def _extent(d: Differences) -> Iterator[str]:
    """All elements, or a single one."""
    elements = int((d.ev.kinds == ByteKind.VALUE).sum())
    if len(d.at) == elements:
        yield "every element differs"
    elif len(d.at) == 1:
        yield "one element differs"


def _ranges(d: Differences) -> Iterator[str]:
    """One channel, one batch, a prefix or a suffix of a dim."""
    for dim, along in d.coordinates.items():
        low, high, size = int(along.min()), int(along.max()), d.sizes[dim]
        if size == 1:
            continue
        if low == high:
            yield f"only {dim} = {low}"
        elif len(d.at) < FEW:
            continue
        elif low > 0 and high == size - 1:
            yield f"only {dim} >= {low} (of {size})"
        elif low > 0 or high < size - 1:
            yield f"only {dim} in {low} to {high} (of {size})"


def _residues(d: Differences) -> Iterator[str]:
    """Residues of w, h and c modulo 4, or 2."""
    for dim in "chw":
        along = d.coordinates[dim]
        if d.sizes[dim] > 4 and len(distinct(along)) > 1 and len(d.at) >= FEW:
            by_2, by_4 = distinct(along % 2), distinct(along % 4)
            modulus, seen = (2, by_2) if len(by_4) == 2 * len(by_2) else (4, by_4)
            if len(seen) < modulus:
                yield f"only {dim} % {modulus} in {', '.join(map(str, seen))}"


def _lanes(d: Differences) -> Iterator[str]:
    """One lane of the words."""
    if d.ev.desc.is_int8:
        lanes = distinct(d.at % 4)
        elements = distinct(np.flatnonzero(d.ev.kinds == ByteKind.VALUE) % 4)
        if len(lanes) < len(elements) and len(d.at) >= FEW:
            yield f"only lane {', '.join(map(str, lanes))}"


def _borders(d: Differences) -> Iterator[str]:
    """Rows and columns near the edge of the image only."""
    height, width = d.sizes["h"], d.sizes["w"]
    if min(height, width) < 3 or len(d.at) < FEW:
        return
    h, w = d.coordinates["h"], d.coordinates["w"]
    distance = np.minimum(np.minimum(h, height - 1 - h), np.minimum(w, width - 1 - w))
    most = int(distance.max())
    if most < (min(height, width) - 1) // 2:
        yield f"borders only: {first_or_last(most + 1, 'row', 'column')} of the image"


def _offset(d: Differences) -> Iterator[str]:
    """Everything from a place of the buffer on."""
    elements = np.flatnonzero(d.ev.kinds == ByteKind.VALUE)
    after = elements[elements >= d.at[0]]
    if d.at[0] > elements[0] and len(after) == len(d.at) and len(d.at) > 1:
        yield f"everything from byte {d.at[0] * (1 if d.ev.desc.is_int8 else 4)} on"


def _blocks(d: Differences) -> Iterator[str]:
    """One block, or the last of each row."""
    numel = d.ev.desc.layout.block_numel
    blocks = distinct(d.at // numel)
    if numel > 1 and len(blocks) == 1 and len(d.at) > 1:
        yield f"one block only: block {blocks[0]}"


def _workgroups(d: Differences) -> Iterator[str]:
    """The last workgroup, tile or invocation along an axis of the dispatch."""
    launch = d.ev.launch
    if launch is None:
        return
    per_word = 4 if d.ev.desc.is_int8 else 1
    items = d.ev.items[:, distinct(d.at // per_word)]
    groups, _ = launch.invocation(list(items))
    for axis, group in zip("xyz", groups, strict=True):
        number = launch.grid["xyz".index(axis)]
        seen = distinct(group)
        if number > 1 and len(seen) == 1:
            last = " (the last)" if seen[0] == number - 1 else ""
            yield f"one workgroup only along {axis}: {seen[0]} of {number}{last}"


def _steps(d: Differences) -> Iterator[str]:
    """How far the values are off."""
    if not d.ev.desc.is_int8:
        return
    low, high = int(d.step.min()), int(d.step.max())
    got = distinct(d.ev.got[d.at])
    if low >= -1 and high <= 1:
        yield "off by one step only: rounding"
    elif len(got) == 1 and len(d.at) > 1:
        yield f"every differing element is {got[0]}"
    elif low == high and len(d.at) > 1:
        yield f"every differing element is off by {low:+d}"
    elif high < 0 and len(d.at) >= FEW:
        yield f"always too small, by {-high} to {-low}"
    elif low > 0 and len(d.at) >= FEW:
        yield f"always too large, by {low} to {high}"


def _signs(d: Differences) -> Iterator[str]:
    """Where the right value is negative, or saturated."""
    if not d.ev.desc.is_int8 or len(d.at) < FEW:
        return
    values = d.ev.kinds == ByteKind.VALUE
    for where, mask in (("negative", d.ev.want < 0), ("-128 or 127", np.isin(d.ev.want, (-128, 127)))):
        if mask[d.at].all() and not mask[values].all():  # else it says nothing of these elements
            yield f"only where the right value is {where}"


RULES: tuple[Rule, ...] = (
    _extent,
    _ranges,
    _borders,
    _residues,
    _lanes,
    _blocks,
    _workgroups,
    _offset,
    _steps,
    _signs,
)
