"""One SPIR-V instruction: its opcode and operand words, the strings and the ids among them."""

from __future__ import annotations

import struct
from typing import NamedTuple

from refsim.core.errors import UnsupportedError
from refsim.spirv.opcodes import GRAMMAR, name_of


class Instruction(NamedTuple):
    """One instruction: its opcode, and its operand words without the word that holds opcode and length."""

    op: int
    args: tuple[int, ...]

    @property
    def result(self) -> int:
        """The id that it makes, 0 if none."""
        row = GRAMMAR.get(self.op)
        return self.args[row.result_at] if row is not None and row.result_at >= 0 else 0

    @property
    def type(self) -> int:
        """The id of its result's type, 0 if it has none."""
        row = GRAMMAR.get(self.op)
        return self.args[row.type_at] if row is not None and row.type_at >= 0 else 0

    @property
    def name(self) -> str:
        return name_of(self.op)

    @property
    def disassembled(self) -> str:
        """As a disassembler writes it; by its name alone, if the table lacks it."""
        row = GRAMMAR.get(self.op)
        if row is None:
            return self.name
        ids = set(self.id_places())
        words = [
            f"%{word}" if at in ids else str(word) for at, word in enumerate(self.args) if at != row.result_at
        ]
        return " ".join(([f"%{self.result} ="] if self.result else []) + [self.name, *words])

    def with_args(self, *args: int) -> Instruction:
        return Instruction(self.op, args)

    def text(self, at: int) -> str:
        """The string operand that starts at word ``at``; bytes that are not UTF-8 become replacement characters."""
        return string_at(self.args, at)[0]

    def id_places(self, wide: bool = False) -> list[int]:
        """Where ids stand among ``args``, the result's included. ``wide``: an OpSwitch over 64-bit literals.

        Raises UnsupportedError for an instruction that the table lacks.
        """
        row = GRAMMAR.get(self.op)
        if row is None:
            raise UnsupportedError(
                self.name, "its operands are not known", need="an instruction of opcodes.py"
            )
        return _places(row.pattern, self.args, 0, wide)

    def renamed(self, ids: dict[int, int], wide: bool = False) -> Instruction:
        """The same with other ids; those that ``ids`` lacks stay."""
        args = list(self.args)
        for place in self.id_places(wide):
            args[place] = ids.get(args[place], args[place])
        return Instruction(self.op, tuple(args))


def string_at(args: tuple[int, ...], at: int) -> tuple[str, int]:
    """The string that starts at word ``at``, and the place behind its last word."""
    raw = struct.pack(f"<{len(args[at:])}I", *args[at:])
    end = raw.find(b"\0")
    if end < 0:
        end = len(raw)
    return raw[:end].decode("utf-8", "replace"), at + end // 4 + 1


def string_words(text: str) -> tuple[int, ...]:
    """A string as operand words: UTF-8, a zero byte, zeros up to whole words."""
    raw = text.encode() + b"\0"
    raw += b"\0" * (-len(raw) % 4)
    return struct.unpack(f"<{len(raw) // 4}I", raw)


def _places(pattern: str, args: tuple[int, ...], at: int, wide: bool) -> list[int]:
    """The walk of `Instruction.id_places` over one pattern, from operand ``at`` on."""
    found: list[int] = []
    for number, letter in enumerate(pattern):
        if letter in "?*":
            continue
        rest = pattern[number + 1 : number + 2] == "*"
        if at >= len(args):
            break
        if letter in "tri":
            stop = len(args) if rest else at + 1
            found += range(at, stop)
            at = stop
        elif letter == "n":
            at = len(args) if rest else at + 1
        elif letter == "s":
            at = string_at(args, at)[1]
        elif letter == "m":
            mask, at = args[at], at + 1
            at += bool(mask & 2)  # Aligned has a literal
            # MakePointerAvailable and MakePointerVisible have a scope each
            scopes = bool(mask & 8) + bool(mask & 16)
            found += range(at, min(at + scopes, len(args)))
            at += scopes
        elif letter == "o":
            inner = GRAMMAR.get(args[at])
            if inner is None:
                raise UnsupportedError(
                    "OpSpecConstantOp", "its operation is not known", got=name_of(args[at])
                )
            found += _places(inner.pattern.lstrip("tr"), args, at + 1, wide)
            at = len(args)
        elif letter == "w":
            found += range(at + 1 + wide, len(args), 2 + wide)
            at = len(args)
        else:
            found += range(at, len(args), 2)
            at = len(args)
    return found
