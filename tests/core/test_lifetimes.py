"""Lifetimes, memory objects and places in a block: sound, aligned, and an unsound plan is found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refsim.core import lifetimes
from refsim.core.errors import GraphError
from refsim.core.lifetimes import ALIGN, Allocation, Lifetime, Place

WANTED = st.lists(
    st.tuples(st.integers(1, 5000), st.integers(0, 30), st.integers(0, 10)), min_size=1, max_size=40
).map(
    lambda rows: [Allocation(i, n, Lifetime(first, first + more)) for i, (n, first, more) in enumerate(rows)]
)


def test_values_live_from_their_writer_to_their_last_reader() -> None:
    steps = [(("in",), ("a", "unread")), (("a",), ("b",)), (("a", "b"), ("out",)), (("b",), ("c",))]
    assert lifetimes.lifetimes(steps, ("in", "spare"), ("out",)) == {
        "in": Lifetime(-1, 0),
        "spare": Lifetime(-1, -1),
        "a": Lifetime(0, 2),
        "unread": Lifetime(0, 0),
        "b": Lifetime(1, 3),
        "out": Lifetime(2, 4),
        "c": Lifetime(3, 3),
    }
    assert lifetimes.lifetimes(steps, ("in",), ("out",), {"a"})["a"] == Lifetime(-1, 4)


@given(WANTED)
@settings(deadline=None)
def test_places_are_sound_and_aligned(wanted: list[Allocation[int]]) -> None:
    places = lifetimes.places(wanted)
    assert all(place.offset % ALIGN == 0 for place in places.values())
    for step in range(45):  # by counting: no byte is needed twice at a step
        used = np.zeros(lifetimes.size(places.values()), np.int8)
        for place in places.values():
            if place.wants.life.first <= step <= place.wants.life.last:
                used[place.offset : place.end] += 1
        assert used.max(initial=0) <= 1
    assert lifetimes.size(places.values()) >= lifetimes.live(wanted)


@given(WANTED)
@settings(deadline=None)
def test_objects_are_sound(wanted: list[Allocation[int]]) -> None:
    chosen = lifetimes.objects(wanted)
    assert chosen.keys() == {a.name for a in wanted}
    for a in wanted:
        for b in wanted:
            assert a is b or chosen[a.name] != chosen[b.name] or not a.life.overlaps(b.life)
    sizes: dict[int, int] = {}
    for a in wanted:
        sizes[chosen[a.name]] = max(sizes.get(chosen[a.name], 0), a.nbytes)
    assert sum(sizes.values()) >= lifetimes.live(wanted)


@given(WANTED)
@settings(deadline=None)
def test_check_finds_what_overlaps(wanted: list[Allocation[int]]) -> None:
    places = list(lifetimes.places(wanted).values())
    for other in places[1:]:
        if other.wants.life.overlaps(places[0].wants.life):
            moved = [replace(p, offset=places[0].offset) if p is other else p for p in places]
            with pytest.raises(GraphError, match="share memory while both are needed"):
                lifetimes.check(moved)


def test_values_that_follow_share() -> None:
    a, b, c = (Allocation(name, 640, Lifetime(at, at + 1)) for at, name in enumerate("abc"))
    places = lifetimes.places([a, b, c])
    assert places["a"].offset == places["c"].offset != places["b"].offset
    lifetimes.check([Place(a, 0), Place(c, 0)])


def test_a_value_without_a_place_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory is given out, and not where a plan looks for it."""
    a, b = (Allocation(name, 640, Lifetime(0, 1)) for name in "ab")
    honest = Place.__init__

    def last_wins(self: Place[str], wants: Allocation[str], offset: int) -> None:
        honest(self, replace(wants, name="a"), offset)

    monkeypatch.setattr(Place, "__init__", last_wins)
    with pytest.raises(GraphError, match=r"memory plan: a value has no place; got b$"):
        lifetimes.places([a, b])
