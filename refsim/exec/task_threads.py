"""Tasks that several threads take from one queue, each with a server of its own that does the work."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from refsim.core import cache
from refsim.core.errors import RefsimError
from refsim.exec.process import Worker

#: How long threads may take to end.
GRACE_S = 5.0

Task = TypeVar("Task", contravariant=True)
Result = TypeVar("Result", covariant=True)


class Server(Protocol[Task, Result]):
    """What one thread works with, such as a process that it asks. It says of itself when it was stopped."""

    stopped: bool

    def serve(self, task: Task) -> Iterable[Result]:
        """The results of one task, as they come."""
        ...

    def stop(self) -> None:
        """End the work at once and set ``stopped``; called from another thread. What is served then may raise."""
        ...

    def close(self) -> None:
        """Free everything; nothing is being served."""
        ...


class ProcessServer:
    """The processes of a server by name: each is started when it is wanted, and again when it has died."""

    def __init__(self, start: Callable[[str], Worker]) -> None:
        self._start = start
        self._workers: dict[str, Worker] = {}
        self.stopped = False

    def worker(self, name: str = "") -> Worker:
        """A process that lives. Raises what starting one raises."""
        held = self._workers.get(name)
        if held is None or not held.alive:
            if held is not None:
                held.close()
            self._workers[name] = self._start(name)
        return self._workers[name]

    def stop(self) -> None:
        """End the processes at once, from any thread; what runs there is lost."""
        self.stopped = True
        for worker in list(self._workers.values()):
            with contextlib.suppress(OSError):
                worker.signal(signal.SIGKILL)

    def close(self) -> None:
        """End the processes, which are idle."""
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()


def served(where: str, tasks: Sequence[Any], servers: Sequence[Server[Any, Result]]) -> Iterator[Result]:
    """The results of all tasks in the order in which they come, with one thread per server.

    Raises the first RefsimError that a server raises; any other exception becomes one, whose text begins with
    ``where``. When the caller is done, or interrupted, the servers are stopped.
    """
    cache.base()  # if it cannot be used, that is said here: what workers say is only read when they die
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    found: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    threads = [
        threading.Thread(target=_serve, args=(where, server, waiting, found), daemon=True)
        for server in servers
    ]
    for thread in threads:
        thread.start()
    running = len(threads)
    try:
        while running:
            kind, value = found.get()
            if kind == _ERROR:
                raise value
            if kind == _ENDED:
                running -= 1
            else:
                yield value
    finally:
        for server in servers:
            server.stop()
        for thread in threads:
            thread.join(GRACE_S)


_RESULT, _ERROR, _ENDED = "result", "error", "ended"


def _serve(
    where: str,
    server: Server[Any, Any],
    waiting: queue.SimpleQueue[Any],
    found: queue.SimpleQueue[tuple[str, Any]],
) -> None:
    """One thread: gives tasks to its server until none wait."""
    try:
        while not server.stopped:
            try:
                task = waiting.get_nowait()
            except queue.Empty:
                break
            for result in server.serve(task):
                found.put((_RESULT, result))
    except RefsimError as error:
        found.put((_ERROR, error))
    except Exception as error:  # anything else would leave the parent waiting
        found.put((_ERROR, RefsimError(where, "a worker's thread failed", got=repr(error))))
    finally:
        server.close()
        found.put((_ENDED, None))
