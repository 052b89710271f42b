"""Subscripts of SPIR-V modules that are constants, and those of them that lie outside of what they go into.

A device may forgive them: it takes the last element, another variable's, or nothing. Then no byte shows them.
Loops are unrolled in the modules, so most subscripts of a kernel's own arrays and vectors are constants.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import specialized
from specialized import Specialized

from refsim.core.counted import counted
from refsim.core.errors import FormatError, MissingDependencyError
from refsim.spirv.instruction import Instruction
from refsim.spirv.lines import WRITES, Lines
from refsim.spirv.module import Module
from refsim.spirv.opcodes import Op
from refsim_gpu import build_shaders

EXTRACT_DYNAMIC, INSERT_DYNAMIC = 77, 78
#: Opcode -> where the id stands that subscripts go into, and which operands are subscripts.
SUBSCRIPTS = {
    Op.ACCESS_CHAIN: (2, slice(3, None)),
    Op.IN_BOUNDS_ACCESS_CHAIN: (2, slice(3, None)),
    EXTRACT_DYNAMIC: (2, slice(3, 4)),
    INSERT_DYNAMIC: (2, slice(4, 5)),
}
CONSTANTS = (Op.CONSTANT, Op.CONSTANT_NULL, Op.SPEC_CONSTANT, specialized.SPEC_CONSTANT_OP)
#: Type -> what its elements are called; a vector and a matrix hold their number, an array the id of it.
ELEMENTS = {
    Op.TYPE_VECTOR: ("a vector", "component"),
    Op.TYPE_MATRIX: ("a matrix", "column"),
    Op.TYPE_ARRAY: ("an array", "element"),
    Op.TYPE_RUNTIME_ARRAY: ("an array", "element"),
}


class Outside(NamedTuple):
    """A subscript that lies outside, what it goes into, and where the instruction is.

    It is ``module.functions[function][row]``.
    """

    subscript: int
    of: str
    instruction: str
    writes: bool
    function: int
    row: int


def outside(types: Specialized) -> Iterator[Outside]:
    """The constant subscripts of a build that lie outside, in the order of its instructions."""
    for number, body in enumerate(types.module.functions):
        written = {row.args[WRITES[row.op]] for row in body if row.op in WRITES}
        for index, row in enumerate(body):
            if row.op in SUBSCRIPTS:
                at, places = SUBSCRIPTS[row.op]
                writes = row.op == INSERT_DYNAMIC or row.result in written
                for subscript, of in _wrong(types, types.row(row.args[at]).type, row.args[places]):
                    yield Outside(subscript, of, row.name, writes, number, index)


def _wrong(types: Specialized, kind: int, subscripts: Sequence[int]) -> Iterator[tuple[int, str]]:
    """(subscript, what it goes into) of those outside, from a type inwards."""
    if types.row(kind).op == Op.TYPE_POINTER:
        kind = types.pointee(kind)
    for each in subscripts:
        row, index = types.row(kind), types.row(each)
        if row.op == Op.TYPE_STRUCT:  # spirv-val refuses a member that is not there
            kind = row.args[1 + types.length(each)]
            continue
        if index.op in CONSTANTS:
            value = types.length(each)
            if types.row(index.type, Op.TYPE_INT).args[2]:
                value = specialized.signed(value)
            size = _size(types, row)
            if value < 0 or (size is not None and value >= size):
                what, element = ELEMENTS[row.op]
                yield value, f"{what}{f' of {counted(size, element)}' if size is not None else ''}"
        kind = row.args[1]


def _size(types: Specialized, row: Instruction) -> int | None:
    """How many elements a type has; None of a runtime array."""
    if row.op == Op.TYPE_RUNTIME_ARRAY:
        return None
    return types.length(row.args[2]) if row.op == Op.TYPE_ARRAY else row.args[2]


def told(name: str, found: Outside, place: str) -> str:
    """What is said of a subscript of a module."""
    what = "write" if found.writes else "read"
    return f"{what} out of bounds: {name}: subscript {found.subscript} of {found.of} in {place} ({found.instruction})"


@cache
def sources() -> dict[str, build_shaders.Row]:
    """Name of a module, as `refsim_gpu.spirv` loads it -> what it is built from."""
    rows = (*build_shaders.variants(), *build_shaders.coop_variants())
    return {
        row[1].relative_to(build_shaders.SHADERS / "spirv").with_suffix("").as_posix(): row for row in rows
    }


def source_of(name: str, found: Outside, spec: Mapping[int, int]) -> str:
    """The line of the sources that has a subscript; the shader alone where no compiler is there to say it.

    The modules hold no lines, so this one is built once more with them.
    """
    source, _, options = sources()[name]
    with tempfile.TemporaryDirectory() as scratch:
        try:
            code = build_shaders.compile_one(source, (*options, "-g"), Path(scratch))
        except (FormatError, MissingDependencyError):
            return _short(source)
    module = Module.parse(code, name)
    same = (each for each in outside(Specialized(module, spec)) if each[:4] == found[:4])
    places = Lines(module).places
    place = next((places[each[4:]] for each in same if each[4:] in places), None)
    return _short(source) if place is None else f"{_short(Path(place.file))}:{place.line}"


def _short(path: Path) -> str:
    """A path of the sources as messages have it."""
    return f"shaders/{path.relative_to(build_shaders.SHADERS)}"
