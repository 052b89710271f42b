"""The outcomes on all mutants as they were last found: tests/mutants/seeded.jsonl, and docs/mutants.md made of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutants.bugs import BUGS, CPU, GPU, LOWERING, PLACES, Bug
from mutants.generated import page as unseen
from mutants.markdown import table
from mutants.outcome import FIRST, SURVIVED, Outcome
from mutants.seeded import ALL
from mutants.tree import CHECKOUT
from refsim.core import atomic_write

Row = Mapping[str, Any]
TITLES = {CPU: "CPU", GPU: "lavapipe", LOWERING: "lowering"}


def record_path() -> Path:
    return CHECKOUT / "tests" / "mutants" / "seeded.jsonl"


def page_path() -> Path:
    return CHECKOUT / "docs" / "mutants.md"


def row(outcome: Outcome) -> Row:
    """What is kept of an outcome."""
    cause = outcome.causes[0] if outcome.causes else outcome.message
    return {
        "id": outcome.mutant.id, "digest": outcome.mutant.digest, "how": outcome.how, "case": outcome.case,
        "tried": outcome.tried, "rank": outcome.rank, "cause": cause.replace(str(CHECKOUT) + "/", ""),
    }  # fmt: skip


def read() -> dict[str, Row]:
    """The recorded rows by id; none without a record."""
    path = record_path()
    lines = path.read_text().splitlines() if path.exists() else []
    return {found["id"]: found for found in map(json.loads, lines)}


def renew(outcomes: Iterable[Outcome]) -> None:
    """Put outcomes into the record, drop mutants that there are no more, and make the page anew."""
    rows = read() | {outcome.mutant.id: row(outcome) for outcome in outcomes}
    kept = [rows[name] for name in ALL if name in rows]
    atomic_write.write(record_path(), "".join(json.dumps(each) + "\n" for each in kept).encode())
    atomic_write.write(page_path(), page(kept).encode())


# --- the page --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Total:
    """Mutants of a place: all, killed, and killed with the true cause among the first that were named."""

    place: str
    mutants: int
    killed: int
    named: int


def totals(rows: Sequence[Row]) -> list[Total]:
    """One per place, and one of all."""
    found = []
    for place in (*PLACES, "all"):
        mine = [each for each in rows if place in (ALL[each["id"]].place, "all")]
        killed = [each for each in mine if each["how"] != SURVIVED]
        named = sum(each["rank"] is not None and each["rank"] <= FIRST for each in killed)
        found.append(Total(place, len(mine), len(killed), named))
    return found


def page(rows: Sequence[Row]) -> str:
    """docs/mutants.md."""
    summary = [
        (
            TITLES.get(t.place, t.place),
            f"{t.killed} of {t.mutants}",
            f"{t.named} of {t.killed} ({percent(t.named, t.killed)})",
        )
        for t in totals(rows)
    ]
    return _PAGE.format(
        random=unseen.section(),
        totals=table(("place", "killed", f"true cause among the first {FIRST}"), summary),
        bugs=table(("bug", "what", "seen in", *TITLES.values(), "where not"), map(_bug_row, BUGS.values())),
    )


def percent(part: int, whole: int) -> str:
    return f"{100 * part // whole} %" if whole else "-"


def _bug_row(bug: Bug) -> tuple[object, ...]:
    counts = {
        place: sum(mutant.bug == bug.id and mutant.place == place for mutant in ALL.values())
        for place in PLACES
    }
    shown = (counts[place] or "-" for place in TITLES)
    return (bug.id, bug.what, bug.seen, *shown, bug.elsewhere)


_PAGE = """# Bugs that must be noticed

## Bugs that nobody thought of

{random}
## Seeded bugs

Each kind of bug that really happened in packed int8 kernels is put into a copy of the sources: into kernels, shaders,
launches, executors and passes. The corpus must notice it, and the diff must name it. This page is made by
`refsim mutate --record`, which keeps the outcome of each in tests/mutants/seeded.jsonl;
`refsim mutate --id ID` runs one again.

{totals}
On the CPU and on lavapipe a mutant runs cases of the corpus, or a bundled model (`MODEL/VALUE`: the first buffer that
is wrong). One of the lowering takes a network of `tests/lowering/networks.py` through the passes; the graph is
compared, then every buffer of its run. Bugs in what is computed before there is an executor, constants and launches,
are seeded once and run on both.

### Kinds

{bugs}"""
