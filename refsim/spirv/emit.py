"""Instructions one after another, for code that is put into a module."""

from __future__ import annotations

from refsim.spirv.instruction import Instruction
from refsim.spirv.module import Module
from refsim.spirv.opcodes import Decoration, Op, StorageClass
from refsim.spirv.types import Types

DEVICE, RELAXED = 1, 0  # a memory scope, and no ordering


class Emitter:
    """Collects ``rows`` for one place of a module, behind those that are there. All numbers are ids."""

    def __init__(self, work: Module, rows: list[Instruction] | None = None) -> None:
        self.work = work
        self.rows: list[Instruction] = [] if rows is None else rows

    @property
    def word(self) -> int:
        return self.work.type(Op.TYPE_INT, 32, 0)

    @property
    def bool(self) -> int:
        return self.work.type(Op.TYPE_BOOL)

    def number(self, value: int) -> int:
        """A constant word."""
        return self.work.constant(self.word, value)

    def emit(self, op: int, kind: int, *args: int) -> int:
        """An instruction with a result of type ``kind``; its id."""
        made = self.work.new_id()
        self.rows.append(Instruction(op, (kind, made, *args)))
        return made

    def do(self, op: int, *args: int) -> None:
        """An instruction without a result."""
        self.rows.append(Instruction(op, args))

    def add(self, a: int, b: int) -> int:
        return self.emit(Op.IADD, self.word, a, b)

    def multiply(self, a: int, b: int) -> int:
        return self.emit(Op.IMUL, self.word, a, b)

    def as_word(self, number: int, kind: int) -> int:
        """The bits of a 32-bit value of type ``kind``."""
        return number if kind == self.word else self.emit(Op.BITCAST, self.word, number)

    def element(self, variable: int, index: int) -> int:
        """A pointer to word ``index`` of a buffer that `word_buffer` made."""
        pointer = self.work.pointer(StorageClass.STORAGE_BUFFER, self.word)
        return self.emit(Op.ACCESS_CHAIN, pointer, variable, self.number(0), index)

    def load(self, kind: int, pointer: int) -> int:
        return self.emit(Op.LOAD, kind, pointer)

    def exchange(self, pointer: int, value: int) -> int:
        """Store atomically; what was there."""
        scope, order = self.number(DEVICE), self.number(RELAXED)
        return self.emit(Op.ATOMIC_EXCHANGE, self.word, pointer, scope, order, value)

    def maximum(self, pointer: int, value: int) -> int:
        """Raise a word atomically to ``value``; what was there."""
        scope, order = self.number(DEVICE), self.number(RELAXED)
        return self.emit(Op.ATOMIC_UMAX, self.word, pointer, scope, order, value)

    def filled(self, types: Types, kind: int, poison: int, most: int) -> int:
        """A value of type ``kind`` all of whose words are ``poison``; 0 for a type that cannot be filled.

        That is one with parts that are not of 32 bits, without a fixed length, or of more than ``most`` words.
        """
        return self._filled(types, kind, poison) if 0 < words_of(types, kind) <= most else 0

    def _filled(self, types: Types, kind: int, poison: int) -> int:
        row = types.row(kind)
        if row.op == Op.TYPE_BOOL:
            return self.emit(Op.INOT_EQUAL, kind, poison, self.number(0))
        if row.op in (Op.TYPE_INT, Op.TYPE_FLOAT):
            return poison if kind == self.word else self.emit(Op.BITCAST, kind, poison)
        if row.op == Op.TYPE_STRUCT:
            parts = [self._filled(types, part, poison) for part in row.args[1:]]
        else:
            length = types.length(row.args[2]) if row.op == Op.TYPE_ARRAY else row.args[2]
            parts = [self._filled(types, row.args[1], poison)] * length
        return self.emit(Op.COMPOSITE_CONSTRUCT, kind, *parts)


def words_of(types: Types, kind: int, depth: int = 8) -> int:
    """The 32-bit words and booleans in a value of a type; 0 if it has other parts, or no fixed length."""
    row = types.rows.get(kind)
    if row is None or not depth:
        return 0
    if row.op == Op.TYPE_BOOL:
        return 1
    if row.op in (Op.TYPE_INT, Op.TYPE_FLOAT):
        return int(row.args[1] == 32)
    if row.op == Op.TYPE_STRUCT:
        sizes = [words_of(types, part, depth - 1) for part in row.args[1:]]
        return sum(sizes) if all(sizes) else 0
    if row.op in (Op.TYPE_VECTOR, Op.TYPE_MATRIX):
        return row.args[2] * words_of(types, row.args[1], depth - 1)
    if row.op == Op.TYPE_ARRAY and types.row(row.args[2]).op == Op.CONSTANT:
        return types.length(row.args[2]) * words_of(types, row.args[1], depth - 1)
    return 0


def word_buffer(work: Module, binding: int, writable: bool, count: int | None = None) -> int:
    """A new storage buffer of words at a binding; the id of its variable.

    With a ``count`` it has so many, and begins where its memory does also behind `refsim.spirv.rewrite`.
    """
    if work.version < (1, 3):
        work.extension("SPV_KHR_storage_buffer_storage_class")
    word = work.type(Op.TYPE_INT, 32, 0)
    length = [] if count is None else [work.constant(word, count)]
    array = work.add(Op.TYPE_RUNTIME_ARRAY if count is None else Op.TYPE_ARRAY, word, *length)
    block = work.add(Op.TYPE_STRUCT, array)
    work.decorate(array, Decoration.ARRAY_STRIDE, 4)
    work.decorate(block, Decoration.BLOCK)
    work.decorate_member(block, 0, Decoration.OFFSET, 0)
    variable = work.add_variable(StorageClass.STORAGE_BUFFER, block)
    work.decorate(variable, Decoration.DESCRIPTOR_SET, 0)
    work.decorate(variable, Decoration.BINDING, binding)
    if not writable:
        work.decorate(variable, Decoration.NON_WRITABLE)
    return variable


def behind_variables(body: list[Instruction]) -> int:
    """The place in a function behind the variables of its first block."""
    place = next(at for at, row in enumerate(body) if row.op == Op.LABEL) + 1
    for at in range(place, len(body)):
        if body[at].op == Op.LABEL:
            break
        if body[at].op == Op.VARIABLE:
            place = at + 1
    return place
