"""Draws among all changes by a seed: the same ones on every machine, and as few as possible others after an edit.

Every change gets a number from the seed and its own id, and the lowest are taken, in each area as many as its share.
So a change that is taken stays taken while its lines stay, whatever is added elsewhere.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256

from mutants.generated.change import Change
from mutants.generated.python_sites import is_another
from mutants.generated.targets import AREAS, changes
from refsim.core.errors import ParameterError


@cache
def every(area: str) -> dict[str, Change]:
    """The changes of an area by id."""
    return {change.id: change for change in changes(AREAS[area])}


def drawn(count: int, seed: int, areas: tuple[str, ...] = ()) -> list[tuple[str, Change]]:
    """(area, change) of so many changes: of each area its share, and of each file at most a fifth of that."""
    chosen = [AREAS[name] for name in areas or AREAS]
    whole = sum(area.share for area in chosen)
    found: list[tuple[str, Change]] = []
    for area in chosen:
        most = -(-count * area.share // whole)
        ordered = sorted(every(area.name).values(), key=lambda change: _number(seed, change.id))
        found += [(area.name, change) for change in _spread(ordered, most)]
    found.sort(key=lambda row: _number(seed, row[1].id))
    return found[:count]


def _spread(ordered: list[Change], most: int) -> list[Change]:
    """The first so many, but no place twice and no file more often than a fifth of all."""
    taken: list[Change] = []
    places: set[tuple[str, int, int]] = set()
    files: dict[str, int] = {}
    for change in ordered:
        place = (change.file, change.begin, change.end)
        if len(taken) == most:
            break
        if place not in places and files.get(change.file, 0) < max(2, most // 5) and _is_another(change):
            taken.append(change)
            places.add(place)
            files[change.file] = files.get(change.file, 0) + 1
    return taken


def _is_another(change: Change) -> bool:
    return not change.file.endswith(".py") or is_another(change)


def named(id: str) -> tuple[str, Change]:
    """(area, change) of an id; ParameterError if no change has it now."""
    for area in AREAS:
        if id in every(area):
            return area, every(area)[id]
    raise ParameterError("mutate", "no such change of the sources", got=id, need="one of --random N --list")


def _number(seed: int, id: str) -> str:
    return sha256(f"{seed} {id}".encode()).hexdigest()
