"""Work in another process: if it crashes or hangs there, that is one typed error here.

`call` runs one function and returns its result. A `Worker` holds an object in a process of its own and calls its
methods until it is closed. `run` waits for a command, for work that needs other sources than this program's.

Functions, classes, arguments and results are pickled, so a function or class must be found by its name in a module that
this program can import. `refsim.exec.runner` is the other side.

The `spawn` method of the standard `multiprocessing` would do part of this. But it imports the caller's main script
again, which fails for a script without a ``__main__`` guard; it keeps no stderr; and its first process takes 0.1 s
longer.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

from refsim.core import doing
from refsim.core.errors import RefsimError
from refsim.exec.runner import LENGTH, Caller

#: How long a process may take to end after its input was closed, and how much of its stderr an error quotes.
GRACE_S = 10.0
#: How long a process may compile or explain one thing; limits of time stand still meanwhile.
PAUSE_S = 900.0
LAST_LINES, LAST_BYTES = 3, 16384

#: A frame that `refsim.core.doing` has given the name of the work; another copy of it may run there.
_NAMED = f'{os.path.join("refsim", "core", "doing.py")}"'

_START = "import sys; sys.path[:] = {path!r}; from refsim.exec.runner import serve; serve()"


class ProcessError(RefsimError):
    """Work in another process came to no result.

    ``last_lines`` are what it said last, if that was kept; ``working`` is what it did, as far as it told.
    """

    last_lines: tuple[str, ...] = ()
    working: str = ""


class Ended(ProcessError):
    """The process ended first; ``got`` is ``signal 11`` or ``exit status 1``, whose `means` stands behind `what`.

    Of a command, ``status`` is the number: minus that of a signal.
    """

    status = 0


class Silent(ProcessError):
    """The process took too long and was killed; ``got`` is ``silence for 5 s``."""


class Raised(ProcessError):
    """The work raised something that is no RefsimError, told in ``got`` by type and text; the process lives."""


class Worker:
    """An object that lives in a process of its own, made there by ``make(*arguments)``.

    ``where`` names the work, in errors and in the system's list of processes. ``environment`` is added to that of this
    process. With ``keep_stderr`` errors quote what the process said last; otherwise what it prints, on stdout too,
    appears on the stderr of this process.

    Raises what ``make`` raises, and what `call` does. Without ``wait`` the object is made while this process goes on,
    and `ready` raises these.
    """

    def __init__(
        self,
        make: Callable[..., object],
        *arguments: object,
        where: str,
        seconds: float | None = None,
        environment: Mapping[str, str] | None = None,
        keep_stderr: bool = False,
        wait: bool = True,
    ) -> None:
        self.where = where
        #: Whether the object has not answered yet that it is made.
        self.pending = True
        self._working = ""
        self._stderr = _scratch_file() if keep_stderr else None
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START.format(path=sys.path), where],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, **(environment or {})},
        )
        try:
            self._send(make, arguments)
        except BaseException:
            self.kill()
            raise
        if wait:
            self.ready(seconds)

    def ready(self, seconds: float | None = None) -> None:
        """Wait for the object to be made; raises what making it raises, and then the worker is dead."""
        if self.pending:
            try:
                self._receive(seconds)
            except BaseException:
                self.kill()
                raise
            finally:
                self.pending = False

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def call(self, method: str, *arguments: object, seconds: float | None = None) -> Any:
        """What a method of the object returns, within ``seconds``; those in which it compiles or explains do not count.

        Raises the RefsimError that the method raises, `Raised` for any other exception, `Ended` if the process ends
        before it answers, and `Silent` if that takes too long. The last two leave the worker dead.
        """
        self.ready(seconds)
        self._send(method, arguments)
        return self._receive(seconds)

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        self._process.send_signal(number)

    def close(self) -> None:
        """Let the process end; kill it if that takes more than `GRACE_S`, or if its object is not made yet."""
        if self.pending:
            self.kill()
        with contextlib.suppress(OSError):  # it may be gone, with a request unread
            self._pipes[0].close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S)
        self.kill()

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        for stream in (*self._pipes, self._stderr):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None and answers is not None
        return requests, answers

    def _send(self, work: Callable[..., object] | str, arguments: Sequence[object]) -> None:
        message = pickle.dumps((work, arguments), pickle.HIGHEST_PROTOCOL)
        requests, _ = self._pipes
        with self._answering():
            requests.write(message)
            requests.flush()

    def _receive(self, seconds: float | None) -> Any:
        _, answers = self._pipes
        with self._answering():
            kind, value = self._answer(answers.fileno(), seconds)
        if kind == "raised":
            raise Raised(self.where, "the work failed", got=value)
        if kind == "error":
            raise value
        return value

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """`Ended` if the process does not answer; whatever else ends the talk ends the process."""
        try:
            yield
        except (EOFError, OSError, ValueError, pickle.UnpicklingError) as error:
            # a pipe that broke, or was closed before, is only the symptom
            raise self._lost(Ended(self.where, "no answer", got=self._status())) from error
        except BaseException:  # Ctrl-C: the answer would be taken for that to the next request
            self.kill()
            raise

    def _answer(self, answers: int, seconds: float | None) -> tuple[str, Any]:
        """The answer to a request. The limit of time stands still in its pauses (`refsim.core.doing`).

        Whoever waits for this process is told of that too.
        """
        self._working = ""
        limit, end, left = seconds, time.monotonic() + (seconds or 0.0), 0.0
        with contextlib.ExitStack() as pause:
            while True:
                kind, value = self._message(answers, None if seconds is None else end, limit)
                if kind == doing.WORKING:
                    self._working = value
                elif kind == doing.PAUSED:
                    pause.enter_context(doing.paused(value))
                    left = end - time.monotonic()
                    limit, end = PAUSE_S, time.monotonic() + PAUSE_S
                elif kind == doing.RESUMED:
                    pause.close()
                    limit, end = seconds, time.monotonic() + left
                else:
                    return kind, value

    def _message(self, answers: int, end: float | None, limit: float | None) -> tuple[str, Any]:
        """The next message. EOFError if the process ends first, `Silent` if that takes longer than ``end``."""
        (length,) = LENGTH.unpack(self._bytes(answers, LENGTH.size, end, limit))
        kind, value = pickle.loads(self._bytes(answers, length, end, limit))
        return kind, value

    def _bytes(self, answers: int, count: int, end: float | None, limit: float | None) -> bytearray:
        found = bytearray(count)
        space = memoryview(found)
        ready = select.poll()
        ready.register(answers, select.POLLIN)
        while space:
            if not ready.poll(None if end is None else max(0.0, 1000 * (end - time.monotonic()))):
                self._process.kill()
                raise self._lost(Silent(self.where, "no answer in time", got=f"silence for {limit:g} s"))
            read = os.readv(answers, [space])
            if not read:
                raise EOFError
            space = space[read:]
        return found

    def _status(self) -> str:
        """How the process ended; it is about to."""
        try:
            return status(self._process.wait(GRACE_S))
        except subprocess.TimeoutExpired:
            return "its output closed"

    def _lost(self, error: ProcessError) -> ProcessError:
        """End what is left of the process; the error, with its last words."""
        said: tuple[str, ...] = ()
        if self._stderr is not None and not self._stderr.closed:
            self._stderr.seek(max(0, self._stderr.seek(0, os.SEEK_END) - LAST_BYTES))
            said = last_lines(self._stderr.read().decode(errors="replace"))
        what = (
            error.what + (f", during {self._working}" if self._working else "") + means(str(error.got), said)
        )
        error = type(error)(self.where, what, got=error.got)
        error.working, error.last_lines = self._working, said
        self.kill()
        return error


def call(function: Callable[..., Any], *arguments: object, where: str, seconds: float | None = None) -> Any:
    """What a function returns in a process of its own, within ``seconds``; raises what `Worker.call` does."""
    with Worker(Caller, where=where, seconds=seconds) as worker:
        return worker.call("call", function, *arguments, seconds=seconds)


def run(
    command: Sequence[str],
    *,
    where: str,
    seconds: float | None = None,
    folder: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """What a command prints, run in ``folder`` with ``environment`` instead of this process's.

    Raises `Silent` if it takes more than ``seconds``, and `Ended` for any exit status but 0. In all cases, processes
    that the command started and left behind end with it: a driver may hang in one of them.
    """
    with _scratch_file() as out, _scratch_file() as said:  # pipes would not end before those left behind do
        started = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=said,
            start_new_session=True,
        )  # fmt: skip
        try:
            ended = _ends(started, seconds)
        finally:  # its number is not given to another process before it is waited for
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()
        if not ended:
            raise Silent(where, "did not end in time", got=f"silence for {seconds:g} s")
        printed, told = (_text(file) for file in (out, said))
    if started.returncode:
        got, said_last = (
            status(started.returncode),
            last_lines(told or printed),
        )  # some say what failed on stdout
        failed = Ended(where, "did not end well" + means(got, said_last), got=got)
        failed.last_lines, failed.status = said_last, started.returncode
        raise failed
    return printed


def _ends(started: subprocess.Popen[bytes], seconds: float | None) -> bool:
    """Wait until a process has ended, but leave it to be waited for; False if that takes longer."""
    handle = os.pidfd_open(started.pid)
    try:
        ready = select.poll()
        ready.register(handle, select.POLLIN)
        return bool(ready.poll(None if seconds is None else 1000 * seconds))
    finally:
        os.close(handle)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _scratch_file() -> IO[bytes]:
    # imported here: it takes 5 ms, and questions to a driver keep no stderr
    from tempfile import TemporaryFile

    return TemporaryFile()


def status(code: int) -> str:
    """A return code of `subprocess` in words."""
    return f"signal {-code}" if code < 0 else f"exit status {code}"


#: What a signal says of the kernel that ran: which, and what the C library said before, if that decides.
_MEANS = (
    ("signal 11", "", "read or write out of bounds"),
    ("signal 7", "", "read or write out of bounds"),
    (
        "signal 6",
        "free()|malloc()|corrupt|chunk|unsorted",
        "write out of bounds, seen when memory was given back",
    ),
)


def means(got: str, said: Sequence[str]) -> str:
    """What the end of a process tells of the memory that it used, behind a colon; "" where it tells nothing."""
    text = "\n".join(said)
    for signalled, pattern, meaning in _MEANS:
        if got == signalled and any(word in text for word in pattern.split("|")):
            return f": {meaning}"
    return ""


def last_lines(text: str) -> tuple[str, ...]:
    """The last lines; of a crash that Python reported its kind, the innermost frames, and those that name the work."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    begin = ("Fatal Python error:", "Current thread")  # the latter alone if a limit of time ended it
    fatal = next((n for n, line in enumerate(lines) if line.startswith(begin)), None)
    if fatal is None:
        return tuple(lines[-LAST_LINES:])
    thread = next((n for n in range(fatal, len(lines)) if lines[n].startswith("Current thread")), fatal)
    end = next(
        (n for n in range(thread + 1, len(lines)) if not lines[n].lstrip().startswith("File ")), len(lines)
    )
    frames = [line.strip() for line in lines[thread + 1 : end]]
    named = [line for line in frames[2:] if _NAMED in line]
    return (*lines[max(0, fatal - 1) : fatal], lines[fatal], *frames[:2], *named)
