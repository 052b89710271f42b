"""The other side of `refsim.exec.process`: what its processes run. Imports little, because it is waited for."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import signal
import struct
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from refsim.core import doing
from refsim.core.errors import RefsimError

#: In front of each message to the process that asked: how many bytes follow.
LENGTH = struct.Struct("<Q")


class Caller:
    """An object that calls any function."""

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        return function(*arguments)


def serve() -> None:
    """Make an object, then call its methods and answer, until stdin ends.

    The first request is (callable, arguments), each other (name of a method, arguments). An answer is (kind, value):
    ``result``, ``error`` (a RefsimError) or ``raised`` (the text of another exception; its traceback goes to stderr).
    Before it may come news of the work (`refsim.core.doing`), in the same form. Ctrl-C ends it without a word.
    What drivers and libraries print to stdout goes to stderr, and so does where Python was when native code crashed.
    """
    answers = _Answers(os.dup(1))
    os.dup2(2, 1)
    faulthandler.enable()
    doing.listen(lambda kind, what: answers.send(pickle.dumps((kind, what))))
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)
    try:  # Ctrl-C may come while the end of the input is taken note of, and whoever sends it closes that
        with contextlib.suppress(EOFError, BrokenPipeError):
            _requests(answers)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        pass


def _interrupted(number: int, frame: object) -> None:
    """Ctrl-C once; what comes after it would meet the end of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _requests(answers: _Answers) -> None:
    make, arguments = pickle.load(sys.stdin.buffer)
    made: list[Any] = []
    _answer(answers, lambda: made.append(make(*arguments)))
    while made:
        method, arguments = pickle.load(sys.stdin.buffer)
        _answer(answers, lambda: getattr(made[0], method)(*arguments))  # noqa: B023  (called at once)


class _Answers:
    """The pipe to the process that asks; news may come from any thread."""

    def __init__(self, handle: int) -> None:
        self._file = os.fdopen(handle, "wb")
        self._lock = threading.Lock()

    def send(self, message: bytes) -> None:
        with self._lock:
            self._file.write(LENGTH.pack(len(message)))
            self._file.write(message)
            self._file.flush()


def _answer(answers: _Answers, work: Callable[[], object]) -> None:
    try:
        reply = pickle.dumps(("result", work()), pickle.HIGHEST_PROTOCOL)
    except RefsimError as error:
        doing.placed(error)
        reply = pickle.dumps(("error", error))
    except Exception as error:
        traceback.print_exc()
        reply = pickle.dumps(("raised", doing.told(error)))
    answers.send(reply)
