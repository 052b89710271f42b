"""Which source line an instruction came from, and which lines store to a binding.

Compilers write lines in two forms: OpLine (``glslc -g``), and DebugLine of NonSemantic.Shader.DebugInfo.100 (``glslang
-gVS``, DXC, Slang). A line holds until the next one, or until the end of its block. A module without debug information
has no lines, and every answer is empty.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import NamedTuple

from refsim.core.errors import RefsimError
from refsim.spirv.instruction import Instruction
from refsim.spirv.module import Module, Section
from refsim.spirv.opcodes import Decoration, Op
from refsim.spirv.reflect import MAX_BINDINGS
from refsim.spirv.types import Types

DEBUG_INFO = "NonSemantic.Shader.DebugInfo."
DEBUG_SOURCE, DEBUG_LINE, DEBUG_NO_LINE = 35, 103, 104
BLOCK_ENDS = frozenset((*range(Op.BRANCH, Op.RETURN_VALUE + 2), 4416, Op.FUNCTION_END))
ATOMICS = frozenset((Op.ATOMIC_STORE, *range(229, 243), 5614, 5615, 6035))

#: Opcode -> where the pointer or image that it writes through stands among its operands.
WRITES = {
    Op.STORE: 0,
    Op.COPY_MEMORY: 0,
    Op.COPY_MEMORY_SIZED: 0,
    Op.IMAGE_WRITE: 0,
    4458: 0,  # OpCooperativeMatrixStoreKHR
    5360: 0,  # OpCooperativeMatrixStoreNV
    **dict.fromkeys(ATOMICS, 2),
    Op.ATOMIC_STORE: 0,
}
#: Opcode -> the operands that its result, a pointer or an image, may come from.
FROM = {
    Op.ACCESS_CHAIN: slice(2, 3),
    Op.IN_BOUNDS_ACCESS_CHAIN: slice(2, 3),
    Op.PTR_ACCESS_CHAIN: slice(2, 3),
    Op.IN_BOUNDS_PTR_ACCESS_CHAIN: slice(2, 3),
    Op.COPY_OBJECT: slice(2, 3),
    Op.IMAGE: slice(2, 3),
    Op.IMAGE_TEXEL_POINTER: slice(2, 3),
    Op.LOAD: slice(2, 3),
    Op.SELECT: slice(3, 5),
    Op.PHI: slice(2, None, 2),
}


class SourceLine(NamedTuple):
    """A line of a source file, counted from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Store(NamedTuple):
    """One instruction that writes to a binding; ``place`` is None without debug information.

    It is ``module.functions[function][row]``.
    """

    place: SourceLine | None
    instruction: str
    function: int
    row: int


