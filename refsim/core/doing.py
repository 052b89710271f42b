"""What this process is doing, for whoever waits: limits of time stand still meanwhile, and a crash has a place.

They stand still while it compiles and while it looks for the cause of wrong bytes: neither is the work that they limit.

Native code that crashes leaves no exception. So before each piece of work, its name is told to a listener (the process
that waits), or, on the command line, becomes the name of a frame, which Python's faulthandler prints. What raises an
exception far from its cause is put into a block of `noted`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from traceback import extract_tb
from types import FunctionType
from typing import Protocol, TypeVar

from refsim.core.errors import RefsimError

T = TypeVar("T")

#: Kinds of news: a piece of work begins; limits of time stand still; they go on.
WORKING, PAUSED, RESUMED = "working", "paused", "resumed"
Tell = Callable[[str, str], None]
MOST_LETTERS = 400

#: How a line tells where an error began, and how many functions it names.
BEGAN, INNERMOST = "raised in ", 3
PACKAGE = Path(__file__).parents[1]

#: Says that some work is done: how much (1), and in a few words what.
Advance = Callable[..., None]


class Progress(Protocol):
    """What shows how far work is, for as long as it lasts; ``total`` is None where that is not known."""

    def begin(self, what: str, total: int | None) -> None: ...

    def advance(self, count: int = 1, note: str = "") -> None: ...

    def end(self) -> None: ...


_tell: Tell | None = None
_shown: Progress | None = None
_frames = False
_around = threading.local()
_lock = threading.Lock()
_pauses = 0


def listen(tell: Tell | None) -> None:
    """Be told of all news from now on, from any thread."""
    global _tell
    _tell = tell


def show(progress: Progress | None) -> None:
    """Let work be shown from now on."""
    global _shown
    _shown = progress


@contextlib.contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Advance]:
    """A function that says how far this work is, as long as it lasts. Where nobody is shown it, it does nothing."""
    if (shown := _shown) is None:
        yield lambda count=1, note="": None
        return
    shown.begin(what, total)
    try:
        yield shown.advance
    finally:
        shown.end()


def name_frames() -> None:
    """Give frames the names of what runs in them, from now on."""
    global _frames
    _frames = True


def working(what: object) -> None:
    """Say what begins now. Costs nothing if nobody listens."""
    if _tell is not None:
        _tell(WORKING, str(what)[:MOST_LETTERS])


def during(what: object, function: Callable[..., T], *arguments: object) -> T:
    """Call a function, and let it be known what it is called for, and what that is a part of."""
    if _frames:
        code = _frame.__code__.replace(co_name=str(what)[:MOST_LETTERS])
        result: T = FunctionType(code, globals())(function, arguments)
        return result
    if _tell is None:
        return function(*arguments)
    outer = getattr(_around, "what", "")
    _around.what = f"{outer}, {what}" if outer else str(what)
    try:
        working(_around.what)
        return function(*arguments)
    finally:
        _around.what = outer


def _frame(function: Callable[..., T], arguments: tuple[object, ...]) -> T:
    return function(*arguments)


@contextlib.contextmanager
def noted(what: str) -> Iterator[None]:
    """An error that leaves this block says what it stopped: as a note, which tracebacks print from Python 3.11 on."""
    try:
        yield
    except Exception as error:
        note(error, what)
        raise


def note(error: BaseException, what: str) -> None:
    """Let an error say one thing more."""
    setattr(error, "__notes__", [*getattr(error, "__notes__", ()), what])  # noqa: B010


def notes(error: BaseException) -> list[str]:
    """What an error says it stopped, the innermost first; what it came of has said its own before."""
    before = notes(error.__cause__) if error.__cause__ is not None else []
    return [*before, *getattr(error, "__notes__", ())]


def told(error: BaseException, place: bool = True) -> str:
    """An error as one line: its text, behind its kind if it is not typed, what it stopped, and its ``place``."""
    placed(error)
    text = str(error) if isinstance(error, RefsimError) else f"{type(error).__name__}: {error}"
    return " | ".join([text, *(line for line in notes(error) if place or not line.startswith(BEGAN))])


def placed(error: BaseException) -> None:
    """Let an error say which functions it left, the innermost first, unless another process had it say that."""
    if any(line.startswith(BEGAN) for line in notes(error)):
        return
    frames = [
        frame for frame in extract_tb(error.__traceback__) if "<" not in (frame.name[0], frame.filename[0])
    ]
    inner = [f"{frame.name} ({_short(frame.filename)}:{frame.lineno})" for frame in frames[-INNERMOST:]]
    if inner:
        note(error, BEGAN + ", called by ".join(reversed(inner)))


def _short(file: str) -> str:
    """A file of refsim from its package on; the name alone of another."""
    path = Path(file)
    return str(path.relative_to(PACKAGE.parent)) if path.is_relative_to(PACKAGE) else path.name


def kernel(module: str, name: str) -> str:
    """A kernel and the file of the sources that writes it, as notes tell them."""
    return f"kernel of {module.replace('.', '/')}.py: {name}"


def compiling(what: str) -> contextlib.AbstractContextManager[None]:
    """Around what compiles code, or loads a compiler."""
    return paused(f"compiling {what}")


def explaining(what: str) -> contextlib.AbstractContextManager[None]:
    """Around what looks for the cause of wrong bytes."""
    return paused(f"explaining {what}")


@contextlib.contextmanager
def paused(what: str) -> Iterator[None]:
    """Limits of time stand still in this block; ``what`` says why."""
    if _tell is None:
        yield
        return
    _count(1, what)
    try:
        yield
    finally:
        _count(-1, what)


def _count(by: int, what: str) -> None:
    """Only the outermost of several is told."""
    global _pauses
    with _lock:
        before = _pauses
        _pauses += by
        if _tell is not None and 0 in (before, _pauses):
            _tell(PAUSED if by > 0 else RESUMED, what[:MOST_LETTERS])
