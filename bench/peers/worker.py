"""A process with one engine, which is stopped between samples."""

from __future__ import annotations

import os
import time
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any

from refsim.exec.process import Worker

SAMPLE_SECONDS = 0.08
#: A sample during which other programs took more than this part of its time is taken again, so often at most.
OTHERS = 0.15
TRIES = 6


def busy_seconds() -> float | None:
    """Time that all processors together have worked since the machine started; None where nobody says."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    except OSError:
        return None
    user, nice, system, _idle, _wait, irq, soft, steal = map(int, fields)
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


class Contender:
    """An engine with a number of threads, in a process of its own. Its processors rest while others are measured."""

    def __init__(self, engine: str, threads: int) -> None:
        self.key = self.engine, self.threads = engine, threads
        one = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        self._worker = Worker(Side, engine, threads, where=f"{engine}, {threads} threads", environment=one)

    def ask(self, method: str, *arguments: str) -> Any:
        """Wake the process, let it answer, stop it again: its idle threads may spin."""
        self._worker.signal(SIGCONT)
        answer = self._worker.call(method, *arguments)
        self._worker.signal(SIGSTOP)
        return answer

    def sample(self, folder: str) -> tuple[float, bool]:
        """Seconds of one run of a network, and whether other programs left the machine alone meanwhile."""
        for _ in range(TRIES):
            before, begin = busy_seconds(), time.perf_counter()
            seconds, own = self.ask("sample", folder)
            after, wall = busy_seconds(), time.perf_counter() - begin
            if before is None or after is None or after - before - own <= OTHERS * wall:
                return seconds, True
            time.sleep(0.2)
        return seconds, False

    def end(self) -> None:
        self._worker.kill()


class Side:
    """What lives in that process."""

    def __init__(self, engine: str, threads: int) -> None:
        from bench.peers.engines import ENGINES

        self.engine, self.threads = ENGINES[engine], threads
        self.runs: dict[str, Any] = {}
        self.counts: dict[str, int] = {}

    def load(self, folder: str) -> int:
        """Open a network, run it, and find how many runs make a sample."""
        if folder not in self.runs:
            run = self.runs[folder] = self.engine(Path(folder), self.threads)
            run()
            begin = time.perf_counter()
            run()
            self.counts[folder] = max(1, round(SAMPLE_SECONDS / (time.perf_counter() - begin)))
        return self.counts[folder]

    def unload(self) -> None:
        self.runs.clear()

    def sample(self, folder: str) -> tuple[float, float]:
        """Seconds of one run, over a sample's runs after one that is not counted; processor time of all."""
        own = time.process_time()
        run, count = self.runs[folder], self.counts[folder]
        run()
        begin = time.perf_counter()
        for _ in range(count):
            run()
        return (time.perf_counter() - begin) / count, time.process_time() - own

    def output(self, folder: str, to: str) -> None:
        """Save what the network gives."""
        import numpy as np

        np.save(to, self.engine(Path(folder), self.threads)())
