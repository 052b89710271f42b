"""Wrong elements that are right ones of a neighbour: another neighbour for each lane, column or row of a tile."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, distinct
from refsim.core import choices

#: Larger outputs are not searched; nor is one with fewer distinct wrong values, which could be anywhere.
MOST_ELEMENTS, LEAST_VALUES = 1 << 15, 6
#: How far an element may come from along N, C, H and W, and along one of these alone; so many wrong elements vote.
REACH, ALONE, VOTERS = (1, 4, 4, 4), 7, 64
#: The share of the wrong elements of a phase that its distance must explain, and how many it must explain at least.
LEAST_SHARE, LEAST_CELLS = 0.8, 4
#: More phases than these, each with a neighbour of its own, are no longer a description: most exchanges would fit it.
MOST_PHASES = 8
#: Dims (of N, C, H and W) whose remainders make a phase, and by what they are divided.
_DIVISIONS = (
    ((3, 2),), ((3, 4),), ((2, 2),), ((2, 4),), ((1, 4),), ((3, 2), (2, 2)), ((3, 4), (1, 4)), ((3, 4), (2, 2)),
)  # fmt: skip


def moved(ev: Evidence) -> Iterator[Prediction]:
    """Elements of each phase that come from a neighbour at a distance of the phase's own."""
    want, got, wrong = ev.want[ev.places], ev.got[ev.places], ev.differing[ev.places]
    if not 8 <= want.size <= MOST_ELEMENTS or not wrong.any():
        return
    if len(distinct(got[wrong])) < LEAST_VALUES:
        return
    distances = np.array([d for d in _distances() if _fits(d, want.shape)])
    coords = np.indices(want.shape)
    for division in _DIVISIONS:
        if any(want.shape[axis] <= 1 for axis, _ in division):
            continue
        phase = np.zeros(want.shape, np.int64)
        for axis, by in division:
            phase = phase * by + coords[axis] % by
        fresh, told, count = want.copy(), [], 0
        for number in distinct(phase[wrong]):
            mine = phase == number
            found = _distance(want, got, mine & wrong, distances)
            held = distinct(got[mine & wrong])
            if found is not None:
                fresh[mine] = _shifted(want, coords, found)[mine]
                told.append(f"{_phase(division, int(number))} those of {_away(found)}")
                count += 1
            elif len(held) == 1 and np.count_nonzero(mine & wrong) >= LEAST_CELLS:
                fresh[mine] = held[0]
                told.append(f"{_phase(division, int(number))} all the same")
        if count and len(told) <= MOST_PHASES:
            names = choices.first(told)
            cells = ev.want.copy()
            cells[ev.places] = fresh
            yield Prediction(names, cells, True)


@cache
def _distances() -> tuple[tuple[int, ...], ...]:
    """Along two dims at most: an element that moves along three says little."""
    near = [d for d in product(*(range(-r, r + 1) for r in REACH)) if 1 <= sum(map(bool, d)) <= 2]
    far = [
        tuple(by * (axis == k) for k in range(4))
        for axis in (1, 2, 3)
        for by in range(-ALONE, ALONE + 1)
        if by
    ]
    return tuple(dict.fromkeys((*near, *far)))


def _fits(distance: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return all(abs(d) < size for d, size in zip(distance, shape, strict=True))


def _distance(
    want: np.ndarray, got: np.ndarray, wrong: np.ndarray, distances: np.ndarray
) -> tuple[int, ...] | None:
    """Where most of these elements come from; None if there is no one place."""
    places = np.argwhere(wrong)
    if len(places) < LEAST_CELLS:
        return None
    places = places[:: max(1, len(places) // VOTERS)][:VOTERS]
    held = got[tuple(places.T)]
    inside = np.ones((len(distances), len(places)), bool)
    number = np.zeros(inside.shape, np.int64)  # of the source, counted through
    for axis, size in enumerate(want.shape):
        source = distances[:, axis, None] + places[:, axis]
        inside &= (source >= 0) & (source < size)
        number = number * size + source
    taken = want.reshape(-1)[np.where(inside, number, 0)]
    hits = np.count_nonzero((taken == held) & inside, axis=1)
    voters = np.count_nonzero(inside, axis=1)
    good = (hits >= LEAST_SHARE * np.maximum(voters, LEAST_CELLS)) & (2 * voters >= len(places))
    if not good.any():
        return None
    near = np.abs(distances).sum(axis=1)
    best = np.lexsort((near, -hits * good))[0]
    return tuple(distances[best].tolist())


def _shifted(want: np.ndarray, coords: np.ndarray, distance: tuple[int, ...]) -> np.ndarray:
    at = [along + d for along, d in zip(coords, distance, strict=True)]
    inside = np.all([(a >= 0) & (a < size) for a, size in zip(at, want.shape, strict=True)], axis=0)
    taken = want[tuple(np.where(inside, a, 0) for a in at)]
    return np.where(inside, taken, 0).astype(want.dtype)


def _phase(division: tuple[tuple[int, int], ...], number: int) -> str:
    said = []
    for axis, by in reversed(division):
        said.append(f"{'nchw'[axis]} % {by} is {number % by}")
        number //= by
    return "where " + " and ".join(reversed(said)) + ":"


def _away(distance: tuple[int, ...]) -> str:
    return ", ".join(f"{dim} {d:+d}" for dim, d in zip("nchw", distance, strict=True) if d)
