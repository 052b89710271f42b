"""golden verify: the corpus checked on executors."""

from __future__ import annotations

import time

import click

from refsim.cli.kit.options import New, executors_option, profile_option, root_option, search_option
from refsim.cli.kit.text import wrote
from refsim.cli.kit.verb import verb
from refsim.core.qmath import Profile
from refsim.exec.cpu import isa as isas
from refsim.exec.cpu.thread_pool import processors
from refsim.exec.share import Share
from refsim.golden import verify as checks
from refsim.golden.store import Corpus, full_name
from refsim.golden.verified import VerifiedCorpus, run, verified

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
    type=New(folder=False, unless="--resume"),
    metavar="FILE",
    help="Append each case's results to this new file as they come, as JSON lines.",
)
@click.option("--resume", is_flag=True, help="Go on with that file: skip the cases whose results it has.")
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
) -> VerifiedCorpus:
    """Check files, definitions and executors on the whole corpus, or on CASES: operators, OPERATOR/NUMBER, or chains.

    Kernels that are not refsim's (spv:DIR, other packages) may write what one other profile allows. Modules of another
    build may also show the known defects of upstream, and other packages may refuse cases.
    """
    if resume and results is None:
        raise click.UsageError("--resume needs --results FILE")
    corpus = Corpus.at(root)
    cases, names = tuple(map(full_name, cases)), executors.split(",")
    begin = time.monotonic()
    workers = workers or max(1, min(MOST_WORKERS, processors() // threads))
    conditions = checks.Conditions(names, workers, seconds, profile, threads, isa)
    if isa is not None:
        isas.environment(isa)  # what this machine lacks is said before anything starts
    checks.check_executors(corpus, conditions)
    damaged = corpus.damaged()
    tolerance = checks.Tolerance(None if everything else checks.ENOUGH)
    done, found = run(corpus, cases, results, resume, conditions, tolerance)
    if results is not None:
        wrote(results)
    for name, reason in checks.idle(found).items():
        Share(name, 0, 1, (reason,)).check()
    given = {
        "-x": ",".join(names), "--root": root, "--profile": profile and profile.name,
        "--threads": threads > 1 and threads, "--isa": isa,
    }  # fmt: skip
    rerun = [word for name, value in given.items() if value for word in (name, str(value))]
    return verified(corpus, found, damaged, done, conditions, tolerance, rerun, time.monotonic() - begin)
