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
from pathlib import Path
from typing import Any

from refsim.bytediff.search import VARIABLE
from refsim.core.errors import RefsimError
from refsim.exec.process import Ended, Silent, Worker
from refsim.exec.task_threads import ProcessServer, served
from tests.fuzz.formats import FORMATS, Format
from tests.fuzz.seeds import Files

#: Seconds of computing, since machines are shared, and bytes. A worker that sleeps so many times as long is ended too.
SECONDS, MEMORY = 5.0, 1 << 30
PATIENCE = 12
#: Seconds that a worker may take to start, and the mutants that it has.
START, PIECE = 600.0, 1000
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
    """Some mutants of one format, for a process of their own."""

    format: str
    first: int
    count: int


class Reader:
    """Reads mutants of a format within limits, in a process of its own."""

    def __init__(self, name: str) -> None:
        signal.signal(signal.SIGPROF, _alarm)
        os.environ[VARIABLE] = "0"  # what takes as long as it is allowed says nothing of a file
        self.row = FORMATS[name]
        with scratch() as folder:  # what is loaded and compiled once belongs to no mutant
            for number, files in enumerate(self.row.seeds()):
                for way in range(8) if number < 2 else (4,):
                    read(folder, self.row, files, way=way)
        _limit()

    def mutant(self, seed: int, number: int) -> Outcome:
        files = self.row.mutant(seed, number)
        with scratch() as folder:
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                return read(folder, self.row, files, number)
            except TooSlow:
                return Outcome(self.row.name, number, SLOW, "too slow", SECONDS)
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)


def _alarm(*_: Any) -> None:
    raise TooSlow


def _limit() -> None:
    """As much address space as is taken now, and the limit."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    allowed = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (allowed, resource.getrlimit(resource.RLIMIT_AS)[1]))


def run(names: Sequence[str], total: int, seed: int, workers: int, first: int = 0) -> Iterator[Outcome]:
    """``total`` mutants over the formats, by their shares, in worker processes."""
    return served("fuzz", _tasks(names, total, first), [_Workers(seed) for _ in range(workers)])


def _tasks(names: Sequence[str], total: int, first: int) -> list[Task]:
    """Pieces of all formats in turn, so that a run that is cut short has some of each."""
    shares = sum(FORMATS[name].share for name in names)
    whole = {name: -(-total * FORMATS[name].share // shares) for name in names}
    made = [
        (at, Task(name, first + at, min(PIECE, whole[name] - at)))
        for name in names
        for at in range(0, whole[name], PIECE)
    ]
    return [task for _, task in sorted(made, key=lambda row: row[0])]


class _Workers(ProcessServer):
    """A worker at a time. A mutant that ends it is a finding, and another one goes on behind it."""

    def __init__(self, seed: int) -> None:
        super().__init__(lambda name: Worker(Reader, name, where=f"fuzz {name}", seconds=START))
        self._seed = seed

    def serve(self, task: Task) -> Iterator[Outcome]:
        for number in range(task.first, task.first + task.count):
            try:
                yield self.worker(task.format).call("mutant", self._seed, number, seconds=PATIENCE * SECONDS)
            except (Ended, Silent) as error:
                if self.stopped:
                    return
                kind = SLOW if isinstance(error, Silent) else CRASHED
                yield Outcome(task.format, number, kind, f"{kind}: {error.got}")
        self.close()
