"""The other side of `refsim.exec.process`: what its processes run. Imports little, because it is waited for."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import IO, Any

from refsim.core.errors import RefsimError


class Caller:
    """An object that calls any function."""

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        return function(*arguments)


def serve() -> None:
    """Make an object, then call its methods and answer, until stdin ends.

    The first request is (callable, arguments), each other (name of a method, arguments). An answer is (kind, value):
    ``result``, ``error`` (a RefsimError) or ``raised`` (the text of another exception; its traceback goes to stderr).
    What drivers and libraries print to stdout goes to stderr.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        make, arguments = pickle.load(sys.stdin.buffer)
        made: list[Any] = []
        _answer(answers, lambda: made.append(make(*arguments)))
        while made:
            method, arguments = pickle.load(sys.stdin.buffer)
            _answer(answers, lambda: getattr(made[0], method)(*arguments))  # noqa: B023  (called at once)


def _answer(answers: IO[bytes], work: Callable[[], object]) -> None:
    try:
        reply = pickle.dumps(("result", work()), pickle.HIGHEST_PROTOCOL)
    except RefsimError as error:
        reply = pickle.dumps(("error", error))
    except Exception as error:
        traceback.print_exc()
        reply = pickle.dumps(("raised", f"{type(error).__name__}: {error}"))
    answers.write(reply)
    answers.flush()
