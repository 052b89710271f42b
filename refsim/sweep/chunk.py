"""Runs chunks: draws each configuration once, defines it once, and compares every executor's bytes with that.

A chunk runs in a process for each instruction set, so that one that dies or hangs costs one configuration. A call that
fails is made smaller while it still fails: of the smaller ones the first that does is kept, until none does.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

import numpy as np

from refsim.core import doing
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import RefsimError
from refsim.core.less import less
from refsim.core.qmath import Profile
from refsim.core.rng import Rng
from refsim.exec.cpu import isa
from refsim.exec.executor import Executor
from refsim.exec.process import Ended, ProcessError, Raised, Silent, Worker
from refsim.exec.task_threads import ProcessServer
from refsim.formats.cases import contents
from refsim.golden import check
from refsim.golden.apart import rivals
from refsim.golden.check import ACCEPTED, CRASHED, DIFFERENT, ERROR
from refsim.golden.judge import SAME
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target
from refsim.sweep.executors import Executors, refusal
from refsim.sweep.models import ModelRunner
from refsim.sweep.outcome import MOST_TOLD, Outcome, SweepFailure, summed
from refsim.sweep.plan import Chunk

TELLS = "its replay says how to tell them apart"
AGAIN = "the bytes of one run were different; another run gave the right ones"


@dataclass(frozen=True)
class Drawn:
    """A call that was drawn ``at`` a seed and a profile, its inputs, and what it should give."""

    at: tuple[int, Profile]
    prepared: Prepared
    bound: BoundCase
    expected: PackedBuffer


class ChunkRunner:
    """Executors that stay open, for one chunk after another. Raises what opening an executor raises."""

    def __init__(self) -> None:
        self._executors = Executors()
        self._models = ModelRunner()

    def run(self, chunk: Chunk) -> list[Outcome]:
        """An outcome for each variant of the chunk."""
        runners = {variant: self._executors[variant] for variant in chunk.variants}
        if chunk.whole:
            return self._models.run(chunk, runners)
        found = {v: Outcome(chunk.subject, chunk.first, chunk.count, v) for v in chunk.variants}
        size, numbers = max(executor.batch for executor in runners.values()), list(chunk.numbers)
        for first in range(0, len(numbers), size):
            drawn = _drawn(chunk, numbers[first : first + size], list(found.values()))
            for variant, executor in runners.items():
                _on(chunk, drawn, executor, found[variant])
        if chunk.shrink:
            for outcome in found.values():
                end = time.monotonic() + SECONDS  # for all of them, so that a broken executor costs no more
                outcome.failures[:] = [self._smallest(chunk, one, end) for one in outcome.failures]
        return list(found.values())

    def _smallest(self, chunk: Chunk, failure: SweepFailure, end: float) -> SweepFailure:
        """The failure with the smallest case found until ``end`` that still fails in the same way, and its files."""
        executor = self._executors[failure.variant]
        profile = next(row for row in chunk.profiles if row.name == failure.profile)
        own = profile if chunk.strict else None

        def fails(case: Case) -> bool:
            return tried(executor, bind(case, Target(profile)), own, explain=False)[0] == failure.status

        try:
            case = OPS[chunk.subject].sample(Rng(failure.seed))
            small = shrunk(case, fails, end)
            bound = bind(small, Target(profile))
            message = tried(executor, bound, own)[1]
            files = case_files(bound, f"sweep: seed {failure.seed}, {failure.variant}: {failure.status}")
        except RefsimError:  # define itself fails
            return failure
        return replace(failure, case=str(small), message=message or failure.message, files=files)


def case_files(bound: BoundCase, note: str) -> dict[str, bytes]:
    """A case as `refsim replay` reads it, with the bytes of the definition."""
    return contents(bound, bound.call.expected(bound.inputs), note)


def tried(
    executor: Executor, bound: BoundCase, profile: Profile | None, explain: bool = True
) -> tuple[str, str]:
    """(status, why) of one call, by the judge that `refsim golden verify` has; see `check.run` for ``explain``."""
    try:
        found = check.run(
            str(bound.case),
            executor.name,
            executor,
            bound,
            bound.call.expected(bound.inputs),
            profile,
            explain,
        )
    except Exception as error:  # an executor's defect fails its configuration, not the sweep
        return ERROR, doing.told(error)
    two = rivals(bound.case.op, found.causes)  # a call that was made small may fit several
    why = map(str, found.causes[:1]) if two is None else (f"{two.same}; {TELLS}",)
    told = "; ".join((*found.pattern, *why))
    return found.status, found.message or told


def _drawn(chunk: Chunk, numbers: Sequence[int], outcomes: Sequence[Outcome]) -> list[Drawn]:
    """Configurations; of one without a meaning all outcomes are told why."""
    drawn: list[Drawn] = []
    for number in numbers:
        seed, profile = at = chunk.draw(number)
        try:
            bound = bind(OPS[chunk.subject].sample(Rng(seed)), Target(profile))
            drawn.append(Drawn(at, Prepared(bound.call), bound, bound.call.expected(bound.inputs)))
        except Exception as error:  # of the operator itself, whatever it is: no executor was asked yet
            for outcome in outcomes:
                outcome.fail(at, ERROR, f"define: {doing.told(error)}")
    return drawn


def _on(chunk: Chunk, drawn: Sequence[Drawn], executor: Executor, outcome: Outcome) -> None:
    """What configurations give on an executor, which runs together those that it takes."""
    taken: list[Drawn] = []
    for one in drawn:
        if refused := refusal(executor, one.prepared):
            outcome.refuse(refused)
        else:
            taken.append(_meant(executor, one))
    begin = time.perf_counter()
    same = [True] * len(taken)
    for _ in range(1 + chunk.repeats):
        same = [one and again for one, again in zip(same, _same(executor, taken), strict=True)]
    outcome.seconds += time.perf_counter() - begin
    for one, right in zip(taken, same, strict=True):
        outcome.nbytes += one.expected.desc.nbytes
        if right:
            outcome.statuses[SAME] += 1
            continue
        explain = not chunk.shrink and len(outcome.failures) < MOST_TOLD  # the smallest case is explained
        status, message = tried(executor, one.bound, one.at[1] if chunk.strict else None, explain)
        if status == SAME:
            status, message = DIFFERENT, AGAIN
        if status in ACCEPTED:
            outcome.statuses[status] += 1
        else:
            outcome.fail(one.at, status, message, str(one.bound.case))


def _meant(executor: Executor, one: Drawn) -> Drawn:
    """A configuration as the executor's kernels mean it."""
    bound, expected = check.asked_of(executor, one.bound, one.expected)
    return one if bound is one.bound else Drawn(one.at, Prepared(bound.call), bound, expected)


