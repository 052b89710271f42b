"""Seed known kinds of bugs into copies of the sources, and list those that the corpus does not notice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from refsim.cli._main import DIFFERENT, SAME
from refsim.cli._options import json_option
from refsim.cli._output import print_json, print_table, progress
from refsim.core.errors import MissingDependencyError, ParameterError
from refsim.mutate.bugs import BUGS, PLACES

COLUMNS = ("mutant", "bug", "place", "subject", "verdict", "case", "rank", "cause")
_CAUSE = 80


@click.command("mutate")
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only this mutant; may be repeated.")
@click.option("--bug", "bugs", multiple=True, type=click.Choice(list(BUGS)), help="Only this kind of bug.")
@click.option(
    "--executor", "-x", "places", multiple=True, type=click.Choice(PLACES), help="Only mutants of this place."
)
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Mutants at once.")
@click.option("--list", "listing", is_flag=True, help="List the mutants and run none.")
@click.option(
    "--record", is_flag=True, help="Renew docs/mutants.jsonl and docs/mutants.md with the verdicts."
)
@json_option
def command(
    ids: tuple[str, ...],
    bugs: tuple[str, ...],
    places: tuple[str, ...],
    workers: int,
    listing: bool,
    record: bool,
    as_json: bool,
) -> int:
    """Seed bugs into copies of the sources, run cases there, and say which are not noticed.

    Status 1 if one survives. Needs a checkout.
    """
    from refsim.mutate.record import renew
    from refsim.mutate.run import run_all

    chosen = _chosen(ids, bugs, places)
    if listing:
        return _list(chosen, as_json)
    left_out = _left_out(chosen, explicit=bool(ids or places))
    chosen = [mutant for mutant in chosen if mutant.place not in left_out]
    verdicts = []
    with progress("mutants", len(chosen)) as advance:
        for verdict in run_all(chosen, workers):
            verdicts.append(verdict)
            advance()
    if record:
        renew(verdicts)
    survived = [verdict.mutant.id for verdict in verdicts if not verdict.killed]
    unnamed = [verdict.mutant.id for verdict in verdicts if verdict.killed and not verdict.named]
    if as_json:
        content = {
            "mutants": [verdict.as_json() for verdict in verdicts], "left_out": left_out,
            "survived": survived, "unnamed": unnamed, "same": not survived,
        }  # fmt: skip
        print_json("mutate", content)
        return SAME if not survived else DIFFERENT
    print_table(COLUMNS, [_row(verdict) for verdict in verdicts])
    for place, reason in left_out.items():
        click.echo(f"left out: mutants of {place}: {reason}")
    for name in unnamed:
        click.echo(f"killed, but the first causes are others: {name}")
    for name in survived:
        click.echo(f"survived: {name}\n  refsim mutate --id {name}")
    killed = len(verdicts) - len(survived)
    click.echo(
        f"{killed} of {len(verdicts)} killed; true cause among the first three of {killed - len(unnamed)}"
    )
    return SAME if not survived else DIFFERENT


def _chosen(ids: Sequence[str], bugs: Sequence[str], places: Sequence[str]) -> list[Any]:
    from refsim.mutate import ALL

    for name in ids:
        if name not in ALL:
            raise ParameterError("mutate", "no such mutant", got=name, need="one that --list names")
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


def _left_out(chosen: Sequence[Any], explicit: bool) -> dict[str, str]:
    """Place -> why its mutants cannot be run here. MissingDependencyError for what was asked for by name."""
    from refsim.mutate.run import missing

    reasons = {place: missing(place) for place in {mutant.place for mutant in chosen}}
    found = {place: reason for place, reason in reasons.items() if reason is not None}
    if explicit and found:
        raise MissingDependencyError("mutate", "; ".join(f"{place}: {why}" for place, why in found.items()))
    return found


def _list(chosen: Sequence[Any], as_json: bool) -> int:
    columns = ("mutant", "bug", "place", "subject", "files")
    rows = [(m.id, m.bug, m.place, m.subject, " ".join(sorted({e.file for e in m.edits}))) for m in chosen]
    if as_json:
        print_json("mutate", {"mutants": [dict(zip(columns, row, strict=True)) for row in rows]})
    else:
        print_table(columns, rows)
    return SAME


def _row(verdict: Any) -> Sequence[object]:
    mutant = verdict.mutant
    cause = verdict.causes[0] if verdict.causes else verdict.message
    short = cause if len(cause) <= _CAUSE else f"{cause[: _CAUSE - 3]}..."
    return (
        mutant.id,
        mutant.bug,
        mutant.place,
        mutant.subject,
        verdict.how,
        verdict.case,
        verdict.rank,
        short,
    )
