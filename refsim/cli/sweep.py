"""Compare executors with the definitions on random configurations of every operator, by the million."""

from __future__ import annotations

import inspect
import os
import shlex
import time
from pathlib import Path

import click
from click.core import ParameterSource

from refsim.cli.kit.document import Document
from refsim.cli.kit.options import EXECUTORS, New, profile_option, search_option
from refsim.cli.kit.text import say, wrote
from refsim.cli.kit.verb import PROGRAM, verb
from refsim.cli.kit.written import Written
from refsim.core.counted import counted
from refsim.core.doing import progress
from refsim.core.errors import IncompleteError, ParameterError
from refsim.core.qmath import PROFILES, Profile
from refsim.exec.cpu import isa as isas
from refsim.exec.factory import executor_named
from refsim.exec.fingerprint import foreign, sources
from refsim.golden.named import cases_in
from refsim.ops.base.registry import OPS
from refsim.sweep import plan as plans
from refsim.sweep.database import Database
from refsim.sweep.plan import GRAPHS, SweepPlan
from refsim.sweep.result import LOCAL, NONE, Serve, Swept, check_ran, server, sweep, swept


@verb("sweep", "-n 1000")
@click.argument("operators", nargs=-1)
@click.option(
    "--executor", "-x", "executors", metavar="NAMES", multiple=True, default=("cpu", "cpu:emulated"),
    show_default="cpu,cpu:emulated", help=f"{EXECUTORS}; give several, or separate them by commas.",
)  # fmt: skip
@click.option(
    "--configs", "-n", "count", type=click.IntRange(0, 10**12), default=10_000, show_default=True,
    help="Random configurations of all operators together; each runs on every executor.",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(0, 2**31), default=0, show_default=True, help="Seed of the random draw."
)
@click.option(
    "--threads", metavar="NUMBERS", multiple=True, default=("1",), show_default="1",
    help="Threads of the executor cpu; it runs once with each of these numbers.",
)  # fmt: skip
@search_option
@profile_option(
    "", "profiles", multiple=True,
    help="The numerics to follow, in turn: names, or files that refsim probe saved; kernels of another build too. "
    "[default: all that have a name, and such kernels any]",
)  # fmt: skip
@click.option(
    "--isa", "sets", multiple=True, type=click.Choice([row.name for row in isas.ISAS]),
    help="Instruction set that the executor cpu compiles for; it runs once with each. [default: the machine's]",
)  # fmt: skip
@click.option("--models", "folder", metavar="DIR", help="Also run every .pte file in this folder.")
@click.option(
    "--runs", type=click.IntRange(1, 10**6), default=len(PROFILES), show_default=True,
    help="How many random inputs each model gets.",
)  # fmt: skip
@click.option(
    "--repeats", type=click.IntRange(0, 100_000), default=0, metavar="N", show_default=True,
    help="Run each configuration N times more on the same data: a device may give other bytes now and then.",
)  # fmt: skip
@click.option(
    "--db",
    metavar="FILE",
    type=New(folder=False, unless="--resume"),
    help="Keep the results in this SQLite file, chunk by chunk.",
)
@click.option("--resume", is_flag=True, help="Go on with that file; only what it lacks is computed.")
@click.option(
    "--failures", type=Written(folder=True), metavar="DIR", default="sweep-failures", show_default=True,
    help="Where cases of failures go, for refsim replay.",
)  # fmt: skip
@click.option(
    "--workers",
    type=click.IntRange(0, 1024),
    help="Number of processes; 0: in this one. [default: one per core]",
)
@click.option(
    "--scheduler", metavar="ADDRESS",
    help=f"A dask scheduler; {LOCAL}: one on this machine; {NONE}: processes without dask. "
    f"[default: {LOCAL} if dask is installed]",
)  # fmt: skip
def command(
    operators: tuple[str, ...],
    executors: tuple[str, ...],
    count: int,
    seed: int,
    threads: tuple[str, ...],
    profiles: tuple[Profile, ...],
    sets: tuple[str, ...],
    folder: str | None,
    runs: int,
    repeats: int,
    db: str | None,
    resume: bool,
    failures: str,
    workers: int | None,
    scheduler: str | None,
) -> Swept:
    """Draw configurations of OPERATORS (default: all), and compare the bytes of each executor with the definition.

    Each failure is made as small as possible, and written as a case that refsim replay runs. A sweep with --db may be
    interrupted; --resume goes on with it, also with more configurations or executors. See docs/sweep.md.
    """
    if resume and db is None:
        raise click.UsageError("--resume needs --db FILE")
    names = [profile.name for profile in profiles]
    if len(set(names)) < len(names):
        raise ParameterError("--profile", "two of one name", got=", ".join(names), need="distinct names")
    plan = SweepPlan(
        plans.shared(count, plans.subjects_of(operators)) if count else {},
        plans.models_in(folder, runs),
        plans.variants(executors, threads, sets),
        profiles or plans.PROFILES,
        bool(profiles),
        seed,
        repeats,
    )
    if not plan.total:
        raise IncompleteError("sweep", "nothing to run", need="-n 1 or more, or --models")
    begin = time.monotonic()
    older = cases_in(failures)
    serve = server(
        scheduler, os.cpu_count() or 1 if workers is None else workers, lambda line: say(line, err=True)
    )
    for name in dict.fromkeys(variant.executor for variant in plan.variants):
        executor_named(name)  # what is not here is said before a cluster starts
    brought = foreign(variant.executor for variant in plan.variants)
    database = Database(db, plan.state(sources()), resume, brought)
    try:
        if not operators and _default("count"):
            on = " and ".join(map(str, plan.variants))
            say(
                f"sweep: {plan.total} random configurations of all operators and graphs, each on {on}",
                err=True,
            )
        _sweep(plan, serve, database, Path(failures), db)
        found, failed = database.outcomes(), database.failures()
    finally:
        database.close()
    seconds = time.monotonic() - begin
    if db is not None:
        wrote(db)
    new = {one.folder for one in failed if one.folder}
    if new:
        wrote(failures)
        if left := [case for case in older if case not in new]:
            say(f"{failures} also has {counted(len(left), 'older case')}", err=True)
    check_ran(plan, found)
    return swept(plan, found, failed, seconds, brought)


