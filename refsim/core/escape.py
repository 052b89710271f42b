"""Text out of files, fit to be printed: no control sequences, no line breaks, no letters that change its direction."""

from __future__ import annotations


def escaped(text: object, keep: str = "") -> str:
    r"""The text with each character that is not printable written as in Python, such as ``\x1b`` and ``\u202e``.

    ``keep`` are characters that stay, such as line breaks. Letters of all languages are printable. JSON needs none of
    this: it has its own way of writing such characters.
    """
    given = str(text)
    if given.isprintable():
        return given
    return "".join(c if c.isprintable() or c in keep else _written(c) for c in given)


def _written(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
