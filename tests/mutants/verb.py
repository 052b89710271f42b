"""What `refsim mutate` does in a checkout: choose mutants, run them, show, record or list them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from mutants import run
from mutants.bugs import BUGS, PLACES
from mutants.mutant import Mutant
from mutants.outcome import Outcome
from mutants.record import renew
from mutants.seeded import ALL
from refsim.cli.kit.progress import progress
from refsim.cli.kit.text import print_json, print_table, say
from refsim.core import choices
from refsim.core.errors import MissingDependencyError, ParameterError
from refsim.core.status import DIFFERENT, SAME

COLUMNS = ("mutant", "bug", "place", "subject", "outcome", "case", "rank", "cause")


def mutate(
    ids: Sequence[str],
    bugs: Sequence[str],
    places: Sequence[str],
    workers: int,
    listing: bool,
    record: bool,
    as_json: bool,
) -> int:
    """The verb; its options as `refsim.cli.mutate` explains them. The exit status."""
    chosen = _chosen(ids, bugs, places)
    if listing:
        return _list(chosen, as_json)
    left_out = _left_out(chosen, explicit=bool(ids or places))
    chosen = [mutant for mutant in chosen if mutant.place not in left_out]
    outcomes = []
    with progress("mutants", len(chosen)) as advance:
        for outcome in run.run_all(chosen, workers):
            outcomes.append(outcome)
            advance()
    if record:
        renew(outcomes)
    survived = [outcome.mutant.id for outcome in outcomes if not outcome.killed]
    unnamed = [outcome.mutant.id for outcome in outcomes if outcome.killed and not outcome.named]
    if as_json:
        content = {
            "mutants": [outcome.as_json() for outcome in outcomes], "left_out": left_out,
            "survived": survived, "unnamed": unnamed, "same": not survived,
        }  # fmt: skip
        print_json("mutate", content)
        return SAME if not survived else DIFFERENT
    print_table(COLUMNS, [_row(outcome) for outcome in outcomes], drop=("place", "subject", "bug", "case"))
    for place, reason in left_out.items():
        say(f"left out: mutants of {place}: {reason}")
    for name in unnamed:
        say(f"killed, but the first causes are others: {name}")
    for name in survived:
        say(f"survived: {name}")
        say(f"  refsim mutate --id {name}", command=True)
    killed = len(outcomes) - len(survived)
    say(f"{killed} of {len(outcomes)} killed; true cause among the first three of {killed - len(unnamed)}")
    return SAME if not survived else DIFFERENT


def _chosen(ids: Sequence[str], bugs: Sequence[str], places: Sequence[str]) -> list[Mutant]:
    known("--bug", bugs, BUGS)
    known("--executor", places, PLACES)
    for name in ids:
        if name not in ALL:
            need = f"one that --list names{choices.meant(name, ALL)}"
            raise ParameterError("mutate", "no such mutant", got=name, need=need)
    found = [
        mutant
        for mutant in ALL.values()
        if (not ids or mutant.id in ids)
        and (not bugs or mutant.bug in bugs)
        and (not places or mutant.place in places)
    ]
    if not found:
        raise ParameterError("mutate", "no mutant is all of that", need="one that --list names")
    return found


def known(option: str, given: Sequence[str], names: Iterable[str]) -> None:
    """click.BadParameter, worded as click words it, for what is not a choice."""
    for value in given:
        if value not in names:
            held = list(names)
            cut = choices.listed(held) != ", ".join(held) and not choices.meant(value, held)
            more = "; refsim mutate --list shows all" if cut else ""
            raise click.BadParameter(
                f"{value!r} is not one of {choices.need(value, held)}{more}", param_hint=f"'{option}'"
            )


def _left_out(chosen: Sequence[Mutant], explicit: bool) -> dict[str, str]:
    """Place -> why its mutants cannot be run here.

    MissingDependencyError for what was asked for by name, and where nothing is left.
    """
    reasons = {place: run.missing(place) for place in {mutant.place for mutant in chosen}}
    found = {place: reason for place, reason in reasons.items() if reason is not None}
    if found and (explicit or len(found) == len(reasons)):
        raise MissingDependencyError("mutate", "; ".join(f"{place}: {why}" for place, why in found.items()))
    return found


def _list(chosen: Sequence[Mutant], as_json: bool) -> int:
    columns = ("mutant", "bug", "place", "subject", "files")
    rows = [(m.id, m.bug, m.place, m.subject, " ".join(sorted({e.file for e in m.edits}))) for m in chosen]
    if as_json:
        print_json("mutate", {"mutants": [dict(zip(columns, row, strict=True)) for row in rows]})
    else:
        print_table(columns, rows, drop=("place", "bug", "subject"))
    return SAME


def _row(outcome: Outcome) -> Sequence[object]:
    mutant = outcome.mutant
    cause = outcome.causes[0] if outcome.causes else outcome.message
    what = (mutant.id, mutant.bug, mutant.place, mutant.subject)
    return (*what, outcome.how, outcome.case, outcome.rank, cause)
