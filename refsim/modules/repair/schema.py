"""Writes edits into a module: one for good, or many, of which words in a further buffer choose one.

Compiling a module takes a driver longer than running it on a small case; so hundreds of edits share one module. Edits
that put values which the host knows in the same place share one choice there: the value is in the buffer as well.

An edit may do harm over which drivers wait for ever, lose the device or crash, and all other edits of the module with
it: loops without an end, and indices far outside of what they go into. `bound` keeps it from both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from refsim.core.errors import RefsimError
from refsim.modules.repair.code import CHAINS, MERGES, Code, Leaf, Site
from refsim.modules.repair.draft import Change, Edit
from refsim.ops.base.module_call import ModuleDispatch
from refsim.spirv.emit import Emitter, behind_variables, word_buffer
from refsim.spirv.instruction import Instruction
from refsim.spirv.module import Module, Section
from refsim.spirv.opcodes import GRAMMAR, Decoration, Op, StorageClass
from refsim.spirv.types import Types


def edited(code: Code, edit: Edit) -> Module:
    """The module with one edit."""
    module = code.module.copy()
    at_site: dict[Site, Instruction] = {}
    before: dict[Site, list[Instruction]] = {}
    for change in edit.changes:
        rows, at_site[change.site] = _fresh(module, change, code.at(change.site))
        before[Site(change.site.function, code.above(change.site))] = rows
    for number, body in enumerate(module.functions):
        made: list[Instruction] = []
        for at, row in enumerate(body):
            site = Site(number, at)
            made += (*before.get(site, ()), at_site.get(site, row))
        body[:] = made
    marks = dict(edit.marks)
    rows = module.sections[Section.ANNOTATION]
    rows[:] = [row.with_args(*row.args[:-1], marks[row]) if row in marks else row for row in rows]
    return trimmed(code, _pinned(code, module))


def trimmed(code: Code, module: Module) -> Module:
    """The module without what was declared for edits and is not used."""
    first = code.types.module.bound
    used = {word for body in module.functions for row in body for word in row.args}
    left: list[Instruction] = []
    gone: set[int] = set()
    for row in reversed(module.globals):
        if row.result >= first and row.result not in used:
            gone.add(row.result)
        else:
            left.append(row)
            used.update(row.args)
    module.globals[:] = reversed(left)
    marks = module.sections[Section.ANNOTATION]
    marks[:] = [row for row in marks if row.args[0] not in gone]
    return module


def _fresh(module: Module, change: Change, old: Instruction) -> tuple[list[Instruction], Instruction]:
    """The rows of a change with ids of the module's own, and what stands in the place of the instruction."""
    made = (*change.rows, *([] if change.instead is None else [change.instead]))
    ids = {row.result: module.new_id() for row in made if row.result < 0}
    rows = [row.renamed(ids) for row in change.rows]
    if change.instead is not None:
        return rows, change.instead.renamed(ids)
    args = list(old.args)
    for place, value in change.places:
        args[place] = ids.get(value, value)
    return rows, old.with_args(*args)


def _pinned(code: Code, module: Module) -> Module:
    """NoContraction stays where it was: new float arithmetic has it as well, where any has."""
    marks = [
        row
        for row in module.sections[Section.ANNOTATION]
        if row.op == Op.DECORATE and row.args[1] == Decoration.NO_CONTRACTION
    ]
    if marks:
        have = {row.args[0] for row in marks}
        for body in module.functions:
            for row in body:
                if (
                    row.result not in code.made_at
                    and row.op in (129, 131, 133, 136, 142)
                    and row.result not in have
                ):
                    module.decorate(row.result, Decoration.NO_CONTRACTION)
    return module


@dataclass
class _Site:
    """What is added at an instruction."""

    rows: list[Instruction] = field(default_factory=list)
    #: Operand -> (edit, value) in the order in which they are chosen between.
    places: dict[int, list[tuple[int, int | None]]] = field(default_factory=dict)
    #: (Edit, what makes the result instead); None: the value in the buffer is the result.
    instead: list[tuple[int, Instruction | None]] = field(default_factory=list)


