"""A check of the corpus, as a value: counts, the cases that fail, and what is wrong with each kernel.

Results are appended to a file as they come, from which a check is resumed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from refsim.core import choices
from refsim.core.counted import counted
from refsim.core.doing import progress
from refsim.core.errors import FormatError, IncompleteError, ParameterError, RefsimError
from refsim.core.meanings import Seconds
from refsim.core.no_clobber import free
from refsim.core.result import MOST_SHOWN, Command, Comparison, Table, Text, rest
from refsim.exec.cpu import isa as isas
from refsim.exec.factory import executor_named
from refsim.golden import verify as checks
from refsim.golden.apart import KernelCauses, Runs, likely, of_kernels
from refsim.golden.chain import CHAINS
from refsim.golden.check import BYTES, Checked
from refsim.golden.judge import KNOWN_DEFECT
from refsim.golden.judge import SAME as SAME_BYTES
from refsim.golden.store import Corpus
from refsim.golden.told import kernels_text
from refsim.ops.base.registry import OPS, check_names


def failed_text(one: Checked, rerun: Sequence[str]) -> Iterator[str]:
    """A case that failed, and the command that checks it again."""
    how = ", from its stored bytes" if one.stored else ""
    yield f"{one.case} {one.executor}: {one.status}{how} {one.message}".rstrip()
    if one.configuration:
        yield f"  {one.configuration}"
    if one.digest is not None and one.recorded is not None:
        yield f"  the definition gives {one.digest[:16]}..., recorded is {one.recorded[:16]}..."
    if one.differing is not None:
        yield "; ".join((f"  {one.differing} differ", *one.pattern))
    yield from (f"  {line}" for line in likely(one.causes))
    yield Command(f"  {shlex.join(['refsim', 'golden', 'verify', one.case, *rerun])}")


@dataclass(frozen=True, kw_only=True)
class VerifiedCorpus(Comparison):
    """The corpus against definitions and executors. ``rerun``: the options with which a case is checked again."""

    root: Annotated[str, "The corpus."]
    cases: Annotated[int, "How many checks: digests, whole and chains together."]
    digests: Annotated[int, "Cases that were checked by their digests."]
    whole: Annotated[
        int, "Cases that were checked by their stored bytes, most of them the same cases once more."
    ]
    chains: Annotated[int, "Chains that were checked."]
    resumed: Annotated[int, "Cases of an earlier run."]
    seconds: Seconds
    damaged_files: Annotated[Sequence[str], "Files that do not match SHA256SUMS, in sentences."]
    threads: Annotated[int, "Threads of the executor cpu."]
    isa: Annotated[str, "Instruction set of the CPU's kernels."]
    executors: Annotated[Mapping[str, Mapping[str, int]], "Cases by executor and status."]
    profiles: Annotated[Mapping[str, str], "The profile of legal bytes, by executor."]
    known: Annotated[Mapping[str, int], "Cases by known defect."]
    refused: Annotated[
        Mapping[str, Mapping[str, int]],
        "By executor of another package: cases that it does not take, by reason.",
    ]
    ours: Annotated[
        Mapping[str, Mapping[str, checks.Instead]],
        "By executor and operator: cases that ran on refsim's own kernels, because the folder lacks the module.",
    ]
    failures: Annotated[Sequence[Checked], "What failed."]
    causes: Annotated[Sequence[KernelCauses], "What is wrong with each kernel."]
    not_checked: Annotated[
        Mapping[str, int], "By operator: cases that were left out after enough wrong ones."
    ]
    rerun: Sequence[str]

    def text(self) -> Text:
        yield from (f"{self.root}: {text}" for text in self.damaged_files)
        yield from self._counts()
        for one in self.failures[:MOST_SHOWN]:
            yield from failed_text(one, self.rerun)
        yield from rest(len(self.failures))
        yield from kernels_text(self.causes)
        for op, count in self.not_checked.items():
            more = f"not checked after {checks.ENOUGH} wrong ones; --all checks them too"
            yield f"{op}: {counted(count, 'case')} {more}"
        yield f"{self.checked()}; {counted(len(self.failures), 'failure')}, {self.seconds:.0f} s"

    def _counts(self) -> Text:
        statuses = sorted(
            {status for counts in self.executors.values() for status in counts}, key=lambda s: s != SAME_BYTES
        )
        ours = {name: sum(row.cases for row in operators.values()) for name, operators in self.ours.items()}
        heads = ("executor", *statuses, *(["ours count"] if ours else []))
        rows = [
            (name, *(counts.get(status, 0) for status in statuses), *([ours.get(name, 0)] if ours else []))
            for name, counts in self.executors.items()
        ]
        yield Table(heads, rows)
        for name, operators in self.ours.items():
            for op, row in operators.items():
                ran = f"refsim's own kernels ran {counted(row.cases, 'case')} of {op}"
                yield f"{name}: {ran}: {'; '.join(row.why)}"
        for name, text in self.profiles.items():
            yield f"{name}: what is legal has the bytes of the profile {text}"
        yield from (f"{counted(count, 'case')}: {text}" for text, count in self.known.items())
        for name, reasons in self.refused.items():
            yield from (f"{name} refused {counted(count, 'case')}: {text}" for text, count in reasons.items())

    def checked(self) -> str:
        """How many checks there were, and of what: a case may be checked by its digest and by its stored bytes."""
        parts = [f"{counted(self.digests, 'case')} by digest"] if self.digests else []
        parts += [f"{self.whole} of them by stored bytes too"] if self.whole else []
        parts += [counted(self.chains, "chain")] if self.chains else []
        return f"{counted(self.cases, 'check')}: {', '.join(parts)}"


def verified(
    corpus: Corpus,
    found: Sequence[Checked],
    damaged: Sequence[str],
    resumed: int,
    conditions: checks.Conditions,
    tolerance: checks.Tolerance,
    rerun: Sequence[str],
    seconds: float,
) -> VerifiedCorpus:
    """What all checks gave together, and what is wrong with each kernel."""
    failed = checks.failures(found)
    configured = checks.configurations(corpus, failed)
    known = Counter(r.message for r in found if r.status == KNOWN_DEFECT)
    checked = {result.key for result in found}
    chains = sum(name.startswith(f"{CHAINS}/") for name in checked)
    whole = sum(name.endswith(BYTES) for name in checked)
    return VerifiedCorpus(
        root=str(corpus.root), cases=len(checked), digests=len(checked) - whole - chains, whole=whole, chains=chains,
        resumed=resumed, seconds=round(seconds, 3), damaged_files=damaged, threads=conditions.threads,
        isa=conditions.isa or isas.cpu().isa.name, executors=checks.tally(found), profiles=checks.profiles(found),
        known=known, refused=checks.refusals(found), ours=checks.instead(found),
        failures=[replace(one, configuration=configured.get(one.case, "")) for one in failed],
        causes=of_kernels(checks.wrong_cases(failed), _runs), not_checked=dict(tolerance.left),
        same=not damaged and not failed, rerun=rerun,
    )  # fmt: skip


def _runs(executor: str) -> Runs:
    """Which calls an executor computes; none if it cannot be opened here."""
    try:
        return executor_named(executor).runs
    except RefsimError:
        return lambda call: False


def run(
    corpus: Corpus,
    cases: Sequence[str],
    results: str | None,
    resume: bool,
    conditions: checks.Conditions,
    tolerance: checks.Tolerance,
) -> tuple[int, list[Checked]]:
    """Check cases, those of whole operators too: (cases taken from earlier results, all results).

    ``results``: the file that they are appended to as they come; FormatError if it is there, unless to ``resume``.
    ParameterError for what cannot be asked.
    """
    before: dict[str, list[Checked]] = {}
    state = checks.state(corpus, conditions) if results else {}
    if results and Path(results).exists():
        if not resume:
            need = f"--resume, or a name that is free, such as {free(results, folder=False)}"
            raise FormatError(results, "already exists", need=need)
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
        for rows in checks.run(corpus, work, conditions, tolerance):
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
    check_names("golden verify", unknown, known)
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