class Lines:
    """The source lines of one module. Raises FormatError where debug information contradicts itself."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._rows = module.definitions()
        self._debug = {
            row.result
            for row in module.sections[Section.IMPORT]
            if row.op == Op.EXT_INST_IMPORT and row.text(1).startswith(DEBUG_INFO)
        }
        #: Function and instruction, as they are counted in ``module.functions`` -> the line.
        self.places: dict[tuple[int, int], SourceLine] = {}
        self._results: dict[int, SourceLine] = {}
        self._strings: dict[int, str] = {}
        for number, body in enumerate(module.functions):
            self._function(number, body)

    def _function(self, number: int, body: list[Instruction]) -> None:
        place: SourceLine | None = None
        for index, row in enumerate(body):
            if row.op == Op.LINE:
                place = SourceLine(self._string(row.args[0]), row.args[1])
            elif row.op == Op.NO_LINE:
                place = None
            elif row.op == Op.EXT_INST and row.args[2] in self._debug:
                if row.args[3] == DEBUG_LINE and len(row.args) >= 6:
                    place = SourceLine(self._source(row.args[4]), self._number(row.args[5]))
                elif row.args[3] == DEBUG_NO_LINE:
                    place = None
            else:
                if place is not None:
                    self.places[number, index] = place
                    if made := row.result:
                        self._results[made] = place
                if row.op in BLOCK_ENDS:
                    place = None

    def of(self, result: int) -> SourceLine | None:
        """The line of the instruction that makes an id."""
        return self._results.get(result)

    # --- debug information ------------------------------------------------------------------------------------

    def _string(self, number: int) -> str:
        if number not in self._strings:
            row = self._rows.get(number)
            if row is None or row.op != Op.STRING:
                raise self.module.error(f"%{number} is no file name", got=row.name if row else "nothing")
            self._strings[number] = row.text(1)
        return self._strings[number]

    def _number(self, number: int) -> int:
        row = self._rows.get(number)
        if row is None or row.op != Op.CONSTANT:
            raise self.module.error(f"%{number} is no line number", got=row.name if row else "nothing")
        return row.args[2]

    def _source(self, number: int) -> str:
        row = self._rows.get(number)
        known = row is not None and row.op == Op.EXT_INST and row.args[2] in self._debug
        if row is None or not known or row.args[3] != DEBUG_SOURCE or len(row.args) < 5:
            raise self.module.error(f"%{number} is no source file", got=row.name if row else "nothing")
        return self._string(row.args[4])

    def text(self, place: SourceLine) -> str:
        """The source line itself, without spaces around it; "" where the module does not hold its source."""
        lines = self._texts.get(place.file, [])
        return lines[place.line - 1].strip() if 0 < place.line <= len(lines) else ""

    def declared(self, result: int, number: int) -> SourceLine | None:
        """The first line of the source that has the number of a variable or constant, and then its name.

        None where the module does not hold names and source. A block without a name has that of its last member.
        """
        types, texts = Types(self.module), self._texts
        pointer = types.rows[types.rows[result].type]
        block = types.rows.get(pointer.args[-1]) if pointer.op == Op.TYPE_POINTER else None
        names = [types.names.get(result, "")]
        if block is not None and block.op == Op.TYPE_STRUCT:
            names += [
                types.member_names.get((block.result, len(block.args) - 2), ""),
                types.names.get(block.result, ""),
            ]
        numbered = re.compile(rf"\b{number}\b")
        for name in filter(None, names):
            named = re.compile(rf"\b{re.escape(name)}\b")
            for file, lines in texts.items():
                for place, line in enumerate(lines, 1):
                    outside = line[:1].strip() and not line.startswith("//")  # of functions and comments
                    at = numbered.search(line) if outside else None
                    if at is not None and named.search(line, at.end()):
                        return SourceLine(file, place)
        return None

    @cached_property
    def _texts(self) -> dict[str, list[str]]:
        """File -> its lines, as OpSource or DebugSource holds them."""
        found: dict[str, list[str]] = {}
        open_file: list[str] = []
        for row in self.module.sections[Section.STRING]:
            if row.op == Op.SOURCE and len(row.args) > 3:
                open_file = found.setdefault(self._string(row.args[2]), [])
                open_file.append(row.text(3))
            elif row.op == Op.SOURCE_CONTINUED:
                open_file.append(row.text(0))
        for row in self.module.globals:
            ours = row.op == Op.EXT_INST and row.args[2] in self._debug and row.args[3] == DEBUG_SOURCE
            if ours and len(row.args) > 5:
                found.setdefault(self._string(row.args[4]), [self._string(row.args[5])])
        return {name: _own_lines("".join(parts)) for name, parts in found.items()}

    # --- stores -----------------------------------------------------------------------------------------------

    def stores(self) -> dict[int, tuple[Store, ...]]:
        """Binding -> the instructions that write to it: stores, image writes, atomics; in the order of the module.

        A pointer that may come from several bindings counts for each of them.
        """
        bindings = {
            row.args[0]: row.args[2]
            for row in self.module.sections[Section.ANNOTATION]
            if row.op == Op.DECORATE and row.args[1] == Decoration.BINDING and len(row.args) > 2
        }
        numbers = sorted(set(bindings.values()))
        if len(numbers) > MAX_BINDINGS:
            raise self.module.refusal("bindings", got=len(numbers), need=f"<= {MAX_BINDINGS}")
        origins = self._origins({variable: 1 << numbers.index(at) for variable, at in bindings.items()})
        found: dict[int, list[Store]] = {}
        for number, body in enumerate(self.module.functions):
            for index, row in enumerate(body):
                at = WRITES.get(row.op)
                if at is None:
                    continue
                mask = origins.get(row.args[at], 0)
                for bit in range(mask.bit_length()):
                    if mask >> bit & 1:
                        store = Store(self.places.get((number, index)), row.name, number, index)
                        found.setdefault(numbers[bit], []).append(store)
        return {number: tuple(rows) for number, rows in sorted(found.items())}

    def store_places(self, binding: int) -> tuple[SourceLine, ...]:
        """The lines that store to a binding, each once, in the order of the module."""
        rows = self.stores().get(binding, ())
        return tuple(dict.fromkeys(row.place for row in rows if row.place is not None))

    def _origins(self, origins: dict[int, int]) -> dict[int, int]:
        """Each pointer or image -> the bindings that it may come from, a bit each; ``origins`` holds the variables'."""
        parameters = {
            body[0].result: [row.result for row in body if row.op == Op.FUNCTION_PARAMETER]
            for body in self.module.functions
        }
        users: dict[int, list[int]] = {}  # an id -> what is made of it
        for body in self.module.functions:
            for row in body:
                if row.op in FROM:
                    for source in row.args[FROM[row.op]]:
                        users.setdefault(source, []).append(row.result)
                elif row.op == Op.FUNCTION_CALL:
                    given = zip(parameters.get(row.args[2], ()), row.args[3:], strict=False)
                    for parameter, argument in given:
                        users.setdefault(argument, []).append(parameter)
        waiting = list(origins)
        while waiting:
            source = waiting.pop()
            for made in users.get(source, ()):
                old = origins.get(made, 0)
                if (new := old | origins[source]) != old:
                    origins[made] = new
                    waiting.append(made)
        return origins


def declared(module: Module, result: int, number: int) -> str:
    """The line that declares a variable or constant with this number, as text; "" where the module does not say."""
    try:
        found = Lines(module).declared(result, number)
    except RefsimError:
        found = None
    return "" if found is None else str(found)


def stored(module: Module, binding: int) -> list[tuple[str, str]]:
    """(place, source line) of each store to a binding, as text; empty where the module does not say."""
    try:
        lines = Lines(module)
    except RefsimError:  # it runs all the same
        return []
    return [(str(place), lines.text(place)) for place in lines.store_places(binding)]


def _own_lines(text: str) -> list[str]:
    """The lines of a source, without the comments that glslang puts in front of it, up to ``#line 1``."""
    lines = text.split("\n")
    head = next((i for i, line in enumerate(lines) if not line.startswith("//")), 0)
    return lines[head + 1 :] if head < len(lines) and re.fullmatch(r"#line 1\s*", lines[head]) else lines