class Schema:
    """Many edits in one module; the words at ``binding`` choose the one that holds.

    ``words``: those of each edit, uint32 (edits, `CHOICE`): the number of its choice, the value that it takes in the
    dispatch of ``given``, and a word for `bound`.
    """

    def __init__(self, code: Code, edits: Sequence[Edit], given: Given, binding: int) -> None:
        self.code, self.module = code, code.module.copy()
        self._sites: dict[Site, _Site] = {}
        self._used: dict[int, set[int]] = {}
        self._chosen: dict[tuple[int, int], int] = {}
        #: (Function, type) -> the value in the buffer; `_entry` makes these and the choices.
        self._values: dict[tuple[int, int], int] = {}
        self._entry = Emitter(self.module)
        self.words = np.zeros((len(edits), CHOICE), np.uint32)
        numbers: dict[object, int] = {}
        for edit, words in zip(edits, self.words, strict=True):
            value = given.words(edit.known)
            key: object = edit if value is None else targets(edit)
            if key not in numbers:
                numbers[key] = len(numbers)
                for change in edit.changes:
                    self._take(numbers[key], change, value is not None)
            words[:-1] = (numbers[key], *(value or [0] * MOST_WORDS))
        self._selector = selector(self.module, binding)
        for number, body in enumerate(self.module.functions):
            body[:] = self._body(number, body)
        bound(self.module, self._selector)
        self.module = trimmed(code, _pinned(code, self.module))

    def _take(self, number: int, change: Change, valued: bool) -> None:
        """``valued``: what the buffer holds comes in the place of an operand, or of the result."""
        at = self._sites.setdefault(change.site, _Site())
        self._used.setdefault(change.site.function, set()).add(number)
        new = None
        if not valued:
            rows, new = _fresh(self.module, change, self.code.at(change.site))
            at.rows += rows
        if change.instead is not None:
            at.instead.append((number, new))
        else:
            for place, _ in change.places:
                at.places.setdefault(place, []).append((number, None if new is None else new.args[place]))

    def _enter(self, function: int) -> None:
        """The choices of a function are made at its begin."""
        self._entry = entry = Emitter(self.module)
        value = self._word(0)
        for number in sorted(self._used[function]):
            made = entry.emit(Op.IEQUAL, entry.bool, value, entry.number(number))
            self._chosen[function, number] = made

    def _word(self, number: int) -> int:
        """A word of the buffer, loaded at the begin of a function."""
        entry = self._entry
        return entry.load(entry.word, entry.element(self._selector, entry.number(number)))

    def _value(self, function: int, type_id: int) -> int:
        """The value in the buffer as one of a type, made at the begin of a function."""
        if (function, type_id) not in self._values:
            entry, scalar = self._entry, self.code.scalar(type_id)
            words = [self._word(1 + at) for at in range(self.code.size(type_id))]
            if self.code.kind(scalar) == Op.TYPE_BOOL:
                made = [entry.emit(Op.INOT_EQUAL, scalar, one, entry.number(0)) for one in words]
            else:
                made = [entry.emit(Op.BITCAST, scalar, one) for one in words]
            whole = made[0] if len(made) == 1 else entry.emit(Op.COMPOSITE_CONSTRUCT, type_id, *made)
            self._values[function, type_id] = whole
        return self._values[function, type_id]

    def _body(self, function: int, body: list[Instruction]) -> list[Instruction]:
        if function not in self._used:
            return body
        self._enter(function)
        first = behind_variables(body)
        at_site: dict[int, Instruction] = {}
        before: dict[int, list[Instruction]] = {}
        for site, added in self._sites.items():
            if site.function == function:
                at_site[site.row] = self._row(site, added, before)
        made: list[Instruction] = []
        for at, row in enumerate(body):
            made += (*(self._entry.rows if at == first else ()), *before.get(at, ()), at_site.get(at, row))
        return made

    def _row(self, site: Site, added: _Site, before: dict[int, list[Instruction]]) -> Instruction:
        """What stands in the place of an instruction; ``before``: what is added in front of each row."""
        row = self.code.at(site)
        args, rows = list(row.args), before.setdefault(self.code.above(site), [])
        rows += added.rows
        for place, values in added.places.items():
            where = rows
            if row.op == Op.PHI:
                where = before.setdefault(self.code.block_end(site.function, row.args[place + 1]), [])
            current, type_id = row.args[place], self.code.type_of(row.args[place])
            for number, value in values:
                new = self._value(site.function, type_id) if value is None else value
                current = self._select(where, site.function, number, type_id, new, current)
            args[place] = current
        plain = row.with_args(*args)
        if not added.instead:
            return plain
        at = GRAMMAR[row.op].result_at
        current = self.module.new_id()
        rows.append(plain.with_args(*args[:at], current, *args[at + 1 :]))
        self._mark(row.result, current)
        for number, other in added.instead:
            if other is None:
                value = self._value(site.function, row.type)
            else:
                value = self.module.new_id()
                rows.append(other.renamed({row.result: value}))
            current = self._select(rows, site.function, number, row.type, value, current)
        last = rows.pop()
        return last.with_args(last.args[0], row.result, *last.args[2:])

    def _mark(self, old: int, new: int) -> None:
        """Decorations of a result that is now made under another id."""
        rows = self.module.sections[Section.ANNOTATION]
        found = [row for row in rows if row.op == Op.DECORATE and row.args[0] == old]
        rows[:] = [row for row in rows if row not in found]
        rows += [row.with_args(new, *row.args[1:]) for row in found]

    def _select(
        self, rows: list[Instruction], function: int, number: int, type_id: int, new: int, old: int
    ) -> int:
        code, size = Emitter(self.module, rows), self.code.size(type_id)
        condition = self._chosen[function, number]
        if size > 1:
            kind = self.module.type(Op.TYPE_VECTOR, code.bool, size)
            condition = code.emit(Op.COMPOSITE_CONSTRUCT, kind, *[condition] * size)
        return code.emit(Op.SELECT, type_id, condition, new, old)


