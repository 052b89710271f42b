"""The single edits of a module's functions, the most plausible first.

An edit is made at one instruction, or in the same way at all copies of it that a compiler made of one piece of source.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from refsim.modules.repair import kinds, operands, operations
from refsim.modules.repair.code import Code, Leaf, Site
from refsim.modules.repair.draft import Change, Draft
from refsim.spirv.instruction import Instruction
from refsim.spirv.opcodes import GRAMMAR, Op

#: What is the same in all copies, however little they have in common.
_FIXED = (Op.CONSTANT, Op.CONSTANT_COMPOSITE, Op.EXT_INST_IMPORT)


@dataclass(frozen=True)
class Edit:
    """One edit: ``said`` in words, and what it does at each copy of the instruction.

    ``rank`` orders edits, small ones first. Where it is not ``chosen``, it cannot be one of many in a module.
    ``known`` is as in `Draft`.
    """

    said: str
    rank: int
    changes: tuple[Change, ...]
    chosen: bool = True
    known: Leaf | int = 0


def edits(code: Code) -> list[Edit]:
    """All edits of a module, in the order in which they are to be tried."""
    found: list[Edit] = []
    for group, later in _groups(code):
        for draft in _drafts(code, group[0], code.at(group[0]), len(group) > 1):
            changes = tuple(draft.make(site, code.at(site)) for site in group)
            found.append(Edit(draft.said, draft.rank + later, changes, draft.chosen, draft.known))
    return sorted(found, key=lambda one: one.rank)


def _groups(code: Code) -> Iterator[tuple[list[Site], int]]:
    """(Instructions that stem from the same piece of source, how much later than others they are tried).

    Copies for other arguments are alike only in what they do themselves; further ones also in what they work on.
    """
    seen: set[tuple[Site, ...]] = set()
    for depth, later in ((0, 0), (3, 1)):
        alike: dict[object, list[Site]] = {}
        for site, row in code.sites():
            if row.op not in kinds.LEFT or row.op == Op.LOAD:
                line = code.line(site)
                alike.setdefault((line, *_shape(code, row, depth if line else depth + 2)), []).append(site)
        for group in alike.values():
            if tuple(group) not in seen:
                seen.add(tuple(group))
                yield group, later if len(group) > 1 else 2 * later
    for site, row in code.sites():
        if (row.op not in kinds.LEFT or row.op == Op.LOAD) and (site,) not in seen:
            yield [site], 3


def _shape(code: Code, row: Instruction, depth: int) -> tuple[object, ...]:
    """What copies of an instruction have in common: opcodes, types, constants, and the same of its operands."""
    parts: list[object] = [row.op, row.type]
    grammar = GRAMMAR[row.op]
    ids = set(row.id_places())
    for at, word in enumerate(row.args):
        if at in (grammar.type_at, grammar.result_at):
            continue
        made = code.row(word) if at in ids else None
        if at not in ids or made is None or made.op in _FIXED:
            parts.append(word)
        elif made.op in (Op.VARIABLE, Op.FUNCTION_PARAMETER):  # copies of one variable have its name
            parts.append((code.type_of(word), code.types.names.get(word, "")))
        elif word in code.made_at and row.op != Op.PHI and depth:
            parts.append(_shape(code, made, depth - 1))
        else:
            parts.append(code.type_of(word) if word in code.made_at or not depth else word)
    return tuple(parts)


def _drafts(code: Code, site: Site, row: Instruction, copies: bool) -> Iterator[Draft]:
    if row.op == Op.LOAD:
        yield from operands.loads(code, site, row)
    else:
        yield from operations.drafts(code, row)
        yield from operands.drafts(code, site, row, copies)
