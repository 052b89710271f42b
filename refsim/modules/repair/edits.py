"""The single edits of a module's functions, the most plausible first.

An edit is made at one instruction, or in the same way at all copies of it that a compiler made of one piece of source.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence

from refsim.modules.repair import digits, exchanges, kinds, operands, operations
from refsim.modules.repair.code import Code, Site
from refsim.modules.repair.draft import Change, Draft, Edit, in_place
from refsim.spirv.instruction import Instruction
from refsim.spirv.opcodes import GRAMMAR, Op

SPEC_CONSTANT_OP = 52
#: Of so many uses of a value every run may be those of an inlined call; of more, at most so many calls are thought of.
FEW_USES, MOST_CALLS = 6, 8
#: The rank of edits from which on there are more than can be tried in a minute.
FAR = 5
#: What is the same in all copies, however little they have in common.
_FIXED = (Op.CONSTANT, Op.CONSTANT_COMPOSITE, Op.EXT_INST_IMPORT)


def edits(code: Code) -> list[Edit]:
    """All edits of a module, in the order in which they are to be tried."""
    return [edit for part in parts(code) for edit in part]


def parts(code: Code) -> Iterator[list[Edit]]:
    """The edits of a module, in the order in which they are to be tried: at first those that list fast."""
    groups = list(_groups(code))
    for ranks in (range(FAR), range(FAR, 2 * FAR)):
        found = (
            [*_computed(code), *_inlined(code), *exchanges.edits(code), *digits.edits(code)]
            if 0 in ranks
            else []
        )
        for group, later in groups:
            first = group[0]
            own = range(ranks.start - later, ranks.stop - later)
            for draft in _drafts(code, first, code.at(first), group, own):
                if draft.rank in own:
                    made = [draft.make(site, code.at(site)) for site in group]
                    changes = tuple(one for one in made if one is not None)
                    if len(changes) == len(group):
                        found.append(Edit(draft.said, draft.rank + later, changes, draft.chosen, draft.known))
        yield sorted(found, key=lambda one: one.rank)


def _computed(code: Code) -> Iterator[Edit]:
    """Edits of constants that are computed from specialization constants: what uses one gets another value."""
    for row in code.types.module.globals:
        if row.op != SPEC_CONSTANT_OP or row.args[2] not in kinds.OTHERS or not code.plain(row.type):
            continue
        uses = [
            (site, tuple(at for at in user.id_places() if user.args[at] == row.result))
            for site, user in code.sites()
            if row.result in user.args and user.op not in (Op.PHI, *kinds.LEFT)
        ]
        old = Instruction(row.args[2], (row.type, -1, *row.args[3:]))
        others = [
            (f'"{kinds.SAID[op]}" in place of "{kinds.SAID[old.op]}"', Instruction(op, old.args))
            for op in kinds.OTHERS[old.op]
            if op not in kinds.UNSIGNED or code.unsigned(old)
        ]
        for at in (2, 3):
            kind = code.type_of(old.args[at])
            for value in (code.constant(kind, 0), code.constant(kind, 1), *code.spec_constants.get(kind, ())):
                new = old.with_args(*old.args[:at], value, *old.args[at + 1 :])
                others.append((in_place(code, value, old.args[at]), new))
        changed: list[tuple[str, tuple[Instruction, ...]]] = [(said, (new,)) for said, new in others]
        changed += _otherwise_computed(code, row.result)
        for said, rows in changed if uses else ():
            made = (Change(site, rows, tuple((at, -1) for at in places)) for site, places in uses)
            yield Edit(said, 1, tuple(made))


def _otherwise_computed(code: Code, value: int) -> Iterator[tuple[str, tuple[Instruction, ...]]]:
    """(In words, what makes it as -1): a computed constant, made of another specialization constant."""
    tree = list(_tree(code, value))
    read = {word for row in tree for word in row.args[3:] if code.rows[word].op == Op.SPEC_CONSTANT}
    for old in sorted(read):
        for new in code.spec_constants.get(code.type_of(old), ()):
            if new != old:
                ids = {row.result: at - len(tree) for at, row in enumerate(tree)} | {old: new}
                rows = (
                    Instruction(
                        row.args[2], (row.type, ids[row.result], *(ids.get(one, one) for one in row.args[3:]))
                    )
                    for row in tree
                )
                yield in_place(code, new, old), tuple(rows)


def _tree(code: Code, value: int) -> Iterator[Instruction]:
    """The instructions that compute a constant from others, each once, those that it works on first."""
    row, seen = code.rows[value], set[int]()
    for word in row.args[3:]:
        if code.rows[word].op == SPEC_CONSTANT_OP:
            for inner in _tree(code, word):
                if inner.result not in seen:
                    seen.add(inner.result)
                    yield inner
    yield row


def _inlined(code: Code) -> Iterator[Edit]:
    """Another argument of a function that was inlined: some uses of a value, one after another, get another value."""
    uses: dict[int, dict[Site, tuple[int, ...]]] = {}
    for site, row in code.sites():
        if row.op in (Op.PHI, *kinds.LEFT):
            continue
        for at in operands.value_places(code, row):
            value = row.args[at]
            if code.number(value) is None:
                same = tuple(one for one in row.id_places() if row.args[one] == value and one >= at)
                uses.setdefault(value, {})[site] = same
    for value, places in uses.items():
        if len({site.function for site in places}) == 1:
            for run in _runs(list(places)):
                for said, rank, rows, new, known in operands.instead_of(code, value):
                    changes = (Change(site, rows, tuple((at, new) for at in places[site])) for site in run)
                    yield Edit(f"{said}, for {len(run)} uses", rank, tuple(changes), known=known)


def _runs(sites: list[Site]) -> Iterator[list[Site]]:
    """The uses that one inlined call may have: all next to each other of a few, else the same number in each call."""
    count = len(sites)
    for size in range(2, count):
        if count <= FEW_USES:
            yield from (sites[at : at + size] for at in range(count - size + 1))
        elif count % size == 0 and count // size <= MOST_CALLS:
            yield from (sites[at : at + size] for at in range(0, count, size))


def _groups(code: Code) -> Iterator[tuple[list[Site], int]]:
    """(Instructions that stem from the same piece of source, how much later than others they are tried).

    Copies for other arguments are alike only in what they do themselves; further ones also in what they work on. So are
    those of a macro, on all lines that use it.
    """
    seen: set[tuple[Site, ...]] = set()
    for depth, later, of in ((0, 0, code.line), (3, 1, code.line), (0, 1, code.macros), (3, 1, code.macros)):
        alike: dict[object, list[Site]] = {}
        for site, row in code.sites():
            if row.op not in kinds.LEFT or row.op == Op.LOAD:
                piece = of(site)
                if piece or of == code.line:
                    alike.setdefault((piece, *_shape(code, row, depth if piece else depth + 2)), []).append(
                        site
                    )
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
        made = code.rows.get(word) if at in ids else None
        if at not in ids or made is None or made.op in _FIXED:
            parts.append(word)
        elif made.op in (Op.VARIABLE, Op.FUNCTION_PARAMETER):  # copies of one variable have its name
            parts.append((code.type_of(word), code.types.names.get(word, "")))
        elif word in code.made_at and row.op != Op.PHI and depth:
            parts.append(_shape(code, made, depth - 1))
        else:
            parts.append(code.type_of(word) if word in code.made_at or not depth else word)
    return tuple(parts)


def _drafts(
    code: Code, site: Site, row: Instruction, group: Sequence[Site], ranks: Container[int]
) -> Iterator[Draft]:
    """The edits of an instruction; of the many that put a word in a place where none was, those of these ranks."""
    if row.op == Op.LOAD:
        yield from operands.loads(code, site, row)
    else:
        yield from operations.drafts(code, site, row)
        yield from operands.drafts(code, site, row, group, ranks)


#: How many ranks earlier an edit is tried that fits the named cause.
FIRST = 1
#: (Names of causes, words of the edits that may mend them).
_FIT = (
    ("tie|truncation|round", r"round|floor|trunc|ceil|0\.5|Convert"),
    ("clamp|saturat|relu|bound", r"clamp|min|max|12[78]|Bitcast|Convert"),
    ("lane|nibble|halves|reversed", r"component|>>|<<|bitfield|operands| (4|8|16|24) in place"),
    ("unsigned|sign", r"signed|uint|UDiv|SDiv|>>|bitfield|dot product|Convert"),
    ("border|edge|rows|reduction|tail|batch|missing", r'"(<|<=|>|>=|==|!=|&&|\|\|)"|condition| 1 in place|[+-] 1'),
    ("zero point", r"zp|zero|\"[+-]\"|left out"),
    ("scale|multiply|bias|alpha", r"scale|bias|alpha|inv|\"[*/+-]\"|s \+ b|left out"),
    ("address|stride|dilation|padding", r'stride|pad|dil|\[\d+\]|"[*/%+-]"'),
    ("coordinate|group|distance|moved|weights", r'\.[xyzw]|\[\d+\]|"[*/%+-]"'),
    ("precision|16", r"Convert|Bitcast"),
)  # fmt: skip


def ordered(edits: Iterable[Edit], causes: Sequence[str]) -> list[Edit]:
    """The edits, the most plausible first. ``causes`` are names of what explains the wrong bytes."""
    fit = [words for names, words in _FIT if any(re.search(names, cause) for cause in causes)]
    named = re.compile("|".join(fit) or "(?!)")
    return sorted(edits, key=lambda edit: edit.rank - FIRST * (named.search(edit.said) is not None))
