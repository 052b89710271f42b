"""The corpus written from its rules, and what changed in it, as a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from refsim.core import choices
from refsim.core.doing import progress
from refsim.core.errors import ParameterError
from refsim.core.result import Result, Text
from refsim.core.status import DIFFERENT, SAME
from refsim.golden import regen as writing
from refsim.golden.chain import CHAINS
from refsim.golden.regen import CHANGELOG
from refsim.golden.rules import RULES
from refsim.ops.base.registry import LISTED


@dataclass(frozen=True)
class RenewedCorpus(Result):
    """What changed in the corpus."""

    root: Annotated[str, "Folder of the corpus."]
    changes: Annotated[Sequence[str], "In sentences."]
    written: Annotated[bool, "Whether it was written."]
    dry_run: bool

    @property
    def same(self) -> Annotated[bool, "Whether nothing changes."]:
        return not self.changes

    @property
    def status(self) -> int:
        return DIFFERENT if self.changes and self.dry_run else SAME

    def text(self) -> Text:
        yield from self.changes or ["nothing would change"]
        if self.written:
            yield f"{self.root}: written; see {CHANGELOG}"


def renewed(
    operators: Sequence[str], root: str | None, reason: str, dry_run: bool, fresh: bool
) -> RenewedCorpus:
    """The corpus, or operators of it, computed from the rules, and written if there is a reason."""
    target = Path(root) if root else Path(__file__).parents[2] / "golden"
    if not reason.strip() and not dry_run:
        raise ParameterError("golden regen", "needs a reason", need="--reason TEXT, or --dry-run")
    known = (*RULES, CHAINS)
    for name in operators:
        if name not in known:
            raise ParameterError(
                "golden regen",
                f"no rule for that operator ({LISTED})",
                got=name,
                need=choices.need(name, known),
            )
    if not fresh:
        _must_exist(
            "golden regen", target, "--root FOLDER with a corpus, such as golden in a checkout, or --new"
        )
    return _write(target, operators or known, reason, dry_run)


def begun(operator: str, root: str | None) -> RenewedCorpus:
    """The first cases of an operator that has none yet."""
    target = Path(root) if root else Path(__file__).parents[2] / "golden"
    if operator not in RULES:
        raise _no_operator(operator, target)
    _must_exist("golden new", target, "a folder with a corpus (golden regen --new makes one)")
    if (target / "digests" / f"{operator}.jsonl").exists():
        raise ParameterError(
            "golden new",
            "the operator has cases",
            got=operator,
            need=f"refsim golden regen {operator} --reason TEXT",
        )
    return _write(target, (operator,), f"New operator {operator}", False)


def _must_exist(where: str, target: Path, need: str) -> None:
    """A mistyped folder must not become a corpus of its own."""
    if writing.existing(target) is None:
        raise ParameterError(where, "no corpus there", got=str(target), need=need)


def _no_operator(name: str, target: Path) -> ParameterError:
    """The operators that still need cases; where all have theirs, how an operator is made."""
    bare = [one for one in RULES if not (target / "digests" / f"{one}.jsonl").exists()]
    named = name if name.isidentifier() else "NAME"
    made = f"python -m refsim.ops new {named} first, as all that there are have cases"
    need = choices.need(name, bare) if bare else made
    return ParameterError("golden new", "no such operator", got=name, need=need)


def _write(target: Path, operators: Sequence[str], reason: str, dry_run: bool) -> RenewedCorpus:
    corpus = writing.existing(target)
    plans = []
    with progress("operators", len(operators)) as advance:
        for name in operators:
            plans.append(writing.plan(name, corpus))
            advance()
    beside = writing.others(corpus, plans)
    rows = [row for planned in plans for row in planned.change.lines()] + beside
    written = bool(rows) and not dry_run
    if written:
        writing.write(target, plans, reason)
    return RenewedCorpus(str(target), rows, written, dry_run)
