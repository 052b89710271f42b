"""What verbs print: tables, sentences, JSON. Colour is for terminals only."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

#: Columns of figures; everything else is flush left.
_RIGHT = ("node", "ms", "bytes", "count", "GB/s", "ratio", "dispatches", "operators", "buffers", "different")


#: Verbs whose JSON has changed incompatibly: the number of its present form. All others are at 1.
_SCHEMAS = {"inspect": 2, "doctor": 2}


def print_json(verb: str, content: dict[str, Any]) -> None:
    """Print one JSON object, one line per key. ``schema`` counts incompatible changes."""
    click.echo(json.dumps({"verb": verb, "schema": _SCHEMAS.get(verb, 1), **content}, indent=1))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Print columns as wide as their content, never cut off. On a terminal the heads are bold."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, title=title or None, title_justify="left", title_style="bold")
    for column in columns:
        right = any(column == word or column.endswith(f" {word}") for word in _RIGHT)
        table.add_column(column, justify="right" if right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(_cell(value, Text) for value in row))
    terminal = sys.stdout.isatty()
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
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """A function that advances a progress bar by one. The bar is on stderr, and only if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda: None
        return
    with Progress(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


_NO_LIMIT = 10_000  # rich drops digits to fit a terminal; a line that wraps keeps them

_STYLES = {"same": "green", "different": "bold red", "missing": "yellow"}


def _cell(value: object, text: Any) -> Any:
    string = f"{value:.3f}" if isinstance(value, float) else "" if value is None else str(value)
    return text(string, style=_STYLES.get(string.partition(" ")[0], ""))


def shape_text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
