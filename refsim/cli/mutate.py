"""Put known kinds of bugs into copies of the sources, and list those that no test notices."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import click

import refsim
from refsim.cli._mutated import ListedBugs, ListedChanges, TriedBugs, TriedChanges
from refsim.cli.kit.verb import verb
from refsim.cli.kit.written import Written
from refsim.core.errors import ParameterError


@verb("mutate", "--random 10")
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only this mutant; may be repeated.")
@click.option(
    "--bug", "bugs", multiple=True, metavar="KIND", help="Only this kind of bug, as named in docs/mutants.md."
)
@click.option(
    "--executor", "-x", "places", multiple=True, metavar="PLACE",
    help="Only mutants of this place: cpu, gpu or lowering.",
)  # fmt: skip
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="How many mutants run at once.",
)
@click.option("--list", "listing", is_flag=True, help="List the mutants and run none.")
@click.option(
    "--record",
    "keep",
    is_flag=True,
    help="Renew tests/mutants/seeded.jsonl and docs/mutants.md with the outcomes.",
)
@click.option("--random", "count", type=click.IntRange(1), metavar="N", help="Run N changes drawn at random.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random draw.")
@click.option(
    "--random-id", "random_ids", multiple=True, metavar="ID", help="Only this change; may be repeated."
)
@click.option(
    "--area", "areas", multiple=True, metavar="AREA",
    help="Draw only changes of this part: emulated, native, graph or shaders.",
)  # fmt: skip
@click.option("--part", metavar="I/K", help="Run only every K-th of them, beginning with number I (from 0).")
@click.option(
    "--first",
    type=click.IntRange(min=1),
    metavar="M",
    help="Run only the first M of them, in the order drawn.",
)
@click.option(
    "--results", type=Written(), metavar="FILE", help="Append verdicts to this file; skip those that it has."
)
@click.option(
    "--no-tests", is_flag=True, help="Do not run the tests on changes that corpus and models did not notice."
)
def command(**options: Any) -> TriedBugs | ListedBugs | TriedChanges | ListedChanges:
    """Put bugs into copies of the sources, run the cases there, and list the bugs that no case notices.

    The bugs are those listed in docs/mutants.md; with --random they are small changes anywhere in the kernels.
    Status 1 if one survives. Needs a checkout.
    """
    names = ("count", "seed", "random_ids", "areas", "part", "first", "results", "no_tests")
    random = {name: options.pop(name) for name in names}
    if random["count"] is None and not random["random_ids"]:
        alone = [name for name in ("areas", "part", "first", "results", "no_tests") if random[name]]
        if alone:
            raise click.UsageError(
                f"--{alone[0].replace('areas', 'area').replace('_', '-')} needs --random N"
            )
        bugs: TriedBugs | ListedBugs = checkout_module("mutants.verb").mutate(**options)
        return bugs
    shared = {name: options[name] for name in ("workers", "listing", "keep")}
    ids = random.pop("random_ids")
    count = random.pop("count") or len(ids)
    mutate = checkout_module("mutants.verb").mutate_randomly
    changes: TriedChanges | ListedChanges = mutate(count=count, ids=ids, **random, **shared)
    return changes


def checkout_module(name: str) -> ModuleType:
    """A module of the checkout's tests folder; ParameterError in an installed package, which has none."""
    tests = Path(refsim.__file__).resolve().parents[1] / "tests"
    if not (tests / "mutants").is_dir():
        raise ParameterError(
            "mutate",
            "needs a checkout of the sources",
            got=f"an installed package, {Path(refsim.__file__).parent}",
            need="refsim's repository, or its unpacked sdist, and this command in its folder",
        )
    if str(tests) not in sys.path:
        sys.path.append(str(tests))
    return import_module(name)
