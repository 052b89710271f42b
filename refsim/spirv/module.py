"""A SPIR-V module as lists of instructions that can be read, changed and written back.

`Module.parse` checks the header, the length and the least operands of each instruction, the order of the sections and
that every id is made once. It does not validate: spirv-val does. What no one changes is written back byte for byte.

Changing a module::

    module = Module.parse(code, "mine.spv").copy()
    uint = module.type(Op.TYPE_INT, 32, 0)  # the id of a type, made if the module lacks it
    four = module.constant(uint, 4)
    total = module.new_id()
    body = module.functions[0]  # a list, from OpFunction to OpFunctionEnd
    body.insert(at, Instruction(Op.IADD, (uint, total, one, four)))
    module.to_bytes()

Instructions never change, only the lists do: replace one by another (`Instruction.with_args`). New types, constants
and variables go through `Module.add`, which puts them behind all others; functions through `Module.functions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import numpy as np

from refsim.core.counted import counted
from refsim.core.errors import FormatError, LimitError, UnsupportedError
from refsim.spirv.instruction import Instruction, string_words
from refsim.spirv.opcodes import GRAMMAR, Op, StorageClass, name_of

MAGIC = 0x07230203
HEADER_WORDS = 5
MAX_BYTES = 2 << 20  # kernels have some 30 KB, 300 KB with their source; more would take seconds
MAX_BOUND = 0x3FFFFF  # SPIR-V's universal limit on ids
MAX_DEPTH = 48  # types in types; kernels have five or so, and each level takes some calls of Python


class Section(IntEnum):
    """The parts of a module before its functions, in the order that SPIR-V demands."""

    CAPABILITY = 0
    EXTENSION = 1
    IMPORT = 2
    MEMORY_MODEL = 3
    ENTRY_POINT = 4
    EXECUTION_MODE = 5
    STRING = 6
    NAME = 7
    PROCESSED = 8
    ANNOTATION = 9
    GLOBAL = 10


#: Opcode -> the only section that it may stand in; all others stand among the globals or in functions.
SECTION_OF = {
    Op.CAPABILITY: Section.CAPABILITY,
    Op.EXTENSION: Section.EXTENSION,
    Op.EXT_INST_IMPORT: Section.IMPORT,
    Op.MEMORY_MODEL: Section.MEMORY_MODEL,
    Op.ENTRY_POINT: Section.ENTRY_POINT,
    Op.EXECUTION_MODE: Section.EXECUTION_MODE,
    Op.EXECUTION_MODE_ID: Section.EXECUTION_MODE,
    **dict.fromkeys((Op.SOURCE_CONTINUED, Op.SOURCE, 4, Op.STRING), Section.STRING),
    **dict.fromkeys((Op.NAME, Op.MEMBER_NAME), Section.NAME),
    330: Section.PROCESSED,
    **dict.fromkeys((*range(Op.DECORATE, 76), Op.DECORATE_ID, 5632, 5633), Section.ANNOTATION),
}


class Module:
    """A parsed module: ``sections`` up to the globals, then ``functions``, each a list of instructions.

    ``where`` is the file's name for messages. ``version`` is (major, minor). ``bound`` is greater than every id.
    """

    def __init__(self, where: str, version: tuple[int, int], generator: int, bound: int, schema: int) -> None:
        self.where = where
        self.set_version(version)
        self.generator, self.bound, self.schema = generator, bound, schema
        self.sections: dict[Section, list[Instruction]] = {section: [] for section in Section}
        self.functions: list[list[Instruction]] = []
        self._known: dict[Instruction, int] | None = None

    # --- bytes ------------------------------------------------------------------------------------------------

    @classmethod
    def parse(cls, code: bytes, where: str) -> Module:
        """The module in ``code``.

        Raises FormatError naming the word where something is damaged, LimitError for more than `MAX_BYTES`.
        """
        words = check(code, where).tolist()
        version = words[1]
        module = cls(where, (version >> 16 & 0xFF, version >> 8 & 0xFF), words[2], words[3], words[4])
        module._version_word = version
        if not 1 <= module.bound <= MAX_BOUND:
            raise FormatError(where, "bound of ids", got=module.bound, need=f"1 to {MAX_BOUND}")
        _Reader(module, words).run()
        return module

    def to_bytes(self) -> bytes:
        """The module as little-endian words."""
        words = [MAGIC, self._version_word, self.generator, self.bound, self.schema]
        for op, args in self.instructions():
            words.append((len(args) + 1) << 16 | op)
            words += args
        return np.array(words, "<u4").tobytes()

    def set_version(self, version: tuple[int, int]) -> None:
        """Call it another version; whether its instructions are of that one is the caller's to know."""
        self.version = version
        self._version_word = (version[0] << 16) | version[1] << 8

    def copy(self) -> Module:
        """A module that can be changed without changing this one."""
        other = Module(self.where, self.version, self.generator, self.bound, self.schema)
        other._version_word = self._version_word
        other.sections = {section: list(rows) for section, rows in self.sections.items()}
        other.functions = [list(rows) for rows in self.functions]
        return other

    # --- looking ----------------------------------------------------------------------------------------------

    @property
    def globals(self) -> list[Instruction]:
        """Types, constants, variables, and the debug information between them."""
        return self.sections[Section.GLOBAL]

    def instructions(self) -> Iterator[Instruction]:
        """All of them, in order."""
        for rows in self.sections.values():
            yield from rows
        for rows in self.functions:
            yield from rows

    def definitions(self) -> dict[int, Instruction]:
        """Every id that an instruction makes -> the instruction. Made anew by each call."""
        return {made: row for row in self.instructions() if (made := row.result)}

    def error(self, what: str, *, got: object = None, need: object = None) -> FormatError:
        return FormatError(self.where, what, got=got, need=need)

    def refusal(self, what: str, *, got: object = None, need: object = None) -> UnsupportedError:
        return UnsupportedError(self.where, what, got=got, need=need)

    # --- changing ---------------------------------------------------------------------------------------------

    def new_id(self) -> int:
        """An id that nothing uses yet."""
        if self.bound >= MAX_BOUND:
            raise LimitError(self.where, "no id is left", got=self.bound, need=f"< {MAX_BOUND}")
        self.bound += 1
        return self.bound - 1

    def add(self, op: int, *args: int) -> int:
        """Append an instruction with a result to the globals; returns its new id.

        ``args`` leaves the result out: ``add(Op.TYPE_STRUCT, member)``, ``add(Op.VARIABLE, pointer, storage)``.
        """
        number = self.new_id()
        place = GRAMMAR[op].result_at
        row = Instruction(op, (*args[:place], number, *args[place:]))
        self.globals.append(row)
        if self._known is not None:
            self._known[Instruction(op, args)] = number
        return number

    def type(self, op: int, *args: int) -> int:
        """The id of the type, constant or other global with these operands (without its result), made if missing.

        Not for structs, arrays and specialization constants: two of them with the same operands may be different
        things. Use `add` for those.
        """
        if self._known is None:
            self._known = {}
            for row in self.globals:
                if made := row.result:
                    place = GRAMMAR[row.op].result_at
                    self._known.setdefault(row.with_args(*row.args[:place], *row.args[place + 1 :]), made)
        return self._known.get(Instruction(op, args)) or self.add(op, *args)

    def replace_globals(self, rows: list[Instruction]) -> None:
        """Put other instructions in the place of the globals; what `type` remembers is looked up again."""
        self.sections[Section.GLOBAL], self._known = rows, None

    def forget(self, ids: set[int]) -> None:
        """Drop the names and decorations of ids that are made no longer."""
        for section in (Section.NAME, Section.ANNOTATION):
            rows = self.sections[section]
            rows[:] = [row for row in rows if row.args[0] not in ids]

    def constant(self, type_id: int, value: int) -> int:
        """The id of a 32-bit constant with these bits."""
        return self.type(Op.CONSTANT, type_id, value & 0xFFFFFFFF)

    def pointer(self, storage: int, type_id: int) -> int:
        """The id of a pointer type."""
        return self.type(Op.TYPE_POINTER, storage, type_id)

    def decorate(self, target: int, decoration: int, *literals: int) -> None:
        """Add a decoration, unless the module has it already."""
        row = Instruction(Op.DECORATE, (target, decoration, *literals))
        if row not in self.sections[Section.ANNOTATION]:
            self.sections[Section.ANNOTATION].append(row)

    def decorate_member(self, target: int, member: int, decoration: int, *literals: int) -> None:
        """Add a decoration to a member of a struct, unless the module has it already."""
        row = Instruction(Op.MEMBER_DECORATE, (target, member, decoration, *literals))
        if row not in self.sections[Section.ANNOTATION]:
            self.sections[Section.ANNOTATION].append(row)

    def name(self, target: int, text: str) -> None:
        """Give an id a name for people and disassemblers."""
        self.sections[Section.NAME].append(Instruction(Op.NAME, (target, *string_words(text))))

    def require(self, capability: int) -> None:
        """Declare a capability, unless it is declared."""
        row = Instruction(Op.CAPABILITY, (capability,))
        if row not in self.sections[Section.CAPABILITY]:
            self.sections[Section.CAPABILITY].append(row)

    def extension(self, name: str) -> None:
        """Declare an extension, unless it is declared."""
        row = Instruction(Op.EXTENSION, string_words(name))
        if row not in self.sections[Section.EXTENSION]:
            self.sections[Section.EXTENSION].append(row)

    def add_variable(self, storage: int, type_id: int, *initial: int) -> int:
        """Append a global variable of a type; returns its id. The entry point lists it if its version asks for that."""
        number = self.add(Op.VARIABLE, self.pointer(storage, type_id), storage, *initial)
        if self.version >= (1, 4) or storage == StorageClass.INPUT:
            rows = self.sections[Section.ENTRY_POINT]
            rows[:] = [row.with_args(*row.args, number) for row in rows]
        return number


