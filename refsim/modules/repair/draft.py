"""What an edit does at one instruction, and how its values are called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from refsim.modules.repair import kinds
from refsim.modules.repair.code import Code, Leaf, Site
from refsim.spirv.instruction import Instruction
from refsim.spirv.opcodes import Op


class Change(NamedTuple):
    """What is done at one instruction.

    ``rows`` come before it; what they make has ids below 0. ``places`` are operands that get other ids. ``instead``
    stands in its place, and makes the same result.
    """

    site: Site
    rows: tuple[Instruction, ...] = ()
    places: tuple[tuple[int, int], ...] = ()
    instead: Instruction | None = None


#: Makes a change at an instruction or at a copy of it; None for a copy that is not alike enough.
Make = Callable[[Site, Instruction], Change | None]


class Draft(NamedTuple):
    """An edit of an instruction as it is made at each of its copies.

    Where it puts one value in the place of another, and the host of a call knows that value, ``known`` is the constant
    (its id), or what is loaded.
    """

    said: str
    rank: int
    make: Make
    chosen: bool = True
    known: Leaf | int = 0


@dataclass(frozen=True)
class Edit:
    """One edit: ``said`` in words, and what it does at each copy of the instruction.

    ``rank`` orders edits, small ones first. Where it is not ``chosen``, it cannot be one of many in a module.
    ``known`` is as in `Draft`. ``marks`` are decorations, each with its other number.
    """

    said: str
    rank: int
    changes: tuple[Change, ...]
    chosen: bool = True
    known: Leaf | int = 0
    marks: tuple[tuple[Instruction, int], ...] = ()


def place(at: int, value: int, rows: tuple[Instruction, ...] = ()) -> Make:
    """Another value in the place of an operand."""
    return lambda site, old: Change(site, rows, ((at, value),))


def word(at: int, value: int, rows: tuple[Instruction, ...] = ()) -> Make:
    """Another instruction, which differs in one word."""
    return lambda site, old: Change(
        site, rows, instead=old.with_args(*old.args[:at], value, *old.args[at + 1 :])
    )


def exchange(a: int, b: int) -> Make:
    """Two operands exchanged."""
    return lambda site, old: Change(site, (), ((a, old.args[b]), (b, old.args[a])))


def copy(at: int) -> Make:
    """One of the operands in the place of the result."""
    return lambda site, old: Change(
        site, instead=Instruction(Op.COPY_OBJECT, (old.type, old.result, old.args[at]))
    )


def instead(op: int, *args: int) -> Make:
    """Another instruction with the same result, of these operands, or of those that there were."""
    return lambda site, old: Change(
        site, instead=Instruction(op, (old.type, old.result, *(args or old.args[2:])))
    )


def called(code: Code, value: int) -> str:
    """A value as people call it: a number, a name, or what was loaded."""
    number = code.number(value)
    if number is not None:
        return f"{number:g}" if isinstance(number, float) else str(number)
    name = code.types.names.get(value)
    if name:
        return name
    own = code.origin(value)
    if own is not None and own in code.leaf_at:
        return code.leaf_at[own].text
    row = code.rows.get(value)
    if row is not None and row.op == Op.LOAD:
        return called(code, row.args[2])
    return f"%{value}"


def in_place(code: Code, new: int | Leaf, old: int) -> str:
    """That one value stands in the place of another, in words."""
    return f"{new.text if isinstance(new, Leaf) else called(code, new)} in place of {called(code, old)}"


def operation(code: Code, row: Instruction) -> str:
    if row.op == Op.EXT_INST:
        return kinds.EXTENDED_SAID.get(row.args[3], row.name)
    if row.op == Op.FUNCTION_CALL:
        return code.types.names.get(row.args[2], "the call").partition("(")[0]
    return f'"{kinds.SAID[row.op]}"' if row.op in kinds.SAID else row.name
