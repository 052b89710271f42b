"""One bar for everything that takes long: on stderr, never with --json, gone at the end. In a pipe it is a line now
and then.

Every verb has a bar that says only that it is at work, and since when. Work that knows how much there is to do says so
with `refsim.core.doing.progress`, and the same bar shows that.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
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


@contextmanager
def verb(arguments: Sequence[str], quiet: bool = False) -> Iterator[None]:
    """While this lasts there is a bar if it takes long: that of the verb, or of the work inside of it.

    Where stderr is no terminal there are lines instead. ``quiet``: nothing, since somebody asked for JSON.
    """
    if quiet:
        yield
        return
    global _shown
    _shown = shown = (_Bar if sys.stderr.isatty() else _Lines)()
    shown.begin(" ".join(arguments[:1]), None)
    doing.listen(_news)
    doing.show(shown)
    try:
        yield
    finally:
        doing.listen(None)
        doing.show(None)
        shown.hide()
        _shown = None


def _news(kind: str, what: str) -> None:
    """The first run of a kernel compiles it, which may take longer than all the rest."""
    if (shown := _shown) is not None and kind in (doing.PAUSED, doing.RESUMED):
        shown.advance(0, what if kind == doing.PAUSED else "")


def make_way() -> None:
    """Take the bar away, because something is about to be printed. The next work shows it again."""
    if _shown is not None:
        _shown.hide()


@dataclass
class _Work:
    what: str
    total: int | None
    done: int = 0
    note: str = ""

    @property
    def count(self) -> str:
        return f"{self.done}/{self.total}" if self.total is not None else str(self.done or "")


class _Late:
    """What is being done, innermost last; it is shown late, from a thread of its own."""

    def __init__(self) -> None:
        self._works: list[_Work] = []
        self._lock, self._began = RLock(), time.monotonic()
        self._timer: Timer | None = None

    def begin(self, what: str, total: int | None) -> None:
        with self._lock:
            self._works.append(_Work(what, total))
            if self._timer is None:
                self._wait(self._delay)
            self._changed(True)

    def advance(self, count: int = 1, note: str = "") -> None:
        with self._lock:
            work = self._works[-1]
            work.done, work.note = work.done + count, note
            self._changed(False)

    def end(self) -> None:
        with self._lock:
            self._works.pop()
            self._changed(True)

    def hide(self) -> None:
        """Show nothing until the next `begin`."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
            self._gone()

    def _wait(self, seconds: float) -> None:
        self._timer = Timer(seconds, self._due)
        self._timer.daemon = True
        self._timer.start()

    def _due(self) -> None:
        with self._lock:
            if self._timer is not None:  # else it has ended meanwhile
                self._appear()

    @property
    def _delay(self) -> float:
        """Seconds until it appears."""
        raise NotImplementedError

    def _appear(self) -> None:
        raise NotImplementedError

    def _changed(self, other: bool) -> None:
        """``other``: another work is the last one now."""

    def _gone(self) -> None:
        pass


class _Lines(_Late):
    """A line now and then: what is being done, how much of it, and for how long."""

    @property
    def _delay(self) -> float:
        return FIRST_LINE

    def _appear(self) -> None:
        work, seconds = self._works[-1], time.monotonic() - self._began
        parts = [" ".join(filter(None, (work.what, work.count))), f"{seconds:.0f} s", work.note]
        print(f"refsim: {', '.join(filter(None, parts))}", file=sys.stderr, flush=True)
        self._wait(NEXT_LINE)


class _Bar(_Late):
    """A bar of rich's."""

    _rich: Progress | None = None

    @property
    def _delay(self) -> float:
        return DELAY

    def _appear(self) -> None:
        self._rich = _rich()
        self._rich.add_task("", count="", note="")
        self._changed(True)
        self._rich.start()

    def _changed(self, other: bool) -> None:
        if self._rich is not None:
            work, task = self._works[-1], self._rich.task_ids[0]
            if other:
                self._rich.reset(task, total=work.total, description=work.what)
            self._rich.update(task, completed=work.done, count=work.count, note=work.note)

    def _gone(self) -> None:
        if self._rich is not None:
            self._rich.stop()
        self._rich = None


_shown: _Bar | _Lines | None = None


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
