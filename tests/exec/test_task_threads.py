"""Threads over one queue: every task is served once, errors come home, and who stops early leaves nothing running."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from refsim.core.errors import FormatError, RefsimError
from refsim.exec.task_threads import served


class Doubler:
    """Two results a task. What it cannot double raises."""

    def __init__(self) -> None:
        self.stopped = self.closed = False
        self.ended = threading.Event()

    def serve(self, task: int) -> Iterator[int]:
        if task < 0:
            raise FormatError("task", "negative", got=task)
        yield task
        yield 2 * task if task < 100 else 1 // 0

    def stop(self) -> None:
        self.stopped = True
        self.ended.set()

    def close(self) -> None:
        self.closed = True


class Endless(Doubler):
    """Serves one result, then nothing until it is stopped."""

    def serve(self, task: int) -> Iterator[int]:
        yield task
        self.ended.wait()


def test_every_task_is_served_once() -> None:
    servers = [Doubler() for _ in range(3)]
    found = sorted(served("sums", range(20), servers))
    assert found == sorted([*range(20), *(2 * n for n in range(20))])
    assert all(server.closed and server.stopped for server in servers)


@pytest.mark.parametrize(("task", "kind", "text"), [
    (-1, FormatError, "task: negative; got -1"),
    (100, RefsimError, "sums: a worker's thread failed; got ZeroDivisionError"),
])  # fmt: skip
def test_errors_come_home(task: int, kind: type[RefsimError], text: str) -> None:
    servers = [Doubler(), Doubler()]
    with pytest.raises(kind, match=text):
        list(served("sums", [1, 2, task, 3], servers))
    assert all(server.closed for server in servers)


def test_who_stops_early_stops_the_servers() -> None:
    servers = [Endless(), Endless()]
    results = served("sums", range(5), servers)
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert all(server.closed for server in servers)