def _same(executor: Executor, work: Sequence[Drawn]) -> list[bool]:
    """Of each call whether every byte is the definition's, and nothing else was written; all else is no yes."""
    before = [[buffer.memory.copy() for buffer in one.bound.inputs.values()] for one in work]
    outputs = _outputs(executor, work)
    return [
        isinstance(actual, PackedBuffer)
        and np.array_equal(one.expected.words, actual.words)
        and all(map(np.array_equal, held, (buffer.memory for buffer in one.bound.inputs.values())))
        for one, actual, held in zip(work, outputs, before, strict=True)
    ]


def _outputs(executor: Executor, work: Sequence[Drawn]) -> Sequence[PackedBuffer | RefsimError | None]:
    """What an executor gives; where that is no buffer, a second run tells why."""
    if executor.batch > 1:
        try:
            return executor.run_batch([(one.bound.call, one.bound.inputs) for one in work])
        except Exception:
            return [None] * len(work)
    found: list[PackedBuffer | None] = []
    for one in work:
        try:
            found.append(executor.run_prepared(one.prepared, one.bound.inputs))
        except Exception:
            found.append(None)
    return found


#: Time limit of a chunk without compilation: these seconds, and more for each configuration.
CALL_SECONDS, GRAPH_SECONDS, MODEL_SECONDS = 1.0, 5.0, 120.0
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
        each = MODEL_SECONDS if chunk.model else GRAPH_SECONDS if chunk.whole else CALL_SECONDS
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
    seed, profile = at = chunk.draw(chunk.first)
    outcome = Outcome(chunk.subject, chunk.first, 1, variant)
    message = ": ".join((str(error), *error.last_lines))
    text, files = f"{chunk.subject} --random {seed}", {}
    if not chunk.whole:
        with contextlib.suppress(RefsimError):
            bound = bind(OPS[chunk.subject].sample(Rng(seed)), Target(profile))
            text, files = str(bound.case), case_files(bound, f"sweep: seed {seed}, {variant}: {CRASHED}")
    outcome.fail(at, CRASHED, message, text, files)
    return outcome


