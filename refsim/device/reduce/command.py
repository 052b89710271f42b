"""A command that is run on one program after another, each time in a process of its own, and its exit status."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from refsim.core.errors import ParameterError

#: The word of a command that stands for the program's path.
PLACE = "{}"
#: As in git bisect: the command cannot tell. 126 and 127 are what a shell ends with that finds no command.
UNKNOWN, NOT_FOUND = 125, (126, 127)
#: A run may take so many times as long as the first, and so many seconds at least; it is ended then.
_TIMES, _SECONDS = 10.0, 20.0


class Command:
    """Runs ``words`` on programs, which all lie at ``path``; that is put behind them unless a word holds `PLACE`."""

    def __init__(self, words: Sequence[str], path: Path) -> None:
        named = any(PLACE in word for word in words)
        self.words = [word.replace(PLACE, str(path)) for word in words] + ([] if named else [str(path)])
        self._path = path
        self._limit: float | None = None

    def status(self, data: bytes | memoryview) -> int | None:
        """How the command ends on a program: its status, minus the number of a signal, or None if it took too long.

        ParameterError if it cannot be started. KeyboardInterrupt ends the command first.
        """
        self._path.write_bytes(data)
        began = time.monotonic()
        try:
            run = subprocess.Popen(
                self.words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise ParameterError(
                "COMMAND", "cannot be started", got=f"{self.words[0]}: {error.strerror}"
            ) from error
        try:
            status: int | None = run.wait(self._limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(run)
        if self._limit is None:
            self._limit = max(_SECONDS, _TIMES * (time.monotonic() - began))
        return status


def _end(run: subprocess.Popen[bytes]) -> None:
    """End a command that still runs, with what it started."""
    if run.poll() is None:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
