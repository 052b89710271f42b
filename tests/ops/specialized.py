"""The arrays of every build of a shader as a device makes them: lengths with the launch's specialization constants.

An array that is longer than its kernel needs changes no byte. It only leaves room for fewer workgroups at a time. So
the lengths are written down, and a test compares.

python tests/ops/specialized.py --write   writes tests/data/arrays.txt anew, after an array was changed on purpose.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import launched

from refsim.core.launch import Launch
from refsim.ops.base.binding import bind
from refsim.ops.base.registry import OPS
from refsim.spirv.module import Module
from refsim.spirv.opcodes import Decoration, Op, StorageClass
from refsim.spirv.types import Types
from refsim_gpu import spirv

FILE = Path(__file__).parents[1] / "data" / "arrays.txt"
MASK = 0xFFFF_FFFF
#: Storage classes of a kernel's own arrays, and how their lines call them.
STORAGE = {StorageClass.WORKGROUP: "shared", StorageClass.PRIVATE: "private", StorageClass.FUNCTION: "own"}


def signed(word: int) -> int:
    return word - ((word & 0x8000_0000) << 1)


def _of_signed(what: Callable[[int, int], int]) -> Callable[..., int]:
    return lambda a, b: what(signed(a), signed(b))


def _quotient(a: int, b: int) -> int:
    """Of signed numbers, towards 0."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


#: Opcode -> what OpSpecConstantOp does with words; the result is cut to 32 bits. Booleans are 0 and 1.
OPERATIONS: dict[int, Callable[..., int]] = {
    113: lambda a: a, 114: lambda a: a, 124: lambda a: a,
    126: operator.neg, 200: operator.invert, 168: lambda a: 1 - a,
    128: operator.add, 130: operator.sub, 132: operator.mul, 134: operator.floordiv, 137: operator.mod,
    135: _of_signed(_quotient), 138: _of_signed(lambda a, b: a - b * _quotient(a, b)),
    139: _of_signed(operator.mod),
    164: operator.eq, 165: operator.ne, 166: operator.or_, 167: operator.and_,
    169: lambda condition, a, b: a if condition else b,
    170: operator.eq, 171: operator.ne,
    172: operator.gt, 173: _of_signed(operator.gt), 174: operator.ge, 175: _of_signed(operator.ge),
    176: operator.lt, 177: _of_signed(operator.lt), 178: operator.le, 179: _of_signed(operator.le),
    194: operator.rshift, 195: lambda a, b: signed(a) >> b, 196: operator.lshift,
    197: operator.or_, 198: operator.xor, 199: operator.and_,
}  # fmt: skip
CONSTANT_TRUE, CONSTANT_FALSE, SPEC_CONSTANT_OP = 41, 42, 52


class Specialized(Types):
    """The types of a module with specialization constants set: ``spec`` has their words by id, others are defaults."""

    def __init__(self, module: Module, spec: Mapping[int, int]) -> None:
        super().__init__(module)
        self._spec = spec

    def length(self, number: int) -> int:
        """The value of any constant of 32 bits."""
        row = self.row(number)
        own = self.decoration(number, Decoration.SPEC_ID)
        if own is not None and own in self._spec:
            return self._spec[own]
        if row.op == SPEC_CONSTANT_OP:
            done = OPERATIONS[row.args[2]](*(self.length(each) for each in row.args[3:]))
            return int(done) & MASK
        if row.op in (CONSTANT_TRUE, CONSTANT_FALSE, Op.SPEC_CONSTANT_TRUE, Op.SPEC_CONSTANT_FALSE):
            return int(row.op in (CONSTANT_TRUE, Op.SPEC_CONSTANT_TRUE))
        if row.op == Op.CONSTANT_NULL:
            return 0
        return self.row(number, Op.CONSTANT, Op.SPEC_CONSTANT).args[2]

    def arrays(self) -> Iterator[tuple[str, str, str, int]]:
        """(storage, name, type, its number) of every variable of a kernel's own that is an array."""
        for row in (*self.module.globals, *(row for body in self.module.functions for row in body)):
            if row.op == Op.VARIABLE and row.args[2] in STORAGE:
                kind = self.pointee(row.type)
                if self.row(kind).op == Op.TYPE_ARRAY:
                    yield STORAGE[row.args[2]], self.names.get(row.result, ""), self.text(kind), kind


def words(launch: Launch) -> tuple[int, ...]:
    """The specialization constants that a device gets with a launch."""
    return tuple(word & MASK for word in (*launch.local, *launch.tile, *launch.spec))


@cache
def module(name: str) -> Module:
    return Module.parse(spirv.load(name), name)


def line(name: str, launch: Launch) -> str:
    """A build with a launch's constants, the bytes that its workgroups share, and all its arrays."""
    types = Specialized(module(name), dict(enumerate(words(launch))))
    found = list(types.arrays())
    shared = sum(types.nbytes(kind) for storage, *_, kind in found if storage == "shared")
    # one array may be there several times, where what holds it is inlined
    arrays = sorted({f"{storage}:{name or '-'}:{kind}" for storage, name, kind, _ in found})
    sizes = "x".join(map(str, launch.local)) + " " + "x".join(map(str, launch.tile))
    return f"{name} {sizes}: {shared} bytes shared; " + " ".join(arrays)


def lines() -> list[str]:
    """A line for each build that has arrays, of `every`."""
    made = (line(name, launch) for name, launch in every())
    return [each for each in made if not each.endswith("; ")]


def every() -> list[tuple[str, Launch]]:
    """Each build and a launch of it, for each workgroup and tile among the launches of `launched`.

    Builds that no case there takes come with the sizes that they are for.
    """
    found: dict[tuple[str, tuple[int, ...]], Launch] = {}
    of_shader: dict[str, Launch] = {}
    for case in launched.cases():
        for step in bind(case).call.dispatches():
            of_shader.setdefault(step.launch.shader, step.launch)
            for name in builds(step.launch):
                found.setdefault((name, words(step.launch)[:6]), step.launch)
    taken = {name for name, _ in found}
    for shader, launch in of_shader.items():
        for build in OPS[shader].variants:
            if f"{shader}.{build.name}" not in taken:
                sizes = {each: getattr(build, each) for each in ("local", "tile") if hasattr(build, each)}
                other = replace(launch, variant=build.name, **sizes)
                found[f"{shader}.{build.name}", words(other)[:6]] = other
    return [(name, launch) for (name, _), launch in sorted(found.items())]


def builds(launch: Launch) -> Iterator[str]:
    """The builds that a device may take for a launch."""
    for ending in (launch.variant, "nodot"):
        name = f"{launch.shader}.{ending}"
        if ending and spirv.exists(name):
            yield name
    yield launch.shader


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        raise SystemExit(__doc__)
    FILE.write_text("\n".join(lines()) + "\n")
