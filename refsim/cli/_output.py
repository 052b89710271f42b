"""What verbs print: tables, sentences, JSON. Colour is for terminals only.

Text that comes out of files is escaped; JSON has it as it is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from refsim.core.escape import escaped

#: Columns of figures; everything else is flush left.
_RIGHT = (
    "node", "ms", "bytes", "count", "GB/s", "ratio", "dispatches", "operators", "buffers", "different", "distinct",
)  # fmt: skip


#: Verbs whose JSON has changed incompatibly: the number of its present form. All others are at 1.
_SCHEMAS = {"inspect": 2, "doctor": 2}


def print_json(verb: str, content: dict[str, Any]) -> None:
    """Print one JSON object, one line per key. ``schema`` counts incompatible changes."""
    click.echo(json.dumps({"verb": verb, "schema": _SCHEMAS.get(verb, 1), **content}, indent=1))


def say(text: object = "", *, err: bool = False, **style: Any) -> None:
    """Print a line. What comes out of files is in it escaped, so no name can command the terminal or begin a line.

    ``style`` is as for `click.style`.
    """
    line = escaped(text)
    click.echo(click.style(line, **style) if style else line, err=err)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print columns as wide as their content, never cut off. On a terminal there is colour, and the heads are bold."""
    texts = [[_text(value) for value in row] for row in rows]
    lines = _coloured if sys.stdout.isatty() else _plain
    for line in lines(columns, texts):
        click.echo(line.rstrip())


def _flush_right(column: str) -> bool:
    return any(column == word or column.endswith(f" {word}") for word in _RIGHT)


def _plain(columns: Sequence[str], texts: Sequence[Sequence[str]]) -> Iterator[str]:
    """For files and pipes, without rich: its import and its layout would take most of a short command's time."""
    widths = [max(map(len, column)) for column in zip(columns, *texts, strict=True)]
    right = [_flush_right(column) for column in columns]
    for row in (columns, *texts):
        cells = zip(row, widths, right, strict=True)
        yield "  ".join(text.rjust(width) if flush else text.ljust(width) for text, width, flush in cells)


def _coloured(columns: Sequence[str], texts: Sequence[Sequence[str]], terminal: bool = True) -> Iterator[str]:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if _flush_right(column) else "left", no_wrap=True)
    for row in texts:
        table.add_row(*(Text(text, style=_STYLES.get(text.partition(" ")[0], "")) for text in row))
    console = Console(
        force_terminal=terminal,
        color_system="auto" if terminal else None,
        width=_NO_LIMIT,
        emoji=False,
        markup=False,
        highlight=False,
    )
    with console.capture() as captured:
        console.print(table)
    yield from captured.get().splitlines()


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[..., None]]:
    """A function that advances a progress bar, by one or by the number that it is given, and may add a note.

    The bar is on stderr, and only if that is a terminal.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda count=1, note="": None
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(what, total=total, note="")
        yield lambda count=1, note="": bar.update(task, advance=count, note=note)


_NO_LIMIT = 10_000  # rich drops digits to fit a terminal; a line that wraps keeps them

_STYLES = {"same": "green", "different": "bold red", "missing": "yellow"}


def _text(value: object) -> str:
    """In one line: names come out of files, and may hold anything."""
    return escaped(f"{value:.3f}" if isinstance(value, float) else "" if value is None else value)


def shape_text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
