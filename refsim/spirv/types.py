"""Types and decorations of a module: what lies where in a buffer, and how GLSL would call it."""

from __future__ import annotations

from typing import NamedTuple

from refsim.core.counted import counted
from refsim.spirv.instruction import Instruction
from refsim.spirv.module import MAX_DEPTH, Module
from refsim.spirv.opcodes import Decoration, Op

MAX_MEMBERS = 4096
MAX_BYTES = 1 << 40  # of one block: more than any device has, and far below what 64 bits hold


class Member(NamedTuple):
    """A member of a block: its name ("" without OpName), its type as in GLSL, its offset in bytes, its size.

    ``nbytes`` of a runtime array is 0; ``stride`` is the bytes from one element of an array to the next, else 0.
    """

    name: str
    type: str
    offset: int
    nbytes: int
    stride: int


class Types:
    """Questions about the types of one module; sees what the module held when this was made.

    All of them raise FormatError where an id is no type, or a type holds itself.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.rows = module.definitions()
        self.names: dict[int, str] = {}
        self.member_names: dict[tuple[int, int], str] = {}
        self.decorations: dict[int, dict[int, tuple[int, ...]]] = {}
        self.member_decorations: dict[tuple[int, int], dict[int, tuple[int, ...]]] = {}
        for row in module.instructions():
            if row.op == Op.NAME:
                self.names[row.args[0]] = row.text(1)
            elif row.op == Op.MEMBER_NAME:
                self.member_names[row.args[0], row.args[1]] = row.text(2)
            elif row.op == Op.DECORATE:
                self.decorations.setdefault(row.args[0], {})[row.args[1]] = row.args[2:]
            elif row.op == Op.MEMBER_DECORATE:
                target, member, kind = row.args[:3]
                self.member_decorations.setdefault((target, member), {})[kind] = row.args[3:]
            elif row.op in (Op.GROUP_DECORATE, Op.GROUP_MEMBER_DECORATE):
                raise module.refusal(
                    "decoration groups", need="a decoration for each id (spirv-opt expands groups)"
                )
            elif row.op == Op.FUNCTION:
                break
        self._sizes: dict[int, int] = {}
        self._texts: dict[int, str] = {}
        self._members: dict[int, tuple[Member, ...]] = {}

    def row(self, number: int, *ops: int) -> Instruction:
        """The instruction that makes an id; FormatError if there is none, or if it is none of ``ops``."""
        found = self.rows.get(number)
        if found is None:
            raise self.module.error("nothing makes an id that is used", got=f"%{number}")
        if ops and found.op not in ops:
            raise self.module.error(f"%{number} is something else", got=found.name)
        return found

    def decoration(self, number: int, kind: int, default: int | None = None) -> int | None:
        """The first literal of a decoration of an id, ``default`` without it."""
        found = self.decorations.get(number, {}).get(kind)
        return default if not found else found[0]

    def has(self, number: int, kind: int) -> bool:
        return kind in self.decorations.get(number, {})

    def pointee(self, pointer: int) -> int:
        """The type that a pointer type points to."""
        return self.row(pointer, Op.TYPE_POINTER).args[2]

    def length(self, number: int) -> int:
        """The value of a constant that says how long an array is; the default of a specialization constant."""
        row = self.row(number)
        if row.op not in (Op.CONSTANT, Op.SPEC_CONSTANT):
            raise self.module.refusal("an array's length is computed", got=row.name, need="a constant")
        return row.args[2]

    def text(self, number: int) -> str:
        """A type as GLSL writes it: ``int``, ``uvec4``, ``float16_t``, ``int[3]``, ``vec4[]``; structs by name."""
        return self._text(number, 0)

    def _text(self, number: int, depth: int) -> str:
        if number not in self._texts:
            self._texts[number] = self._spelled(number, depth)
        return self._texts[number]

    def _spelled(self, number: int, depth: int) -> str:
        row = self.row(number)
        if depth > MAX_DEPTH:
            raise self.module.error("types are nested too deeply", need=f"<= {MAX_DEPTH} levels")
        if row.op == Op.TYPE_BOOL:
            return "bool"
        if row.op == Op.TYPE_INT:
            plain = "int" if row.args[2] else "uint"
            return plain if row.args[1] == 32 else f"{plain}{row.args[1]}_t"
        if row.op == Op.TYPE_FLOAT:
            return "float" if row.args[1] == 32 else f"float{row.args[1]}_t"
        if row.op == Op.TYPE_VECTOR:
            return _vector(self._text(row.args[1], depth + 1), row.args[2])
        if row.op == Op.TYPE_MATRIX:
            column = self.row(row.args[1], Op.TYPE_VECTOR)
            return f"mat{row.args[2]}x{column.args[2]}"
        if row.op == Op.TYPE_ARRAY:
            return f"{self._text(row.args[1], depth + 1)}[{self.length(row.args[2])}]"
        if row.op == Op.TYPE_RUNTIME_ARRAY:
            return f"{self._text(row.args[1], depth + 1)}[]"
        if row.op == Op.TYPE_STRUCT:
            return self.names.get(number, "") or "struct"
        return row.name.removeprefix("OpType").lower()

    def nbytes(self, number: int) -> int:
        """The bytes that a type takes in a block with explicit offsets and strides; 0 for a runtime array."""
        return self._nbytes(number, 0)

    def _nbytes(self, number: int, depth: int) -> int:
        if number in self._sizes:
            return self._sizes[number]
        if depth > MAX_DEPTH:
            raise self.module.error("types are nested too deeply", need=f"<= {MAX_DEPTH} levels")
        row = self.row(number)
        if row.op in (Op.TYPE_INT, Op.TYPE_FLOAT):
            size = row.args[1] // 8
        elif row.op in (Op.TYPE_VECTOR, Op.TYPE_MATRIX):
            size = row.args[2] * self._nbytes(row.args[1], depth + 1)
        elif row.op == Op.TYPE_ARRAY:
            size = self.length(row.args[2]) * self.stride(number, depth)
        elif row.op == Op.TYPE_STRUCT:
            sizes = (
                self._offset(number, i) + self._member(number, i, depth) for i in range(len(row.args) - 1)
            )
            size = max(sizes, default=0)
        elif row.op == Op.TYPE_RUNTIME_ARRAY:
            size = 0
        elif row.op == Op.TYPE_POINTER:
            size = 8  # a physical address
        else:
            raise self.module.error(f"%{number} has no size", got=row.name)
        if size > MAX_BYTES:
            raise self.module.error(
                f"%{number} is too large", got=counted(size, "byte"), need=f"<= {MAX_BYTES}"
            )
        self._sizes[number] = size
        return size

    def _offset(self, struct: int, member: int) -> int:
        found = self.member_decorations.get((struct, member), {}).get(Decoration.OFFSET, ())
        return found[0] if found else 0

    def _member(self, struct: int, member: int, depth: int) -> int:
        """The bytes of a member; a matrix has its stride as a decoration of the member."""
        number = self.rows[struct].args[member + 1]
        row = self.row(number)
        decorations = self.member_decorations.get((struct, member), {})
        stride = decorations.get(Decoration.MATRIX_STRIDE)
        if row.op != Op.TYPE_MATRIX or not stride:
            return self._nbytes(number, depth + 1)
        column = self.row(row.args[1], Op.TYPE_VECTOR)
        columns, rows, scalar = row.args[2], column.args[2], self._nbytes(column.args[1], depth + 1)
        if Decoration.ROW_MAJOR in decorations:
            columns, rows = rows, columns
        return (columns - 1) * stride[0] + rows * scalar

    def stride(self, number: int, depth: int = 0) -> int:
        """Bytes from one element of an array type to the next."""
        found = self.decoration(number, Decoration.ARRAY_STRIDE)
        return found if found is not None else self._nbytes(self.rows[number].args[1], depth + 1)

    def members(self, struct: int) -> tuple[Member, ...]:
        """The members of a struct type."""
        if struct not in self._members:
            self._members[struct] = self._listed(struct)
        return self._members[struct]

    def _listed(self, struct: int) -> tuple[Member, ...]:
        row = self.row(struct, Op.TYPE_STRUCT)
        if len(row.args) > MAX_MEMBERS:
            raise self.module.refusal("a block", got=f"{len(row.args) - 1} members", need=f"< {MAX_MEMBERS}")
        found = []
        for place, number in enumerate(row.args[1:]):
            array = self.row(number).op in (Op.TYPE_ARRAY, Op.TYPE_RUNTIME_ARRAY)
            found.append(
                Member(
                    self.member_names.get((struct, place), ""),
                    self.text(number),
                    self._offset(struct, place),
                    self._member(struct, place, 0),
                    self.stride(number) if array else 0,
                )
            )
        return tuple(found)


def _vector(component: str, size: int) -> str:
    prefix = {"float": "", "int": "i", "uint": "u", "bool": "b", "float16_t": "f16", "float64_t": "d"}
    return f"{prefix[component]}vec{size}" if component in prefix else f"{component}x{size}"
