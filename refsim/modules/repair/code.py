"""What stands where in the functions of a module: types, lines, blocks, and the values that an instruction knows."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from refsim.core.errors import RefsimError
from refsim.spirv.instruction import Instruction
from refsim.spirv.lines import BLOCK_ENDS, Lines, SourceLine
from refsim.spirv.module import Module, Section
from refsim.spirv.opcodes import GRAMMAR, Decoration, Op, StorageClass
from refsim.spirv.types import Types

GLSL_STD = "GLSL.std.450"
PURE_STORAGE = (StorageClass.UNIFORM, StorageClass.PUSH_CONSTANT, StorageClass.INPUT)
#: Elements of an array of push or uniform words that may be loaded in the place of another value.
LONGEST = 40
MERGES = (Op.SELECTION_MERGE, Op.LOOP_MERGE)
#: Comparisons of whole numbers.
COMPARED = range(172, 180)
MACRO = re.compile(r"\b([A-Z][A-Z0-9_]{2,})\(")
CHAINS = (Op.ACCESS_CHAIN, Op.IN_BOUNDS_ACCESS_CHAIN)


class Site(NamedTuple):
    """An instruction: ``module.functions[function][row]``."""

    function: int
    row: int


class Leaf(NamedTuple):
    """A value that every instruction may load: a push word, a word of a uniform block, a component of a built-in.

    ``path`` are the numbers of the members, elements and components on the way to it.
    """

    variable: int
    path: tuple[int, ...]
    type: int
    text: str


class Code:
    """A copy of a module that may get further types and constants, with what its instructions know of each other.

    ``spec_ids`` are the specialization constants that a host gives; a compiler drops the ones that nothing uses.
    """

    def __init__(self, module: Module, spec_ids: Iterable[int] = ()) -> None:
        self.module = module.copy()
        self.types = Types(module)
        self.rows: dict[int, Instruction] = dict(self.types.rows)
        self._declare(spec_ids)
        self.made_at: dict[int, Site] = {}
        self.blocks: list[
            list[int]
        ] = []  # of each function: the row of the label that each row stands behind
        for number, body in enumerate(module.functions):
            block, starts = 0, []
            for at, row in enumerate(body):
                block = at if row.op == Op.LABEL else block
                starts.append(block)
                if row.result:
                    self.made_at[row.result] = Site(number, at)
            self.blocks.append(starts)
        try:
            self.lines: Lines | None = Lines(module)
        except RefsimError:  # it runs all the same
            self.lines = None

    def _declare(self, spec_ids: Iterable[int]) -> None:
        given = {
            rows[Decoration.SPEC_ID][0]
            for rows in self.types.decorations.values()
            if Decoration.SPEC_ID in rows
        }
        for number in sorted(set(spec_ids) - given):
            for signed in (0, 1):
                kind = self.type(Op.TYPE_INT, 32, signed)
                made = self.module.add(Op.SPEC_CONSTANT, kind, 0)
                self.module.decorate(made, Decoration.SPEC_ID, number)
                self.rows[made] = Instruction(Op.SPEC_CONSTANT, (kind, made, 0))
                self.types.names[made] = f"specialization constant {number}"
                self.types.decorations[made] = {Decoration.SPEC_ID: (number,)}

    def at(self, site: Site) -> Instruction:
        return self.module.functions[site.function][site.row]

    def sites(self) -> Iterator[tuple[Site, Instruction]]:
        for number, body in enumerate(self.module.functions):
            for at, row in enumerate(body):
                yield Site(number, at), row

    def line(self, site: Site) -> SourceLine | None:
        return None if self.lines is None else self.lines.places.get(site)

    def macros(self, site: Site) -> tuple[str, ...]:
        """The names in capitals that the source line calls: what a macro holds has the line that uses it."""
        line = self.line(site)
        return () if line is None or self.lines is None else tuple(MACRO.findall(self.lines.text(line)))

    # --- types and constants -------------------------------------------------------------------------------

    def type_of(self, number: int) -> int:
        """The type of a value; 0 for what is none."""
        row = self.rows.get(number)
        return row.type if row is not None and row.op != Op.FUNCTION else 0

    def kind(self, type_id: int) -> int:
        """The opcode of a type; of a vector, that of its components."""
        row = self.rows.get(type_id)
        if row is not None and row.op == Op.TYPE_VECTOR:
            row = self.rows.get(row.args[1])
        return -1 if row is None else row.op

    def size(self, type_id: int) -> int:
        """Components of a vector, 1 of a scalar."""
        row = self.rows[type_id]
        return row.args[2] if row.op == Op.TYPE_VECTOR else 1

    def scalar(self, type_id: int) -> int:
        row = self.rows[type_id]
        return row.args[1] if row.op == Op.TYPE_VECTOR else type_id

    def unsigned(self, row: Instruction) -> bool:
        """Whether an operation takes and gives unsigned numbers alone."""
        types = [row.type, *(self.type_of(one) for one in row.args[2:])]
        return all(self.kind(one) == Op.TYPE_INT and not self.rows[self.scalar(one)].args[2] for one in types)

    def plain(self, type_id: int) -> bool:
        """Whether values of a type can be chosen between: 32-bit numbers, booleans, and vectors of them."""
        kind = self.kind(type_id)
        if kind == Op.TYPE_BOOL:
            return True
        return kind in (Op.TYPE_INT, Op.TYPE_FLOAT) and self.rows[self.scalar(type_id)].args[1] == 32

    def number(self, value: int) -> int | float | None:
        """The value of a scalar constant, and of a vector whose components are the same."""
        row = self.rows.get(value)
        if row is None:
            return None
        if row.op == Op.CONSTANT and self.plain(row.type):
            bits = struct.pack("<I", row.args[2])
            if self.kind(row.type) == Op.TYPE_FLOAT:
                return float(struct.unpack("<f", bits)[0])
            signed = self.rows[row.type].args[2]
            return int(struct.unpack("<i" if signed else "<I", bits)[0])
        if row.op == Op.CONSTANT_COMPOSITE and len(set(row.args[2:])) == 1 and self.plain(row.type):
            return self.number(row.args[2])
        return None

    def constant(self, type_id: int, value: float) -> int:
        """The id of a constant, of all components of a vector."""
        scalar = self.scalar(type_id)
        if self.kind(scalar) == Op.TYPE_FLOAT:
            bits = int(struct.unpack("<I", struct.pack("<f", value))[0])
        else:
            bits = int(value) & 0xFFFFFFFF
        one = self.type(Op.CONSTANT, scalar, bits)
        if scalar == type_id:
            return one
        return self.type(Op.CONSTANT_COMPOSITE, type_id, *[one] * self.size(type_id))

    def boolean(self, type_id: int, value: bool) -> int:
        return self.type(41 if value else 42, type_id)

    def type(self, op: int, *args: int) -> int:
        """The id of a type or of a constant, which is declared if it is not there."""
        number = self.module.type(op, *args)
        if number not in self.rows:
            place = GRAMMAR[op].result_at
            self.rows[number] = Instruction(op, (*args[:place], number, *args[place:]))
        return number

    @cached_property
    def constants(self) -> dict[int, list[int]]:
        """Type -> the constants of it that functions use, in the order of the module."""
        found: dict[int, list[int]] = {}
        used = {number for body in self.module.functions for row in body for number in row.args}
        for row in self.types.module.globals:
            if row.op in (Op.CONSTANT, Op.SPEC_CONSTANT) and row.result in used and self.plain(row.type):
                found.setdefault(row.type, []).append(row.result)
        return found

    @cached_property
    def spec_constants(self) -> dict[int, list[int]]:
        """Type -> its specialization constants."""
        found: dict[int, list[int]] = {}
        for row in self.module.globals:
            if row.op == Op.SPEC_CONSTANT and self.plain(row.type):
                found.setdefault(row.type, []).append(row.result)
        return found

    @cached_property
    def glsl(self) -> int:
        """The id of GLSL's extended instructions; 0 where the module does not import them."""
        rows = self.module.sections[Section.IMPORT]
        return next((row.result for row in rows if row.text(1) == GLSL_STD), 0)

    # --- what can be loaded everywhere ---------------------------------------------------------------------

    @cached_property
    def leaves(self) -> dict[int, list[Leaf]]:
        """Type -> what can be loaded of it everywhere."""
        found: dict[int, list[Leaf]] = {}
        for row in self.types.module.globals:
            if row.op == Op.VARIABLE and row.args[2] in PURE_STORAGE:
                pointee = self.types.pointee(row.type)
                name = self.types.names.get(row.result, "")
                for leaf in self._parts(row.result, pointee, (), name or f"%{row.result}", 0):
                    found.setdefault(leaf.type, []).append(leaf)
        return found

    @cached_property
    def uses(self) -> dict[tuple[int, tuple[int, ...]], list[Site]]:
        """(Variable, path) -> the instructions that load it, or take it out of what was loaded."""
        found: dict[tuple[int, tuple[int, ...]], list[Site]] = {}
        for site, row in self.sites():
            if row.op in (Op.LOAD, Op.COMPOSITE_EXTRACT) and self.plain(row.type):
                own = self.origin(row.result)
                if own is not None:
                    found.setdefault(own, []).append(site)
        return found

    @cached_property
    def read(self) -> frozenset[int]:
        """The variables that something is loaded of."""
        return frozenset(variable for variable, _ in self.uses)

    @cached_property
    def leaf_at(self) -> dict[tuple[int, tuple[int, ...]], Leaf]:
        """(Variable, path) -> what can be loaded of it everywhere."""
        return {(leaf.variable, leaf.path): leaf for leaves in self.leaves.values() for leaf in leaves}

    def _parts(
        self, variable: int, type_id: int, path: tuple[int, ...], text: str, depth: int
    ) -> Iterator[Leaf]:
        row = self.rows[type_id]
        if row.op == Op.TYPE_STRUCT and depth < 4:
            for at, member in enumerate(row.args[1:]):
                name = self.types.member_names.get((type_id, at)) or str(at)
                inner = f"{text}.{name}" if text and not text.startswith("%") else name
                yield from self._parts(variable, member, (*path, at), inner, depth + 1)
        elif row.op == Op.TYPE_ARRAY and depth < 4:
            try:
                length = self.types.length(row.args[2])
            except RefsimError:
                return
            for at in range(min(length, LONGEST)):
                yield from self._parts(variable, row.args[1], (*path, at), f"{text}[{at}]", depth + 1)
        elif row.op == Op.TYPE_VECTOR:
            if self.plain(type_id):
                yield Leaf(variable, path, type_id, text)
                for at in range(row.args[2]):
                    yield Leaf(variable, (*path, at), row.args[1], f"{text}.{'xyzw'[at]}")
        elif self.plain(type_id) and row.op != Op.TYPE_BOOL:
            yield Leaf(variable, path, type_id, text)

    def loaded(self, leaf: Leaf) -> tuple[Instruction, ...]:
        """The instructions that load a leaf; the last makes -1, those before it -2."""
        if not leaf.path:
            return (Instruction(Op.LOAD, (leaf.type, -1, leaf.variable)),)
        storage = self.rows[leaf.variable].args[2]
        index = self.type(Op.TYPE_INT, 32, 1)
        chain = [self.constant(index, number) for number in leaf.path]
        pointer = self.type(Op.TYPE_POINTER, storage, leaf.type)
        return (
            Instruction(Op.ACCESS_CHAIN, (pointer, -2, leaf.variable, *chain)),
            Instruction(Op.LOAD, (leaf.type, -1, -2)),
        )

    def origin(self, value: int) -> tuple[int, tuple[int, ...]] | None:
        """(Variable, path) of a value that was loaded from one that everything may load."""
        row = self.rows.get(value)
        if row is None:
            return None
        if row.op == Op.LOAD:
            return self._target(row.args[2])
        if row.op == Op.COMPOSITE_EXTRACT:
            inner = self.origin(row.args[2])
            return None if inner is None else (inner[0], (*inner[1], *row.args[3:]))
        return None

    def _target(self, pointer: int) -> tuple[int, tuple[int, ...]] | None:
        row = self.rows.get(pointer)
        if row is None:
            return None
        if row.op == Op.VARIABLE:
            return (pointer, ()) if row.args[2] in PURE_STORAGE else None
        if row.op not in CHAINS:
            return None
        base = self._target(row.args[2])
        numbers = [self.number(index) for index in row.args[3:]]
        if base is None or not all(isinstance(one, int) for one in numbers):
            return None
        return base[0], (*base[1], *(int(one) for one in numbers if one is not None))

    def is_free(self, row: Instruction, at: int) -> bool:
        """Whether an index of an access chain may be another one: it is no member of a struct."""
        inside = self.types.pointee(self.type_of(row.args[2]))
        for index in row.args[3:at]:
            holder = self.rows[inside]
            inside = holder.args[1 + int(self.number(index) or 0) if holder.op == Op.TYPE_STRUCT else 1]
        return self.rows[inside].op != Op.TYPE_STRUCT

    # --- what is known where -------------------------------------------------------------------------------

    def before(self, site: Site, type_id: int, most: int) -> list[int]:
        """Values of a type that are known at an instruction, the nearest first."""
        found: list[int] = []
        body, starts = self.module.functions[site.function], self.blocks[site.function]
        block, at = starts[site.row], site.row
        while True:
            for row in reversed(body[block:at]):
                if row.result and row.type == type_id and row.op not in (Op.VARIABLE, Op.FUNCTION):
                    found.append(row.result)
                    if len(found) == most:
                        return found
            upper = self._dominators[site.function].get(block, -1)
            if upper < 0:
                return found
            block = upper
            at = next(i for i in range(block, len(body)) if body[i].op in BLOCK_ENDS)

    @cached_property
    def limits(self) -> dict[int, list[int]]:
        """Type -> what is compared with in functions: the ends of loops, and sizes."""
        found: dict[int, dict[int, None]] = {}
        for _, row in self.sites():
            if row.op in COMPARED:
                for value in row.args[2:4]:
                    found.setdefault(self.type_of(value), {})[value] = None
        return {type_id: list(values) for type_id, values in found.items()}

    @cached_property
    def indices(self) -> dict[tuple[int, int], list[int]]:
        """(Type of a pointer, operand) -> what is computed and stands there in access chains."""
        found: dict[tuple[int, int], dict[int, None]] = {}
        for _, row in self.sites():
            for at in range(3, len(row.args)) if row.op in CHAINS else ():
                if self.number(row.args[at]) is None:
                    found.setdefault((self.type_of(row.args[2]), at), {})[row.args[at]] = None
        return {key: list(values) for key, values in found.items()}

    def is_known(self, value: int, site: Site) -> bool:
        """Whether a value is known at an instruction, however far above it is made."""
        made = self.made_at.get(value)
        if made is None or made.function != site.function:
            return made is None
        starts = self.blocks[site.function]
        block = starts[site.row]
        if block == starts[made.row]:
            return made.row < site.row
        while block > 0 and block != starts[made.row]:
            block = self._dominators[site.function].get(block, -1)
        return block == starts[made.row]

    def variables(self, function: int, pointer: int) -> list[int]:
        """The variables and parameters of a function that have a pointer type."""
        return [
            row.result
            for row in self.module.functions[function]
            if row.op in (Op.VARIABLE, Op.FUNCTION_PARAMETER) and row.type == pointer
        ]

    @cached_property
    def _dominators(self) -> list[dict[int, int]]:
        return [_immediate(body) for body in self.module.functions]

    def block_end(self, function: int, label: int) -> int:
        """The row before which something is added to the end of the block of a label."""
        body = self.module.functions[function]
        start = self.made_at[label].row
        return self.above(
            Site(function, next(i for i in range(start, len(body)) if body[i].op in BLOCK_ENDS))
        )

    def above(self, site: Site) -> int:
        """The row before which something is added in front of an instruction: nothing may follow a merge."""
        return site.row - (self.module.functions[site.function][site.row - 1].op in MERGES)


def _immediate(body: list[Instruction]) -> dict[int, int]:
    """Block -> the block that immediately dominates it, by the rows of their labels; -1 for the first."""
    labels = {row.result: at for at, row in enumerate(body) if row.op == Op.LABEL}
    order = sorted(labels.values())
    before: dict[int, list[int]] = {at: [] for at in order}
    for start in order:
        end = next(i for i in range(start, len(body)) if body[i].op in BLOCK_ENDS)
        for target in body[end].args:
            if body[end].op in (Op.BRANCH, Op.BRANCH_CONDITIONAL, 251) and target in labels:
                before[labels[target]].append(start)
    if not order:
        return {}
    everything = set(order)
    over = {at: {at} if at == order[0] else everything for at in order}
    changed = True
    while changed:
        changed = False
        for at in order[1:]:
            known = [over[one] for one in before[at]]
            new = {at} | (set.intersection(*known) if known else set())
            if new != over[at]:
                over[at], changed = new, True
    return {
        at: max((len(over[one]), one) for one in over[at] - {at})[1] if len(over[at]) > 1 else -1
        for at in order
    }
