"""Find the implementation of a float operator: the NumPy table first, torch if it is installed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from refsim.aten.allowed import PLACE, is_allowed
from refsim.aten.row import Float, Place
from refsim.aten.table import TABLE, row_of
from refsim.core.dtypes import BY_PROGRAM_CODE
from refsim.core.errors import GraphError, RefsimError, UnknownOperatorError
from refsim.core.extras import TORCH_FIX
from refsim.core.resize import Resize

_NAME = re.compile(r"^(?P<space>\w+)(?:\.|::)(?P<base>\w+)(?:\.(?P<overload>\w+))?$")


@dataclass(frozen=True)
class Operator:
    """An implementation: ``run(args, where)`` takes arrays and plain values, gives a tuple of arrays.

    ``row`` is the operator's in the table, None where torch must do. Nothing of torch is imported before a run.
    """

    name: str
    row: Float | None

    @property
    def source(self) -> str:
        """``float``, or ``torch`` if torch computes it."""
        return "torch" if self.row is None else "float"

    def run(self, args: Sequence[Any], where: str, place: Place | None = None) -> tuple[np.ndarray, ...]:
        """As ET-VK's shader computes at ``place``, or as a portable kernel does outside delegates (None).

        GraphError, naming the node, for arguments that the operator does not take. UnknownOperatorError if torch does
        not have the operator either.
        """
        try:
            function = _from_torch(self.name, where) if self.row is None else self.row.function(place)
            with np.errstate(all="ignore"):
                try:
                    result = function(*args)
                except TypeError:
                    if not any(map(_is_whole, args)):
                        raise
                    result = function(*whole(args))
        except RefsimError:
            raise
        except Exception as error:  # torch and NumPy raise what they like for arguments out of a damaged file
            who = "torch" if self.row is None else "refsim"
            raise GraphError(where, f"{who} refuses the arguments: {error}") from error
        return tuple(result) if isinstance(result, tuple | list) else (result,)

    def outlined(self, args: Sequence[Any], where: str) -> tuple[np.ndarray, ...]:
        """Arrays of the results' shapes; their elements mean nothing. Arguments and errors as for `run`."""
        if self.row is not None and self.row.outline is not None:
            with suppress(TypeError, ValueError, IndexError):
                args = self.row.outline(*args)
        return self.run(args, where)


def whole(args: Sequence[Any]) -> tuple[Any, ...]:
    """Arguments with 1 for 1.0: ExecuTorch's serializer stores both as one value, whichever came first."""
    return tuple(int(arg) if _is_whole(arg) else arg for arg in args)


def _is_whole(arg: Any) -> bool:
    return isinstance(arg, float) and arg.is_integer()


def _parts(name: str, where: str) -> tuple[str, str, str | None]:
    """Namespace, base name and overload."""
    match = _NAME.match(name)
    if match is None:
        raise UnknownOperatorError(
            where, "not an operator name", got=repr(name), need="namespace.name.overload"
        )
    return match["space"], match["base"], match["overload"]


def is_known(name: str) -> bool:
    """Whether the table has an operator, or torch may run it."""
    space, base, overload = _parts(name, name)
    return row_of(base, overload) is not None or is_allowed(space, base)


def find(name: str, where: str) -> Operator:
    """The implementation of ``aten.mean.dim`` or ``aten::mean.out``.

    UnknownOperatorError names the operator and the node if the table lacks it, and torch is not installed or must not
    run it (refsim.aten.allowed).
    """
    space, base, overload = _parts(name, where)
    row = row_of(base, overload)
    if row is None and find_spec("torch") is not None and not is_allowed(space, base):
        raise UnknownOperatorError(
            where, "not among the operators that torch may run for a file", got=name,
            need=f"one of the functions in {PLACE}",
        )  # fmt: skip
    if row is None and find_spec("torch") is None:
        raise UnknownOperatorError(
            where,
            "float operator without an implementation",
            got=name,
            need=f"one of the {len(TABLE)} that need no torch, or torch installed ({TORCH_FIX})",
        )
    return Operator(name, row)


def _row(name: str) -> Float | None:
    match = _NAME.match(name)
    return None if match is None else row_of(match["base"], match["overload"])


def defects(name: str, args: Sequence[Any]) -> tuple[str, ...]:
    """What ET-VK gets wrong for these arguments, in words. They are as for `Operator.run`, with shapes for tensors."""
    row = _row(name)
    found = []
    for defect in () if row is None else row.defects:
        # arguments out of a damaged file are refused where the operator runs
        with suppress(TypeError, ValueError, IndexError, ArithmeticError):
            found += [defect.note] if defect.applies(*args) else []
    return tuple(found)


def resize(name: str, args: Sequence[Any]) -> Resize | None:
    """What ET-VK gets wrong about the result's shape for these arguments, which are as for `defects`."""
    row = _row(name)
    if row is None or row.resize is None:
        return None
    with suppress(TypeError, ValueError, IndexError):
        return row.resize if row.resize.applies(*args) else None
    return None


def takes_prefix(name: str) -> bool:
    """Whether an operator's result is the first elements of its first tensor."""
    row = _row(name)
    return row is not None and row.prefix


#: Arguments that say where and how a tensor lies in memory: nothing to an array.
_PLACEMENT = ("layout", "device", "pin_memory", "memory_format", "non_blocking", "dim_order")


def _from_torch(name: str, where: str) -> Callable[..., Any]:
    """A function over arrays that calls torch. Its arguments come in the order of the overload's schema."""
    import torch

    space, base, overload = _parts(name, where)
    packet = getattr(getattr(torch.ops, space, None), base, None)
    if packet is None:
        raise UnknownOperatorError(where, "torch does not know the operator", got=f"{space}.{base}")
    named = overload or "default"
    exact = getattr(packet, named, None)
    if exact is None and overload is not None:
        raise UnknownOperatorError(
            where, "torch does not know the overload", got=named, need=", ".join(packet.overloads())
        )
    takes = [] if exact is None else [a for a in exact._schema.arguments if not a.is_out]
    writes_out = exact is None or len(takes) < len(exact._schema.arguments)
    function: Callable[..., Any] = packet if writes_out or exact is None else exact

    def to_torch(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return torch.from_numpy(np.array(value))
        return [to_torch(item) for item in value] if isinstance(value, tuple) else value

    def call(*args: Any) -> Any:
        given, keywords = [to_torch(arg) for arg in args[len(takes) :]], {}
        if takes and given:
            raise TypeError(f"{len(args)} arguments, the operator takes {len(takes)}")
        for argument, arg in zip(takes, args, strict=False):
            if argument.name == "dtype" and isinstance(arg, int):
                arg = getattr(torch, BY_PROGRAM_CODE[arg].name)
            if not argument.kwarg_only:
                given.append(to_torch(arg))
            elif argument.name not in _PLACEMENT:
                keywords[argument.name] = to_torch(arg)
        result = function(*given, **keywords)
        many = result if isinstance(result, tuple | list) else (result,)
        return tuple(tensor.detach().numpy() for tensor in many)

    return call
