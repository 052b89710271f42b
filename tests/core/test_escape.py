"""Text out of files cannot command a terminal, turn its letters around, or begin a line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refsim.core.errors import FormatError
from refsim.core.escape import escaped


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


def test_what_is_kept() -> None:
    assert escaped("a\nb\x1b", keep="\n") == "a\nb\\x1b"


@given(st.text())
def test_everything_is_printable(text: str) -> None:
    assert escaped(text).isprintable()
    assert (escaped(text) == text) == text.isprintable()


@given(st.text(), st.text(), st.one_of(st.none(), st.text(), st.integers()))
def test_errors_are_printable(where: str, what: str, got: object) -> None:
    error = FormatError(where, what, got=got, need="a\x1b")
    assert str(error).isprintable()
    assert (error.where, error.what, error.got, error.need) == (where, what, got, "a\x1b")
