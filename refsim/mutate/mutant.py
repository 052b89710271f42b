"""A mutant: one seeded bug as data, and the copy of the sources that it is put into."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path

from refsim.core.errors import FormatError, ParameterError
from refsim.mutate.bugs import CPU, GPU, LOWERING

#: What is copied, from a checkout to the copy's root. Python finds gpu/ under its installed name.
PARTS = {"refsim": "refsim", "gpu": "refsim_gpu", "shaders": "shaders"}

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

    ``bug`` is the kind that it stands for (docs/mutants.md lists them), ``causes`` the hypotheses that tell the truth
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
        """Where the bug shows: a place of `refsim.mutate.bugs`."""
        return LOWERING if self.stage == NETWORK else GPU if self.executor.startswith("gpu") else CPU

    @property
    def digest(self) -> str:
        """Changes with all that may change the verdict, but for the sources themselves."""
        told = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        return sha256(repr(told).encode()).hexdigest()[:16]


def edit(file: str, anchor: str, replacement: str) -> Edit:
    return Edit(file, anchor, replacement)


def checkout() -> Path:
    """The folder that holds the sources; ParameterError in an installed package, which has not all of them."""
    root = Path(__file__).resolve().parents[2]
    if not all((root / part).is_dir() for part in PARTS):
        raise ParameterError(
            "mutate", "needs a checkout of the sources", got=str(root), need=", ".join(PARTS)
        )
    return root


def check(mutant: Mutant, root: Path) -> None:
    """FormatError if an edit of the mutant no longer applies to the sources."""
    for change in mutant.edits:
        where = f"mutant {mutant.id}: {change.file}"
        path = root / change.file
        if not path.is_file():
            raise FormatError(where, "no such file")
        count = path.read_text().count(change.anchor)
        if count != 1:
            raise FormatError(
                where, "the anchor does not occur exactly once", got=f"{count} times", need=change.anchor
            )


def copy(mutant: Mutant, root: Path, target: Path) -> None:
    """A copy of the sources with the bug in it."""
    check(mutant, root)
    for part, name in PARTS.items():
        ignore = shutil.ignore_patterns("__pycache__", "*.md")
        shutil.copytree(root / part, target / name, ignore=ignore)
    for change in mutant.edits:
        part, _, rest = change.file.partition("/")
        path = target / PARTS[part] / rest
        path.write_text(path.read_text().replace(change.anchor, change.replacement))
