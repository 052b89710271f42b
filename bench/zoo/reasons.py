"""Why models fall short, as data: one row for each cause, with the models and the aspect that it explains.

A row whose model no longer falls short is reported by ``python -m bench.zoo --check``, and so is a model that falls
short of something without a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bench.zoo.results import Row, wrong


@dataclass(frozen=True)
class Reason:
    """``aspect`` is one of `results.ASPECTS`; ``models`` are names, with blanks between them."""

    aspect: str
    text: str
    models: str

    def names(self) -> list[str]:
        return self.models.split()


REASONS: tuple[Reason, ...] = ()


def explained(reasons: tuple[Reason, ...] = REASONS) -> dict[tuple[str, str], str]:
    """(model, aspect) -> the reason."""
    return {(name, reason.aspect): reason.text for reason in reasons for name in reason.names()}


def stale(rows: Mapping[str, Row], reasons: tuple[Reason, ...] = REASONS) -> Iterator[str]:
    """A sentence on each reason that no longer applies."""
    for name, aspect in explained(reasons):
        if name in rows and aspect not in wrong(rows[name]):
            yield f"{name}: the reason for {aspect!r} no longer applies"


def unexplained(rows: Mapping[str, Row], reasons: tuple[Reason, ...] = REASONS) -> Iterator[str]:
    """A sentence on each shortfall that has no reason."""
    known = explained(reasons)
    for name, row in rows.items():
        for aspect, what in wrong(row).items():
            if (name, aspect) not in known:
                yield f"{name}: {aspect}: {what}"
