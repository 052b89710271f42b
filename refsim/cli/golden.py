"""Check the golden corpus, show what it covers, or renew it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from refsim.cli._apart import lines_of, say_lines
from refsim.cli._golden_device import check, export
from refsim.cli._golden_regen import new, regen
from refsim.cli._idle import Share
from refsim.cli._main import DIFFERENT, SAME, Named
from refsim.cli._options import executors_option, json_option, profile_option, root_option
from refsim.cli._output import print_json, print_table, say, wrote
from refsim.cli._progress import progress
from refsim.cli._verb import PROGRAM, verb, write_example
from refsim.cli._written import Written
from refsim.core import choices
from refsim.core.counted import counted
from refsim.core.errors import FormatError, IncompleteError, ParameterError, RefsimError
from refsim.core.qmath import Profile
from refsim.exec.cpu import isa as isas
from refsim.exec.factory import executor_named
from refsim.golden import verify as checks
from refsim.golden.apart import Apart, Rivals, told
from refsim.golden.chain import CHAINS
from refsim.golden.check import BYTES, Result
from refsim.golden.judge import KNOWN_DEFECT
from refsim.golden.judge import SAME as SAME_BYTES
from refsim.golden.store import Corpus, default_root, full_name
from refsim.ops.base.case import Case
from refsim.ops.base.registry import LISTED, OPS

MOST_SHOWN = 20
#: Likely causes of a failure that are said.
MOST_CAUSES = 3
#: How many pairs of causes that predict the same bytes are told apart; each may take a second.
MOST_APART = 3


class Subverbs(Named):
    """Lists its subverbs with the whole first sentence of each; click would cut it off."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Subverbs"):
            rows = [
                (name, re.split(r"\.(?:\s|$)", self.commands[name].help or "")[0])
                for name in sorted(self.commands)
            ]
            formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_example(f"{ctx.command_path} {verify.name} {verify.example}", formatter)


@click.group("golden", cls=Subverbs)
def command() -> None:
    """Check, count, renew or extend the golden corpus. Every subverb takes --json."""


def _root(given: str | None) -> Path:
    return Path(given) if given else default_root()


# --- verify ----------------------------------------------------------------------------------------------


@verb("verify", "-x cpu --workers 2")
@click.argument("cases", nargs=-1)
@root_option
@executors_option
@click.option(
    "--workers", type=click.IntRange(1, 256), default=2, show_default=True, help="Number of processes."
)
@click.option(
    "--seconds", type=click.FloatRange(0.1), default=checks.CASE_SECONDS, help="Time limit per case."
)
@click.option(
    "--results",
    type=Written(),
    metavar="FILE",
    help="Append each case's results to this file as they come, as JSON lines.",
)
@click.option("--resume", is_flag=True, help="Skip the cases whose results are in that file.")
@profile_option("the executors must have")
@click.option(
    "--threads", type=click.IntRange(1, 256), default=1, show_default=True, help="Threads of executor cpu."
)
@click.option(
    "--isa",
    type=click.Choice([row.name for row in isas.ISAS]),
    help="Compile the kernels of the CPU for this instruction set, not for the best of this machine.",
)
@json_option
def verify(
    cases: tuple[str, ...],
    root: str | None,
    executors: str,
    workers: int,
    seconds: float,
    results: str | None,
    resume: bool,
    profile: Profile | None,
    threads: int,
    isa: str | None,
    as_json: bool,
) -> int:
    """Check files, definitions and executors on the whole corpus, or on CASES: operators, OPERATOR/NUMBER, or chains.

    Kernels that are not refsim's (spv:DIR, other packages) may write what one other profile allows. Modules of another
    build may also show the known defects of upstream, and other packages may refuse cases.
    """
    corpus = Corpus(_root(root))
    cases, names = tuple(map(full_name, cases)), executors.split(",")
    begin = time.monotonic()
    conditions = checks.Conditions(profile, threads, isa)
    if isa is not None:
        isas.environment(isa)  # what this machine lacks is said before anything starts
    checks.check_executors(corpus, names, conditions)
    damaged = corpus.damaged()
    done, found = _verified(corpus, cases, names, workers, seconds, results, resume, conditions)
    if results is not None:
        wrote(results)
    for name, reason in checks.idle(found).items():
        Share(name, 0, 1, (reason,)).check()
    failed = checks.failures(found)
    same = not damaged and not failed
    given = {
        "--root": root,
        "--profile": profile and profile.name,
        "--threads": threads > 1 and threads,
        "--isa": isa,
    }
    asked = [word for name, value in given.items() if value for word in (name, str(value))]
    table = checks.tally(found)
    refused = checks.refusals(found)
    if as_json:
        facts = {
            "root": str(corpus.root), "cases": len({r.case for r in found}), **_kinds(found), "resumed": done,
            "seconds": round(time.monotonic() - begin, 3), "damaged_files": damaged,
            "threads": threads, "isa": isa or isas.cpu().isa.name,
            "executors": {name: dict(counts) for name, counts in table.items()},
            "profiles": checks.profiles(found), "known": _defects(found), "refused": refused,
            "ours": checks.instead(found),
            "failures": [_failure(r) for r in failed], "same": same,
        }  # fmt: skip
        print_json("golden verify", facts)
        return SAME if same else DIFFERENT
    for text in damaged:
        say(f"{corpus.root}: {text}")
    statuses = sorted(
        {status for counts in table.values() for status in counts}, key=lambda s: s != SAME_BYTES
    )
    instead = checks.instead(found)
    ours = {name: sum(row["cases"] for row in operators.values()) for name, operators in instead.items()}
    heads = ("executor", *statuses, *(["ours count"] if instead else []))
    rows = [(n, *(c[s] for s in statuses), *([ours.get(n, 0)] if instead else [])) for n, c in table.items()]
    print_table(heads, rows)
    for name, operators in instead.items():
        for op, row in operators.items():
            say(
                f"{name}: refsim's own kernels ran {counted(row['cases'], 'case')} of {op}: {'; '.join(row['why'])}"
            )
    for name, text in checks.profiles(found).items():
        say(f"{name}: what is legal has the bytes of the profile {text}")
    for text, count in _defects(found).items():
        say(f"{counted(count, 'case')}: {text}")
    for name, reasons in refused.items():
        for text, count in reasons.items():
            say(f"{name} refused {counted(count, 'case')}: {text}")
    for result in failed[:MOST_SHOWN]:
        _print_failure(result, names, asked)
    for case, lines in _apart(failed):
        say_lines(
            [(f"{case}: {line}" if line is lines[0][0] else f"  {line}", command) for line, command in lines]
        )
    if len(failed) > MOST_SHOWN:
        say(choices.more(len(failed) - MOST_SHOWN, choices.IN_JSON))
    say(f"{checked(found)}; {counted(len(failed), 'failure')}, {time.monotonic() - begin:.0f} s")
    return SAME if same else DIFFERENT


