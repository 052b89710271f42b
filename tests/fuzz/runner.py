"""Mutants one after the other, in this process or in workers with limits on time and memory."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import tempfile
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from refsim.core.errors import RefsimError
from tests.fuzz.formats import FORMATS, Format
from tests.fuzz.seeds import Files

#: Seconds of computing, since machines are shared, and bytes. A worker that sleeps so many times as long is ended too.
SECONDS, MEMORY = 5.0, 1 << 30
PATIENCE = 12
#: How a mutant can end. All but the first two are findings.
ACCEPTED, TYPED, UNTYPED, SLOW, MEMORY_BEYOND, CRASHED = (
    "accepted", "typed", "untyped", "too slow", "too much memory", "crashed",
)  # fmt: skip
OUTCOMES = (TYPED, ACCEPTED, UNTYPED, SLOW, MEMORY_BEYOND, CRASHED)
FINDINGS = OUTCOMES[2:]
_SCRATCH = Path("/dev/shm")
_HERE = "/refsim/"


class TooSlow(BaseException):
    """The time of a mutant is over. No Exception, so that no reader can take it for a damaged file."""


@dataclass(frozen=True)
class Outcome:
    """What became of one mutant. ``what`` names the exception and the place where it was raised."""

    format: str
    number: int
    kind: str
    what: str = ""
    seconds: float = 0.0
    memory: int = 0
    trace: str = ""


@dataclass
class Tally:
    """The outcomes of a format."""

    counts: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, int] = (0.0, 0)
    largest: tuple[int, int] = (0, 0)

    def add(self, outcome: Outcome) -> None:
        self.counts[outcome.kind] += 1
        self.slowest = max(self.slowest, (outcome.seconds, outcome.number))
        self.largest = max(self.largest, (outcome.memory, outcome.number))


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for mutants, in memory where the system has such a place."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz.", dir=_SCRATCH if _SCRATCH.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def put(folder: Path, files: Files) -> None:
    """Make the folder hold exactly these files."""
    for path in list(folder.iterdir()):
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in files:
            path.unlink()
    for name, data in files.items():
        (folder / name).write_bytes(data)


def read(folder: Path, row: Format, files: Files, number: int = 0, way: int | None = None) -> Outcome:
    """Let a format's reader have a mutant; ``way`` is how, else its content chooses."""
    put(folder, files)
    chosen = zlib.crc32(b"".join(files.values())) if way is None else way
    before = _peak(reset=True)
    begin = time.process_time()
    kind, what, trace = ACCEPTED, "", ""
    try:
        row.read(folder, chosen)
    except RefsimError as error:
        kind, what = TYPED, type(error).__name__
    except TooSlow:
        kind, what, trace = SLOW, "too slow", traceback.format_exc()
    except MemoryError as error:
        kind, what, trace = MEMORY_BEYOND, _named(error), traceback.format_exc()
    except Exception as error:
        kind, what, trace = UNTYPED, _named(error), traceback.format_exc()
    seconds = time.process_time() - begin
    memory = max(_peak() - before, 0)
    if kind in (ACCEPTED, TYPED) and memory > MEMORY:
        kind, what = MEMORY_BEYOND, f"{memory >> 20} MiB"
    return Outcome(row.name, number, kind, what, seconds, memory, trace)


def _named(error: BaseException) -> str:
    """The exception, and where in refsim it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if _HERE in frame.filename and "/tests/" not in frame.filename]
    last = (inside or frames)[-1]
    place = f"{last.filename.rpartition(_HERE)[2]}:{last.lineno} {last.name}"
    if not inside or str(error).startswith("Traceback"):  # a command printed it
        lines = [text.strip() for text in str(error).splitlines() if text.strip()]
        own = [text for text in lines if text.startswith("File") and _HERE in text]
        failed = [
            text for text in lines if text[:1].isalpha() and ": " in text and not text.startswith("File")
        ]
        place = f"{own[-1] if own else place}: {failed[-2] if len(failed) > 1 else ''}"
    return f"{type(error).__name__} at {place}: {str(error)[:80]!r}"


def _peak(reset: bool = False) -> int:
    """Bytes of memory that this process held at most, since the last reset where the system can reset it."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        for text in Path("/proc/self/status").read_text().splitlines():
            if text.startswith("VmHWM:"):
                return int(text.split()[1]) << 10
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def run_here(row: Format, seed: int, numbers: Sequence[int]) -> list[Outcome]:
    """Mutants in this process, without limits."""
    with scratch() as folder:
        return [read(folder, row, row.mutant(seed, number), number) for number in numbers]


# --- workers ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """Some mutants of one format."""

    format: str
    first: int
    count: int


