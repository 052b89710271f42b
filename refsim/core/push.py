"""What a kernel is launched with besides its buffers, by name: push words and specialization words.

An operator names them once, as two rows of fields:

    PUSH = PushWords(tensor("OUT"), tensor("X"), float32("IN_SCALE"), int32("IN_ZP"))
    SPEC = SpecWords(hashed("OUT"), hashed("X"))

All else follows from the rows. The emulated kernel reads at `Words.offsets`. A launch packs its values by name. Each
word has a name for people. `refsim_gpu.build_push` writes the same offsets and constant ids as GLSL for the shader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refsim.core import choices
from refsim.core.errors import LimitError, ParameterError
from refsim.core.layout import DIM_NAMES
from refsim.core.tensor import TensorDesc

MAX_PUSH_WORDS = 32  # Vulkan guarantees 128 bytes
Packed = tuple[int, ...]


def _is_int(value: Any, least: int, most: int) -> bool:
    return (
        isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(least <= value <= most)
    )


def _int(value: Any) -> Packed | None:
    return (int(value) & 0xFFFFFFFF,) if _is_int(value, -(1 << 31), (1 << 31) - 1) else None


def _uint(value: Any) -> Packed | None:
    return (int(value),) if _is_int(value, 0, (1 << 32) - 1) else None


def _float(value: Any) -> Packed | None:
    return (int(np.float32(value).view(np.uint32)),) if isinstance(value, float | np.floating) else None


def _pair(value: Any) -> Packed | None:
    if not isinstance(value, tuple | list) or len(value) != 2:
        return None
    first, second = map(_int, value)
    return None if first is None or second is None else first + second


def _of_tensor(words: Callable[[TensorDesc], Packed]) -> Callable[[Any], Packed | None]:
    return lambda value: words(value) if isinstance(value, TensorDesc) else None


@dataclass(frozen=True)
class FieldType:
    """A type of field: its type in a shader, its words (None: of a value of another type), what it needs in words.

    ``parts`` are what is added to the field's own name to name each of its words. If it is ``whole``, a shader knows
    only the first word by name.
    """

    glsl: str
    words: Callable[[Any], Packed | None]
    need: str
    parts: tuple[str, ...] = ("",)
    whole: bool = False


_META = tuple(f"_{dim}{what}" for what in ("", "_STRIDE") for dim in DIM_NAMES)
INT = FieldType("int", _int, "an integer of 32 bits")
UINT = FieldType("uint", _uint, "an unsigned integer of 32 bits")
FLOAT = FieldType("float", _float, "a floating point number")
PAIR = FieldType("int", _pair, "two integers, height and width", ("_H", "_W"))
TENSOR = FieldType("tensor", _of_tensor(lambda desc: desc.meta), "a tensor", _META, whole=True)
HASHED = FieldType("uint", _of_tensor(lambda desc: (desc.hashed,)), "a tensor")
BOOL = FieldType("bool", lambda value: (int(value),) if isinstance(value, bool) else None, "a truth value")
VECTORS = FieldType("bool", _of_tensor(lambda desc: (int(desc.vectors),)), "a tensor")


@dataclass(frozen=True)
class Field:
    """One named value of a row.

    ``argument`` names the tensor among the operator's arguments that the value comes from, if it does. ``bits`` are
    the names of an integer's bits, or of its values. ``default`` is the value of a specialization constant that nobody
    sets.
    """

    name: str
    type: FieldType
    argument: str = ""
    bits: Mapping[str, int] = field(default_factory=dict)
    default: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each word."""
        return tuple(self.name + part for part in self.type.parts)

    @property
    def constants(self) -> tuple[str, ...]:
        """The names by which kernels find words, from the first word on."""
        return (self.name,) if self.type.whole else self.names

    def words(self, value: Any) -> Packed:
        """The unsigned words of a value; ParameterError if it is of another type."""
        found = self.type.words(value)
        if found is None:
            raise ParameterError(self.name, "has the wrong type", got=repr(value)[:80], need=self.type.need)
        return found


