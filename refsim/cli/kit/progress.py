"""One bar for everything that takes long: on stderr, never with --json, gone at the end. In a pipe it is a line now
and then.

Every verb has a bar that says only that it is at work, and since when. Where a verb knows how much there is to do, it
says so with `progress`, and the same bar shows that.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock, Timer
from typing import TYPE_CHECKING

from refsim.core import doing

if TYPE_CHECKING:
    from rich.progress import Progress

#: Seconds until the bar appears: what is done by then shows none, and does not import rich.
DELAY = 0.8
#: Seconds until the first line in a pipe, and from one to the next.
FIRST_LINE, NEXT_LINE = 4.0, 10.0
_PER_SECOND = 5

#: Advances a bar by one or by the number that it is given; ``note`` is shown after the bar.
Tell = Callable[..., None]


@contextmanager
def verb(arguments: Sequence[str], quiet: bool = False) -> Iterator[None]:
    """While this lasts there is a bar if it takes long: that of the verb, or of the `progress` inside of it.

    Where stderr is no terminal there are lines instead. ``quiet``: nothing, since somebody asked for JSON.
    """
    if quiet:
        yield
        return
    global _bar
    _bar = bar = (_Bar if sys.stderr.isatty() else _Lines)(_Doing(" ".join(arguments[:1]), None))
    doing.listen(_news)
    try:
        yield
    finally:
        doing.listen(None)
        bar.hide()
        _bar = None


def _news(kind: str, what: str) -> None:
    """The first run of a kernel compiles it, which may take longer than all the rest."""
    if (bar := _bar) is not None and kind in (doing.PAUSED, doing.RESUMED):
        bar.advance(0, what if kind == doing.PAUSED else "")


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Tell]:
    """A function that advances the bar of the verb, as long as this lasts. Without a bar it does nothing."""
    if (bar := _bar) is None:
        yield lambda count=1, note="": None
        return
    bar.begin(_Doing(what, total))
    try:
        yield bar.advance
    finally:
        bar.end()


def make_way() -> None:
    """Take the bar away, because something is about to be printed. The next `progress` shows it again."""
    if _bar is not None:
        _bar.hide()


@dataclass
class _Doing:
    what: str
    total: int | None
    done: int = 0
    note: str = ""

    @property
    def count(self) -> str:
        return f"{self.done}/{self.total}" if self.total is not None else str(self.done or "")


class _Lines:
    """A line now and then, from a thread of its own: what is being done, how much of it, and for how long."""

    def __init__(self, work: _Doing) -> None:
        self._works: list[_Doing] = []
        self._lock, self._began = RLock(), time.monotonic()
        self._timer: Timer | None = None
        self.begin(work)

    def begin(self, work: _Doing) -> None:
        with self._lock:
            self._works.append(work)
            if self._timer is None:
                self._wait(FIRST_LINE)

    def advance(self, count: int = 1, note: str = "") -> None:
        with self._lock:
            self._works[-1].done += count
            self._works[-1].note = note

    def end(self) -> None:
        with self._lock:
            self._works.pop()

    def hide(self) -> None:
        """No more lines until the next `begin`."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None

    def _wait(self, seconds: float) -> None:
        self._timer = Timer(seconds, self._print)
        self._timer.daemon = True
        self._timer.start()

    def _print(self) -> None:
        with self._lock:
            if self._timer is not None:  # else it has ended meanwhile
                work, seconds = self._works[-1], time.monotonic() - self._began
                parts = [" ".join(filter(None, (work.what, work.count))), f"{seconds:.0f} s", work.note]
                print(f"refsim: {', '.join(filter(None, parts))}", file=sys.stderr, flush=True)
                self._wait(NEXT_LINE)


class _Bar:
    """A bar that appears late, from a thread of its own; what was told before that is kept here."""

    def __init__(self, work: _Doing) -> None:
        self._works: list[_Doing] = []
        self._lock = RLock()
        self._rich: Progress | None = None
        self._timer: Timer | None = None
        self.begin(work)

    def begin(self, work: _Doing) -> None:
        with self._lock:
            self._works.append(work)
            if self._timer is None:
                self._timer = Timer(DELAY, self._show)
                self._timer.daemon = True
                self._timer.start()
            self._start()

    def advance(self, count: int = 1, note: str = "") -> None:
        with self._lock:
            work = self._works[-1]
            work.done, work.note = work.done + count, note
            if self._rich is not None:
                task = self._rich.task_ids[0]
                self._rich.update(task, completed=work.done, count=work.count, note=work.note)

    def end(self) -> None:
        with self._lock:
            self._works.pop()
            self._start()

    def hide(self) -> None:
        """Take it away until the next `begin`."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            if self._rich is not None:
                self._rich.stop()
            self._timer = self._rich = None

    def _show(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._rich = _rich()
                self._rich.add_task("", count="", note="")
                self._start()
                self._rich.start()

    def _start(self) -> None:
        """Show the work that began last."""
        if self._rich is not None:
            work = self._works[-1]
            self._rich.reset(
                self._rich.task_ids[0],
                total=work.total,
                completed=work.done,
                description=work.what,
                count=work.count,
                note=work.note,
            )


_bar: _Bar | _Lines | None = None


def _rich() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
    from rich.text import Text

    class Left(ProgressColumn):
        """The time that is left, where that is known."""

        def render(self, task: Task) -> Text:
            left = task.time_remaining if task.total else None
            return Text("" if left is None else f"{int(left) // 60}:{int(left) % 60:02} left")

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(20),
        TextColumn("{task.fields[count]}", markup=False),
        TimeElapsedColumn(),
        Left(),
        TextColumn("{task.fields[note]}", markup=False),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,  # what a pipe reads must not go to the terminal
        refresh_per_second=_PER_SECOND,
    )
