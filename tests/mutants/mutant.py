"""A mutant: one seeded bug as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Any

from mutants.bugs import CPU, GPU, LOWERING

#: Stages: cases of the corpus on an executor, a bundled model on an executor, a network through the lowering.
CASES, MODEL, NETWORK = "cases", "model", "network"


@dataclass(frozen=True)
class Edit:
    """One replacement in one file; the anchor occurs there exactly once."""

    file: str
    anchor: str
    replacement: str


@dataclass(frozen=True)
class Mutant:
    """One seeded bug.

    ``bug`` is the kind that it stands for (docs/mutants.md lists them), ``causes`` the classes that tell the truth
    about it. ``subject`` is what is run on ``executor``: by ``stage`` the cases of an operator, a bundled model, or a
    network that is lowered first. ``twin`` runs each case beside one of the same shapes and other parameters:
    ``before`` it, or ``after`` it, results being read last. ``drawn`` makes the copy draw its constants itself,
    instead of being handed them. ``variants`` builds a shader's variants too, which launches prefer; without them
    every launch takes the plain build.
    """

    id: str
    bug: str
    subject: str
    causes: tuple[str, ...]
    edits: tuple[Edit, ...]
    executor: str = "cpu:emulated"
    stage: str = CASES
    twin: str = ""
    drawn: bool = False
    variants: bool = False

    @property
    def place(self) -> str:
        """Where the bug shows: a place of `mutants.bugs`."""
        return LOWERING if self.stage == NETWORK else GPU if self.executor.startswith("gpu") else CPU

    @property
    def digest(self) -> str:
        """Changes with all that may change the outcome, but for the sources themselves."""
        told = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        return sha256(repr(told).encode()).hexdigest()[:16]


def edit(file: str, anchor: str, replacement: str) -> Edit:
    return Edit(file, anchor, replacement)


def seeded(prefix: str, executor: str, stage: str = CASES) -> Callable[..., Mutant]:
    """What makes mutants that run on an executor: of an id behind the prefix, a kind, a subject, causes and edits."""

    def make(
        id: str,
        bug: str,
        subject: str,
        causes: str | tuple[str, ...],
        *edits: tuple[str, str, str],
        **more: Any,
    ) -> Mutant:
        named = (causes,) if isinstance(causes, str) else causes
        return Mutant(
            f"{prefix}-{id}", bug, subject, named, tuple(edit(*row) for row in edits), executor, stage, **more
        )

    return make
