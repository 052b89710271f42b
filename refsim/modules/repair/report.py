"""What a search for a repair found, as words and as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from refsim.core.counted import counted
from refsim.formats.module_folder import SUFFIX
from refsim.modules.repair.code import CHAINS, Code, Site
from refsim.modules.repair.search import Repair, Searched
from refsim.ops.base.module_call import ModuleDispatch
from refsim.spirv.instruction import Instruction
from refsim.spirv.lines import SourceLine
from refsim.spirv.module import Module
from refsim.spirv.opcodes import GRAMMAR, Op, StorageClass
from refsim.spirv.reflect import interface

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


def unread(module: Module, step: ModuleDispatch) -> Iterator[str]:
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