_SUBJECTS = (
    f"OPERATORS: {', '.join((*OPS, GRAPHS))}; {GRAPHS}: 3 to 12 random operators, dequantized at the end"
)
command.help = f"{inspect.cleandoc(command.help or '')}\n\n{_SUBJECTS}"


def _default(option: str) -> bool:
    """Whether the command line leaves an option as it is."""
    return click.get_current_context().get_parameter_source(option) is ParameterSource.DEFAULT


def _sweep(plan: SweepPlan, serve: Serve, database: Database, folder: Path, db: str | None) -> None:
    """Compute what the database lacks."""
    left = list(database.missing(plan.chunks()))
    total = sum(chunk.count * len(chunk.variants) for chunk in left)
    done = failed = 0
    try:
        with progress("calls", total) as advance:
            for outcomes in sweep(left, serve, database, folder):
                calls = sum(outcome.count for outcome in outcomes)
                done += calls
                failed += sum(outcome.failed for outcome in outcomes)
                advance(calls, f"{failed} failed" if failed else "")
    except KeyboardInterrupt:
        kept = "; without --db nothing was kept" if db is None else f"; to go on: {_resumed()}"
        say(f"sweep: {done} of {total} calls done{kept}", err=True, command=db is not None)
        raise


def _resumed() -> str:
    """The command that goes on with the sweep of this command line."""
    document = click.get_current_context().find_object(Document)
    words = [] if document is None else list(document.given)
    return shlex.join([PROGRAM, *words, *([] if "--resume" in words else ["--resume"])])