def int32(name: str) -> Field:
    """An integer, two's complement."""
    return Field(name, INT)


def uint32(name: str, default: int = 0) -> Field:
    """An unsigned integer."""
    return Field(name, UINT, default=default)


def float32(name: str) -> Field:
    """A number, as the bits of its binary32."""
    return Field(name, FLOAT)


def flags(name: str, **bits: int) -> Field:
    """An integer whose bits have names."""
    return Field(name, INT, bits=bits)


def pair(name: str) -> Field:
    """Two integers, (height, width): the words NAME_H and NAME_W."""
    return Field(name, PAIR)


def tensor(name: str) -> Field:
    """Eight words: the sizes of a tensor, then its strides in blocks, each in WHCN order.

    The name is that of the operator's argument, in capitals.
    """
    return Field(name, TENSOR, name.lower())


def one_of(name: str, **values: int) -> Field:
    """An unsigned integer that is one of these values, each with a name."""
    return Field(name, UINT, bits=values)


def switch(name: str) -> Field:
    """A truth value."""
    return Field(name, BOOL)


def hashed(name: str) -> Field:
    """NAME_HASH, the layout of the tensor NAME as `refsim.core.index` reads it."""
    return Field(f"{name}_HASH", HASHED, name.lower())


def vectors(name: str) -> Field:
    """NAME_VECTORS, whether four neighbours of the tensor NAME are read or written as one vector."""
    return Field(f"{name}_VECTORS", VECTORS, name.lower())


class Words:
    """A row of fields, one behind the other; ``at`` is the place of each constant that kernels use."""

    def __init__(self, *fields: Field) -> None:
        self.fields = fields
        self.at: dict[str, int] = {}
        self._count = 0
        for each in fields:
            for place, name in enumerate(each.constants, self._count):
                if name in self.at:
                    raise ParameterError("words", "two have one name", got=name)
                self.at[name] = place
            self._count += len(each.type.parts)

    def __len__(self) -> int:
        return self._count

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each word."""
        return tuple(name for each in self.fields for name in each.names)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where kernels read: one number for a tensor, one for each word of every other field."""
        return tuple(self.at.values())

    def pack(self, tensors: Mapping[str, TensorDesc], /, **values: object) -> Packed:
        """The unsigned words of a launch: ``tensors`` by the names of their arguments, everything else by its own.

        Raises ParameterError if a value is missing, not of the row, or of another type.
        """
        packed: list[int] = []
        for each in self.fields:
            source: Mapping[str, object] = tensors if each.argument else values
            name = each.argument or each.name
            if name not in source:
                raise ParameterError(each.name, "is missing", need=each.type.need)
            packed += each.words(source[name])
        if unknown := values.keys() - {each.name for each in self.fields if not each.argument}:
            raise ParameterError(
                ", ".join(sorted(unknown)), "no such word", need=choices.need(min(unknown), self.names)
            )
        return tuple(packed)


class PushWords(Words):
    """The push words of a kernel, at most `MAX_PUSH_WORDS`."""

    def __init__(self, *fields: Field) -> None:
        super().__init__(*fields)
        if len(self) > MAX_PUSH_WORDS:
            raise LimitError("push words", "too many", got=len(self), need=f"<= {MAX_PUSH_WORDS}")


class SpecWords(Words):
    """The specialization words of a kernel; their constant ids count from ``first``."""

    def __init__(self, *fields: Field, first: int | None = None) -> None:
        super().__init__(*fields)
        self.first = len(LAUNCH) if first is None else first

    @property
    def ids(self) -> dict[str, int]:
        """The constant id of each word."""
        return {name: self.first + place for name, place in self.at.items()}


#: What every kernel is specialized with before its own words: invocations of a workgroup, elements of an invocation.
LAUNCH = SpecWords(*(uint32(f"{what}_{axis}", 1) for what in ("LOCAL", "TILE") for axis in "XYZ"), first=0)
