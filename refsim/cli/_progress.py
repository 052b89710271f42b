"""One bar for everything that may take long: on stderr, only on a terminal, never with --json, gone at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.progress import Progress

#: Seconds until a bar appears: what is done by then shows none, and does not import rich.
DELAY = 0.7
_PER_SECOND = 5

#: Advances a bar by one or by the number that it is given; ``note`` is shown after the bar.
Tell = Callable[..., None]


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Tell]:
    """A function that advances a bar; without a ``total`` the bar only says that something is going on, and how long.

    Inside of another one there is no second bar. Nothing may be printed on stdout meanwhile.
    """
    if not wanted() or _Bar.shown is not None:
        yield lambda count=1, note="": None
        return
    bar = _Bar.shown = _Bar(what, total)
    timer = Timer(DELAY, bar.show)
    timer.daemon = True
    timer.start()
    try:
        yield bar.advance
    finally:
        timer.cancel()
        bar.end()
        _Bar.shown = None


def wanted() -> bool:
    """Whether somebody looks: stderr is a terminal, and the verb was not asked for JSON."""
    context = click.get_current_context(silent=True)
    return sys.stderr.isatty() and not (context is not None and context.params.get("as_json"))


class _Bar:
    """A bar that appears late. Its own thread shows it, so what was told before is kept here."""

    shown: _Bar | None = None

    def __init__(self, what: str, total: int | None) -> None:
        self._what, self._total = what, total
        self._done, self._note = 0, ""
        self._lock, self._ended = Lock(), False
        self._rich: Progress | None = None

    def advance(self, count: int = 1, note: str = "") -> None:
        with self._lock:
            self._done, self._note = self._done + count, note
            if self._rich is not None:
                self._rich.update(self._rich.task_ids[0], completed=self._done, note=note)

    def show(self) -> None:
        with self._lock:
            if self._ended:
                return
            self._rich = _rich(self._total)
            self._rich.add_task(self._what, total=self._total, completed=self._done, note=self._note)
            self._rich.start()

    def end(self) -> None:
        with self._lock:
            self._ended = True
            if self._rich is not None:
                self._rich.stop()


def _rich(total: int | None) -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns: list[ProgressColumn | str] = [TextColumn("{task.description}", markup=False), BarColumn(24)]
    columns += [MofNCompleteColumn(), TimeRemainingColumn()] if total is not None else [TimeElapsedColumn()]
    columns.append(TextColumn("{task.fields[note]}", markup=False))
    return Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,  # what a pipe reads must not go to the terminal
        refresh_per_second=_PER_SECOND,
    )
