"""Search for the change that makes a wrong module right, and say which it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from refsim.core.counted import counted
from refsim.core.doing import progress
from refsim.formats.module_folder import SUFFIX
from refsim.golden.telling import TellingCase
from refsim.modules import executors
from refsim.modules.build import Build, Repairing
from refsim.modules.repair.code import CHAINS, Code, Site
from refsim.modules.repair.search import PATIENCE_S, QUICK, Repair, Search, Searched, copied
from refsim.modules.verification import FolderOutcome
from refsim.ops.base.module_call import ModuleDispatch
from refsim.spirv.instruction import Instruction
from refsim.spirv.lines import SourceLine
from refsim.spirv.module import Module
from refsim.spirv.opcodes import GRAMMAR, Op, StorageClass
from refsim.spirv.reflect import interface

#: So many of the named causes say which kinds of edits are tried first.
MOST_CAUSES = 2


@dataclass(frozen=True)
class FoundRepair:
    """An edit of a module."""

    module: Annotated[str, "Name of the module."]
    place: Annotated[str | None, "File and line; null without line numbers."]
    source: Annotated[str, "The text of that line."]
    change: Annotated[str, "The edit, in words."]
    instruction: Annotated[str, "The instruction that is edited."]
    copies: Annotated[int, "How many copies of it are edited."]
    cases: Annotated[int, "Cases that are right with it."]
    wrong: Annotated[str | None, "A case that is not; null if all are right."]

    @classmethod
    def of(cls, one: Repair) -> FoundRepair:
        place = line(one)
        instruction = disassembled(one.code, one.edit.changes[0].site)
        about = (
            one.module,
            None if place is None else str(place),
            source(one),
            one.edit.said,
            instruction,
        )
        return cls(*about, len(one.edit.changes), one.right, one.wrong)


@dataclass(frozen=True)
class RepairSearch:
    """A search for a repair of one operator."""

    operator: Annotated[str, "Name of the operator."]
    witness: Annotated[str, "The case that each edit was tried on."]
    modules: Annotated[Sequence[str], "The modules that were edited."]
    repairs: Annotated[Sequence[FoundRepair], "Edits with which all cases are right."]
    partial: Annotated[
        Sequence[FoundRepair], "Edits with which all witnesses are right, and some other case is not."
    ]
    tried: Annotated[int, "How many edits were tried."]
    edits: Annotated[int, "How many edits there are."]
    seconds: Annotated[float, "How long it took."]
    unread: Annotated[Mapping[str, Sequence[str]], "By module: what it never uses of what its host gives it."]
    searched: Searched

    @classmethod
    def of(cls, found: Searched, unread: Mapping[str, Sequence[str]]) -> RepairSearch:
        repairs, partial = (list(map(FoundRepair.of, rows)) for rows in (found.repairs, found.partial))
        counts = (found.tried, found.edits, round(found.seconds, 3))
        return cls(found.operator, found.witness, found.modules, repairs, partial, *counts, unread, found)

    def lines(self) -> Iterator[str]:
        """What the search found, line by line."""
        for number, one in enumerate(self.searched.repairs):
            yield f"{'or' if number else 'repair'}: {sentence(one)}"
            if line(one) is None:
                yield from (f"    {row}" for row in around(one))
            elif source(one):
                yield f"    {source(one)}"
        if not self.repairs:
            yield f"no repair: {nothing(self.searched)}"
            yield from (f"  not it: {sentence(one)}" for one in self.searched.partial)
            for module, facts in self.unread.items():
                yield from (f"  {module}{SUFFIX} {fact}" for fact in facts)


def repaired(
    build: Build, outcome: FolderOutcome, interrupted: Callable[[], bool] = lambda: False
) -> list[RepairSearch] | None:
    """Search for a repair of each operator that is wrong in some case; the first repair of all is kept.

    None where nobody asked for one.
    """
    if (wanted := build.request.repair) is None:
        return None
    ran = [one for one in outcome.failed if one.actual is not None]
    wrong = {one.candidate.op: one.candidate for one in (*ran, *(row.tried for row in outcome.wrong))}
    causes = {
        row.tried.candidate.op: [cause.name for cause in row.report.causes if not cause.weak]
        for row in outcome.wrong
    }
    found = [
        _searched(build, case, wanted, interrupted, causes.get(op, [])[:MOST_CAUSES])
        for op, case in wrong.items()
    ]
    first = next((one for each in found for one in each.searched.repairs), None)
    wanted.keep(None if first is None else first.spirv)
    return found


def _searched(
    build: Build, case: TellingCase, wanted: Repairing, interrupted: Callable[[], bool], causes: Sequence[str]
) -> RepairSearch:
    trial = build.verification.trial
    steps = build.steps(case.bound.call)
    unread = {
        step.shader: list(unused(build.modules[step.shader], step))
        for step in steps
        if step.shader in build.modules
    }
    with copied(build.path, build.modules) as folder, progress("edits") as advance:
        features = build.features
        executor = executors.of(folder, build.device.index, features.variant, features.float_images, QUICK)
        executor.timeout_s = PATIENCE_S
        try:
            search = Search(
                replace(trial, executor=executor), folder, build.modules, build.steps,
                [one for one in build.verification.every(case.op) if build.takes(one.bound.call)],
                wanted.seconds, advance, interrupted, causes,
            )  # fmt: skip
            return RepairSearch.of(search.run(case), unread)
        finally:
            executor.close()


#: Instructions that are shown in front of one, and behind it, where a module has no lines.
AROUND = 3


def line(repair: Repair) -> SourceLine | None:
    """The source line that a repair changes; None without debug information.

    A branch may have none of its own: then it is that of its condition.
    """
    code, site = repair.code, repair.edit.changes[0].site
    operands = (code.made_at[word] for word in code.at(site).args if word in code.made_at)
    return next(filter(None, map(code.line, (site, *operands))), None)


def source(repair: Repair) -> str:
    """The text of that line, where the module holds its source."""
    place, lines = line(repair), repair.code.lines
    return "" if place is None or lines is None else lines.text(place)


def sentence(repair: Repair) -> str:
    """One line: where, what in place of what, and how many cases it makes right."""
    place = line(repair) or f"{repair.module}{SUFFIX}, {repair.code.at(repair.edit.changes[0].site).name}"
    if repair.wrong is None:
        return f"{place}: {repair.edit.said} makes all {counted(repair.right, 'case')} right"
    return f"{place}: {repair.edit.said} is right in {counted(repair.right, 'case')}, wrong in {repair.wrong}"


def around(repair: Repair) -> list[str]:
    """The instruction that a repair changes among its neighbours, as a disassembler writes them."""
    code, site = repair.code, repair.edit.changes[0].site
    body = code.module.functions[site.function]
    rows = range(max(0, site.row - AROUND), min(len(body), site.row + AROUND + 1))
    return [f"{'>' if at == site.row else ' '} {disassembled(code, Site(site.function, at))}" for at in rows]


def disassembled(code: Code, site: Site) -> str:
    """An instruction as a disassembler writes it."""
    row = code.at(site)
    if row.op not in GRAMMAR:
        return row.name
    ids, grammar = set(row.id_places()), GRAMMAR[row.op]
    words = [
        f"%{word}" if at in ids else str(word) for at, word in enumerate(row.args) if at != grammar.result_at
    ]
    return " ".join(([f"%{row.result} ="] if row.result else []) + [row.name, *words])


def nothing(found: Searched) -> str:
    """One line, where no edit makes the cases right: what was tried."""
    files = ", ".join(f"{name}{SUFFIX}" for name in found.modules)
    if not found.edits:  # stopped before they were listed
        return f"no edit of {files} was tried"
    tried = f"{found.tried} of {found.edits}" if found.tried < found.edits else f"all {found.edits}"
    return f"none of the single edits that were tried, {tried} of {files}, makes all cases of {found.operator} right"


def unused(module: Module, step: ModuleDispatch) -> Iterator[str]:
    """The bindings, push words and specialization constants that a host gives to a module, and that it never uses."""
    declared = interface(module)
    used = {word for body in module.functions for row in body for word in row.args}
    there = {row.number for row in declared.bindings if row.variable in used}
    for number, bind in enumerate(step.binds):
        if number not in there:
            yield f"never uses binding {number} ({bind.what})"
    read = _push_words(module)
    for word in range(len(step.push) // 4):
        if word not in read:
            yield f"never reads push word {word} (bytes {4 * word} to {4 * word + 3})"
    for number in step.spec_words:
        if number >= step.first_spec and number not in declared.spec_ids:
            yield f"has no specialization constant {number}"


def _push_words(module: Module) -> set[int]:
    """The push words that the functions of a module read; all of a member that they read at once."""
    rows = module.definitions()
    blocks = {
        row.result: row.type
        for row in module.globals
        if row.op == Op.VARIABLE and row.args[2] == StorageClass.PUSH_CONSTANT
    }
    members = interface(module).push
    found: set[int] = set()
    for body in module.functions:
        for row in body:
            for variable in blocks.keys() & set(row.args):
                found |= _words_of(rows, row, variable, members)
    return found


def _words_of(
    rows: dict[int, Instruction], row: Instruction, variable: int, members: Sequence[Any]
) -> set[int]:
    chosen = members
    if row.op in CHAINS and row.args[2] == variable and len(row.args) > 3:
        index = rows.get(row.args[3])
        if index is not None and index.op == Op.CONSTANT:
            chosen = members[index.args[2] : index.args[2] + 1]
    return {word for one in chosen for word in range(one.offset // 4, (one.offset + one.nbytes + 3) // 4)}
