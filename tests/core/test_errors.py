"""Typed errors: the message, the parts, pickling, exit statuses."""

from __future__ import annotations

import pickle
import re

import pytest

from refsim.core import errors, status
from refsim.core.errors import (
    DeviceError,
    GraphError,
    MissingDependencyError,
    RefsimError,
    UnknownOperatorError,
)

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
    error = RefsimError("op", "wrong", **parts)
    assert str(error) == text
    assert (error.where, error.what, error.got, error.need) == (
        "op",
        "wrong",
        parts.get("got"),
        parts.get("need"),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_errors_survive_pickling(kind: type[RefsimError]) -> None:
    error = kind("op", "wrong", got=(1, 2), need="other")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert again.got == (1, 2)


def test_exit_statuses() -> None:
    """As cmp: 2 for bad input, 3 for a device or a package that is not there."""
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


def test_every_kind_says_what_it_is_for() -> None:
    assert len(KINDS) >= 10
    assert all(kind.__doc__ for kind in KINDS)
    assert issubclass(UnknownOperatorError, GraphError)
