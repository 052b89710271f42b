"""Check the whole corpus: files, definitions, executors. Workers are processes, so a crash costs only one case."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Annotated, Any

from refsim.core.errors import DeviceError, FormatError, ParameterError, RefsimError
from refsim.core.qmath import Profile
from refsim.exec.cpu import isa
from refsim.exec.factory import ALWAYS, executor_named
from refsim.exec.fingerprint import foreign, sources
from refsim.exec.process import ProcessError, Silent, Worker
from refsim.exec.task_threads import ProcessServer, served
from refsim.formats.file import LOOKED, held, read_file
from refsim.formats.reading import reading
from refsim.formats.typed_json import typed
from refsim.golden.apart import WrongCase
from refsim.golden.chain import CHAINS, ChainEntry
from refsim.golden.chain_check import check_chain
from refsim.golden.check import (
    ACCEPTED,
    BYTES,
    CRASHED,
    REFUSED,
    TIMEOUT,
    Checked,
    check_entries,
    check_stored,
    fails,
)
from refsim.golden.judge import LEGAL
from refsim.golden.store import SUMS, Corpus, DigestEntry, file_sha256


class Checker:
    """Checks one case after another. Raises what opening an executor raises."""

    def __init__(
        self, root: str, executors: list[str], profile: Profile | None = None, threads: int = 1
    ) -> None:
        self.corpus = Corpus(root)
        self.profile = profile
        self.executors = {name: executor_named(name, threads) for name in executors}
        self._op = ""
        self._entries: dict[int, DigestEntry] = {}
        self._chains: dict[int, ChainEntry] = {}

    def batch(self) -> int:
        """How many cases to check at once: as many as an executor likes that needs no second look at its kernels."""
        executors = self.executors.values()
        return (
            1
            if any(executor.foreign for executor in executors)
            else max((e.batch for e in executors), default=1)
        )

    def check(self, kind: str, cases: Sequence[str], explained: int | None = None) -> list[list[Checked]]:
        """The results of cases of one operator: of lines of ``digests``, of stored ``bytes``, or of chains.

        The first ``explained`` failures, or all, are told with their causes.
        """
        op, numbers = cases[0].partition("/")[0], [int(case.partition("/")[2]) for case in cases]
        if kind == CHAINS:
            self._chains = self._chains or {entry.number: entry for entry in self.corpus.chains()}
            return [list(check_chain(self._chains[n], self.executors, self.profile)) for n in numbers]
        if op != self._op:
            self._entries, self._op = {entry.number: entry for entry in self.corpus.entries(op)}, op
        if kind == DIGESTS:
            entries = [self._entries[number] for number in numbers]
            return list(check_entries(entries, self.executors, self.profile, explained))
        pairs = [
            (self.corpus.stored_case(case), self._entries.get(n))
            for case, n in zip(cases, numbers, strict=True)
        ]
        return [list(check_stored(*pair, self.executors, self.profile, explained != 0)) for pair in pairs]


WHERE = "golden verify"
DIGESTS = "digests"
CHUNK = 100
CASE_SECONDS = 120.0  # without compilation
#: Wrong cases of an operator after which its other cases are left out, and how many of them are explained.
ENOUGH, EXPLAINED = 20, 3


@dataclass(frozen=True)
class Task:
    """Some cases for one worker; ``kind`` is ``digests``, ``bytes`` or ``chains``."""

    kind: str
    op: str
    cases: tuple[str, ...]

    def key(self, case: str) -> str:
        """The case's name in results."""
        return f"{case}{BYTES}" if self.kind == "bytes" else case


class Tolerance:
    """How many wrong cases of each operator there were, in all processes: after ``most`` the operator has enough.

    None for ``most``: never. ``left`` counts the cases that were not checked, by operator.
    """

    def __init__(self, most: int | None = None) -> None:
        self.most, self.left = most, Counter[str]()
        self._wrong: Counter[str] = Counter()

    def add(self, op: str, results: Sequence[Checked]) -> None:
        self._wrong[op] += fails(results)

    def enough(self, op: str) -> bool:
        return self.most is not None and self._wrong[op] >= self.most

    def explained(self, op: str) -> int | None:
        """How many more wrong cases of an operator are explained; None for all."""
        return None if self.most is None else max(0, min(EXPLAINED, self.most) - self._wrong[op])


