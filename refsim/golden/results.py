"""The cases that golden verify was asked for, checked; the file of their results, from which a run is resumed."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from refsim.core import choices
from refsim.core.doing import progress
from refsim.core.errors import FormatError, IncompleteError, ParameterError
from refsim.golden import verify as checks
from refsim.golden.chain import CHAINS
from refsim.golden.check import BYTES, Checked
from refsim.golden.store import Corpus
from refsim.ops.base.registry import LISTED, OPS


def run(
    corpus: Corpus,
    cases: Sequence[str],
    executors: Sequence[str],
    workers: int,
    seconds: float,
    results: str | None,
    resume: bool,
    conditions: checks.Conditions,
    tolerance: checks.Tolerance,
) -> tuple[int, list[Checked]]:
    """Check cases, those of whole operators too: (cases taken from earlier results, all results).

    ``results``: the file that they are appended to as they come. ParameterError for what cannot be asked.
    """
    before: dict[str, list[Checked]] = {}
    state = checks.state(corpus, executors, conditions) if results else {}
    if results and resume and Path(results).exists():
        before = checks.read_results(Path(results), state)
    operators = _operators(corpus, cases)
    wanted = {case for case in cases if "/" in case}
    picked = wanted | {f"{case}{BYTES}" for case in wanted}
    whole = {case for case in cases if "/" not in case}

    def only(name: str) -> bool:
        if name in before:
            return False
        return not cases or name in picked or name.partition("/")[0] in whole

    work = checks.tasks(corpus, operators, only)
    unknown = _unknown(cases, [task.key(case) for task in work for case in task.cases], before)
    if unknown:
        need = _there(corpus, unknown[0])
        raise ParameterError("golden verify", "no such case", got=choices.listed(unknown), need=need)
    if not work and not before:
        raise IncompleteError(str(corpus.root), "no case to check", got="an empty corpus", need="at least 1")
    found = [result for rows in before.values() for result in rows]
    with (
        _log(results, state, before) as log,
        progress("cases", sum(len(task.cases) for task in work)) as advance,
    ):
        for rows in checks.run(corpus, work, executors, workers, seconds, conditions, tolerance):
            found.extend(rows)
            log(rows)
            advance()
    return len(before), found


def _unknown(cases: Sequence[str], work: Sequence[str], before: Collection[str]) -> list[str]:
    """The cases that were asked for and name nothing."""
    known = {name.removesuffix(BYTES) for name in (*work, *before)}
    known |= {name.partition("/")[0] for name in known}
    return [case for case in cases if case not in known]


def _there(corpus: Corpus, name: str) -> str:
    """Which cases there are of the operator in a name; of the chains, for theirs."""
    op = name.partition("/")[0]
    names = [entry.name for entry in (corpus.chains() if op == CHAINS else corpus.entries(op))]
    return f"{names[0]} to {names[-1]}" if names else "OPERATOR or OPERATOR/NUMBER, as in digests/"


def _operators(corpus: Corpus, cases: Sequence[str]) -> list[str]:
    chosen = sorted({case.partition("/")[0] for case in cases})
    known = (*corpus.operators(), CHAINS)
    unknown = [name for name in chosen if name not in known]
    if unknown and unknown[0] in OPS:
        need = f"refsim golden new {unknown[0]}, which makes them"
        raise ParameterError("golden verify", "the operator has no cases", got=unknown[0], need=need)
    if unknown:
        raise ParameterError(
            "golden verify",
            f"no such operator ({LISTED})",
            got=unknown[0],
            need=choices.need(unknown[0], known),
        )
    return chosen


@contextlib.contextmanager
def _log(
    path: str | None, state: dict[str, Any], before: dict[str, list[Checked]]
) -> Iterator[Callable[[Sequence[Checked]], None]]:
    """A function that appends a case's results to the file, whole lines at a time."""
    if path is None:
        yield lambda rows: None
        return
    try:
        opened = open(path, "a" if os.path.isfile(path) else "w", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise FormatError(path, "cannot be written", got=error.strerror, need="a writable path") from error
    with opened as file:
        if os.path.isfile(path):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FormatError(
                    path, "another process writes its results there", need="one at a time"
                ) from None
            # what is there stays until it is replaced; a kill may have cut off the last line
            file.truncate(Path(path).read_bytes().rfind(b"\n") + 1 if before else 0)
        if not before:
            checks.write_head(file, state)
        yield lambda rows: checks.write_row(file, rows)
