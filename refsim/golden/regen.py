"""Renew the corpus from its rules: first find out what would change, then write it and record the reason."""

from __future__ import annotations

import datetime
import io
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from refsim.core import choices
from refsim.core.doing import progress
from refsim.core.errors import ParameterError, RefsimError
from refsim.core.folder_write import current, writing
from refsim.core.result import Result, Text
from refsim.core.status import DIFFERENT, SAME
from refsim.formats.cases import add_to_zip, contents
from refsim.formats.reading import archive, member
from refsim.golden import chain, chain_rules
from refsim.golden.chain import CHAINS
from refsim.golden.rules import RULES, case, case_name
from refsim.golden.store import CHAIN_FILE, SUMS, Corpus, DigestEntry, digest, sums_of
from refsim.golden.telling import nbytes_of
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.registry import LISTED, OPS

WHERE, CHANGELOG = "golden regen", "CHANGELOG.md"
MAX_CASE_BYTES = 24_000
LEAST_PER_LAYOUTS, LEAST_PER_OPERATOR = 4, 40


@dataclass
class DigestChange:
    """How the digests of one operator, or those of the chains, change."""

    op: str
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    redrawn: list[str] = field(default_factory=list)  # another case under the same number
    changed: list[str] = field(default_factory=list)  # the same case, other bytes: the meaning changed
    damaged: list[str] = field(default_factory=list)  # files that are not what the rules or SHA256SUMS say

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.redrawn or self.changed or self.damaged)

    def lines(self) -> Iterator[str]:
        for what in ("added", "removed", "redrawn", "changed", "damaged"):
            names = getattr(self, what)
            if names:
                yield f"{self.op}: {len(names)} {what}: {choices.first(names)}"


@dataclass(frozen=True)
class Planned:
    """The new files of one operator, or that of the chains, by name; and how they differ from the old."""

    change: DigestChange
    files: Mapping[str, bytes]


#: What a line of the corpus says.
Entry = DigestEntry | chain.ChainEntry


def plan(op: str, corpus: Corpus | None) -> Planned:
    """Compute an operator's part of the corpus, or the chains, without writing anything."""
    chains = op == chain.CHAINS
    entries, files = _of_chains() if chains else _of_operator(op)
    lines = "".join(f"{entry.line}\n" for entry in entries).encode("ascii")
    files = {CHAIN_FILE if chains else f"digests/{op}.jsonl": lines, **files}
    change = _change(op, corpus, entries)
    if corpus is not None and not change:
        change.damaged.extend(corpus.damaged(files) or _other(corpus, files))
    return Planned(change, files)


def _of_operator(op: str) -> tuple[Sequence[Entry], dict[str, bytes]]:
    """The entries, and the file of the cases that are stored whole."""
    entries, whole = list[Entry](), io.BytesIO()
    wanted = _chosen(op)
    with zipfile.ZipFile(whole, "w") as archive:
        for number in range(RULES[op].count):
            bound = bind(case(op, number))
            expected = bound.call.expected(bound.inputs)
            entries.append(DigestEntry(number, bound.case, digest(bound.call, expected)))
            if wanted(number, bound):
                add_to_zip(archive, f"{number:04d}", contents(bound, expected))
    return entries, {f"cases/{op}.zip": whole.getvalue()}


def _of_chains() -> tuple[Sequence[Entry], dict[str, bytes]]:
    entries = list[Entry]()
    for number, one in enumerate(chain_rules.chains()):
        shapes = one.shapes(case_name(chain.CHAINS, number))
        outputs = [array for at, graph in shapes for array in chain.defined(graph, at.data())[0]]
        entries.append(chain.ChainEntry(number, one, chain.digest(outputs)))
    return entries, {}


def _other(corpus: Corpus, files: Mapping[str, bytes]) -> list[str]:
    """The files of the corpus that hold something else; zip files by what is in them, since compressors differ."""
    found = []
    for name, data in files.items():
        path = corpus.place(name)
        if not path.is_file():
            found.append(f"{name}: missing")
        elif path.read_bytes() != data and (path.suffix != ".zip" or _unzipped(path) != _unzipped(data)):
            found.append(f"{name}: not what the rules give")
    return found


def _unzipped(source: Path | bytes) -> dict[str, bytes] | None:
    """Name -> content; None for what is no zip file."""
    try:
        held = (
            archive(source, "a zip file") if isinstance(source, Path) else zipfile.ZipFile(io.BytesIO(source))
        )
        with held as opened:
            return {name: member(opened, name, name) for name in opened.namelist()}
    except RefsimError:
        return None


def others(corpus: Corpus | None, plans: Sequence[Planned]) -> list[str]:
    """What SHA256SUMS says wrongly about files that are not planned, and may simply be written there anew.

    ParameterError for files that changed, or are missing and could be made: no digest is written for damaged data.
    """
    if corpus is None:
        return []
    planned = {name for one in plans for name in one.files}
    made = {CHAIN_FILE, *(name for op in RULES for name in (f"digests/{op}.jsonl", f"cases/{op}.zip"))}
    rows = [row for row in corpus.damaged() if row.partition(": ")[0] not in planned]
    for row in rows:
        name, _, what = row.partition(": ")
        if what == "changed" or (what == "missing" and name in made):
            raise ParameterError(
                WHERE, "other files do not match SHA256SUMS", got=row,
                need="regen of their operators as well, or the files as they were",
            )  # fmt: skip
    return [f"SHA256SUMS: {row}" for row in rows]


