"""A command that is run on one program after another, each time in a process of its own, and its exit status."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from refsim.core.errors import ParameterError
from refsim.exec import process

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
        began, status = time.monotonic(), None
        try:
            process.run(self.words, where="COMMAND", seconds=self._limit)
            status = 0
        except process.Ended as error:
            status = error.status
        except process.Silent:
            pass
        except OSError as error:
            got = f"{self.words[0]}: {error.strerror}"
            raise ParameterError("COMMAND", "cannot be started", got=got) from error
        if self._limit is None:
            self._limit = max(_SECONDS, _TIMES * (time.monotonic() - began))
        return status
