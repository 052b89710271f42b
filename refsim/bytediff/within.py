"""Regions that hold every difference of a buffer: a bug that one lane, border, sign or workgroup alone has.

An edit predicts the whole buffer. Where it explains the differences but contradicts right bytes elsewhere, it may
still be the cause if the bug is in a region alone: inside the region it then predicts every byte, and outside of it
the bytes are right. `regions` gives the regions that the differences allow; `refsim.bytediff.rank` tries them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from refsim.bytediff.evidence import Evidence, numbered, once
from refsim.core.counted import first_or_last

#: Fewer differing elements than this lie in some region by chance.
FEW = 4
#: A region is a part of the buffer: with fewer elements outside than this share it says nothing.
LEAST_OUTSIDE = 0.02
#: Slabs are told if they hold so many wrong elements each.
LEAST_EACH = 4
#: So many regions at once say where the differing elements are; each further one leaves at most this share.
MOST_AT_ONCE, LEAST_LEFT_OUT = 3, 0.8
#: A region is tight if it is so much of the buffer at most, if so much of it is wrong at least, and if as many wrong
#: elements lay in it by chance less often than that.
MOST_TIGHT, LEAST_FILLED, BY_CHANCE = 0.75, 0.25, 1e-6


@dataclass(frozen=True)
class Within:
    """A region in words, and bool per cell: whether it lies in the region."""

    name: str
    mask: np.ndarray

    def __and__(self, other: Within) -> Within:
        return Within(f"{self.name} and {other.name}", self.mask & other.mask)


@dataclass(frozen=True)
class Filled:
    """A region that all differing elements lie in, ``wrong`` of its ``inside``; the buffer has ``elements``.

    ``names`` are those of the regions that it is the intersection of.
    """

    names: tuple[str, ...]
    wrong: int
    inside: int
    elements: int

    @property
    def by_chance(self) -> bool:
        """Whether as many elements, wrong anywhere, lay in a region of this size now and then."""
        return (self.inside / self.elements) ** self.wrong >= BY_CHANCE

    @property
    def tight(self) -> bool:
        """Whether it says where the error is: a part of the buffer, well filled, and hardly so by chance."""
        filled = self.wrong >= LEAST_FILLED * self.inside
        return self.inside <= MOST_TIGHT * self.elements and filled and not self.by_chance

    def __str__(self) -> str:
        there = f"{self.wrong} of the {self.inside} elements there are wrong, of {self.elements} in all"
        return f"{' and '.join(self.names)}: {there}"


def tightest(ev: Evidence) -> Filled | None:
    """The smallest region that all differing elements lie in, of at most `MOST_AT_ONCE` at once; None without one.

    A further region is added only if it leaves out a good part of what is left, so that few words say where.
    """
    elements = inside = int(np.count_nonzero(ev.values))
    mask, names = ev.values, list[str]()
    for _ in range(MOST_AT_ONCE):
        sizes = [(int(np.count_nonzero(mask & region.mask)), region) for region in regions(ev)]
        size, best = min(sizes, key=lambda row: row[0], default=(inside, None))
        if best is None or (names and size > LEAST_LEFT_OUT * inside):
            break
        inside, mask = size, mask & best.mask
        names.append(best.name)
    return Filled(tuple(names), int(np.count_nonzero(ev.wrong)), inside, elements) if names else None


def slabs(ev: Evidence, wrong: np.ndarray, against: np.ndarray) -> Within | None:
    """The rows, columns, channels or workgroups that hold the ``wrong`` cells, if none of those ``against`` is there.

    They may be any, in any order; the fewest of several ways. None without any, or if they hold too little each to say
    that they were not chosen to fit.
    """
    ways = []
    for name, (numbers, count) in divisions(ev).items():
        held = np.bincount(numbers[wrong], minlength=int(numbers.max()) + 1)
        hit = int(np.count_nonzero(held))
        if held.sum() >= LEAST_EACH * hit and not (held[numbers[against]] > 0).any():
            ways.append((hit, Within(f"only in {hit} of {count} {name}", (held > 0)[numbers])))
    return min(ways, key=lambda way: way[0], default=(0, None))[1]


@once
def divisions(ev: Evidence) -> dict[str, tuple[np.ndarray, int]]:
    """Ways to divide a buffer: what to call the parts, the number of each cell's part, and how many parts there are."""
    n, c, h, w = ev.coordinates
    along = {"rows": h, "columns": w, "channels": c}
    found = {f"{name} of an image": n * (int(part.max()) + 1) + part for name, part in along.items()}
    found |= {**along, "images": n}
    if ev.launch is not None:
        found["workgroups"] = numbered(ev.launch.invocation(list(ev.items))[0])
    return {name: (numbers, int(np.count_nonzero(np.bincount(numbers)))) for name, numbers in found.items()}


@once
def regions(ev: Evidence) -> list[Within]:
    """The regions of each kind that hold all differing elements, the widest first; none where few elements differ."""
    at = np.flatnonzero(ev.wrong)
    if len(at) < FEW:
        return []
    most = np.count_nonzero(ev.values) * (1 - LEAST_OUTSIDE)
    sizes = [(np.count_nonzero(region.mask & ev.values), region) for region in _holding(ev, at)]
    return [region for size, region in sorted(sizes, key=lambda row: -row[0]) if size <= most]


