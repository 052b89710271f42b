"""Dataclasses out of JSON: what was written is read again, and whatever else stands there is refused by its key."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import pytest

from refsim.core.errors import FormatError
from refsim.device import manifest
from refsim.formats.typed_json import Count, Sizes, one_of, typed


@dataclass(frozen=True)
class Part:
    name: str
    kind: Annotated[str, one_of("a", "b")]


@dataclass(frozen=True)
class Whole:
    shape: Sizes
    count: Count
    parts: tuple[Part, ...]
    weights: Mapping[str, float] = field(default_factory=dict)
    first: Part | None = None
    anything: Any = None
    right: bool = True


WHOLE = Whole((1, 4), 3, (Part("x", "a"),), {"s": 0.5, "zp": 2}, Part("y", "b"), ["z"], False)
VALUES = [None, True, -1, 2**70, 1.5, "x", [], [-1], [1] * 9, [[]], {}, {"name": "x"}]
EXPOSED = manifest.Manifest(
    "m.pte", "", "source.pte", "0" * 64, 1, left_out={"delegate0_v1": "an image"},
    outputs=(
        manifest.ExposedOutput("out0", "float32", (1, 2)),
        manifest.ExposedOutput(
            "out1", "int32", (4,), "delegate0_v3", manifest.WORDS,
            manifest.Held((1, 4, 2, 2), "4W4C", "int8", 16, "q8ta_add", 3, ("4W4C", "4C"), {"scale": 0.5}),
        ),
    ),
)  # fmt: skip


def as_json(whole: Any) -> Any:
    """The content of a file."""
    return json.loads(json.dumps(asdict(whole)))


def places(content: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to everything inside of JSON."""
    items = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content if isinstance(content, list) else ())
    )
    for key, held in items:
        yield (*before, key)
        yield from places(held, (*before, key))


def replaced(content: Any, place: tuple[Any, ...], value: Any) -> Any:
    found = inner = copy.deepcopy(content)
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return found


def test_what_was_written_is_read() -> None:
    assert typed(Whole, as_json(WHOLE), "x.json") == WHOLE
    assert manifest.parse(json.loads(EXPOSED.as_bytes()), "m.json") == EXPOSED


def test_a_key_may_be_missing_where_there_is_a_default() -> None:
    assert typed(Whole, {"shape": [], "count": 0, "parts": [], "more": 1}, "x.json") == Whole((), 0, ())
    with pytest.raises(FormatError) as caught:
        typed(Whole, {"shape": [], "parts": []}, "x.json")
    assert (caught.value.where, caught.value.got) == ("x.json: count", "nothing")


@pytest.mark.parametrize(("place", "value", "where"), [
    (("shape",), [1, -1], "x.json: shape[1]"),
    (("shape",), [1] * 9, "x.json: shape"),
    (("count",), True, "x.json: count"),
    (("parts", 0, "kind"), "c", "x.json: parts[0]: kind"),
    (("weights", "s"), "much", "x.json: weights: 's'"),
    (("first",), [], "x.json: first"),
    (("right",), 1, "x.json: right"),
])  # fmt: skip
def test_an_error_names_the_place(place: tuple[Any, ...], value: Any, where: str) -> None:
    with pytest.raises(FormatError) as caught:
        typed(Whole, replaced(as_json(WHOLE), place, value), "x.json")
    assert caught.value.where == where


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_any_value_at_any_place_is_read_or_refused(value: Any) -> None:
    read = 0
    for whole in (WHOLE, EXPOSED):
        content = as_json(whole)
        for place in places(content):
            try:
                typed(type(whole), replaced(content, place, value), "x.json")
                read += 1
            except FormatError as error:
                assert error.where.startswith("x.json")
    assert read  # some places take anything