@dataclass(frozen=True)
class Conditions:
    """What runs, in how many processes, and how long a case may take; and under what.

    ``profile``: the one that executors have to follow, ``threads``: those of ``cpu``, ``isa``: what CPU kernels are
    compiled for (a row of `refsim.exec.cpu.isa`); the machine's own if not said.
    """

    executors: Sequence[str]
    workers: int = 1
    seconds: float = CASE_SECONDS
    profile: Profile | None = None
    threads: int = 1
    isa: str | None = None


def tasks(
    corpus: Corpus, operators: Sequence[str] | None = None, only: Callable[[str], bool] | None = None
) -> list[Task]:
    """All work, in chunks. ``only`` says whether a case is wanted, by its name in results."""
    found: list[Task] = []
    for op in corpus.operators():
        if operators and op not in operators:
            continue
        names = {
            "bytes": sorted(corpus.stored_names(op)),
            DIGESTS: [entry.name for entry in sorted(corpus.entries(op), key=_alike)],
        }
        for kind, cases in names.items():
            task = Task(kind, op, ())
            found += _chunks(task, cases, only)
    if not operators or CHAINS in operators:
        found += _chunks(Task(CHAINS, CHAINS, ()), [entry.name for entry in corpus.chains()], only)
    return found


def _alike(entry: DigestEntry) -> tuple[object, ...]:
    """Cases of the same layouts stand together, for which a device needs the same few pipelines."""
    case = entry.case
    return (*(layout for _, layout in case.inputs.values()), case.out_layout, entry.number)


def _chunks(task: Task, cases: Sequence[str], only: Callable[[str], bool] | None) -> Iterator[Task]:
    wanted = [case for case in cases if only is None or only(task.key(case))]
    for at in range(0, len(wanted), CHUNK):
        yield replace(task, cases=tuple(wanted[at : at + CHUNK]))


def run(
    corpus: Corpus, work: Sequence[Task], conditions: Conditions, tolerance: Tolerance | None = None
) -> Iterator[list[Checked]]:
    """The results of every case, as they come; of operators with enough wrong cases (``tolerance``) of no others.

    Raises what `executor_named` raises if an executor cannot be opened, DeviceError if the process dies over that. A
    worker that dies later or takes too long over a case makes that case ``crashed`` or ``timeout`` and goes on with a
    new process.
    """
    tolerance, count = tolerance or Tolerance(), max(1, min(conditions.workers, len(work)))
    return served(WHERE, work, [_CaseServer(corpus.root, conditions, tolerance) for _ in range(count)])


class _CaseServer(ProcessServer):
    """A process that checks cases for one thread."""

    def __init__(self, root: Path, conditions: Conditions, tolerance: Tolerance) -> None:
        super().__init__(lambda _: _started(root, conditions))
        self._conditions, self._tolerance, self._batch = conditions, tolerance, 1

    def serve(self, task: Task) -> Iterator[list[Checked]]:
        """The results of each case of a task."""
        if self._ready() is None:
            return
        size = self._batch if task.kind == DIGESTS else 1
        for at in range(0, len(task.cases), size):
            cases = task.cases[at : at + size]
            if self._tolerance.enough(task.op):
                self._tolerance.left[task.op] += len(task.cases) - at
                return
            for results in self._results(task, cases):
                self._tolerance.add(task.op, results)
                yield results

    def _results(self, task: Task, cases: Sequence[str]) -> Iterator[list[Checked]]:
        """The results of each case, all checked at once; ``crashed`` or ``timeout`` of one that ended its worker."""
        if (worker := self._ready()) is None:
            return
        seconds, explained = self._conditions.seconds * len(cases), self._tolerance.explained(task.op)
        found: list[list[Checked]] = []
        try:
            found = worker.call("check", task.kind, list(cases), explained, seconds=seconds)
        except RefsimError as error:
            if len(cases) == 1:
                status = TIMEOUT if isinstance(error, Silent) else CRASHED
                names = " ".join(self._conditions.executors)
                found = [[Checked(cases[0], names, status, _words(error), task.kind == "bytes")]]
        yield from found
        for case in cases if not found else ():  # it is the fault of one of them
            yield from self._results(task, [case])

    def _ready(self) -> Worker | None:
        """A process that lives; None if the work was stopped."""
        before, worker = self._workers.get(""), self.worker()
        if worker is not before:
            self._batch = worker.call("batch", seconds=CASE_SECONDS)
        return None if self.stopped else worker


