"""golden coverage: what the corpus has of each operator, and the holes in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from refsim.cli.kit.options import root_option
from refsim.cli.kit.progress import progress
from refsim.cli.kit.text import MOST_SHOWN, print_table, say, say_rest
from refsim.cli.kit.verb import Result, verb
from refsim.core.counted import counted
from refsim.core.errors import IncompleteError
from refsim.core.status import DIFFERENT, SAME
from refsim.golden.chain import CHAINS
from refsim.golden.store import Corpus
from refsim.ops.base.case import Case


@verb("coverage")
@root_option
def coverage(root: str | None) -> Result:
    """Count cases by operator, layouts and features, by native route, and chains by kind.

    The status is 1 if something has none.
    """
    from refsim.golden import coverage as counting
    from refsim.golden import route_coverage
    from refsim.golden.rules import RULES

    corpus = Corpus.at(root)
    if not corpus.operators():
        raise IncompleteError(str(corpus.root), "no case to count", got="an empty corpus", need="at least 1")
    with progress("operators", len(corpus.operators())) as advance:

        def cases() -> Iterator[Case]:
            for op in corpus.operators():
                for entry in corpus.entries(op):
                    if entry.number >= RULES[op].spread:
                        hard.append(entry.case)
                    yield entry.case
                advance()

        hard: list[Case] = []
        table = counting.count(cases())
        taken = route_coverage.count(hard)
    whole = {op: len(corpus.stored_names(op)) for op in corpus.operators()}
    chains = counting.chains_by_kind(entry.chain for entry in corpus.chains())
    holes, facts = [*table.holes(), *taken.holes()], table.as_json()
    holes += [f"{CHAINS}: {kind}: none" for kind, number in chains.items() if not number]
    total = sum(row["cases"] for row in facts.values())
    content = {
        "operators": facts,
        "cases": total,
        "whole": sum(whole.values()),
        "chains": chains,
        "routes": taken.as_json(),
        "holes": holes,
        "same": not holes,
    }
    return Result(content, partial(_show, content, whole), SAME if not holes else DIFFERENT)


def _show(content: Mapping[str, Any], whole: Mapping[str, int]) -> None:
    """``whole``: how many cases of each operator are stored whole."""
    rows, holes, chains = [], content["holes"], content["chains"]
    for op, row in content["operators"].items():
        least_layouts = min(row["layouts"].values())
        least = min(row["features"], key=lambda name: row["features"][name])
        counts = (row["cases"], whole.get(op, 0), len(row["layouts"]), least_layouts, len(row["features"]))
        rows.append((op, *counts, row["features"][least], least))
    columns = (
        "operator",
        "cases count",
        "stored whole count",
        "layouts count",
        "fewest per layouts count",
        "features count",
        "rarest count",
        "rarest feature",
    )
    print_table(columns, rows, drop=("stored whole count", "layouts count", "features count"))
    say("fewest per layouts: the cases with the combination of layouts that has fewest")
    say("rarest: the cases with the feature that fewest have")
    for isa, counts in content["routes"].items():
        routes = ", ".join(f"{number} {route}" for route, number in sorted(counts.items()))
        say(f"routes of the hard cases of products on {isa}: {routes or 'none'}")
    for hole in holes[:MOST_SHOWN]:
        say(f"hole: {hole}")
    say_rest(len(holes))
    kinds = ", ".join(f"{number} {kind}" for kind, number in chains.items())
    say(f"{counted(sum(chains.values()), 'chain')}: {kinds}")
    stored = f"{content['whole']} of them also stored whole, which golden verify checks twice"
    say(f"{counted(content['cases'], 'case')}, {stored}; {counted(len(holes), 'hole')}")
