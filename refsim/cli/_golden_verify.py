"""golden verify: the corpus checked on executors, and what is said of the cases that fail."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import click

from refsim.bytediff.rank import Cause
from refsim.cli._golden_results import run
from refsim.cli.kit.apart import print_kernels
from refsim.cli.kit.options import executors_option, profile_option, root_option, search_option
from refsim.cli.kit.text import MOST_SHOWN, print_table, say, say_all, say_rest, wrote
from refsim.cli.kit.verb import PROGRAM, Result, verb
from refsim.cli.kit.written import Written
from refsim.core import choices
from refsim.core.counted import counted
from refsim.core.errors import RefsimError
from refsim.core.qmath import Profile
from refsim.core.status import DIFFERENT, SAME
from refsim.exec.cpu import isa as isas
from refsim.exec.cpu.thread_pool import processors
from refsim.exec.factory import executor_named
from refsim.exec.share import Share
from refsim.golden import verify as checks
from refsim.golden.causes import MOST_CAUSES, Runs, of_kernels
from refsim.golden.chain import CHAINS
from refsim.golden.check import BYTES, Checked
from refsim.golden.judge import KNOWN_DEFECT
from refsim.golden.judge import SAME as SAME_BYTES
from refsim.golden.store import Corpus, full_name

#: Workers that nobody asked for: more of them wait for a device that they share.
MOST_WORKERS = 13


@verb("verify", "-x cpu --workers 2")
@click.argument("cases", nargs=-1)
@root_option
@executors_option
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    help=f"Number of processes; by default one per core and --threads, {MOST_WORKERS} at the most.",
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
@click.option("--all", "everything", is_flag=True,
    help=f"Check all cases, and explain each wrong one; else {checks.ENOUGH} wrong cases of an operator are enough.",
)  # fmt: skip
@profile_option("the executors must have")
@search_option
@click.option(
    "--threads", type=click.IntRange(1, 256), default=1, show_default=True, help="Threads of executor cpu."
)
@click.option(
    "--isa",
    type=click.Choice([row.name for row in isas.ISAS]),
    help="Compile the kernels of the CPU for this instruction set, not for the best of this machine.",
)
def verify(
    cases: tuple[str, ...],
    root: str | None,
    executors: str,
    workers: int | None,
    seconds: float,
    results: str | None,
    resume: bool,
    everything: bool,
    profile: Profile | None,
    threads: int,
    isa: str | None,
) -> Result:
    """Check files, definitions and executors on the whole corpus, or on CASES: operators, OPERATOR/NUMBER, or chains.

    Kernels that are not refsim's (spv:DIR, other packages) may write what one other profile allows. Modules of another
    build may also show the known defects of upstream, and other packages may refuse cases.
    """
    corpus = Corpus.at(root)
    cases, names = tuple(map(full_name, cases)), executors.split(",")
    begin = time.monotonic()
    conditions = checks.Conditions(profile, threads, isa)
    if isa is not None:
        isas.environment(isa)  # what this machine lacks is said before anything starts
    checks.check_executors(corpus, names, conditions)
    damaged = corpus.damaged()
    workers = workers or max(1, min(MOST_WORKERS, processors() // threads))
    tolerance = checks.Tolerance(None if everything else checks.ENOUGH)
    done, found = run(corpus, cases, names, workers, seconds, results, resume, conditions, tolerance)
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
    configured = checks.configurations(corpus, failed)
    kernels = of_kernels(checks.wrong_cases(failed), _runs)
    table = checks.tally(found)
    refused = checks.refusals(found)
    seconds = time.monotonic() - begin
    facts = {
        "root": str(corpus.root), "cases": len({r.case for r in found}), **_kinds(found), "resumed": done,
        "seconds": round(seconds, 3), "damaged_files": damaged,
        "threads": threads, "isa": isa or isas.cpu().isa.name,
        "executors": {name: dict(counts) for name, counts in table.items()},
        "profiles": checks.profiles(found), "known": _defects(found), "refused": refused,
        "ours": checks.instead(found),
        "failures": [_failure(r, configured) for r in failed], "causes": [row.as_json() for row in kernels],
        "not_checked": dict(tolerance.left), "same": same,
    }  # fmt: skip

    def show() -> None:
        say_all(f"{corpus.root}: {text}" for text in damaged)
        _print_counts(found, table, refused)
        for result in failed[:MOST_SHOWN]:
            _print_failure(result, names, asked, configured)
        say_rest(len(failed))
        print_kernels(kernels)
        for op, count in tolerance.left.items():
            more = f"not checked after {checks.ENOUGH} wrong ones; --all checks them too"
            say(f"{op}: {counted(count, 'case')} {more}")
        say(f"{checked(found)}; {counted(len(failed), 'failure')}, {seconds:.0f} s")

    return Result(facts, show, SAME if same else DIFFERENT)


def _print_counts(
    found: Sequence[Checked], table: Mapping[str, Counter[str]], refused: Mapping[str, Mapping[str, int]]
) -> None:
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


def _runs(executor: str) -> Runs:
    """Which calls an executor computes; none if it cannot be opened here."""
    try:
        return executor_named(executor).runs
    except RefsimError:
        return lambda call: False


def checked(results: Sequence[Checked]) -> str:
    """How many checks there were, and of what: the same case may be checked by its digest and by its stored bytes."""
    kinds = _kinds(results)
    parts = [f"{counted(kinds['digests'], 'case')} by digest"] if kinds["digests"] else []
    parts += [f"{kinds['whole']} of them by stored bytes too"] if kinds["whole"] else []
    parts += [counted(kinds["chains"], "chain")] if kinds["chains"] else []
    return f"{counted(sum(kinds.values()), 'check')}: {', '.join(parts)}"


def _kinds(results: Sequence[Checked]) -> dict[str, int]:
    """How many cases were checked by their digests and by their stored bytes, and how many chains."""
    names = {result.case for result in results}
    chains = sum(name.startswith(f"{CHAINS}/") for name in names)
    whole = sum(name.endswith(BYTES) for name in names)
    return {"digests": len(names) - whole - chains, "whole": whole, "chains": chains}


def _defects(results: Sequence[Checked]) -> dict[str, int]:
    """How many cases show each known defect."""
    return dict(Counter(str(r.detail["message"]) for r in results if r.status == KNOWN_DEFECT))


def _named(result: Checked) -> tuple[str, bool]:
    """The name of a case as verbs take it, and whether its stored files were read."""
    return result.case.removesuffix(BYTES), result.case.endswith(BYTES)


def _failure(result: Checked, configured: Mapping[str, str]) -> dict[str, Any]:
    case, stored = _named(result)
    like = {"configuration": configured[case]} if case in configured else {}
    return {**result.as_json(), **like, "case": case, "stored": stored}


def _print_failure(
    result: Checked, executors: Sequence[str], asked: Sequence[str], configured: Mapping[str, str]
) -> None:
    """A case that failed, and the command that checks it again, with the options that were ``asked`` for."""
    detail = result.detail
    case, stored = _named(result)
    how = ", from its stored bytes" if stored else ""
    say(f"{case} {result.executor}: {result.status}{how} {detail.get('message', '')}".rstrip())
    if case in configured:
        say(f"  {configured[case]}")
    if "digest" in detail:
        say(f"  the definition gives {detail['digest'][:16]}..., recorded is {detail['recorded'][:16]}...")
    if "differing" in detail:
        say("; ".join((f"  {detail['differing']} differ", *detail.get("pattern", ()))))
    causes = detail.get("causes", ())
    for cause in causes[:MOST_CAUSES]:
        say(f"  likely cause: {Cause.of(cause)}")
    if len(causes) > MOST_CAUSES:
        say(f"  {choices.more(len(causes) - MOST_CAUSES, choices.IN_JSON)}")
    words = [PROGRAM, "golden", "verify", case, "-x", ",".join(executors), *asked]
    say(f"  {shlex.join(words)}", command=True)