def check_executors(corpus: Corpus, conditions: Conditions) -> None:
    """What cannot be opened is said before the corpus is read: raises as `run` does, in a process as there.

    ParameterError if one is named twice.
    """
    executors = conditions.executors
    if len(set(executors)) != len(executors):
        what = "one executor is named twice"
        raise ParameterError(WHERE, what, got=",".join(executors), need="distinct names")
    if not set(executors) <= set(ALWAYS):
        _started(corpus.root, replace(conditions, seconds=CASE_SECONDS)).close()


def _started(root: Path, conditions: Conditions) -> Worker:
    where, limit = WHERE, max(conditions.seconds, CASE_SECONDS)  # a case's limit is not that of the start
    held = (str(root), list(conditions.executors), conditions.profile, conditions.threads)
    environment = isa.environment(conditions.isa) if conditions.isa else {}
    try:
        return Worker(Checker, *held, where=where, seconds=limit, environment=environment, keep_stderr=True)
    except ProcessError as error:
        raise DeviceError(WHERE, "no worker could be started", got=_words(error)) from error


def _words(error: RefsimError) -> str:
    """How a process ended and what it said last; the text of another error."""
    if not isinstance(error, ProcessError):
        return str(error)
    during = f", during {error.working}" if error.working else ""
    said = " | ".join(error.last_lines)
    return f"{error.got}{during}" + (f": {said}" if said else "")


_NO_RESULTS = "not results of golden verify"
#: A key of a state in words, where it is not its own word.
_STATE = {"foreign": "modules or packages of an executor"}


# --- results on disk -------------------------------------------------------------------------------------


def state(corpus: Corpus, conditions: Conditions) -> dict[str, Any]:
    """What results depend on: digests of the corpus, of all sources and shaders, and of modules and packages that
    executors bring; the executors, the conditions."""
    profile, executors = conditions.profile, conditions.executors
    others = foreign(executors)
    return {
        "corpus": file_sha256(corpus.root / SUMS),
        "sources": sources(),
        "executors": list(executors),
        **({"foreign": others} if others else {}),
        **({} if profile is None else {"profile": asdict(profile)}),
        **({} if conditions.threads == 1 else {"threads": conditions.threads}),
        **({} if conditions.isa is None else {"isa": conditions.isa}),
    }


def read_results(path: Path, expected: dict[str, Any]) -> dict[str, list[Checked]]:
    """Case -> results of an earlier run. FormatError if the corpus, the sources or the executors were different."""
    with reading(str(path), _NO_RESULTS):
        data = read_file(path)
        if not bytes(data[:LOOKED]).startswith(b"{"):
            raise FormatError(str(path), _NO_RESULTS, got=held(data), need="a file of --results")
        lines = str(data, "utf-8").split("\n")
        head, *rows = [json.loads(text) for text in lines[:-1]]  # the last is empty, or cut off by a kill
    if head != {"golden verify": expected}:
        known = head.get("golden verify", {}) if isinstance(head, dict) else {}
        names = {*known, *expected} if isinstance(known, dict) else set(expected)
        other = sorted(
            name for name in names if not isinstance(known, dict) or known.get(name) != expected.get(name)
        )
        raise FormatError(
            str(path), "results of another state", got=f"other {', '.join(_STATE.get(name, name) for name in other)}",
            need="the same, or another file",
        )  # fmt: skip
    with reading(str(path), _NO_RESULTS):
        found = {str(row["case"]): list(row["results"]) for row in rows}
    return {
        case: [typed(Checked, result, f"{path}: {case}") for result in results]
        for case, results in found.items()
    }


