"""Regions that hold every difference of a buffer: a bug that one lane, border, sign or workgroup alone has.

An edit predicts the whole buffer. Where it explains the differences but contradicts right bytes elsewhere, it may
still be the cause if the bug is in a region alone: inside the region it then predicts every byte, and outside of it
the bytes are right. `regions` gives the regions that the differences allow; `refsim.bytediff.rank` tries them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from refsim.bytediff.evidence import Evidence, distinct, numbered, once
from refsim.bytediff.invocations import coordinates
from refsim.core.buffer import ByteKind
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


@dataclass(frozen=True)
class Filled:
    """A region that all differing elements lie in, ``wrong`` of its ``inside``; the buffer has ``elements``.

    ``names`` are those of the regions that it is the intersection of.
    """

    names: tuple[str, ...]
    mask: np.ndarray
    wrong: int
    inside: int
    elements: int

    @property
    def name(self) -> str:
        return " and ".join(self.names)

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
        return f"{self.name}: {self.wrong} of the {self.inside} elements there are wrong, of {self.elements} in all"


Rule = Callable[[Evidence, np.ndarray], Iterator[Within]]


def tightest(ev: Evidence) -> Filled | None:
    """The smallest region that all differing elements lie in, of at most `MOST_AT_ONCE` at once; None without one.

    A further region is added only if it leaves out a good part of what is left, so that few words say where.
    """
    values = ev.kinds == ByteKind.VALUE
    wrong, elements = int(np.count_nonzero(ev.differing & values)), int(np.count_nonzero(values))
    mask, names, inside = values, list[str](), elements
    for _ in range(MOST_AT_ONCE):
        sizes = [(int(np.count_nonzero(mask & region.mask)), region) for region in regions(ev)]
        best = min(sizes, key=lambda row: row[0], default=None)
        if best is None or (names and best[0] > LEAST_LEFT_OUT * inside):
            break
        inside, mask = best[0], mask & best[1].mask
        names.append(best[1].name)
    return Filled(tuple(names), mask, wrong, inside, elements) if names else None


def slabs(ev: Evidence, wrong: np.ndarray, against: np.ndarray) -> Within | None:
    """The rows, columns, channels or workgroups that hold the ``wrong`` cells, if none of those ``against`` is there.

    They may be any, in any order; the fewest of several ways. None without any, or if they hold too little each to say
    that they were not chosen to fit.
    """
    found = None
    for name, numbers in divisions(ev).items():
        count = int(numbers.max()) + 1
        if count == 1:
            continue
        spoken = np.bincount(numbers[against], minlength=count) > 0
        held = np.bincount(numbers[wrong], minlength=count)
        hit = int(np.count_nonzero(held))
        if (spoken & (held > 0)).any() or held.sum() < LEAST_EACH * hit:
            continue
        if found is None or hit < found[0]:
            found = hit, Within(f"only in {hit} of {len(distinct(numbers))} {name}", (held > 0)[numbers])
    return None if found is None else found[1]


@once
def divisions(ev: Evidence) -> dict[str, np.ndarray]:
    """Ways to divide a buffer: what to call the parts, and the number of each cell's part."""
    n, c, h, w = (np.asarray(along, np.int64) for along in coordinates(ev.desc))
    each = 4 if ev.desc.is_int8 else 1
    found = {
        f"{name} of an image": n * (int(along.max()) + 1) + along
        for name, along in (("rows", h), ("columns", w), ("channels", c))
    }
    found |= {"rows": h, "columns": w, "channels": c, "images": n}
    if ev.launch is not None:
        groups, _ = ev.launch.invocation(list(ev.items))
        found["workgroups"] = np.repeat(numbered(groups), each)
    return found


@once
def regions(ev: Evidence) -> list[Within]:
    """The regions of each kind that hold all differing elements, the widest first; none where few elements differ."""
    values = ev.kinds == ByteKind.VALUE
    at = np.flatnonzero(ev.differing & values)
    if len(at) < FEW:
        return []
    elements = np.count_nonzero(values)
    found = []
    for rule in RULES:
        for region in rule(ev, at):
            inside = np.count_nonzero(region.mask & values)
            if inside <= elements * (1 - LEAST_OUTSIDE):
                found.append((inside, region))
    found.sort(key=lambda row: -row[0])
    return [region for _, region in found]


