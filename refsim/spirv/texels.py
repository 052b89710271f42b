"""The functions that stand for fetches, reads and writes of one image that has become a buffer.

A position outside of the image reads zeros and writes nothing. Vulkan says so of writes to images, and of reads with
robust access, which is what image hardware does: a kernel that fetches past the edge and throws the result away works
on every device, and must here. So such a position never reaches the buffer's guards, and never another row's texels.
"""

from __future__ import annotations

from collections.abc import Sequence

from refsim.core.counted import counted
from refsim.spirv.instruction import Instruction
from refsim.spirv.module import Module
from refsim.spirv.opcodes import Decoration, Op, StorageClass

SIDES = ("width", "height", "depth")
ONE = {Op.TYPE_INT: 1, Op.TYPE_FLOAT: 0x3F800000}


class Texels:
    """The buffer ``variable`` of an image of ``dims`` dims, whose texels have ``components`` of type ``component``.

    ``texel`` is the id of the type in the buffer. Shaders see four components, whatever a texel keeps.
    """

    def __init__(
        self, work: Module, variable: int, component: int, components: int, texel: int, dims: int
    ) -> None:
        self.work, self.variable = work, variable
        self.component, self.components, self.texel, self.dims = component, components, texel, dims
        self.sides: list[int] = []  # the constants of the extents
        self._reader = self._writer = 0  # ids of the functions, 0 before one is needed
        self._seen = 0  # the type that shaders see

    @property
    def word(self) -> int:
        return self.work.type(Op.TYPE_INT, 32, 1)

    @property
    def position_type(self) -> int:
        return self.work.type(Op.TYPE_VECTOR, self.word, self.dims)

    def extents(self, spec_ids: Sequence[int], name: str) -> None:
        """Make the specialization constants of the extents, 1 by default; ``name`` is the image's, or ""."""
        for spec_id, side in zip(spec_ids, SIDES, strict=False):
            number = self.work.add(Op.SPEC_CONSTANT, self.word, 1)
            self.work.decorate(number, Decoration.SPEC_ID, spec_id)
            if name:
                self.work.name(number, f"{name}_{side}")
            self.sides.append(number)

    def reader(self, result_type: int) -> int:
        """The id of the function that reads a texel; refuses another result than four components."""
        self._see(result_type)
        self._reader = self._reader or self.work.new_id()
        return self._reader

    def writer(self, texel_type: int) -> int:
        """The id of the function that writes a texel; refuses another texel than four components."""
        self._see(texel_type)
        self._writer = self._writer or self.work.new_id()
        return self._writer

    def _see(self, kind: int) -> None:
        four = self.work.type(Op.TYPE_VECTOR, self.component, 4)
        if kind != four:
            raise self.work.refusal(
                "a texel of another type", got=f"%{kind}", need=f"%{four}, four components"
            )
        self._seen = four

    def size(self, result_type: int, result: int) -> list[Instruction]:
        """The extents as a vector of the type that the question has."""
        unsigned = self.work.type(Op.TYPE_VECTOR, self.work.type(Op.TYPE_INT, 32, 0), self.dims)
        if result_type == self.position_type:
            return [Instruction(Op.COMPOSITE_CONSTRUCT, (result_type, result, *self.sides))]
        if result_type != unsigned:
            raise self.work.refusal(
                "a size of another type", got=f"%{result_type}", need=counted(self.dims, "word")
            )
        signed = self.work.new_id()
        return [
            Instruction(Op.COMPOSITE_CONSTRUCT, (self.position_type, signed, *self.sides)),
            Instruction(Op.BITCAST, (result_type, result, signed)),
        ]

    def functions(self) -> list[list[Instruction]]:
        """The functions that were asked for."""
        made = [self._read()] if self._reader else []
        return [*made, self._write()] if self._writer else made

    def _start(self, function: int, result: int, *parameters: int) -> tuple[list[Instruction], list[int]]:
        work = self.work
        kind = work.type(Op.TYPE_FUNCTION, result, *parameters)
        rows = [Instruction(Op.FUNCTION, (result, function, 0, kind))]
        made = [work.new_id() for _ in parameters]
        rows += [Instruction(Op.FUNCTION_PARAMETER, pair) for pair in zip(parameters, made, strict=True)]
        rows.append(Instruction(Op.LABEL, (work.new_id(),)))
        return rows, made

    def _place(self, rows: list[Instruction], position: int) -> tuple[int, int]:
        """Whether a position is inside, and its index; both as ids."""
        work, integer = self.work, self.word
        boolean = work.type(Op.TYPE_BOOL)

        def emit(op: int, kind: int, *args: int) -> int:
            rows.append(Instruction(op, (kind, made := work.new_id(), *args)))
            return made

        axes = [emit(Op.COMPOSITE_EXTRACT, integer, position, axis) for axis in range(self.dims)]
        inside, index = 0, axes[-1]
        for axis, side in zip(axes, self.sides, strict=True):
            below = emit(Op.ULESS_THAN, boolean, axis, side)  # negative ones are large
            inside = emit(Op.LOGICAL_AND, boolean, inside, below) if inside else below
        for axis, side in zip(axes[-2::-1], self.sides[-2::-1], strict=True):
            index = emit(Op.IADD, integer, axis, emit(Op.IMUL, integer, side, index))
        return inside, index

    def _chain(self, rows: list[Instruction], index: int) -> int:
        """A pointer to the texel at an index."""
        work = self.work
        pointer, made = work.pointer(StorageClass.STORAGE_BUFFER, self.texel), work.new_id()
        rows.append(
            Instruction(Op.ACCESS_CHAIN, (pointer, made, self.variable, work.constant(self.word, 0), index))
        )
        return made

    def _read(self) -> list[Instruction]:
        work, seen = self.work, self._seen
        rows, (position,) = self._start(self._reader, seen, self.position_type)
        inside, index = self._place(rows, position)
        safe, loaded, mask, result = (work.new_id() for _ in range(4))
        rows.append(Instruction(Op.SELECT, (self.word, safe, inside, index, work.constant(self.word, 0))))
        rows.append(Instruction(Op.LOAD, (self.texel, loaded, self._chain(rows, safe))))
        if self.components < 4:
            kind = next(row.op for row in work.globals if row.result == self.component)
            filler = [work.constant(self.component, 0)] * (3 - self.components)
            filler.append(work.constant(self.component, ONE[kind]))
            wide = work.new_id()
            rows.append(Instruction(Op.COMPOSITE_CONSTRUCT, (seen, wide, loaded, *filler)))
            loaded = wide
        flags = work.type(Op.TYPE_VECTOR, work.type(Op.TYPE_BOOL), 4)
        zeros = work.type(Op.CONSTANT_NULL, seen)
        rows.append(Instruction(Op.COMPOSITE_CONSTRUCT, (flags, mask, *[inside] * 4)))
        rows.append(Instruction(Op.SELECT, (seen, result, mask, loaded, zeros)))
        rows.append(Instruction(Op.RETURN_VALUE, (result,)))
        return [*rows, Instruction(Op.FUNCTION_END, ())]

    def _write(self) -> list[Instruction]:
        work = self.work
        rows, (position, texel) = self._start(
            self._writer, work.type(Op.TYPE_VOID), self.position_type, self._seen
        )
        inside, index = self._place(rows, position)
        write, done = work.new_id(), work.new_id()
        rows.append(Instruction(Op.SELECTION_MERGE, (done, 0)))
        rows.append(Instruction(Op.BRANCH_CONDITIONAL, (inside, write, done)))
        rows.append(Instruction(Op.LABEL, (write,)))
        if self.components < 4:
            kept = work.new_id()
            if self.components == 1:
                rows.append(Instruction(Op.COMPOSITE_EXTRACT, (self.texel, kept, texel, 0)))
            else:
                lanes = range(self.components)
                rows.append(Instruction(Op.VECTOR_SHUFFLE, (self.texel, kept, texel, texel, *lanes)))
            texel = kept
        rows.append(Instruction(Op.STORE, (self._chain(rows, index), texel)))
        rows.append(Instruction(Op.BRANCH, (done,)))
        rows.append(Instruction(Op.LABEL, (done,)))
        rows.append(Instruction(Op.RETURN, ()))
        return [*rows, Instruction(Op.FUNCTION_END, ())]
