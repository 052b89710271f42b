"""Typed errors: the message, the parts, pickling, exit statuses."""

from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refsim.core import choices, errors, status
from refsim.core.counted import counted, form, numbered
from refsim.core.errors import (
    DeviceError,
    FormatError,
    MissingDependencyError,
    RefsimError,
)
from refsim.core.escape import escaped

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RefsimError)]


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({}, "op: wrong"),
        ({"got": 3}, "op: wrong; got 3"),
        ({"need": "4"}, "op: wrong; need 4"),
        ({"got": 0, "need": [1, 2]}, "op: wrong; got 0, need [1, 2]"),
    ],
)
def test_the_message(parts: dict, text: str) -> None:
    assert str(RefsimError("op", "wrong", **parts)) == text


@pytest.mark.parametrize("kind", KINDS)
def test_errors_survive_pickling(kind: type[RefsimError]) -> None:
    error = kind("op", "wrong", got=(1, 2), need="other")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert again.got == (1, 2)
    assert kind.__doc__, "says what it is for"


def test_exit_statuses() -> None:
    """As cmp: 2 for bad input, 3 for a device or a package that is not there."""
    assert len(KINDS) >= 10 and issubclass(errors.UnknownOperatorError, errors.GraphError)
    absent = (DeviceError, MissingDependencyError)
    assert {kind.exit_status for kind in KINDS if not issubclass(kind, absent)} == {status.BAD_INPUT}
    assert {kind.exit_status for kind in absent} == {status.UNAVAILABLE}


def test_a_line_is_short_and_keeps_every_part() -> None:
    """The longest parts give way: a list after one of its names, anything else in its middle."""
    names = [f"q8ta_operator_{number}" for number in range(90)]
    error = RefsimError(
        "/folder" * 60 + "/model.pte", "no such operator", got="x" * 500, need=", ".join(names)
    )
    line = error.line()
    assert len(line) <= 300 < len(str(error)) and "/model.pte: no such operator; got x" in line
    assert re.search(r"need q8ta_operator_0, \.\.\. and 89 more$", line)
    assert RefsimError("op", "wrong", got=3).line() == "op: wrong; got 3"


# --- names that are not there ---


NAMES = ("cpu", "cpu:emulated", "gpu", "4W4C", "canonical")


NUMBERED = ("delegate0_v74", "delegate0_v76", "delegate0_v87", "delegate1_v75")


@pytest.mark.parametrize(
    ("name", "names", "meant"),
    [
        ("cup", NAMES, "cpu"), ("4w4c", NAMES, "4W4C"), ("Canonicle", NAMES, "canonical"), ("bus", NAMES, None),
        ("delegate0_v77", NUMBERED, "delegate0_v76"), ("delegate0_v75", NUMBERED, "delegate0_v74"),
        ("avx51", ("avx2", "avx512"), "avx512"),  # a letter is missing, not counted
    ],
)  # fmt: skip
def test_the_nearest_name_or_number_is_meant_in_any_case(
    name: str, names: tuple[str, ...], meant: str | None
) -> None:
    assert choices.nearest(name, names) == meant
    assert choices.meant(name, names) == (f"; did you mean {meant}?" if meant else "")
    assert choices.need(name, names, "or a file") == f"{', '.join(names)}, or a file" + choices.meant(
        name, names
    )


def test_long_lists_are_cut_after_a_name_and_short_ones_are_not() -> None:
    many = [f"name{number}" for number in range(100)]
    text = choices.listed(many)
    assert text.startswith("name0, name1, ") and text.endswith(f", ... and {100 - text.count('name')} more")
    assert len(text) < choices.MOST_LISTED + 20 and choices.listed(many[:5]) == ", ".join(many[:5])
    assert choices.listed(["x" * 500]) == "x" * 500  # one name is no list
    assert choices.need("nam99", many).endswith("; did you mean name99?")  # of those that are not shown, too


def test_parts_are_cut_only_as_far_as_they_must() -> None:
    assert (
        choices.cut("short", 10) == "short"
        and choices.cut("a" * 50 + "b" * 50, 23) == "a" * 10 + "..." + "b" * 10
    )
    text = choices.need("nam7", [f"name{number}" for number in range(30)])
    shorter = choices.cut(text, 70)
    assert len(shorter) <= 70 and shorter.endswith("; did you mean name7?")
    shown = shorter.partition(", ...")[0].count("name")
    assert f", ... and {30 - shown} more;" in shorter  # also where the list was cut before
    held = choices.fitted(["a" * 20, "b" * 400, "c" * 100], 200)
    assert sum(map(len, held)) <= 200 and held[0] == "a" * 20 and held[2] == "c" * 100
    assert len(choices.fitted(["a" * 90] * 9, 10)) == 9  # something is left of each


def test_a_cut_list_says_how_many_more_there_are_and_how_to_see_them() -> None:
    assert choices.first("abc", 3) == "a, b, c" and choices.first("abc", 2) == "a, b, ... and 1 more"
    assert choices.first(range(9), 1, choices.IN_JSON) == "0, ... and 8 more (--json lists all)"
    assert choices.cut(choices.first(["name"] * 90, 60), 60) == "name, " * 7 + "... and 83 more"


# --- text out of files ---


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("conv2d", "conv2d"),
        ("größe 尺寸", "größe 尺寸"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b1m", "\\x9b1m"),
        ("a\u202eb\u2066", "a\\u202eb\\u2066"),
        ("a\nb\r\tc\x00", "a\\nb\\r\\tc\\x00"),
        ("\ud800", "\\ud800"),
        ("[bold]x[/bold]", "[bold]x[/bold]"),
    ],
)
def test_escaped(text: str, shown: str) -> None:
    assert escaped(text) == shown


@given(st.text())
def test_everything_is_printable(text: str) -> None:
    assert escaped(text).isprintable() and escaped("a\nb\x1b", keep="\n") == "a\nb\\x1b"
    assert (escaped(text) == text) == text.isprintable()


@given(st.text(), st.text(), st.one_of(st.none(), st.text(), st.integers()))
def test_errors_are_printable(where: str, what: str, got: object) -> None:
    error = FormatError(where, what, got=got, need="a\x1b")
    assert str(error).isprintable()
    assert (error.where, error.what, error.got, error.need) == (where, what, got, "a\x1b")


# --- numbers ---


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 bytes differ"), (1, "1 byte differs"), (2, "2 bytes differ")]
)
def test_one_is_singular(count: int, shown: str) -> None:
    assert counted(count, "byte", "differ") == shown
    assert counted(count, "wrong case") == f"{count} wrong case" + form(count, "", "s")


def test_numbers_from_0() -> None:
    assert [numbered(n, "device") for n in (0, 1, 4)] == [
        "a device, but there is none", "0, the only device", "0 to 3",
    ]  # fmt: skip
