"""Lifetimes, memory objects and places in a block: sound, aligned, and an unsound plan is found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refsim.core import lifetimes
from refsim.core.errors import GraphError
from refsim.core.lifetimes import ALIGN, BlockPlace, Claim, Lifetime

WANTED = st.lists(
    st.tuples(st.integers(1, 5000), st.integers(0, 30), st.integers(0, 10)), min_size=1, max_size=40
).map(lambda rows: [Claim(i, n, Lifetime(first, first + more)) for i, (n, first, more) in enumerate(rows)])


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
def test_places_are_sound_and_aligned(wanted: list[Claim[int]]) -> None:
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
def test_objects_are_sound(wanted: list[Claim[int]]) -> None:
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
def test_check_finds_what_overlaps(wanted: list[Claim[int]]) -> None:
    places = list(lifetimes.places(wanted).values())
    for other in places[1:]:
        if other.wants.life.overlaps(places[0].wants.life):
            moved = [replace(p, offset=places[0].offset) if p is other else p for p in places]
            with pytest.raises(GraphError, match="share memory while both are needed"):
                lifetimes.check(moved)


def test_a_value_without_a_place_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory is given out, and not where a plan looks for it."""
    a, b = (Claim(name, 640, Lifetime(0, 1)) for name in "ab")
    honest = BlockPlace.__init__

    def last_wins(self: BlockPlace[str], wants: Claim[str], offset: int) -> None:
        honest(self, replace(wants, name="a"), offset)

    monkeypatch.setattr(BlockPlace, "__init__", last_wins)
    with pytest.raises(GraphError, match=r"memory plan: a value has no place; got b$"):
        lifetimes.places([a, b])


def test_objects_are_numbered_by_their_first_use() -> None:
    rows = (("a", 10, 0, 1), ("b", 99, 2, 3), ("c", 50, 1, 2), ("d", 9, 3, 4), ("e", 51, 4, 5))
    wanted = [Claim(name, size, Lifetime(first, last)) for name, size, first, last in rows]
    # b is the largest; a goes before it into the same, c and d are needed beside it
    assert lifetimes.objects(wanted) == {"a": 0, "b": 0, "e": 0, "c": 1, "d": 1}
    pair = [Claim("small", 10, Lifetime(0, 1)), Claim("large", 99, Lifetime(1, 2))]
    assert lifetimes.objects(pair) == {"small": 0, "large": 1}
    same = [Claim(name, 10, Lifetime(0, 1)) for name in "ba"]
    assert lifetimes.objects(same) == {"a": 0, "b": 1}
    assert lifetimes.objects([]) == {}


def test_places_are_as_low_as_can_be() -> None:
    rows = (
        ("a", 100, 0, 3),
        ("b", 64, 0, 0),
        ("c", 60, 2, 3),
        ("d", 65, 1, 1),
        ("e", 1, 3, 4),
        ("f", 1000, 9, 9),
    )
    wanted = [Claim(name, size, Lifetime(first, last)) for name, size, first, last in rows]
    found = lifetimes.places(wanted)
    places = {name: (place.offset, place.end) for name, place in found.items()}
    assert places == {
        "f": (0, 1000), "a": (0, 100), "d": (128, 193), "b": (128, 192), "c": (128, 188), "e": (192, 193),
    }  # fmt: skip
    assert lifetimes.size(found.values()) == 1000
    assert lifetimes.size(found[name] for name in "abc") == 192
    assert lifetimes.size([]) == 0 and lifetimes.places([]) == {}


@pytest.mark.parametrize("below, offset", [(64, 64), (65, 256)])
def test_a_gap_is_filled_if_it_is_large_enough(below: int, offset: int) -> None:
    """Between what lies below at that step and c, whose place others decided, 64 bytes are free, or none."""
    rows = (("b", 100, 0, 0), ("c", 90, 0, 9), ("e", below, 5, 5), ("x", 64, 5, 5))
    found = lifetimes.places([Claim(name, size, Lifetime(a, b)) for name, size, a, b in rows])
    assert [found[name].offset for name in "bcex"] == [0, 128, 0, offset]


def test_a_plan_is_checked_before_it_is_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that would round down to the alignment."""
    monkeypatch.setattr(lifetimes, "ALIGN", -64)
    with pytest.raises(GraphError, match=r"memory plan: .* share memory while both are needed"):
        lifetimes.places([Claim(name, 100, Lifetime(0, 1)) for name in "ab"])
