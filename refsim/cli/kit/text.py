"""What verbs print: tables, sentences, JSON. Colour is for terminals only.

Text that comes out of files is escaped; JSON has it as it is. Tables and sentences fit the terminal:
`refsim.core.table` has the rule.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from refsim.cli.kit import progress
from refsim.cli.kit.document import Document, as_line
from refsim.core import table as tables
from refsim.core.escape import escaped
from refsim.core.result import Command, Fitted, Part, Styled, Table, Verbatim

#: The last word of a column that counts; it is not printed.
_COUNT = "count"
#: Columns of figures; everything else is flush left.
_RIGHT = (
    "node", "ms", "bytes", _COUNT, "GB/s", "ratio", "dispatches", "operators", "buffers", "different", "distinct",
    "transitions", "clones",
)  # fmt: skip


def print_json_line(verb: str, status: int, content: dict[str, Any]) -> None:
    """Print one of several objects of a verb that goes on, at once and in one line."""
    _echo(as_line(verb, status, content))


def meanwhile(text: Iterable[Part]) -> None:
    """Say something before the verb returns, as progress: not with --json."""
    held = _document()
    if held is None or not held.wanted:
        show(text)


def wrote(path: str, said: bool = False) -> None:
    """Name a file or folder that the verb wrote: in a line at its end, with --json in the document.

    ``said``: a line of the verb's own names it already.
    """
    if (held := _document()) is not None:
        held.wrote.append(path)
        held.closing += [] if said else [f"wrote {path}"]


def remark(text: str) -> None:
    """A line at the end of the verb's text."""
    if (held := _document()) is not None:
        held.closing.append(text)


def not_written(path: str, why: str) -> None:
    """Say at the end of the verb why there is nothing at ``path``, though it was asked for."""
    if (held := _document()) is not None:
        held.closing.append(f"did not write {path}: {why}")


def _document() -> Document | None:
    context = click.get_current_context(silent=True)
    return None if context is None else context.find_object(Document)


def width(err: bool = False) -> int | None:
    """How many columns a line of stdout (or stderr) may have: COLUMNS, or those of the terminal; None in a pipe."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        stream = sys.stderr if err else sys.stdout
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError, AttributeError):  # no terminal, or no file at all
        return None


def say(text: object = "", *, err: bool = False, command: bool = False, **style: Any) -> None:
    """Print a line, folded at spaces where it is too wide. ``command``: it ends in a command to be pasted.

    What comes out of files is in it escaped, so no name can command the terminal or begin a line. ``style`` is as for
    `click.style`.
    """
    fold = tables.command if command else tables.sentence
    for line in fold(escaped(text), width(err)):
        _echo(click.style(line, **style) if style and line else line, err)


def show(text: Iterable[Part]) -> None:
    """Print what a verb says."""
    for part in text:
        if isinstance(part, Table):
            print_table(*part)
        elif isinstance(part, Fitted):
            show(part.lines(width()))
        elif isinstance(part, Styled):
            say(part.line, **part.style)
        elif isinstance(part, Verbatim):
            _echo(part)
        else:
            say(part, command=isinstance(part, Command))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], drop: Sequence[str] = ()) -> None:
    """Print a table by the rule of `refsim.core.table`; ``drop``: its columns in the order in which they are left out.

    On a terminal there is colour, and the heads are bold.
    """
    texts = [[_text(value) for value in row] for row in rows]
    right = [_head(column) for column in columns if _flush_right(column)]
    heads, left_out = [_head(column) for column in columns], [_head(column) for column in drop]
    for line in tables.lines(heads, texts, width=width(), drop=left_out, right=right, paint=_painted):
        _echo(line)


def _echo(line: str, err: bool = False) -> None:
    """Terminals get colour, unless NO_COLOR is set. A bar of progress makes way."""
    if not err:
        progress.make_way()
    click.echo(line, err=err, color=False if os.environ.get("NO_COLOR") else None)


def _flush_right(column: str) -> bool:
    return any(column == word or column.endswith(f" {word}") for word in _RIGHT)


def _head(column: str) -> str:
    """What stands above a column: that it counts is seen."""
    return column.removesuffix(f" {_COUNT}")


def _painted(whole: str | None, part: str) -> str:
    if whole is None:
        return click.style(part, bold=True)
    style = _STYLES.get(whole.partition(" ")[0])
    return click.style(part, **style) if style else part


_STYLES: dict[str, dict[str, Any]] = {
    "same": {"fg": "green"},
    "different": {"fg": "red", "bold": True},
    "missing": {"fg": "magenta"},
}


def _text(value: object) -> str:
    """In one line: names come out of files, and may hold anything."""
    return escaped(_number(value) if isinstance(value, float) else "" if value is None else value)


def _number(value: float) -> str:
    """Three decimals; of what they would make nothing, such as the milliseconds of a tiny kernel, five."""
    return f"{value:.5f}" if 0 < abs(value) < 0.001 else f"{value:.3f}"
