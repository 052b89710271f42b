"""Seed known kinds of bugs into copies of the sources, and list those that the tests do not notice."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import click

import refsim
from refsim.cli._options import json_option
from refsim.core.errors import ParameterError


@click.command("mutate")
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
    "--record", is_flag=True, help="Renew docs/mutants.jsonl and docs/mutants.md with the outcomes."
)
@json_option
def command(**options: Any) -> int:
    """Seed bugs into copies of the sources, run cases there, and say which bugs nothing notices.

    Status 1 if one survives. Needs a checkout.
    """
    status: int = checkout_module("mutants.verb").mutate(**options)
    return status


def checkout_module(name: str) -> ModuleType:
    """A module of the checkout's tests folder; ParameterError in an installed package, which has none."""
    tests = Path(refsim.__file__).resolve().parents[1] / "tests"
    if not (tests / "mutants").is_dir():
        raise ParameterError(
            "mutate", "needs a checkout of the sources", got=str(tests.parent), need="tests/mutants there"
        )
    if str(tests) not in sys.path:
        sys.path.append(str(tests))
    return import_module(name)
