"""What the corpus has of each operator, as a value, and the holes in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from refsim.core.counted import counted
from refsim.core.doing import progress
from refsim.core.errors import IncompleteError
from refsim.core.result import MOST_SHOWN, Result, Table, Text, rest
from refsim.core.status import DIFFERENT, SAME
from refsim.golden import coverage as counting
from refsim.golden.chain import CHAINS
from refsim.golden.store import Corpus
from refsim.ops.base.case import Case

COLUMNS = (
    "operator", "cases count", "stored whole count", "layouts count", "fewest per layouts count", "features count",
    "rarest count", "rarest feature",
)  # fmt: skip


@dataclass(frozen=True)
class Coverage(Result):
    """What the corpus covers. ``stored``: how many cases of each operator are stored whole."""

    operators: Annotated[Mapping[str, counting.OperatorCoverage], "The operators."]
    chains: Annotated[Mapping[str, int], "Chains of operators by kind."]
    routes: Annotated[
        Mapping[str, Mapping[str, int]], "Hard cases of products by instruction set and native route."
    ]
    holes: Annotated[Sequence[str], "Legal combinations, features and routes without a case."]
    stored: Mapping[str, int]

    @property
    def cases(self) -> Annotated[int, "How many cases."]:
        return sum(row.cases for row in self.operators.values())

    @property
    def whole(self) -> Annotated[int, "Cases stored with all their bytes."]:
        return sum(self.stored.values())

    @property
    def same(self) -> Annotated[bool, "Whether there is no hole."]:
        return not self.holes

    @property
    def status(self) -> int:
        return SAME if self.same else DIFFERENT

    def text(self) -> Text:
        rows = []
        for op, row in self.operators.items():
            fewest = min(row.layouts.values())
            rarest = min(row.features, key=lambda name: row.features[name])
            counts = (row.cases, self.stored.get(op, 0), len(row.layouts), fewest, len(row.features))
            rows.append((op, *counts, row.features[rarest], rarest))
        yield Table(COLUMNS, rows, drop=("stored whole count", "layouts count", "features count"))
        yield "fewest per layouts: the cases with the combination of layouts that has fewest"
        yield "rarest: the cases with the feature that fewest have"
        for isa, taken in self.routes.items():
            routes = ", ".join(f"{number} {route}" for route, number in sorted(taken.items()))
            yield f"routes of the hard cases of products on {isa}: {routes or 'none'}"
        yield from (f"hole: {hole}" for hole in self.holes[:MOST_SHOWN])
        yield from rest(len(self.holes))
        kinds = ", ".join(f"{number} {kind}" for kind, number in self.chains.items())
        yield f"{counted(sum(self.chains.values()), 'chain')}: {kinds}"
        stored = f"{self.whole} of them also stored whole, which golden verify checks twice"
        yield f"{counted(self.cases, 'case')}, {stored}; {counted(len(self.holes), 'hole')}"


def covered(corpus: Corpus) -> Coverage:
    """Count everything in a corpus; IncompleteError for an empty one."""
    from refsim.golden import route_coverage
    from refsim.golden.rules import RULES

    if not corpus.operators():
        raise IncompleteError(str(corpus.root), "no case to count", got="an empty corpus", need="at least 1")
    hard: list[Case] = []
    with progress("operators", len(corpus.operators())) as advance:

        def cases() -> Iterator[Case]:
            for op in corpus.operators():
                for entry in corpus.entries(op):
                    if entry.number >= RULES[op].spread:
                        hard.append(entry.case)
                    yield entry.case
                advance()

        table = counting.count(cases())
        taken = route_coverage.count(hard)
    chains = counting.chains_by_kind(entry.chain for entry in corpus.chains())
    holes = [*(hole for row in table.values() for hole in row.holes()), *taken.holes()]
    holes += [f"{CHAINS}: {kind}: none" for kind, number in chains.items() if not number]
    stored = {op: len(corpus.stored_names(op)) for op in corpus.operators()}
    return Coverage(table, chains, taken.by_isa(), holes, stored)