def checked(results: Sequence[Result]) -> str:
    """How many checks there were, and of what: the same case may be checked by its digest and by its stored bytes."""
    kinds = _kinds(results)
    parts = [f"{counted(kinds['digests'], 'case')} by digest"] if kinds["digests"] else []
    parts += [f"{kinds['whole']} of them by stored bytes too"] if kinds["whole"] else []
    parts += [counted(kinds["chains"], "chain")] if kinds["chains"] else []
    return f"{counted(sum(kinds.values()), 'check')}: {', '.join(parts)}"


def _kinds(results: Sequence[Result]) -> dict[str, int]:
    """How many cases were checked by their digests and by their stored bytes, and how many chains."""
    names = {result.case for result in results}
    chains = sum(name.startswith(f"{CHAINS}/") for name in names)
    whole = sum(name.endswith(BYTES) for name in names)
    return {"digests": len(names) - whole - chains, "whole": whole, "chains": chains}


def _defects(results: Sequence[Result]) -> dict[str, int]:
    """How many cases show each known defect."""
    return dict(Counter(str(r.detail["message"]) for r in results if r.status == KNOWN_DEFECT))


def _named(result: Result) -> tuple[str, bool]:
    """The name of a case as verbs take it, and whether its stored files were read."""
    return result.case.removesuffix(BYTES), result.case.endswith(BYTES)


def _failure(result: Result) -> dict[str, Any]:
    case, stored = _named(result)
    return {**result.as_json(), "case": case, "stored": stored}


def _print_failure(result: Result, executors: Sequence[str], asked: Sequence[str] = ()) -> None:
    """A case that failed, and the command that checks it again, with the options that were ``asked`` for."""
    detail = result.detail
    case, stored = _named(result)
    how = ", from its stored bytes" if stored else ""
    say(f"{case} {result.executor}: {result.status}{how} {detail.get('message', '')}".rstrip())
    if "digest" in detail:
        say(f"  the definition gives {detail['digest'][:16]}..., recorded is {detail['recorded'][:16]}...")
    if "differing" in detail:
        say(f"  {detail['differing']} differ; {'; '.join(detail['pattern'])}")
    causes = detail.get("causes", ())
    for cause in causes[:MOST_CAUSES]:
        say(f"  likely cause: {cause}")
    if len(causes) > MOST_CAUSES:
        say(f"  {choices.more(len(causes) - MOST_CAUSES, choices.IN_JSON)}")
    words = [PROGRAM, "golden", "verify", case, "-x", ",".join(executors), *asked]
    say(f"  {shlex.join(words)}", command=True)