def targets(edit: Edit) -> tuple[tuple[Site, tuple[int, ...]], ...]:
    """What gets another value in an edit: of each instruction some operands, or none for its result."""
    return tuple((one.site, tuple(at for at, _ in one.places)) for one in edit.changes)


def selectable(code: Code, edit: Edit) -> bool:
    """Whether an edit can be one of many in a module: its values can be chosen between."""
    if not edit.chosen:
        return False
    for change in edit.changes:
        row = code.at(change.site)
        types = [code.type_of(row.args[place]) for place, _ in change.places]
        if change.instead is not None:
            types.append(row.type)
        if not all(one in code.rows and code.plain(one) for one in types):
            return False
    return True


#: OpConstantTrue, OpConstantFalse.
_TRUTHS = {41: 1, 42: 0}
#: Words of the largest value that an edit puts in the place of another; of a choice: its number, such a value, and
#: how often loops may turn.
MOST_WORDS = 4
CHOICE = MOST_WORDS + 2


class Given:
    """The words of one dispatch."""

    def __init__(self, code: Code, step: ModuleDispatch) -> None:
        self.code = code
        self._spec = step.spec_words
        self._push = np.frombuffer(step.push, np.uint32)
        self._blocks = {at: bind.words for at, bind in enumerate(step.binds) if bind.storage == "uniform"}

    def words(self, known: Leaf | int) -> tuple[int, ...] | None:
        """The words of a value, uint32, as many as the largest has; None for one that the host does not know."""
        found = self._loaded(known) if isinstance(known, Leaf) else self._constant(known)
        return found and (*found, *[0] * (MOST_WORDS - len(found)))

    def _constant(self, number: int) -> tuple[int, ...] | None:
        row = self.code.rows[number] if number else None
        if row is None:
            return None
        if row.op in _TRUTHS:
            return (_TRUTHS[row.op],)
        if row.op == Op.CONSTANT_COMPOSITE:
            parts = [self._constant(one) for one in row.args[2:]]
            return tuple(word for one in parts if one for word in one) if all(parts) else None
        if row.op == Op.SPEC_CONSTANT:
            own = self.code.types.decoration(number, Decoration.SPEC_ID)
            return (self._spec.get(-1 if own is None else own, row.args[2]) & 0xFFFFFFFF,)
        return (row.args[2],) if row.op == Op.CONSTANT else None

    def _loaded(self, leaf: Leaf) -> tuple[int, ...] | None:
        types, variable = self.code.types, self.code.rows[leaf.variable]
        words: np.ndarray | None = self._push
        if variable.args[2] == StorageClass.UNIFORM:
            binding = types.decoration(leaf.variable, Decoration.BINDING)
            words = self._blocks.get(-1 if binding is None else binding)
        elif variable.args[2] != StorageClass.PUSH_CONSTANT:
            return None
        try:
            first = self._offset(types.pointee(variable.type), leaf.path) // 4
        except RefsimError:
            return None
        found = [] if words is None else words.reshape(-1)[first : first + self.code.size(leaf.type)].tolist()
        return tuple(found) if len(found) == self.code.size(leaf.type) else None

    def _offset(self, inside: int, path: tuple[int, ...]) -> int:
        """The bytes in front of what a path leads to."""
        types, offset = self.code.types, 0
        for at in path:
            row = types.row(inside)
            if row.op == Op.TYPE_STRUCT:
                offset += types.members(inside)[at].offset
                inside = row.args[1 + at]
                continue
            offset += at * (types.stride(inside) if row.op == Op.TYPE_ARRAY else types.nbytes(row.args[1]))
            inside = row.args[1]
        return offset


