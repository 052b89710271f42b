"""Edits of what an instruction does: another operation, operands exchanged, conditions, components, additions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from refsim.modules.repair import digits, kinds
from refsim.modules.repair.code import CHAINS, Code, Site
from refsim.modules.repair.draft import Change, Draft, Make, called, exchange, instead, operation, place, word
from refsim.spirv.instruction import Instruction
from refsim.spirv.opcodes import GRAMMAR, Op


def drafts(code: Code, site: Site, row: Instruction) -> Iterator[Draft]:
    yield from _opcodes(code, row)
    yield from _templates(code, site, row)
    yield from _exchanges(code, row)
    yield from _conditions(code, row)
    yield from _literals(code, row)
    yield from _additions(code, row)


def _opcodes(code: Code, row: Instruction) -> Iterator[Draft]:
    """Another operation of the same types."""
    for op in kinds.OTHERS.get(row.op, ()):
        if op in kinds.UNSIGNED and not code.unsigned(row):
            continue
        rank = 0 if (row.op, op) in kinds.NEAR else 5
        said = f'"{kinds.SAID[op]}" in place of "{kinds.SAID[row.op]}"'
        if kinds.SAID[op] == kinds.SAID[row.op]:
            said = f"{GRAMMAR[op].name} in place of {GRAMMAR[row.op].name}"

        def made(site: Site, old: Instruction, op: int = op) -> Change:
            if op == 109 and code.rows[code.scalar(old.type)].args[2]:  # its result must be unsigned
                scalar = code.type(Op.TYPE_INT, 32, 0)
                size = code.size(old.type)
                unsigned = scalar if size == 1 else code.type(Op.TYPE_VECTOR, scalar, size)
                rows = (Instruction(op, (unsigned, -1, old.args[2])),)
                return Change(site, rows, instead=Instruction(Op.BITCAST, (old.type, old.result, -1)))
            return Change(site, instead=Instruction(op, old.args))

        yield Draft(said, rank, made)
    casts = (
        kinds.CAST.get((code.kind(code.type_of(row.args[2])), code.kind(row.type)), ())
        if row.op in (110, 111, Op.BITCAST)
        else ()
    )
    for op in casts:
        if op != row.op:
            yield Draft(f"{GRAMMAR[op].name} in place of {row.name}", 3, instead(op))
    if row.op == Op.EXT_INST and row.args[2] == code.glsl:
        for number in kinds.EXTENDED.get(row.args[3], ()):
            said = f"{kinds.EXTENDED_SAID[number]} in place of {kinds.EXTENDED_SAID[row.args[3]]}"
            yield Draft(said, 0, word(3, number))


#: (Product, sum) of each kind of numbers, and the numbers of GLSL's fma, floor, round and roundEven.
_RINGS = {Op.TYPE_INT: (Op.IMUL, Op.IADD), Op.TYPE_FLOAT: (133, 129)}
_FMA, _FLOOR, _ROUNDS = 50, 8, (1, 2)


def _templates(code: Code, site: Site, row: Instruction) -> Iterator[Draft]:
    """Two operations for one or two others: rounding written as floor(x + 0.5), and where the parentheses stand."""
    kind = code.kind(row.type) if row.result and row.type in code.rows else -1
    times, plus = _RINGS.get(kind, (0, 0))
    extended = row.args[3] if row.op == Op.EXT_INST and row.args[2] == code.glsl else 0
    half = code.constant(row.type, 0.5) if kind == Op.TYPE_FLOAT else 0

    def two(value: int, op: int) -> tuple[int, ...]:
        found = code.rows.get(value)
        return found.args[2:] if found is not None and found.op == op else ()

    def exchanged(at: int, turn: int, outer: int, inner: int) -> Make:
        """(x outer y) inner z becomes (x inner z) outer y; ``turn`` says which operand of the first is x."""

        def made(site: Site, old: Instruction) -> Change | None:
            first = old.args[4:6] if old.op == Op.EXT_INST else two(old.args[at], outer)
            if not first:
                return None
            x, y = first[turn], first[1 - turn]
            z = old.args[6] if old.op == Op.EXT_INST else old.args[5 - at]
            rows = (Instruction(inner, (old.type, -1, x, z)),)
            return Change(site, rows, instead=Instruction(outer, (old.type, old.result, -1, y)))

        return made

    def rounded(number: int) -> Make:
        def made(site: Site, old: Instruction) -> Change | None:
            terms = two(old.args[4], plus)
            left = [one for one in terms if code.number(one) != 0.5]
            if len(left) != len(terms) - 1:
                return None
            return Change(site, instead=old.with_args(*old.args[:3], number, left[0]))

        return made

    def floored(site: Site, old: Instruction) -> Change:
        rows = (Instruction(plus, (old.type, -1, old.args[4], half)),)
        return Change(site, rows, instead=old.with_args(*old.args[:3], _FLOOR, -1))

    def rounded_up(site: Site, old: Instruction) -> Change:
        more = Instruction(Op.IADD, (old.type, -1, old.args[2], old.args[3]))
        less = Instruction(Op.ISUB, (old.type, -2, -1, code.constant(old.type, 1)))
        return Change(site, (more, less), ((2, -2),))

    if row.op == Op.IADD:
        yield from digits.mixed(code, site, row)
    if row.op in (kinds.U_DIV, kinds.S_DIV):
        yield Draft("rounded up: (a + b - 1) / b in place of a / b", 2, rounded_up)
    for turn in (0, 1):
        if row.op == times or row.op == plus:
            outer, said = (
                (plus, "a * s + b in place of (a + b) * s") if row.op == times else (times, _PRODUCT)
            )
            for at in (2, 3):
                if two(row.args[at], outer):
                    yield Draft(said, 2, exchanged(at, turn, outer, row.op))
        elif extended == _FMA:
            yield Draft(_PRODUCT, 2, exchanged(4, turn, times, plus))
    if extended == _FLOOR and two(row.args[4], plus):
        for number in _ROUNDS:
            yield Draft(f"{kinds.EXTENDED_SAID[number]}(x) in place of floor(x + 0.5)", 1, rounded(number))
    elif extended in (*_ROUNDS, 3):
        yield Draft(f"floor(x + 0.5) in place of {kinds.EXTENDED_SAID[extended]}(x)", 1, floored)


_PRODUCT = "(a + b) * s in place of a * s + b"


def _exchanges(code: Code, row: Instruction) -> Iterator[Draft]:
    """Two operands of a type exchanged."""
    if row.op in kinds.ORDERED and code.type_of(row.args[2]) == code.type_of(row.args[3]):
        said = f'operands of "{kinds.SAID.get(row.op, row.name)}" exchanged'
        yield Draft(said, 1, exchange(2, 3))
    elif row.op == Op.SELECT:
        yield Draft("? and : exchanged", 0, exchange(3, 4))
    elif row.op in CHAINS:
        free = [at for at in range(3, len(row.args)) if code.is_free(row, at)]
        for a, b in pairwise(free):
            if row.args[a] != row.args[b] and code.type_of(row.args[a]) == code.type_of(row.args[b]):
                yield Draft(
                    f"[{called(code, row.args[b])}][{called(code, row.args[a])}] exchanged", 1, exchange(a, b)
                )
    elif row.op in (Op.COMPOSITE_CONSTRUCT, Op.FUNCTION_CALL, 77, 201, 202, 203, Op.EXT_INST):
        first = kinds.FIRST_VALUE.get(row.op, 2)
        for a in range(first, len(row.args) - 1):
            b = a + 1
            if row.args[a] != row.args[b] and code.type_of(row.args[a]) == code.type_of(row.args[b]):
                yield Draft(
                    f"operands {a - first + 1} and {b - first + 1} of {operation(code, row)} exchanged",
                    1,
                    exchange(a, b),
                )


def _conditions(code: Code, row: Instruction) -> Iterator[Draft]:
    """A condition negated, or dropped."""
    at = {Op.BRANCH_CONDITIONAL: 0, Op.SELECT: 2}.get(row.op)
    if at is None or code.kind(code.type_of(row.args[at])) != Op.TYPE_BOOL:
        return
    type_id = code.type_of(row.args[at])
    if row.op == Op.BRANCH_CONDITIONAL:
        yield Draft(
            "condition negated",
            0,
            lambda site, old: Change(site, (Instruction(168, (type_id, -1, old.args[at])),), ((at, -1),)),
        )
    if code.size(type_id) == 1:
        for value in (True, False):
            known = code.boolean(type_id, value)
            said = f"condition dropped: always {str(value).lower()}"
            yield Draft(said, 2, place(at, known), known=known)


def _literals(code: Code, row: Instruction) -> Iterator[Draft]:
    """Another component, or other members of a value."""
    if row.op == Op.COMPOSITE_EXTRACT:
        yield from _extracts(code, row)
    elif row.op == Op.VECTOR_SHUFFLE:
        sizes = [code.size(code.type_of(word)) for word in row.args[2:4]]
        for at in range(4, len(row.args)):
            for other in range(min(sum(sizes), 8)):
                if other != row.args[at]:
                    yield Draft(f"component {other} in place of {row.args[at]}", 2, word(at, other))
        swapped = row.args[:3:-1]
        yield Draft(
            "components in reverse",
            1,
            lambda site, old: Change(site, instead=old.with_args(*old.args[:4], *swapped)),
        )


def _extracts(code: Code, row: Instruction) -> Iterator[Draft]:
    chain = [code.type_of(row.args[2])]
    for index in row.args[3:]:
        holder = code.rows[chain[-1]]
        chain.append(holder.args[index + 1] if holder.op == Op.TYPE_STRUCT else holder.args[1])
    for at, index in enumerate(row.args[3:]):
        holder = code.rows[chain[at]]
        if holder.op == Op.TYPE_STRUCT:
            same = [i for i, member in enumerate(holder.args[1:]) if member == chain[at + 1]]
        else:
            fixed = holder.op in (Op.TYPE_VECTOR, Op.TYPE_MATRIX)
            size = holder.args[2] if fixed else code.types.length(holder.args[2])
            same = list(range(min(size, 8)))
        for other in same:
            if other != index:
                yield Draft(f"component {other} in place of {index}", 1, word(at + 3, other))


def _additions(code: Code, row: Instruction) -> Iterator[Draft]:
    """An operation behind one, or in front of a store."""
    if row.op == Op.STORE and code.plain(code.type_of(row.args[1])):
        yield from _stored(code, row)
    if not row.result or not row.type or row.op in (Op.PHI, *CHAINS, Op.FUNCTION_CALL):
        return
    kind = code.kind(row.type) if row.type in code.rows else -1
    if not code.plain(row.type) or kind == Op.TYPE_BOOL:
        return
    near = 2 if row.op in (109, 110, 194, 195, Op.EXT_INST, Op.COMPOSITE_EXTRACT) else 5
    if kind == Op.TYPE_INT:
        yield _behind('"& 255" behind it', near, 199, code.constant(row.type, 255))
        one, eight = code.constant(row.type, 1), code.constant(row.type, 128)
        for op, value, said in (
            (128, one, "+ 1"),
            (130, one, "- 1"),
            (128, eight, "+ 128"),
            (130, eight, "- 128"),
        ):
            yield _behind(f'"{said}" behind it', 5, op, value)
        four = code.constant(row.type, 4)
        yield _behind('"* 4" behind it', 6, Op.IMUL, four)
        yield _behind('"/ 4" behind it', 6, kinds.S_DIV, four)
        if code.glsl:
            low, high = code.constant(row.type, -128), code.constant(row.type, 127)
            yield _behind(
                "a clamp to [-128, 127] behind it", near, Op.EXT_INST, code.glsl, kinds.S_CLAMP, low, high
            )
            zero = code.constant(row.type, 0)
            yield _behind("max(..., 0) behind it", near + 1, Op.EXT_INST, code.glsl, kinds.S_MAX, zero)
    elif code.glsl:
        zero = code.constant(row.type, 0.0)
        yield _behind("max(..., 0.0) behind it", near + 1, Op.EXT_INST, code.glsl, kinds.F_MAX, zero)
        yield _behind("roundEven behind it", near + 1, Op.EXT_INST, code.glsl, kinds.ROUND_EVEN)
        yield _behind('"-" in front of it', 5, Op.FNEGATE)


def _behind(said: str, rank: int, op: int, *more: int) -> Draft:
    """The result of an instruction goes through another one; of an extended one, set and number come first."""

    def made(site: Site, old: Instruction) -> Change:
        at = GRAMMAR[old.op].result_at
        plain = old.with_args(*old.args[:at], -1, *old.args[at + 1 :])
        words = (*more[:2], -1, *more[2:]) if op == Op.EXT_INST else (-1, *more)
        return Change(site, (plain,), instead=Instruction(op, (old.type, old.result, *words)))

    return Draft(said, rank, made)


def _stored(code: Code, row: Instruction) -> Iterator[Draft]:
    """What is stored is added to what was there, or is not stored."""
    type_id = code.type_of(row.args[1])
    kind = code.kind(type_id)
    ops = {
        Op.TYPE_INT: ((128, "+="), (130, "-="), (132, "*="), (197, "|=")),
        Op.TYPE_FLOAT: ((129, "+="), (133, "*=")),
    }
    for op, said in ops.get(kind, ()):

        def made(site: Site, old: Instruction, op: int = op) -> Change:
            rows = (
                Instruction(Op.LOAD, (type_id, -1, old.args[0])),
                Instruction(op, (type_id, -2, -1, old.args[1])),
            )
            return Change(site, rows, ((1, -2),))

        yield Draft(f'"{said}" in place of "="', 2, made)
    yield Draft(
        "not stored",
        4,
        lambda site, old: Change(site, (Instruction(Op.LOAD, (type_id, -1, old.args[0])),), ((1, -1),)),
    )
