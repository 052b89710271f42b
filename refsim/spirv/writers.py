"""Who wrote each word of a buffer: stores are followed by atomics on a record beside the buffer.

A record has four words for each word of the buffer, and four more at its end for all stores that lie outside: the last
invocation that wrote the word, another one that did (0: none did), what was written last, and whether two invocations
wrote different bits. Invocations count from 1.
"""

from __future__ import annotations

from refsim.spirv.emit import Emitter, word_buffer
from refsim.spirv.instruction import Instruction
from refsim.spirv.module import Module
from refsim.spirv.opcodes import Op, StorageClass
from refsim.spirv.rewrite import BUFFERS, CHAINS
from refsim.spirv.types import Types

RECORD = 4  # words; in this order:
LAST, OTHER, BITS, DIFFER = range(RECORD)


class Writers:
    """The records of a module's stores. ``first`` is the binding of the first record.

    ``bindings`` says which binding each record is of. ``uncounted`` are the reasons why stores are not recorded.
    """

    def __init__(self, work: Module, types: Types, variables: dict[int, int], first: int) -> None:
        self.work, self.types, self.variables, self.next = work, types, variables, first
        self.bindings: dict[int, int] = {}  # binding -> binding of its record
        self.uncounted: set[str] = set()
        self.chains = {row.result: row for body in work.functions for row in body if row.op in CHAINS}
        self.records: dict[
            int, tuple[int, int]
        ] = {}  # variable -> (its record, the function that writes there)
        self.invocation = work.add_variable(StorageClass.PRIVATE, work.type(Op.TYPE_INT, 32, 0))

    def run(self) -> None:
        """Change all stores."""
        for body in self.work.functions:
            rows: list[Instruction] = []
            for row in body:
                if row.op == Op.STORE:
                    rows += self._store(row)
                rows.append(row)
            body[:] = rows
        for record, function in self.records.values():
            self.work.functions.append(self._recorder(record, function))

    def _store(self, row: Instruction) -> list[Instruction]:
        """What is done beside one store: nothing, unless it goes to a buffer."""
        pointer, value = row.args[:2]
        made = self.types.rows.get(pointer)
        if made is None or not made.type:
            return []
        of = self.types.row(made.type)
        if of.op != Op.TYPE_POINTER or of.args[1] not in BUFFERS:
            return []
        variable, indices = self._walk(pointer)
        if variable not in self.variables:
            self.uncounted.add("a store through a pointer that comes from elsewhere")
            return []
        code = Emitter(self.work)
        at = self._word(code, self.types.pointee(self.types.row(variable).type), indices)
        parts = self._parts(code, of.args[2], value) if at else []
        if not parts:
            number = self.variables[variable]
            self.uncounted.add(f"binding {number}: a store of {self.types.text(of.args[2])}")
            return []
        void = self.work.type(Op.TYPE_VOID)
        for offset, part in enumerate(parts):
            place = code.add(at, code.number(offset)) if offset else at
            code.emit(Op.FUNCTION_CALL, void, self._record(variable), place, part)
        return code.rows

    def _walk(self, pointer: int) -> tuple[int, list[int]]:
        """The variable that a pointer leads into, and all indices on the way."""
        indices: list[int] = []
        while pointer in self.chains:
            row = self.chains[pointer]
            if row.op not in (Op.ACCESS_CHAIN, Op.IN_BOUNDS_ACCESS_CHAIN):
                return 0, []
            indices = [*row.args[3:], *indices]
            pointer = row.args[2]
        return pointer, indices

    def _word(self, code: Emitter, kind: int, indices: list[int]) -> int:
        """The id of the word's number in the buffer; 0 if it is in a matrix, or not of 32 bits."""
        total = code.number(0)
        for index in indices:
            row = self.types.row(kind)
            if row.op == Op.TYPE_STRUCT:
                member = self.types.row(index, Op.CONSTANT).args[2]
                step, kind = self.types.members(kind)[member].offset, row.args[member + 1]
                total = code.add(total, code.number(step // 4))
                if step % 4:
                    return 0
                continue
            if row.op not in (Op.TYPE_ARRAY, Op.TYPE_RUNTIME_ARRAY, Op.TYPE_VECTOR):
                return 0
            step = 4 if row.op == Op.TYPE_VECTOR else self.types.stride(kind)
            if step % 4:
                return 0
            number = code.as_word(index, self.types.row(index).type)
            total = code.add(total, code.multiply(number, code.number(step // 4)))
            kind = row.args[1]
        return total

    def _parts(self, code: Emitter, kind: int, value: int) -> list[int]:
        """The words of a value: a number, or a vector of them; [] for anything else."""
        row = self.types.row(kind)
        if row.op in (Op.TYPE_INT, Op.TYPE_FLOAT) and row.args[1] == 32:
            return [code.as_word(value, kind)]
        if row.op != Op.TYPE_VECTOR or self.types.row(row.args[1]).args[1:2] != (32,):
            return []
        parts = []
        for number in range(row.args[2]):
            part = code.emit(Op.COMPOSITE_EXTRACT, row.args[1], value, number)
            parts.append(code.as_word(part, row.args[1]))
        return parts

    def _record(self, variable: int) -> int:
        if variable not in self.records:
            number = self.variables[variable]
            self.records[variable] = (word_buffer(self.work, self.next, True), self.work.new_id())
            self.bindings[number] = self.next
            self.next += 1
        return self.records[variable][1]

    def _recorder(self, record: int, function: int) -> list[Instruction]:
        """void record(word, bits)"""
        code = Emitter(self.work)
        void, word = self.work.type(Op.TYPE_VOID), code.word
        code.do(Op.FUNCTION, void, function, 0, self.work.type(Op.TYPE_FUNCTION, void, word, word))
        at, bits = (code.emit(Op.FUNCTION_PARAMETER, word) for _ in range(2))
        code.do(Op.LABEL, self.work.new_id())
        length = code.emit(Op.ARRAY_LENGTH, word, record, 0)
        slots = code.emit(Op.UDIV, word, length, code.number(RECORD))
        outside = code.emit(Op.ISUB, word, slots, code.number(1))
        inside = code.emit(Op.ULESS_THAN, code.bool, at, outside)
        slot = code.multiply(code.emit(Op.SELECT, word, inside, at, outside), code.number(RECORD))

        def field(number: int) -> int:
            return code.element(record, code.add(slot, code.number(number)))

        own = code.load(word, self.invocation)
        before = code.exchange(field(LAST), own)
        mine = code.emit(Op.IEQUAL, code.bool, before, own)
        fresh = code.emit(Op.IEQUAL, code.bool, before, code.number(0))
        alone = code.emit(Op.LOGICAL_OR, code.bool, mine, fresh)
        code.maximum(field(OTHER), code.emit(Op.SELECT, word, alone, code.number(0), before))
        old = code.exchange(field(BITS), bits)
        changed = code.emit(Op.INOT_EQUAL, code.bool, old, bits)
        one = code.emit(Op.SELECT, word, changed, code.number(1), code.number(0))
        code.maximum(field(DIFFER), code.emit(Op.SELECT, word, alone, code.number(0), one))
        code.do(Op.RETURN)
        code.do(Op.FUNCTION_END)
        return code.rows
