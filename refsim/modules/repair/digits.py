"""Edits of numbers with digits, as indices are: put together, or taken apart, in another order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from refsim.modules.repair import kinds
from refsim.modules.repair.code import Code, Site
from refsim.modules.repair.draft import Change, Draft, Edit, Make, called
from refsim.spirv.instruction import Instruction
from refsim.spirv.opcodes import Op

#: How deep the factors of a sum are looked for.
DEEP = 3


def mixed(code: Code, site: Site, row: Instruction) -> Iterator[Draft]:
    """a * n + b the other way round: b * m + a, where m is a factor there, or something that is compared with."""

    def made(at: int, turn: int, by: tuple[int, ...]) -> Make:
        def change(site: Site, old: Instruction) -> Change | None:
            product = code.rows.get(old.args[at])
            if product is None or product.op != Op.IMUL or not all(code.is_known(m, site) for m in by):
                return None
            rows, factor = [], by[0]
            if len(by) == 2:
                rows, factor = [Instruction(Op.IMUL, (old.type, -2, *by))], -2
            rows.append(Instruction(Op.IMUL, (old.type, -1, old.args[5 - at], factor)))
            last = Instruction(Op.IADD, (old.type, old.result, -1, product.args[turn]))
            return Change(site, tuple(rows), instead=last)

        return change

    for at in (2, 3):
        product = code.rows.get(row.args[at])
        if product is None or product.op != Op.IMUL:
            continue
        factors = list(dict.fromkeys(_factors(code, row, row.type, DEEP)))
        limits = [m for m in code.limits.get(row.type, ()) if code.is_known(m, site)]
        pairs = ((m, m) for m in factors)
        several = [*((m,) for m in dict.fromkeys((*factors, *limits))), *pairs, *combinations(factors, 2)]
        for turn in (2, 3):
            a, b = product.args[turn], row.args[5 - at]
            for by in several:
                if a not in by and b not in by:
                    names = " * ".join(called(code, value) for value in (b, *by))
                    yield Draft(f"{names} + {called(code, a)} in place of the sum", 3, made(at, turn, by))


def _factors(code: Code, row: Instruction, type_id: int, depth: int) -> Iterator[int]:
    """The factors of products in a sum."""
    for value in row.args[2:4]:
        inner = code.rows.get(value)
        if inner is not None and inner.op in (Op.IADD, Op.IMUL) and depth:
            yield from _factors(code, inner, type_id, depth - 1)
        elif row.op == Op.IMUL and code.type_of(value) == type_id:
            yield value


def edits(code: Code) -> Iterator[Edit]:
    """A number taken apart in the other order: n % p and n / p % q become n / q % p and n % q.

    By q, which is a divisor there, something that is compared with, or a word of what the module reads.
    """
    numbers: dict[tuple[int, int], dict[int, list[Site]]] = {}
    for site, row in code.sites():
        if row.op in (kinds.U_DIV, kinds.S_DIV, *_RESTS):
            numbers.setdefault((row.args[2], row.args[3]), {}).setdefault(row.op, []).append(site)
    for (n, p), sites in numbers.items():
        for rest, divide in _RESTS.items():
            if rest not in sites or divide not in sites:
                continue
            type_id, both = code.at(sites[rest][0]).type, (*sites[rest], *sites[divide])
            above = {code.at(site).result for site in sites[divide]}
            tops = {
                q: found[rest] for (value, q), found in numbers.items() if value in above and rest in found
            }
            limits = (*tops, *code.limits.get(type_id, ()))
            known = [q for q in dict.fromkeys(limits) if all(code.is_known(q, at) for at in both)]
            for q in (*known, *code.leaves.get(type_id, ())):
                rows, by = ((), q) if isinstance(q, int) else (code.loaded(q), -1)
                if by == p or (not isinstance(q, int) and q.variable not in code.read):
                    continue
                low = Instruction(divide, (type_id, -3, n, by))
                changes = [_instead(code, at, rest, (-3, p), (*rows, low)) for at in sites[rest]]
                changes += [_instead(code, at, rest, (n, by), rows) for at in tops.get(by) or sites[divide]]
                text = called(code, q) if isinstance(q, int) else q.text
                yield Edit(f"{called(code, n)} taken apart by {text} first", 2, tuple(changes))


#: OpUMod, OpSRem, OpSMod -> the division that goes with it.
_RESTS = {137: kinds.U_DIV, 138: kinds.S_DIV, 139: kinds.S_DIV}


def _instead(
    code: Code, site: Site, op: int, values: tuple[int, int], rows: tuple[Instruction, ...] = ()
) -> Change:
    old = code.at(site)
    return Change(site, rows, instead=Instruction(op, (old.type, old.result, *values)))
