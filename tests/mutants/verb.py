"""What `refsim mutate` does in a checkout: choose mutants, run them, show, record or list them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from mutants import run
from mutants.bugs import BUGS, PLACES
from mutants.mutant import Mutant
from mutants.record import renew
from mutants.seeded import ALL
from refsim.cli._mutated import ListedBugs, SeededBug, TriedBugs
from refsim.core import choices
from refsim.core.doing import progress
from refsim.core.errors import MissingDependencyError, ParameterError


def mutate(
    ids: Sequence[str],
    bugs: Sequence[str],
    places: Sequence[str],
    workers: int,
    listing: bool,
    record: bool,
) -> TriedBugs | ListedBugs:
    """The verb; its options as `refsim.cli.mutate` explains them."""
    chosen = _chosen(ids, bugs, places)
    if listing:
        return _list(chosen)
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
    return TriedBugs(
        mutants=[outcome.row() for outcome in outcomes], left_out=left_out,
        survived=survived, unnamed=unnamed, same=not survived,
    )  # fmt: skip


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


def _list(chosen: Sequence[Mutant]) -> ListedBugs:
    return ListedBugs([
        SeededBug(m.id, m.bug, m.place, m.subject, " ".join(sorted({e.file for e in m.edits}))) for m in chosen
    ])  # fmt: skip
