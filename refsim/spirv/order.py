"""The built-in numbers of invocations and workgroups, permuted: another order in which the same work is done.

The variables that a kernel reads become private ones. The entry point fills them with the numbers of another
invocation, in such a way that each invocation's work is done exactly once, and that a workgroup stays together.
"""

from __future__ import annotations

from refsim.spirv.emit import Emitter
from refsim.spirv.instruction import Instruction, string_at
from refsim.spirv.module import Module, Section
from refsim.spirv.opcodes import Decoration, Op, StorageClass
from refsim.spirv.reflect import entry_point
from refsim.spirv.rewrite import CHAINS
from refsim.spirv.types import Types

#: WorkgroupId, LocalInvocationId, GlobalInvocationId, LocalInvocationIndex
WORKGROUP, LOCAL, GLOBAL, LOCAL_INDEX = 26, 27, 28, 29
NUMBERS = (WORKGROUP, LOCAL, GLOBAL, LOCAL_INDEX)
#: Built-ins that tie an invocation to its place in a subgroup.
SUBGROUP = frozenset((36, 38, 40, 41, *range(4416, 4421)))


def by_subgroup(types: Types) -> bool:
    """Whether a module asks for places in subgroups; then invocations must keep theirs in the workgroup."""
    kinds = (row.get(Decoration.BUILT_IN, (0,))[0] for row in types.decorations.values())
    return any(kind in SUBGROUP for kind in kinds)


def built_ins(types: Types) -> dict[int, int]:
    """The variables with one of the built-in numbers: id -> which."""
    found = {}
    for number, row in types.decorations.items():
        kind = row.get(Decoration.BUILT_IN, (0,))[0]
        if kind in NUMBERS and types.row(number).op == Op.VARIABLE:
            found[number] = kind
    return found


class Order:
    """Permuted numbers in a module. ``parameters`` are the words of the entry point's parameters, by id.

    They are: whether to reverse the workgroups, by how many to rotate them, the same for the invocations of a
    workgroup, three workgroup sizes, three extents of the grid.
    """

    def __init__(self, work: Module, types: Types) -> None:
        self.work, self.types = work, types
        self.private = built_ins(types)
        self._make_private()
        self.true_group = self._input(WORKGROUP, work.type(Op.TYPE_VECTOR, work.type(Op.TYPE_INT, 32, 0), 3))
        self.true_index = self._input(LOCAL_INDEX, work.type(Op.TYPE_INT, 32, 0))

    def _input(self, kind: int, type_id: int) -> int:
        variable = self.work.add_variable(StorageClass.INPUT, type_id)
        self.work.decorate(variable, Decoration.BUILT_IN, kind)
        return variable

    def _make_private(self) -> None:
        work = self.work
        rows: list[Instruction] = []
        for row in work.globals:
            if row.op == Op.VARIABLE and row.result in self.private:
                pointer = work.new_id()
                kind = self.types.pointee(row.type)
                rows.append(Instruction(Op.TYPE_POINTER, (pointer, StorageClass.PRIVATE, kind)))
                row = row.with_args(pointer, row.result, StorageClass.PRIVATE)
            rows.append(row)
        work.replace_globals(rows)
        notes = work.sections[Section.ANNOTATION]
        notes[:] = [row for row in notes if row.args[0] not in self.private or row.op != Op.DECORATE]
        if work.version < (1, 4):  # there, the entry point lists inputs and outputs only
            entry = entry_point(work)
            first = string_at(entry.args, 2)[1]
            kept = [number for number in entry.args[first:] if number not in self.private]
            work.sections[Section.ENTRY_POINT][:] = [entry.with_args(*entry.args[:first], *kept)]
        for body in work.functions:
            body[:] = [self._private_use(row) for row in body]

    def _private_use(self, row: Instruction) -> Instruction:
        """Pointers into what was an input point to private memory."""
        if self.private.keys().isdisjoint(row.args) or row.op in (Op.LOAD, Op.EXT_INST):
            return row
        if row.op in CHAINS and row.args[2] in self.private:
            kind = self.types.pointee(row.type)
            return row.with_args(self.work.pointer(StorageClass.PRIVATE, kind), *row.args[1:])
        if any(row.args[at] in self.private for at in row.id_places()):
            raise self.work.refusal("a built-in number is used in an unknown way", got=row.name)
        return row

    def prologue(self, code: Emitter, parameters: list[int]) -> int:
        """Fill the private variables; the id of this invocation's number in the whole grid, from 1 on."""
        reverse, rotate, reverse_local, rotate_local, *sizes = parameters
        local, grid = sizes[:3], sizes[3:]
        vector = code.work.type(Op.TYPE_VECTOR, code.word, 3)
        true = code.load(vector, self.true_group)
        axes = [code.emit(Op.COMPOSITE_EXTRACT, code.word, true, axis) for axis in range(3)]
        linear = code.add(axes[0], code.multiply(grid[0], code.add(axes[1], code.multiply(grid[1], axes[2]))))
        group = self._permuted(code, linear, grid, reverse, rotate)
        index = code.load(code.word, self.true_index)
        index = self._permuted(code, index, local, reverse_local, rotate_local)
        groups, locals_ = self._places(code, group, grid), self._places(code, index, local)
        globals_ = [
            code.add(code.multiply(a, size), b) for a, size, b in zip(groups, local, locals_, strict=True)
        ]
        made = {WORKGROUP: groups, LOCAL: locals_, GLOBAL: globals_}
        for variable, kind in self.private.items():
            of = self.types.pointee(self.types.row(variable).type)
            if kind == LOCAL_INDEX:
                value = index
            else:
                value = code.emit(Op.COMPOSITE_CONSTRUCT, vector, *made[kind])
            if of not in (code.word, vector):
                value = code.emit(Op.BITCAST, of, value)
            code.do(Op.STORE, variable, value)
        return code.add(code.number(1), code.add(index, code.multiply(group, self._all(code, local))))

    def _all(self, code: Emitter, sizes: list[int]) -> int:
        return code.multiply(sizes[0], code.multiply(sizes[1], sizes[2]))

    def _permuted(self, code: Emitter, number: int, sizes: list[int], reverse: int, rotate: int) -> int:
        """(n - 1 - number if ``reverse`` else number) + rotate, modulo n."""
        count = self._all(code, sizes)
        last = code.emit(Op.ISUB, code.word, count, code.number(1))
        mirrored = code.emit(Op.ISUB, code.word, last, number)
        wanted = code.emit(Op.INOT_EQUAL, code.bool, reverse, code.number(0))
        chosen = code.emit(Op.SELECT, code.word, wanted, mirrored, number)
        return code.emit(Op.UMOD, code.word, code.add(chosen, rotate), count)

    def _places(self, code: Emitter, number: int, sizes: list[int]) -> list[int]:
        """Along each axis, where the element of this number is."""
        x = code.emit(Op.UMOD, code.word, number, sizes[0])
        rest = code.emit(Op.UDIV, code.word, number, sizes[0])
        y = code.emit(Op.UMOD, code.word, rest, sizes[1])
        return [x, y, code.emit(Op.UDIV, code.word, rest, sizes[1])]
