"""Edits of what an instruction works on: other constants, other values that are known there, other words of a call."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from refsim.modules.repair import kinds
from refsim.modules.repair.code import CHAINS, Code, Leaf, Site
from refsim.modules.repair.draft import Change, Draft, called, copy, in_place, operation, place, word
from refsim.spirv.instruction import Instruction
from refsim.spirv.opcodes import Op

#: How many values that are known at an instruction are tried in the place of an operand.
NEAREST = 6
#: The same in the place of several uses of a value.
INLINED = 3
#: The rank of an edit that puts a number or a given word in the place of what is computed.
COMPUTED = 6
#: Numbers that kernels over packed bytes are full of, and factors and summands of floats.
USUAL = (2, 3, 4, 8, 15, 16, 20, 24, 28, 127, 128, 255, -128)
USUAL_FLOATS = (2.0, -1.0, 127.0, -128.0)
#: The storage class of a function's own variables.
FUNCTION = 7
_TEXELS = (Op.IMAGE_FETCH, Op.IMAGE_READ, Op.IMAGE_WRITE)


def drafts(
    code: Code, site: Site, row: Instruction, group: Sequence[Site], ranks: Container[int]
) -> Iterator[Draft]:
    """``group``: the copies of the instruction, itself among them."""
    yield from _bases(code, site, row)
    for at in value_places(code, row):
        yield from _operands(code, site, row, at)
        yield from _nearest(code, site, row, at, len(group) > 1)
        yield from _counted(code, row, at, group)
        yield from _indices(code, site, row, at)
        yield from _forgotten(code, site, row, at)
        if COMPUTED in ranks:
            yield from _given(code, row, at)


def value_places(code: Code, row: Instruction) -> Iterator[int]:
    """The operands that are plain values, each value once."""
    first = kinds.FIRST_VALUE.get(row.op, 2)
    if row.op in kinds.LEFT:
        return
    seen: set[int] = set()
    for at in row.id_places():
        word = row.args[at]
        type_id = code.type_of(word) if at >= first else 0
        if not type_id or word in seen or type_id not in code.rows or not code.plain(type_id):
            continue
        if row.op in CHAINS and not code.is_free(row, at):
            continue
        if row.op in _TEXELS and at > 3:  # the level must stay 0
            continue
        seen.add(word)
        yield at


def _operands(code: Code, site: Site, row: Instruction, at: int) -> Iterator[Draft]:
    """Other values in the place of an operand."""
    old, type_id = row.args[at], code.type_of(row.args[at])
    number = code.number(old)
    spec = code.rows[old].op == Op.SPEC_CONSTANT
    if number is not None:
        for value, rank in _numbers(code, old, number):
            yield _put(code, value, old, rank, at, value)
    elif row.op == Op.PHI and code.kind(type_id) != Op.TYPE_BOOL:  # what goes on was to begin anew
        zero = code.constant(type_id, 0)
        yield _put(code, zero, old, 3, at, zero)
    elif row.result and row.type == type_id and row.op in kinds.SKIPPED:
        yield Draft(f"{operation(code, row)} left out", 2, copy(at))
    for value in code.spec_constants.get(type_id, ()):
        if value != old:
            yield _put(code, value, old, 1 if spec else 6, at, value)
    if number is not None or code.origin(old) is not None:
        yield from _other_leaves(code, row, at)


def _nearest(code: Code, site: Site, row: Instruction, at: int, copies: bool) -> Iterator[Draft]:
    """A value of the type that is made shortly before; at each copy the one as far away."""
    old, type_id = row.args[at], code.type_of(row.args[at])
    if row.op == Op.PHI:
        return
    for number, value in enumerate(code.before(site, type_id, NEAREST)):

        def made(site: Site, other: Instruction, number: int = number) -> Change | None:
            values = code.before(site, type_id, NEAREST)
            if number >= len(values) or values[number] == other.args[at]:
                return None
            return Change(site, (), ((at, values[number]),))

        if value != old:
            yield Draft(in_place(code, value, old), (3 if code.number(old) is None else 6) + copies, made)


def _counted(code: Code, row: Instruction, at: int, group: Sequence[Site]) -> Iterator[Draft]:
    """The copies of a loop over four lanes counted: lane 0, 1, 2, 3, or its first bit."""
    type_id = code.type_of(row.args[at])
    if len(group) % 4 or row.op not in kinds.LANES or code.size(type_id) > 1:
        return
    order = {site: number % 4 for number, site in enumerate(group)}
    for step, said in ((1, "0, 1, 2, 3"), (8, "0, 8, 16, 24")):

        def made(site: Site, old: Instruction, step: int = step) -> Change:
            return Change(site, (), ((at, code.constant(type_id, step * order[site])),))

        yield Draft(f"{said} by turns in place of {called(code, row.args[at])}", 3, made)


def _indices(code: Code, site: Site, row: Instruction, at: int) -> Iterator[Draft]:
    """An index that the same array, or another one of its type, has elsewhere."""
    if row.op not in CHAINS:
        return
    old = row.args[at]
    for value in code.indices.get((code.type_of(row.args[2]), at), ()):
        if value != old and code.type_of(value) == code.type_of(old) and code.is_known(value, site):

            def made(site: Site, old: Instruction, value: int = value) -> Change | None:
                return Change(site, (), ((at, value),)) if code.is_known(value, site) else None

            yield Draft(in_place(code, value, old), 2, made)


def _forgotten(code: Code, site: Site, row: Instruction, at: int) -> Iterator[Draft]:
    """A factor of what is added, or something added to an index: each variable of the function."""
    type_id = code.type_of(row.args[at])
    if (row.op != Op.IADD and row.op not in CHAINS) or code.kind(type_id) != Op.TYPE_INT:
        return
    op, sign = (Op.IMUL, "*") if row.op == Op.IADD else (Op.IADD, "+")
    for variable in code.variables(site.function, code.type(Op.TYPE_POINTER, FUNCTION, type_id)):

        def made(site: Site, old: Instruction, variable: int = variable) -> Change:
            load = Instruction(Op.LOAD, (type_id, -1, variable))
            return Change(site, (load, Instruction(op, (type_id, -2, old.args[at], -1))), ((at, -2),))

        yield Draft(f'"{sign} {called(code, variable)}" behind {called(code, row.args[at])}', 4, made)


def _given(code: Code, row: Instruction, at: int) -> Iterator[Draft]:
    """A number, or a word that the host gives, in the place of what is computed."""
    old = row.args[at]
    if code.number(old) is not None or code.origin(old) is not None:
        return
    yield from _other_leaves(code, row, at)
    if code.kind(code.type_of(old)) != Op.TYPE_BOOL:
        for value, _ in _numbers(code, old, 0):
            yield _put(code, value, old, COMPUTED, at, value)


def instead_of(code: Code, value: int) -> Iterator[tuple[str, int, tuple[Instruction, ...], int, Leaf | int]]:
    """What may stand in the place of a value: words, rank, what makes it, its id, and what the host knows of it."""
    type_id, own = code.type_of(value), code.origin(value)
    for other in code.spec_constants.get(type_id, ()):
        if other != value:
            yield in_place(code, other, value), 2, (), other, other
    for leaf in code.leaves.get(type_id, ()) if own is not None else ():
        rank = _distance(code, own, leaf)
        if rank is not None and rank < 2:
            yield in_place(code, leaf, value), 2 + rank, code.loaded(leaf), -1, leaf
    if value in code.made_at:  # what is known there is known at all uses
        for other in code.before(code.made_at[value], type_id, INLINED):
            yield in_place(code, other, value), 4, (), other, 0


def _put(code: Code, value: int, old: int, rank: int, at: int, known: int = 0) -> Draft:
    return Draft(in_place(code, value, old), rank, place(at, value), known=known)


def _numbers(code: Code, old: int, number: float) -> Iterator[tuple[int, int]]:
    """(Constant, rank): the neighbours of a number, then the other constants of the module."""
    type_id = code.type_of(old)
    if code.kind(type_id) == Op.TYPE_FLOAT:
        close: Sequence[float] = (-number, 2 * number, number / 2, 0.0, 1.0, number + 1, number - 1, 0.5)
    else:
        close = (number + 1, number - 1, 0, 1, 2 * number, 2 * number + 1, number // 2, -number)
    known = [code.number(other) for other in code.constants.get(code.scalar(type_id), ())]
    usual = USUAL_FLOATS if code.kind(type_id) == Op.TYPE_FLOAT else USUAL
    found = {old}
    for values, rank in ((close, 0), (usual, 2 if number in (0, 1) else 4), (known, 3)):
        for value in values:
            if value is not None and abs(value) < 2**31:
                made = code.constant(type_id, value)
                if made not in found:
                    found.add(made)
                    yield made, rank


def _other_leaves(code: Code, row: Instruction, at: int) -> Iterator[Draft]:
    """Another push word, word of a uniform block or component in the place of an operand."""
    if row.op == Op.PHI:
        return
    old = row.args[at]
    type_id, own = code.type_of(old), code.origin(old)
    for leaf in code.leaves.get(type_id, ()):
        rank = _distance(code, own, leaf)
        if rank is not None:
            yield Draft(in_place(code, leaf, old), 1 + rank, place(at, -1, code.loaded(leaf)), known=leaf)


def _distance(code: Code, own: tuple[int, tuple[int, ...]] | None, leaf: Leaf) -> int | None:
    """How unlike two paths are; None for the same one."""
    if own is None:
        return COMPUTED - 1
    if own == (leaf.variable, leaf.path):
        return None
    steps = sum(a != b for a, b in zip(own[1], leaf.path, strict=False)) + abs(len(own[1]) - len(leaf.path))
    return min(4, 2 * (steps + (own[0] != leaf.variable)) - 2)


def loads(code: Code, site: Site, row: Instruction) -> Iterator[Draft]:
    """Another variable, another member, another leaf."""
    if row.type not in code.rows or code.rows[row.type].op == Op.TYPE_IMAGE or not code.plain(row.type):
        return
    own = code.origin(row.result)
    for leaf in code.leaves.get(row.type, ()):
        rank = _distance(code, own, leaf)
        if rank is None:
            continue
        *rows, last = code.loaded(leaf)
        other = word(2, last.args[2], tuple(rows))
        yield Draft(in_place(code, leaf, row.result), rank if own is not None else 6, other, known=leaf)
    pointer = code.type_of(row.args[2])
    for variable in code.variables(site.function, pointer):
        if variable != row.args[2]:
            yield Draft(in_place(code, variable, row.args[2]), 2, word(2, variable))


def _bases(code: Code, site: Site, row: Instruction) -> Iterator[Draft]:
    """Another buffer or variable of the same type under an access chain; pointers cannot be chosen between."""
    if row.op not in CHAINS:
        return
    base = code.rows[row.args[2]]
    if base.op != Op.VARIABLE:
        return
    others = [
        one.result for one in code.types.module.globals if one.op == Op.VARIABLE and one.type == base.type
    ]
    for other in (*others, *code.variables(site.function, base.type)):
        if other != base.result:
            yield Draft(in_place(code, other, base.result), 3, place(2, other), chosen=False)
