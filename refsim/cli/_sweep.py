"""What `refsim sweep` prints: a table of counts, why calls were refused, and the failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from refsim.cli.kit.text import MOST_SHOWN, print_table, say, say_rest
from refsim.exec.share import Share
from refsim.sweep.outcome import COMPARED, FAILED, MOST_TOLD, REFUSED, STATUSES, Failure, Outcome
from refsim.sweep.plan import SweepPlan
from refsim.sweep.run import MOST_FOLDERS

_ALL = "all"


def show(
    plan: SweepPlan, found: Sequence[Outcome], failed: Sequence[tuple[Failure, str]], seconds: float
) -> None:
    """Print everything."""
    rows = [*found, *totals(found)]
    used = [status for status in STATUSES if any(row.statuses[status] for row in rows)]
    print_table(
        ("operator", "executor", "configs count", *(f"{status} count" for status in used), "bytes"),
        [
            (row.subject, row.variant, row.count, *(row.statuses[status] for status in used), row.nbytes)
            for row in rows
        ],
    )
    why = reasons(found)
    for text, count in why.most_common(MOST_SHOWN):
        say(f"{REFUSED} {count}: {text}")
    say_rest(len(why), f"{REFUSED}: ")
    written = Counter((failure.subject, failure.variant) for failure, folder in failed if folder)
    for failure, folder in failed[:MOST_SHOWN]:
        say(
            f"{failure.subject} on {failure.variant}, seed {failure.seed}, {failure.profile}: {failure.status}"
        )
        say(f"  {failure.case}")
        say(f"  {failure.message}")
        if folder:
            say(f"  refsim replay {folder} -x {failure.variant.executor}", command=True)
        elif written[failure.subject, failure.variant] >= MOST_FOLDERS:
            say(f"  its case is not written: {MOST_FOLDERS} of this operator and executor are")
    say_rest(len(failed))
    calls = sum(row.statuses[status] for row in found for status in COMPARED)
    wrong = sum(row.failed for row in found)
    if wrong > len(failed):
        say(f"{wrong - len(failed)} more are only counted: a chunk tells {MOST_TOLD} of each executor")
    say(f"{plan.total} configurations, {calls} calls compared, {wrong} failed, {seconds:.1f} s")


def totals(found: Sequence[Outcome]) -> list[Outcome]:
    """One row per variant, over all operators."""
    rows: dict[Any, Outcome] = {}
    for one in found:
        whole = rows.setdefault(one.variant, Outcome(_ALL, 0, 0, one.variant))
        whole.count += one.count
        whole.add(one)
    return list(rows.values())


def idle(found: Sequence[Outcome], foreign: Collection[str]) -> list[Share]:
    """The executors with kernels of their own (``foreign``) of which not one ran."""
    rows = [row for row in totals(found) if row.variant.executor in foreign]
    ran = [(row, sum(row.statuses.values()) - row.statuses[REFUSED]) for row in rows]
    return [
        Share(row.variant.executor, 0, row.statuses[REFUSED], tuple(row.reasons)) for row, n in ran if not n
    ]


def reasons(found: Sequence[Outcome]) -> Counter[str]:
    """Why calls were refused, and how many."""
    return sum((outcome.reasons for outcome in found), Counter[str]())


def as_json(
    plan: SweepPlan, found: Sequence[Outcome], failed: Sequence[tuple[Failure, str]], seconds: float
) -> dict[str, Any]:
    """The same as one object."""

    def row(one: Outcome) -> dict[str, Any]:
        return {
            "operator": one.subject, "executor": one.variant.executor, "threads": one.variant.threads,
            "isa": one.variant.isa or None, "configurations": one.count, **one.statuses, "bytes": one.nbytes,
            "seconds": round(one.seconds, 3),
        }  # fmt: skip

    return {
        "seed": plan.seed,
        "configurations": plan.total,
        "profiles": [profile.name for profile in plan.profiles],
        "counts": [row(one) for one in found],
        "refused": dict(reasons(found)),
        "failures": [
            {
                "operator": f.subject, "executor": str(f.variant), "seed": f.seed, "profile": f.profile,
                "status": f.status, "message": f.message, "case": f.case, "folder": folder or None,
            }
            for f, folder in failed
        ],
        "failed": sum(one.statuses[status] for one in found for status in FAILED),
        "seconds": round(seconds, 3),
        "same": not any(one.failed for one in found),
    }  # fmt: skip