_BEYOND = 174  # OpUGreaterThanEqual


def selector(module: Module, binding: int) -> int:
    """The buffer of a choice's words; the id of its variable."""
    return word_buffer(module, binding, False, CHOICE)


def bounded(code: Code, edit: Edit, binding: int) -> Module:
    """The module with an edit that cannot be one of many, with loops and indices that are `bound`."""
    module = edited(code, edit)
    bound(module, selector(module, binding))
    return module


def bound(module: Module, buffer: int) -> None:
    """The loops of an invocation end after so many turns as the last word of the `selector` says, in all.

    Indices stay inside, or one behind a buffer's end.
    """
    _end_loops(module, buffer)
    _keep_inside(module)


def _end_loops(module: Module, buffer: int) -> None:
    """Turns are counted where a condition leads out of a loop."""
    code = Emitter(module)
    one = code.number(1)
    counter = module.add_variable(StorageClass.PRIVATE, code.word, code.number(0))
    for body in module.functions:
        ends = {row.args[0] for row in body if row.op == Op.LOOP_MERGE}
        made: list[Instruction] = []
        for row in body:
            if row.op == Op.BRANCH_CONDITIONAL and ends & set(row.args[1:3]):
                code = Emitter(module)
                done = code.load(code.word, counter)
                code.do(Op.STORE, counter, code.add(done, one))
                out = row.args[1] in ends
                stops, joins = (_BEYOND, Op.LOGICAL_OR) if out else (Op.ULESS_THAN, Op.LOGICAL_AND)
                most = code.load(code.word, code.element(buffer, code.number(CHOICE - 1)))
                over = code.emit(stops, code.bool, done, most)
                ended = code.emit(joins, code.bool, row.args[0], over)
                at = len(made) - (made[-1].op in MERGES)
                made[at:at] = code.rows
                row = row.with_args(ended, *row.args[1:])
            made.append(row)
        body[:] = made


def _keep_inside(module: Module) -> None:
    types = Types(module)
    for body in module.functions:
        kinds = {row.result: row.type for row in body if row.result}
        code = Emitter(module)
        for row in body:
            code.rows.append(_chain(code, types, kinds, row) if row.op in CHAINS else row)
        body[:] = code.rows


def _chain(code: Emitter, types: Types, kinds: dict[int, int], row: Instruction) -> Instruction:
    """An access chain whose computed indices stay inside of arrays and vectors; ``code`` gets what that takes.

    ``kinds``: the types of the values that the function makes.
    """
    args, base = list(row.args), row.args[2]
    inside = types.pointee(kinds[base] if base in kinds else types.row(base).type)
    for at in range(3, len(args)):
        index, holder = args[at], types.row(inside)
        if holder.op == Op.TYPE_STRUCT:
            inside = holder.args[1 + types.row(index).args[2]]
            continue
        inside = holder.args[1]
        kind = kinds.get(index, 0)  # 0: a constant
        if not kind or types.row(kind).args[1:2] != (32,):
            continue
        instead = code.work.constant(kind, 0)
        if holder.op == Op.TYPE_ARRAY:
            length = holder.args[2]
        elif holder.op in (Op.TYPE_VECTOR, Op.TYPE_MATRIX):
            length = code.number(holder.args[2])
        elif holder.op == Op.TYPE_RUNTIME_ARRAY and at == 4:  # the last member of a block
            length = code.emit(Op.ARRAY_LENGTH, code.word, base, types.row(args[3]).args[2])
            instead = length if kind == code.word else code.emit(Op.BITCAST, kind, length)
        else:
            continue
        within = code.emit(Op.ULESS_THAN, code.bool, index, length)
        args[at] = code.emit(Op.SELECT, kind, within, index, instead)
    return row.with_args(*args)
