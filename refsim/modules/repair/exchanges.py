"""Edits of what a module is given, everywhere at once: two words of a call, bindings or constants exchanged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from typing import NamedTuple

from refsim.modules.repair.code import Code
from refsim.modules.repair.draft import Change, Edit
from refsim.spirv.instruction import Instruction
from refsim.spirv.module import Section
from refsim.spirv.opcodes import Decoration, Op
from refsim.spirv.reflect import MAX_BINDINGS, interface

#: Members and components of one holder that are taken for one another.
MOST_ALIKE = 24


class _Given(NamedTuple):
    """A word or several that a call gives: the variable, the members and components on the way, and in words."""

    variable: int
    path: tuple[int, ...]
    text: str


def edits(code: Code) -> Iterator[Edit]:
    yield from _declared(code)
    for alike in _alike(code):
        for one, other in combinations(alike[:MOST_ALIKE], 2):
            sites = [*_other(code, one, other), *_other(code, other, one)]
            if sites and _used(code, one) and _used(code, other):
                yield Edit(f"{one.text} and {other.text} exchanged", 2, tuple(sites))
        for one, other in permutations(alike[:MOST_ALIKE], 2):
            if len(sites := _other(code, one, other)) > 1:
                yield Edit(f"{other.text} in place of {one.text} everywhere", 2, tuple(sites))


def _declared(code: Code) -> Iterator[Edit]:
    """The numbers of two bindings of one kind exchanged, or of two specialization constants of one type.

    Or a binding with a number that none has.
    """
    marks = {
        (row.args[1], row.args[0]): row
        for row in code.module.sections[Section.ANNOTATION]
        if row.op == Op.DECORATE and row.args[1] in (Decoration.SPEC_ID, Decoration.BINDING)
    }
    constants = [(row.type, row.result) for row in code.types.module.globals if row.op == Op.SPEC_CONSTANT]
    bindings = [
        ((row.kind, row.element, row.nbytes), row.variable) for row in interface(code.types.module).bindings
    ]
    for kind, said, rows in (
        (Decoration.SPEC_ID, "specialization constants", constants), (Decoration.BINDING, "bindings", bindings)
    ):  # fmt: skip
        for (like, one), (same, other) in combinations(rows, 2):
            if like == same and (kind, one) in marks and (kind, other) in marks:
                both = sorted((marks[kind, one], marks[kind, other]), key=lambda row: row.args[-1])
                (first, low), (second, high) = ((row, row.args[-1]) for row in both)
                changed = ((first, high), (second, low))
                yield Edit(f"{said} {low} and {high} exchanged", 1, (), False, marks=changed)
    numbered = {mark: of for (kind, of), mark in marks.items() if kind == Decoration.BINDING}
    taken = {mark.args[-1] for mark in numbered}
    names = code.types.names
    for number in sorted({*range(min(max(taken, default=-1) + 2, MAX_BINDINGS))} - taken):
        for mark, of in numbered.items():
            name = names.get(of) or names.get(code.types.pointee(code.rows[of].type), "")
            said = f"binding {number} in place of {mark.args[-1]}{name and f' for {name}'}"
            yield Edit(said, 1, (), False, marks=((mark, number),))


def _used(code: Code, given: _Given) -> bool:
    return any(
        given.variable == variable and path[: len(given.path)] == given.path for variable, path in code.uses
    )


def _alike(code: Code) -> Iterator[Sequence[_Given]]:
    """What has one type and one holder, of variables that are used."""
    held: dict[tuple[int, tuple[int, ...], int], dict[_Given, None]] = {}
    for leaves in code.leaves.values():
        for leaf in leaves:
            if leaf.variable in code.read:
                kind = code.types.pointee(code.rows[leaf.variable].type)
                for depth, at in enumerate(leaf.path):
                    row = code.rows[kind]
                    kind = row.args[1 + at] if row.op == Op.TYPE_STRUCT else row.args[1]
                    own = _Given(leaf.variable, leaf.path[: depth + 1], "")
                    held.setdefault((leaf.variable, leaf.path[:depth], kind), {})[own] = None
    for rows in held.values():
        yield [row._replace(text=_called(code, row)) for row in rows]


def _called(code: Code, given: _Given) -> str:
    """What a call gives, as its source names it."""
    text, kind = code.types.names.get(given.variable, ""), code.types.pointee(code.rows[given.variable].type)
    for at in given.path:
        row = code.rows[kind]
        if row.op == Op.TYPE_STRUCT:
            name = code.types.member_names.get((kind, at)) or f"member {at}"
            text, kind = f"{text}.{name}" if text else name, row.args[1 + at]
        else:
            part = f".{'xyzw'[at]}" if row.op == Op.TYPE_VECTOR else f"[{at}]"
            text, kind = f"{text or f'%{given.variable}'}{part}", row.args[1]
    return text


def _other(code: Code, old: _Given, new: _Given) -> list[Change]:
    """Where one is used, the other in its place."""
    length, found = len(old.path), []
    for (variable, path), sites in code.uses.items():
        if variable != old.variable or path[:length] != old.path:
            continue
        for site in sites:
            row = code.at(site)
            leaf = code.leaf_at.get((variable, (*new.path, *path[length:])))
            if leaf is not None:
                *rows, last = code.loaded(leaf)
                load = Instruction(Op.LOAD, (row.type, row.result, last.args[2]))
                found.append(Change(site, tuple(rows), instead=load))
    return found