#: When to stop although there may be a smaller case: calls tried, and seconds.
MOST_TRIED, SECONDS = 600, 10.0


def shrunk(case: Case, fails: Callable[[Case], bool], end: float | None = None) -> Case:
    """The smallest case found that ``fails``. One that cannot be bound, or raises RefsimError there, does not count.

    ``end``: the time of `time.monotonic` after which nothing more is tried, SECONDS from now if it is not given.
    """
    end = time.monotonic() + SECONDS if end is None else end
    tried, seen = 0, {str(case)}
    smaller = True
    while smaller:
        smaller = False
        for candidate in candidates(case):
            if str(candidate) in seen:
                continue
            seen.add(str(candidate))
            if tried == MOST_TRIED or time.monotonic() > end:
                return case
            tried += 1
            if _holds(fails, candidate):
                case, smaller = candidate, True
                break
    return case


def _holds(fails: Callable[[Case], bool], case: Case) -> bool:
    try:
        return fails(case)
    except RefsimError:
        return False


def candidates(case: Case) -> Iterator[Case]:
    """Simpler cases, those that take most away first. They need not be legal."""
    defaults = {row.name: row.default for row in fields(OPS[case.op].params) if row.default is not MISSING}
    yield from _shapes(case)
    yield from (replace(case, features=row) for row in _plainer(case.features, {"bias": False}))
    yield from (replace(case, params=row) for row in _plainer(case.params, defaults))
    if case.style != "random":
        yield replace(case, style="random", poison=False)
    if case.poison:
        yield replace(case, poison=False)
    if case.seed:
        yield replace(case, seed=0)


def _shapes(case: Case) -> Iterator[Case]:
    """Each dim of all inputs that share its size made smaller, then of one input alone."""
    rank = max((len(shape) for shape, _ in case.inputs.values()), default=0)
    for axis in range(-rank, 0):
        sizes = {name: shape[axis] for name, (shape, _) in case.inputs.items() if len(shape) >= -axis}
        for size in dict.fromkeys(sizes.values()):
            names = [name for name, held in sizes.items() if held == size]
            for smaller in less(size):
                yield _resized(case, names, axis, smaller)
                if len(names) > 1:
                    yield from (_resized(case, [name], axis, smaller) for name in names)


def _resized(case: Case, names: list[str], axis: int, size: int) -> Case:
    inputs = dict(case.inputs)
    for name in names:
        shape, layout = inputs[name]
        changed = list(shape)
        changed[axis] = size
        inputs[name] = (tuple(changed), layout)
    return replace(case, inputs=inputs)


def _plainer(held: Mapping[str, Any], plain: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The same values by name, with one of them plainer."""
    for key, value in held.items():
        options = [plain[key]] if key in plain else []
        for option in (*options, *_simpler(value)):
            if option != value:
                yield {**held, key: option}


def _simpler(value: Any) -> Iterator[Any]:
    """Simpler values of the same type, as far as a type has any."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int):
        yield from (0, 1) if value > 1 else (0,)
        yield from less(value, 2) if value > 2 else ()
        if value < 0:
            yield -1
    elif isinstance(value, float):
        yield from (1.0, 0.5) if value != 1.0 else ()
    elif isinstance(value, tuple):
        yield type(value)(min(item, 1) for item in value) if all(isinstance(i, int) for i in value) else value
        for at, item in enumerate(value):
            yield from ((*value[:at], one, *value[at + 1 :]) for one in _simpler(item))