def _apart(failed: Sequence[Result]) -> Iterator[tuple[str, list[tuple[str, bool]]]]:
    """(case, lines) about causes that predict the same bytes of it, those of one name once: what tells them apart."""
    seen: set[tuple[str, ...]] = set()
    for result in failed:
        alike = result.detail.get("alike")
        if alike is None or len(seen) == MOST_APART:
            continue
        two = Rivals.of(result.case.partition("/")[0], alike)
        if (key := (two.op, *(cause.name for cause in two.causes))) not in seen:
            seen.add(key)
            yield _named(result)[0], lines_of(_told(two, result.executor), result.executor)


def _told(two: Rivals, executor: str) -> Apart:
    """The case that tells two causes apart on an executor; none if it cannot be opened here."""
    try:
        return told(two, runs=executor_named(executor).runs)
    except RefsimError:
        return told(two, ())


def _verified(
    corpus: Corpus,
    cases: Sequence[str],
    executors: Sequence[str],
    workers: int,
    seconds: float,
    results: str | None,
    resume: bool,
    conditions: checks.Conditions,
) -> tuple[int, list[Result]]:
    """(cases taken from earlier results, all results)."""
    if resume and results is None:
        raise click.UsageError("--resume needs --results FILE")
    before: dict[str, list[Result]] = {}
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
        for rows in checks.run(corpus, work, executors, workers, seconds, conditions):
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
    path: str | None, state: dict[str, Any], before: dict[str, list[Result]]
) -> Iterator[Callable[[Sequence[Result]], None]]:
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


# --- coverage --------------------------------------------------------------------------------------------


@verb("coverage")
@root_option
@json_option
def coverage(root: str | None, as_json: bool) -> int:
    """Count cases by operator, layouts and features, and chains by kind. The status is 1 if something has none."""
    from refsim.golden import coverage as counting

    corpus = Corpus(_root(root))
    if not corpus.operators():
        raise IncompleteError(str(corpus.root), "no case to count", got="an empty corpus", need="at least 1")
    with progress("operators", len(corpus.operators())) as advance:

        def cases() -> Iterator[Case]:
            for op in corpus.operators():
                yield from (entry.case for entry in corpus.entries(op))
                advance()

        table = counting.count(cases())
    whole = {op: len(corpus.stored_names(op)) for op in corpus.operators()}
    chains = counting.chains_by_kind(entry.chain for entry in corpus.chains())
    holes, facts = table.holes(), table.as_json()
    holes += [f"{CHAINS}: {kind}: none" for kind, number in chains.items() if not number]
    total = sum(row["cases"] for row in facts.values())
    if as_json:
        content = {
            "operators": facts,
            "cases": total,
            "whole": sum(whole.values()),
            "chains": chains,
            "holes": holes,
            "same": not holes,
        }
        print_json("golden coverage", content)
        return SAME if not holes else DIFFERENT
    rows = []
    for op, row in facts.items():
        least_layouts = min(row["layouts"].values())
        least = min(row["features"], key=lambda name: row["features"][name])
        rows.append(
            (
                op,
                row["cases"],
                whole.get(op, 0),
                len(row["layouts"]),
                least_layouts,
                len(row["features"]),
                row["features"][least],
                least,
            )
        )
    columns = (
        "operator",
        "cases count",
        "stored whole count",
        "layouts count",
        "fewest per layouts count",
        "features count",
        "rarest count",
        "rarest feature",
    )
    print_table(columns, rows, drop=("stored whole count", "layouts count", "features count"))
    say("fewest per layouts: the cases with the combination of layouts that has fewest")
    say("rarest: the cases with the feature that fewest have")
    for hole in holes[:MOST_SHOWN]:
        say(f"hole: {hole}")
    if len(holes) > MOST_SHOWN:
        say(choices.more(len(holes) - MOST_SHOWN, choices.IN_JSON))
    kinds = ", ".join(f"{number} {kind}" for kind, number in chains.items())
    say(f"{counted(sum(chains.values()), 'chain')}: {kinds}")
    stored = f"{sum(whole.values())} of them also stored whole, which golden verify checks twice"
    say(f"{counted(total, 'case')}, {stored}; {counted(len(holes), 'hole')}")
    return SAME if not holes else DIFFERENT


for _verb in (export, check, regen, new, verify, coverage):
    command.add_command(_verb)