def _seen(along: np.ndarray, at: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(the numbers below ``count`` that differing cells have, bool per cell: whether it has one of these)."""
    hit = np.zeros(count, bool)
    hit[along[at]] = True
    return np.flatnonzero(hit), hit[along]


def _listed(numbers: np.ndarray) -> str:
    return ", ".join(map(str, numbers))


def _lanes(ev: Evidence, at: np.ndarray) -> Iterator[Within]:
    """Lanes of the words."""
    if ev.desc.is_int8:
        lanes, mask = _seen(np.arange(len(ev.want)) % 4, at, 4)
        if len(lanes) < 4:
            yield Within(f"only in lane {_listed(lanes)}", mask)


def _ranges(ev: Evidence, at: np.ndarray) -> Iterator[Within]:
    """From one place of a dim to another: a border, a tail, one channel, one batch."""
    for dim, along in zip("nchw", coordinates(ev.desc), strict=True):
        low, high, last = int(along[at].min()), int(along[at].max()), int(along.max())
        if low == high:
            yield Within(f"only at {dim} = {low}", along == low)
        elif low:
            yield Within(f"only at {dim} >= {low}", along >= low)
        if high < last and low < high:
            yield Within(f"only at {dim} <= {high}", along <= high)


def _borders(ev: Evidence, at: np.ndarray) -> Iterator[Within]:
    """Near the edge of the image, or away from it."""
    _, _, h, w = coordinates(ev.desc)
    width, height, *_ = ev.desc.sizes_whcn
    if min(width, height) < 3:
        return
    rows, columns = np.minimum(h, height - 1 - h), np.minimum(w, width - 1 - w)
    ways = ((("row", "column"), np.minimum(rows, columns)), (("row",), rows), (("column",), columns))
    for nouns, distance in ways:
        most, least = int(distance[at].max()), int(distance[at].min())
        yield Within(f"only in {first_or_last(most + 1, *nouns)} of the image", distance <= most)
        if least > 0:
            yield Within(f"only outside {first_or_last(least, *nouns)} of the image", distance >= least)


def _residues(ev: Evidence, at: np.ndarray) -> Iterator[Within]:
    """Places of a dim modulo a small number: a phase of a stride, a group of channels, a place in a tile."""
    for dim, along in zip("nchw", coordinates(ev.desc), strict=True):
        for modulus in (2, 3, 4, 8, 16):
            if along.max() >= modulus:
                numbers, mask = _seen(along % modulus, at, modulus)
                if len(numbers) < modulus and len(numbers) <= max(modulus // 2, 3):
                    yield Within(f"only where {dim} % {modulus} is {_listed(numbers)}", mask)


def _blocks(ev: Evidence, at: np.ndarray) -> Iterator[Within]:
    """Words of a block, and words modulo a small number."""
    if not ev.desc.is_int8:
        return
    words = np.arange(len(ev.want)) // 4
    for modulus in (2, 4, 8):
        if words[-1] >= modulus:
            numbers, mask = _seen(words % modulus, at, modulus)
            if len(numbers) < modulus and len(numbers) <= max(modulus // 2, 3):
                yield Within(f"only in words whose number % {modulus} is {_listed(numbers)}", mask)


def _launched(ev: Evidence, at: np.ndarray) -> Iterator[Within]:
    """Workgroups, invocations of a workgroup, and places in an invocation's tile."""
    launch = ev.launch
    if launch is None:
        return
    each = 4 if ev.desc.is_int8 else 1
    items = ev.items
    groups, locals_ = launch.invocation(list(items))
    first = at[0] // each
    for what, parts in (("workgroup", groups), ("invocation", [*groups, *locals_])):
        along = np.repeat(numbered(parts), each)
        seen, mask = _seen(along, at, int(along.max()) + 1)
        if len(seen) == 1:
            place = ",".join(str(int(part[first])) for part in parts[-3:])
            where = (
                f" of workgroup {','.join(str(int(part[first])) for part in groups)}"
                if len(parts) > 3
                else ""
            )
            yield Within(f"only in {what} {place}{where}", mask)
    for axis, name in enumerate("xyz"):
        for what, numbers in (
            ("workgroup", groups[axis]),
            ("local id", locals_[axis]),
            ("place in the tile", items[axis] % launch.tile[axis]),
        ):
            along = np.repeat(np.asarray(numbers, np.int64), each)
            count = int(along.max()) + 1
            if count < 2:
                continue
            seen, mask = _seen(along, at, count)
            if len(seen) == 1:
                yield Within(f"only in {what} {seen[0]} along {name}", mask)
            elif len(seen) < count and seen[-1] - seen[0] == len(seen) - 1:
                yield Within(f"only in {what}s {seen[0]} to {seen[-1]} along {name}", mask)
            elif len(seen) <= count // 2:
                yield Within(f"only in {len(seen)} of {count} {what}s along {name}", mask)


def _signs(ev: Evidence, at: np.ndarray) -> Iterator[Within]:
    """Where the right value has one sign, is saturated, or is not."""
    if not ev.desc.is_int8:
        return
    want = ev.want
    for name, mask in (
        ("only where the right value is negative", want < 0),
        ("only where the right value is not negative", want >= 0),
        ("only where the right value is -128 or 127", (want == -128) | (want == 127)),
        ("only where the right value is 127", want == 127),
        ("only where the right value is -128", want == -128),
    ):
        if mask[at].all() and not mask[ev.kinds == ByteKind.VALUE].all():
            yield Within(name, mask)


def _tail(ev: Evidence, at: np.ndarray) -> Iterator[Within]:
    """Everything from a place of the buffer on, or up to one."""
    cells = np.arange(len(ev.want))
    unit = 1 if ev.desc.is_int8 else 4
    if at[0]:
        yield Within(f"only from byte {at[0] * unit} on", cells >= at[0])
    if at[-1] < len(cells) - 1:
        yield Within(f"only up to byte {at[-1] * unit}", cells <= at[-1])


RULES: tuple[Rule, ...] = (_lanes, _ranges, _borders, _residues, _blocks, _launched, _signs, _tail)
