"""What the flat meanings share: how arguments are read, and how a real value becomes a byte."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from refsim.core.qmath import QMAX, QMIN, wrap32
from refsim.ops.base.arg import Arrays
from refsim.ops.base.spec import OpSpec
from refsim.ops.base.target import Target

F32 = np.float32
#: The float just below 2^31: what a float beyond int32 is clamped to before it is converted.
_LARGEST = F32(2147483520)
_LEAST = F32(-(2.0**31))

#: Letter of a signature -> the type of value that the runtime reads there. Of a value of another type it reads 0, or
#: false.
SCALARS: Mapping[str, type] = {"d": float, "i": int, "b": bool}


@dataclass(frozen=True)
class FlatOp:
    """An operator's flat meaning.

    ``takes`` names the arguments in serialized order, as ``name:kind``: ``t`` a tensor, ``d``, ``i`` and ``b`` a scalar
    that is read as a double, an int or a truth value, ``l`` a list, ``-`` what is not read. ``run(target, shapes,
    **arguments)`` gives an array for each output; ``shapes`` are those that the file declares. ``otherwise``: in a few
    words, where ET-VK's kernel rounds in another way.
    """

    name: str
    takes: tuple[tuple[str, str], ...]
    run: Callable[..., tuple[np.ndarray, ...]]
    otherwise: str = ""


#: Why the bytes of a requantized value may be others.
INVERSE = "1 / scale is divided in binary64 and rounded once"
SCALED = "(sum * input scale) * weight scale, in this order"
PRODUCTS = f"{SCALED}; {INVERSE}"


def flat(name: str, takes: str, run: Callable[..., tuple[np.ndarray, ...]], otherwise: str = "") -> FlatOp:
    """A row: ``takes`` is a line of ``name:kind``."""
    pairs = (part.split(":") for part in takes.split())
    return FlatOp(name, tuple((name, kind) for name, kind in pairs), run, otherwise)


@dataclass(frozen=True)
class FlatMeaning:
    """A node of a flat graph: one output of an operator. ``upstream`` says what the runtime reads in another way than
    the file means it."""

    op: OpSpec
    flat: FlatOp
    given: Mapping[str, Any]
    target: Target
    shapes: tuple[tuple[int, ...], ...]
    output: int = 0
    upstream: str | None = None

    @property
    def params(self) -> SimpleNamespace:
        """The parameters by name, as the runtime reads them."""
        return SimpleNamespace(**self.given)

    @property
    def consts(self) -> Mapping[str, np.ndarray | None]:
        """None: constants are inputs here."""
        return {}

    def run(self, arrays: Arrays) -> np.ndarray:
        """The output as a logical array, from the tensors by name."""
        with np.errstate(all="ignore"):
            found = self.flat.run(self.target, self.shapes, **self.given, **arrays)[self.output]
        return found.reshape(self.shapes[self.output])


def read_scalar(kind: str, value: Any) -> float | int:
    """A scalar as the runtime reads it: 0 where its type is another one."""
    wanted = SCALARS[kind]
    return wanted(value) if type(value) is wanted else wanted(0)


def inverse(scale: float) -> np.float32:
    """1 / scale, divided in binary64 and rounded once; infinite for a scale of 0."""
    return F32(np.float64(1.0) / np.float64(scale))


def real(q: np.ndarray, zp: int, scale: float) -> np.ndarray:
    """f32(q - zp) * scale."""
    return (q.astype(np.int32) - np.int32(zp)).astype(F32) * F32(scale)


def requant(y: np.ndarray, inv: np.float32, zp: int) -> np.ndarray:
    """clamp(i32(rne(y * inv)) + zp, -128, 127), as int8. The integer may wrap; NaN converts to the least one."""
    rounded = np.rint(y * inv)
    whole = np.clip(np.where(np.isnan(rounded), _LEAST, rounded), _LEAST, _LARGEST).astype(np.int64)
    return np.clip(wrap32(whole + zp), QMIN, QMAX).astype(np.int8)


def misread(row: FlatOp, args: tuple[Any, ...]) -> str | None:
    """The scalars of a call that the runtime does not read, in words; None if it reads all."""
    found = [
        f"{name} is {arg!r}, stored as {'a double' if type(arg) is float else 'an integer'}; the runtime reads 0"
        for (name, kind), arg in zip(row.takes, args, strict=False)
        if kind in SCALARS and type(arg) is not SCALARS[kind] and arg != 0
    ]
    return "; ".join(found) or None