def _work(connection: Connection, seed: int, names: Sequence[str]) -> None:
    """The program of a worker: tasks come in, an outcome goes out for each mutant."""
    signal.signal(signal.SIGPROF, _alarm)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with scratch() as folder:
        for name in names:  # what is loaded and compiled once belongs to no mutant
            for number, files in enumerate(FORMATS[name].seeds()):
                for way in range(8) if number < 2 else (4,):
                    read(folder, FORMATS[name], files, way=way)
        connection.send("ready")
        while (task := connection.recv()) is not None:
            row = FORMATS[task.format]
            _limit()
            for number in range(task.first, task.first + task.count):
                connection.send(number)
                files = row.mutant(seed, number)
                signal.setitimer(signal.ITIMER_PROF, SECONDS)
                try:
                    outcome = read(folder, row, files, number)
                except TooSlow:
                    outcome = Outcome(row.name, number, SLOW, "too slow", SECONDS)
                finally:
                    signal.setitimer(signal.ITIMER_PROF, 0)
                connection.send(outcome)


def _alarm(*_: Any) -> None:
    raise TooSlow


def _limit() -> None:
    """As much address space as is taken now, and the limit: earlier mutants' leavings count for none."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    allowed = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (allowed, resource.getrlimit(resource.RLIMIT_AS)[1]))


class _Worker:
    """A worker process, and what it is doing."""

    def __init__(self, seed: int, names: Sequence[str]) -> None:
        self.connection, other = get_context("spawn").Pipe()
        self.process = get_context("spawn").Process(target=_work, args=(other, seed, names), daemon=True)
        self.process.start()
        other.close()
        self.ready = False
        self.task: Task | None = None
        self.number: int | None = None
        self.since = time.monotonic()

    def give(self, task: Task | None) -> None:
        self.task, self.number, self.since = task, None, time.monotonic()
        self.connection.send(task)

    @property
    def stuck(self) -> bool:
        return self.number is not None and time.monotonic() - self.since > PATIENCE * SECONDS

    def end(self) -> None:
        self.process.kill()
        self.process.join()


def run(names: Sequence[str], total: int, seed: int, workers: int, first: int = 0) -> Iterator[Outcome]:
    """``total`` mutants over the formats, by their shares, in worker processes."""
    tasks = _tasks(names, total, first)
    pool = [_Worker(seed, names) for _ in range(max(1, min(workers, len(tasks))))]
    try:
        while pool:
            for connection in wait([w.connection for w in pool], 1.0):
                worker = next(w for w in pool if w.connection is connection)
                try:
                    yield from _hear(worker, tasks)
                except (EOFError, OSError):
                    yield from _lost(worker, tasks, CRASHED)
                    pool.remove(worker)
                    if tasks:
                        pool.append(_Worker(seed, names))
                if worker.ready and worker.task is None and not tasks and worker in pool:
                    worker.end()
                    pool.remove(worker)
            for worker in [w for w in pool if w.stuck]:
                yield from _lost(worker, tasks, SLOW)
                pool.remove(worker)
                pool.append(_Worker(seed, names))
    finally:
        for worker in pool:
            worker.end()


def _tasks(names: Sequence[str], total: int, first: int) -> list[Task]:
    """Small pieces of all formats in turn, so that a run that is cut short has some of each."""
    shares = sum(FORMATS[name].share for name in names)
    left = {name: -(-total * FORMATS[name].share // shares) for name in names}
    at = dict.fromkeys(names, first)
    found = []
    while any(left.values()):
        for name in names:
            count = min(left[name], 50 * FORMATS[name].share)
            if count:
                found.append(Task(name, at[name], count))
                left[name] -= count
                at[name] += count
    return found[::-1]


def _hear(worker: _Worker, tasks: list[Task]) -> Iterator[Outcome]:
    told = worker.connection.recv()
    if told == "ready":
        worker.ready = True
    elif isinstance(told, int):
        worker.number, worker.since = told, time.monotonic()
        return
    else:
        yield told
        task = worker.task
        assert task is not None
        if told.number + 1 < task.first + task.count:
            return
        worker.task = None
    if tasks:
        worker.give(tasks.pop())


def _lost(worker: _Worker, tasks: list[Task], kind: str) -> Iterator[Outcome]:
    """A worker that died or hangs: the mutant that it had is a finding, and the rest of its task goes to another."""
    status = worker.process.exitcode
    worker.end()
    task = worker.task
    if task is None:
        raise RuntimeError(f"a worker died before its first mutant, with status {status}")
    number = task.first if worker.number is None else worker.number
    yield Outcome(
        task.format,
        number,
        kind,
        f"{kind}, status {worker.process.exitcode}",
        time.monotonic() - worker.since,
    )
    rest = task.first + task.count - number - 1
    if rest:
        tasks.append(Task(task.format, number + 1, rest))