def write_head(file: IO[str], expected: dict[str, Any]) -> None:
    print(json.dumps({"golden verify": expected}), file=file, flush=True)


def write_row(file: IO[str], results: Sequence[Checked]) -> None:
    row = {"case": results[0].key, "results": [result.as_json() for result in results]}
    print(json.dumps(row), file=file, flush=True)


def tally(results: Sequence[Checked]) -> dict[str, Counter[str]]:
    """Executor -> status -> how many."""
    return _counted((result.executor, result.status) for result in results)


def refusals(results: Sequence[Checked]) -> dict[str, Counter[str]]:
    """Executor -> why it did not take a case -> how many."""
    return _counted((result.executor, result.message) for result in results if result.status == REFUSED)


def _counted(pairs: Iterable[tuple[str, str]]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for name, what in pairs:
        found.setdefault(name, Counter())[what] += 1
    return found


def idle(results: Sequence[Checked]) -> dict[str, str]:
    """Executor -> one of its reasons, for those that took no case at all, and failed none.

    A case that refsim's kernels ran in the place of an executor's own is none that it took.
    """
    why: dict[str, str] = {}
    took: set[str] = set()
    for result in results:
        if result.status == REFUSED or (result.ours and result.status in ACCEPTED):
            why.setdefault(result.executor, result.ours or result.message)
        else:
            took.add(result.executor)
    return {name: text for name, text in why.items() if name not in took}


def configurations(corpus: Corpus, results: Sequence[Checked]) -> dict[str, str]:
    """Case -> its shapes, layouts and parameters in one line; chains have none."""
    names = {result.case for result in results}
    operators = {name.partition("/")[0] for name in names} - {CHAINS}
    entries = (entry for op in sorted(operators) for entry in corpus.entries(op))
    return {entry.name: entry.case.configuration for entry in entries if entry.name in names}


def wrong_cases(failed: Sequence[Checked]) -> dict[tuple[str, str], list[WrongCase]]:
    """(operator, executor) -> its failed cases; of a chain the operator is that of the first wrong step."""
    found: dict[tuple[str, str], list[WrongCase]] = {}
    for result in failed:
        op = result.operator or result.case.partition("/")[0]
        case = WrongCase(result.case, tuple(result.causes), result.sought)
        found.setdefault((op, result.executor), []).append(case)
    return found


def profiles(results: Sequence[Checked]) -> dict[str, str]:
    """Executor -> the profile that explains most of its bytes that are legal under another than they should be."""
    legal = (result for result in results if result.status == LEGAL)
    found = _counted((result.executor, name) for result in legal for name in result.profiles)
    return {name: counts.most_common(1)[0][0] for name, counts in found.items()}


@dataclass(frozen=True)
class Instead:
    """Cases that ran on refsim's own kernels."""

    cases: Annotated[int, "How many."]
    why: Annotated[Sequence[str], "Why."]


def instead(results: Sequence[Checked]) -> dict[str, dict[str, Instead]]:
    """Executor -> operator -> how many cases refsim's kernels ran in the place of modules of another build, and why."""
    found: dict[str, dict[str, Instead]] = {}
    for executor in dict.fromkeys(result.executor for result in results if result.ours):
        ours = (result for result in results if result.ours and result.executor == executor)
        why = _counted((result.case.partition("/")[0], result.ours) for result in ours)
        found[executor] = {op: Instead(counts.total(), list(counts)) for op, counts in sorted(why.items())}
    return found


def failures(results: Sequence[Checked]) -> list[Checked]:
    """What is not as it must be. A device has one profile: what is legal under others only is wrong there."""
    one = profiles(results)
    return [
        result
        for result in results
        if result.status not in ACCEPTED
        or (result.status == LEGAL and one[result.executor] not in result.profiles)
    ]