def _holding(ev: Evidence, at: np.ndarray) -> Iterator[Within]:
    """The regions of each kind that hold the cells ``at``; a region may be the whole buffer."""
    cells, dims = np.arange(len(ev.want)), dict(zip("nchw", ev.coordinates, strict=True))
    if ev.desc.is_int8:
        yield from _residues(at, "only in lane", cells, (4,))
    for dim, along in dims.items():
        yield from _range(at, dim, along)
    yield from _borders(ev, at)
    for dim, along in dims.items():
        yield from _residues(at, f"only where {dim} % {{}} is", along, (2, 3, 4, 8, 16))
    if ev.desc.is_int8:
        yield from _residues(at, "only in words whose number % {} is", cells // 4, (2, 4, 8))
    if ev.launch is not None:
        yield from _launched(ev, at)
    if ev.desc.is_int8:
        yield from _signs(ev, at)
    size = ev.want.itemsize
    yield Within(f"only from byte {at[0] * size} on", cells >= at[0])
    yield Within(f"only up to byte {at[-1] * size}", cells <= at[-1])


def _seen(along: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the different numbers of the cells ``at``, bool per cell: whether it has one of these)."""
    hit = np.zeros(int(along.max()) + 1, bool)
    hit[along[at]] = True
    return np.flatnonzero(hit), hit[along]


def _range(at: np.ndarray, dim: str, along: np.ndarray) -> Iterator[Within]:
    """From one place of a dim to another: a border, a tail, one channel, one batch."""
    low, high = int(along[at].min()), int(along[at].max())
    if low == high:
        yield Within(f"only at {dim} = {low}", along == low)
    else:
        yield Within(f"only at {dim} >= {low}", along >= low)
        yield Within(f"only at {dim} <= {high}", along <= high)


def _borders(ev: Evidence, at: np.ndarray) -> Iterator[Within]:
    """Near the edge of the image, or away from it."""
    _, _, h, w = ev.coordinates
    width, height, *_ = ev.desc.sizes_whcn
    if min(width, height) < 3:
        return
    rows, columns = np.minimum(h, height - 1 - h), np.minimum(w, width - 1 - w)
    ways = ((("row", "column"), np.minimum(rows, columns)), (("row",), rows), (("column",), columns))
    for nouns, distance in ways:
        most, least = int(distance[at].max()), int(distance[at].min())
        yield Within(f"only in {first_or_last(most + 1, *nouns)} of the image", distance <= most)
        yield Within(f"only outside {first_or_last(least, *nouns)} of the image", distance >= least)


def _residues(at: np.ndarray, said: str, along: np.ndarray, moduli: tuple[int, ...]) -> Iterator[Within]:
    """Numbers modulo a small one: a lane, a phase of a stride, a group of channels, a place in a tile or a block."""
    for modulus in moduli:
        seen, mask = _seen(along % modulus, at)
        if along.max() >= modulus and len(seen) <= max(modulus // 2, 3):
            yield Within(f"{said.format(modulus)} {', '.join(map(str, seen))}", mask)


def _launched(ev: Evidence, at: np.ndarray) -> Iterator[Within]:
    """Workgroups, invocations of a workgroup, and places in an invocation's tile."""
    assert ev.launch is not None
    items = list(ev.items)
    groups, locals_ = ev.launch.invocation(items)
    group, local = (",".join(str(int(along[at[0]])) for along in parts) for parts in (groups, locals_))
    whole = (f"workgroup {group}", groups), (f"invocation {local} of workgroup {group}", [*groups, *locals_])
    for said, parts in whole:
        mask = np.logical_and.reduce([along == along[at[0]] for along in parts])
        if mask[at].all():
            yield Within(f"only in {said}", mask)
    for axis, name in enumerate("xyz"):
        for what, numbers in (
            ("workgroup", groups[axis]),
            ("local id", locals_[axis]),
            ("place in the tile", items[axis] % ev.launch.tile[axis]),
        ):
            seen, mask = _seen(numbers, at)
            count = int(numbers.max()) + 1
            if len(seen) == 1:
                yield Within(f"only in {what} {seen[0]} along {name}", mask)
            elif seen[-1] - seen[0] == len(seen) - 1:
                yield Within(f"only in {what}s {seen[0]} to {seen[-1]} along {name}", mask)
            elif len(seen) <= count // 2:
                yield Within(f"only in {len(seen)} of {count} {what}s along {name}", mask)


def _signs(ev: Evidence, at: np.ndarray) -> Iterator[Within]:
    """Where the right value has one sign, is saturated, or is not."""
    want = ev.want
    for name, mask in (
        ("negative", want < 0),
        ("not negative", want >= 0),
        ("-128 or 127", (want == -128) | (want == 127)),
        ("127", want == 127),
        ("-128", want == -128),
    ):
        if mask[at].all():
            yield Within(f"only where the right value is {name}", mask)