def _change(op: str, corpus: Corpus | None, new: Sequence[Entry]) -> DigestChange:
    """What differs from the lines of the corpus that can be read; the others are damage, which is written anew."""
    held, damaged = ([], []) if corpus is None else corpus.sound(op)
    change, old = DigestChange(op, damaged=damaged), {entry.number: entry for entry in held}
    for entry in new:
        known = old.pop(entry.number, None)
        if known is None:
            change.added.append(entry.name)
        elif known.line != entry.line:
            drawn_alike = replace(known, sha256=entry.sha256).line == entry.line
            (change.changed if drawn_alike else change.redrawn).append(entry.name)
    change.removed.extend(entry.name for entry in old.values())
    return change


def _chosen(op: str) -> Callable[[int, BoundCase], bool]:
    """Which cases are stored in full: some small ones of each combination of layouts, spread over its cases."""
    combinations = len(OPS[op].layouts)
    most = max(LEAST_PER_LAYOUTS, LEAST_PER_OPERATOR // combinations)
    slots = RULES[op].spread // combinations
    preferred = {(5 + 37 * k) % slots for k in range(most + 3)}  # a few spare ones
    taken = Counter[int]()

    def wants(number: int, bound: BoundCase) -> bool:
        slot, combination = divmod(number, combinations)
        wanted = slot in preferred and taken[combination] < most and nbytes_of(bound) <= MAX_CASE_BYTES
        taken[combination] += wanted
        return wanted

    return wants


def write(root: Path, plans: Sequence[Planned], reason: str, today: datetime.date | None = None) -> None:
    """Write the planned files, the changelog and the sums, all at once. ParameterError without a reason."""
    _check_reason(reason, "--reason TEXT, which goes into the changelog")
    files = {name: data for planned in plans for name, data in planned.files.items()}
    with writing(root) as writer:
        log = root / CHANGELOG
        before = (
            log.read_text()
            if log.exists()
            else "# Changes of the corpus\n\nNewest last; written by `refsim golden regen`.\n"
        )
        rows = "".join(f"- {row}\n" for planned in plans for row in planned.change.lines())
        head = f"\n## {today or datetime.date.today()}: {' '.join(reason.split())}\n\n"
        for name, data in files.items():
            writer.write(name, data)
        writer.write(CHANGELOG, (before + head + rows).encode())
        writer.write(SUMS, sums_of(root, files))


def _check_reason(reason: str, need: str) -> None:
    if not reason.strip():
        raise ParameterError(WHERE, "needs a reason", need=need)


def existing(root: Path) -> Corpus | None:
    """The corpus in this folder, or None."""
    return Corpus(root) if current(root, SUMS).is_file() else None


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
    target = _root(root)
    if not dry_run:
        _check_reason(reason, "--reason TEXT, or --dry-run")
    known = (*RULES, CHAINS)
    for name in operators:
        if name not in known:
            what = f"no rule for that operator ({LISTED})"
            raise ParameterError(WHERE, what, got=name, need=choices.need(name, known))
    if not fresh:
        _must_exist(WHERE, target, "--root FOLDER with a corpus, such as golden in a checkout, or --new")
    return _write(target, operators or known, reason, dry_run)


def begun(operator: str, root: str | None) -> RenewedCorpus:
    """The first cases of an operator that has none yet."""
    target = _root(root)
    if operator not in RULES:
        raise _no_operator(operator, target)
    _must_exist("golden new", target, "a folder with a corpus (golden regen --new makes one)")
    if (target / "digests" / f"{operator}.jsonl").exists():
        need = f"refsim golden regen {operator} --reason TEXT"
        raise ParameterError("golden new", "the operator has cases", got=operator, need=need)
    return _write(target, (operator,), f"New operator {operator}", False)


def _root(root: str | None) -> Path:
    return Path(root) if root else Path(__file__).parents[2] / "golden"


def _must_exist(where: str, target: Path, need: str) -> None:
    """A mistyped folder must not become a corpus of its own."""
    if existing(target) is None:
        raise ParameterError(where, "no corpus there", got=str(target), need=need)


def _no_operator(name: str, target: Path) -> ParameterError:
    """The operators that still need cases; where all have theirs, how an operator is made."""
    bare = [one for one in RULES if not (target / "digests" / f"{one}.jsonl").exists()]
    named = name if name.isidentifier() else "NAME"
    made = f"python -m refsim.ops new {named} first, as all that there are have cases"
    need = choices.need(name, bare) if bare else made
    return ParameterError("golden new", "no such operator", got=name, need=need)


def _write(target: Path, operators: Sequence[str], reason: str, dry_run: bool) -> RenewedCorpus:
    corpus = existing(target)
    plans = []
    with progress("operators", len(operators)) as advance:
        for name in operators:
            plans.append(plan(name, corpus))
            advance()
    beside = others(corpus, plans)
    rows = [row for planned in plans for row in planned.change.lines()] + beside
    written = bool(rows) and not dry_run
    if written:
        write(target, plans, reason)
    return RenewedCorpus(str(target), rows, written, dry_run)
