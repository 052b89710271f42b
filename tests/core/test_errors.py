"""Typed errors: the message, the parts, pickling, exit statuses."""

from __future__ import annotations

import pickle

import pytest

from refsim.core import errors
from refsim.core.errors import DeviceError, GraphError, RefsimError, UnknownOperatorError

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
    """As cmp: 2 for bad input, 3 for a device."""
    assert {kind.exit_status for kind in KINDS if not issubclass(kind, DeviceError)} == {2}
    assert DeviceError.exit_status == 3


def test_every_kind_says_what_it_is_for() -> None:
    assert len(KINDS) >= 10
    assert all(kind.__doc__ for kind in KINDS)
    assert issubclass(UnknownOperatorError, GraphError)