def check(code: bytes, where: str) -> np.ndarray:
    """The words of ``code`` (uint32); raises FormatError if it has no SPIR-V header, LimitError if it is too long."""
    if len(code) > MAX_BYTES:
        raise LimitError(
            where, "too long for a kernel", got=counted(len(code), "byte"), need=f"<= {MAX_BYTES}"
        )
    magic, size = code[:4], counted(len(code), "byte")
    if magic != MAGIC.to_bytes(4, "little"):
        got = f"magic {int.from_bytes(magic, 'little'):#010x}" if len(magic) == 4 else size
        raise FormatError(where, "not SPIR-V", got=got, need=f"{MAGIC:#010x}")
    if len(code) < 4 * HEADER_WORDS or len(code) % 4:
        need = f"whole words, a header of {HEADER_WORDS} or more"
        raise FormatError(where, "the file is cut off", got=size, need=need)
    return np.frombuffer(code, "<u4")


class _Reader:
    """The walk of `Module.parse` over the words behind the header."""

    def __init__(self, module: Module, words: list[int]) -> None:
        self.module, self.words = module, words
        self.at = HEADER_WORDS
        self.section = Section.CAPABILITY
        self.body: list[Instruction] | None = None  # the function that is open
        self.made: set[int] = set()

    def wrong(self, what: str, *, got: object = None, need: object = None) -> FormatError:
        return self.module.error(f"word {self.at}: {what}", got=got, need=need)

    def run(self) -> None:
        words, size = self.words, len(self.words)
        while self.at < size:
            head = words[self.at]
            op, length = head & 0xFFFF, head >> 16
            if not 1 <= length <= size - self.at:
                cut = f"length of {name_of(op)}" if not length else f"the file is cut off in {name_of(op)}"
                raise self.wrong(cut, got=length, need=f"1 to {counted(size - self.at, 'word')}")
            row = Instruction(op, tuple(words[self.at + 1 : self.at + length]))
            self.check(row)
            self.place(row)
            self.at += length
        if self.body is not None:
            raise self.wrong("the file is cut off: a function has no end", need="OpFunctionEnd")

    def check(self, row: Instruction) -> None:
        """Enough operands, and a result that is new and below the bound."""
        grammar = GRAMMAR.get(row.op)
        if grammar is None:
            return
        if len(row.args) < grammar.least:
            raise self.wrong(
                f"{grammar.name} is cut short", got=f"{len(row.args)} operands", need=f">= {grammar.least}"
            )
        if grammar.result_at >= 0:
            made = row.args[grammar.result_at]
            if not 0 < made < self.module.bound:
                raise self.wrong(f"result of {grammar.name}", got=made, need=f"1 to {self.module.bound - 1}")
            if made in self.made:
                raise self.wrong(f"{grammar.name} makes an id again", got=f"%{made}", need="a new id")
            self.made.add(made)

    def place(self, row: Instruction) -> None:
        """Put the instruction where it belongs; refuse it where it may not stand."""
        section, op = SECTION_OF.get(row.op), row.op
        if section is not None:
            if self.module.functions or section < self.section:
                raise self.wrong(
                    f"{row.name} stands too late", need=f"it among the {section.name.lower()} rows"
                )
            self.section = section
            self.module.sections[section].append(row)
        elif op == Op.FUNCTION:
            if self.body is not None:
                raise self.wrong("a function inside a function", need="OpFunctionEnd before it")
            self.body = [row]
            self.module.functions.append(self.body)
        elif self.body is not None:
            self.body.append(row)
            if op == Op.FUNCTION_END:
                self.body = None
        elif self.module.functions:
            # lines and debug information between two functions stay behind the first of them
            self.module.functions[-1].append(row)
        else:
            self.section = Section.GLOBAL
            self.module.globals.append(row)
