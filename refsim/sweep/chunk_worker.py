"""Runs chunks in processes, one for each instruction set; a process that dies or hangs costs one configuration."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from refsim.core.errors import RefsimError
from refsim.core.rng import Rng
from refsim.exec.cpu import isa
from refsim.exec.process import Ended, ProcessError, Raised, Silent, Worker
from refsim.exec.task_threads import ProcessServer
from refsim.golden.check import CRASHED
from refsim.ops.base.binding import bind
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target
from refsim.sweep.chunk import ChunkRunner, case_files
from refsim.sweep.outcome import Outcome, SweepFailure, summed
from refsim.sweep.plan import Chunk

#: Time limit of a chunk without compilation: these seconds, and more for each configuration.
SECONDS, GRAPH_SECONDS, MODEL_SECONDS = 1.0, 5.0, 120.0
LEAST_SECONDS = 60.0


class ChunkWorker(ProcessServer):
    """What computes for one thread of a sweep: a process for each instruction set.

    ``inside``: in this process, as far as no instruction set is named.
    """

    def __init__(self, inside: bool = False) -> None:
        super().__init__(_started)
        self._inside = ChunkRunner() if inside else None

    def run(self, chunk: Chunk) -> list[Outcome]:
        """An outcome for each variant of a chunk. Raises what opening an executor raises."""
        parts: list[Outcome] = []
        for name in dict.fromkeys(variant.isa for variant in chunk.variants):
            same = tuple(variant for variant in chunk.variants if variant.isa == name)
            parts += self._on(name, replace(chunk, variants=same))
        return parts

    def serve(self, chunk: Chunk) -> list[list[Outcome]]:
        """What `run` returns, as the one result of a task (`refsim.exec.task_threads`)."""
        return [self.run(chunk)]

    def _on(self, name: str, chunk: Chunk) -> list[Outcome]:
        if self._inside is not None and not name:
            return self._inside.run(chunk)
        each = MODEL_SECONDS if chunk.model else GRAPH_SECONDS if chunk.whole else SECONDS
        try:
            seconds = LEAST_SECONDS + each * chunk.count
            found: list[Outcome] = self.worker(name).call("run", chunk, seconds=seconds)
            return found
        except (Ended, Silent, Raised) as error:
            if self.stopped:
                raise
            if chunk.count == 1 and len(chunk.variants) == 1:
                return [_crashed(chunk, error)]
        parts = [part for half in chunk.halves() for part in self._on(name, half)]
        return summed(parts)


def _started(name: str) -> Worker:
    environment = isa.environment(name) if name else None
    return Worker(
        ChunkRunner, where="sweep", seconds=LEAST_SECONDS, environment=environment, keep_stderr=True
    )


def _crashed(chunk: Chunk, error: ProcessError) -> Outcome:
    """The outcome of one configuration that ended its process. Its case is as it was drawn."""
    (variant,) = chunk.variants
    seed, profile = chunk.draw(chunk.first)
    outcome = Outcome(chunk.subject, chunk.first, 1, variant)
    message = ": ".join((str(error), *error.last_lines))
    text, files = f"{chunk.subject} --random {seed}", {}
    if not chunk.whole:
        with contextlib.suppress(RefsimError):
            bound = bind(OPS[chunk.subject].sample(Rng(seed)), Target(profile))
            text, files = str(bound.case), case_files(bound, f"sweep: seed {seed}, {variant}: {CRASHED}")
    outcome.fail(SweepFailure(chunk.subject, seed, profile.name, variant, CRASHED, message, text, files))
    return outcome
