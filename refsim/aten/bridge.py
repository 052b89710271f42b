"""Find the implementation of a float operator: the NumPy table first, torch if it is installed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from refsim.aten.table import TABLE
from refsim.core.dtypes import BY_PROGRAM_CODE
from refsim.core.errors import GraphError, UnknownOperatorError

_NAME = re.compile(r"^(?P<space>\w+)(?:\.|::)(?P<base>\w+)(?:\.(?P<overload>\w+))?$")


@dataclass(frozen=True)
class Operator:
    """An implementation: ``run(args)`` takes arrays and plain values, gives a tuple of arrays."""

    name: str
    source: str  # "numpy" or "torch"
    function: Callable[..., Any]

    def run(self, args: Sequence[Any], where: str) -> tuple[np.ndarray, ...]:
        """GraphError, naming the node, for arguments that the operator does not take."""
        try:
            result = self.function(*args)
        except Exception as error:  # torch and NumPy raise what they like for arguments out of a damaged file
            raise GraphError(where, f"{self.source} refuses the arguments: {error}") from error
        return tuple(result) if isinstance(result, tuple | list) else (result,)


def find(name: str, where: str) -> Operator:
    """The implementation of ``aten.mean.dim`` or ``aten::mean.out``.

    UnknownOperatorError names the operator and the node if neither the table nor torch has it.
    """
    match = _NAME.match(name)
    if match is None:
        raise UnknownOperatorError(
            where, "not an operator name", got=repr(name), need="namespace.name.overload"
        )
    base = match["base"]
    if base in TABLE:
        return Operator(name, "numpy", TABLE[base])
    if find_spec("torch") is None:
        raise UnknownOperatorError(
            where,
            "float operator without an implementation",
            got=name,
            need=f"one of {', '.join(sorted(TABLE))}, or torch installed (pip install 'refsim[torch]')",
        )
    return Operator(name, "torch", _from_torch(match["space"], base, match["overload"], where))


#: Arguments that say where and how a tensor lies in memory: nothing to an array.
_PLACEMENT = ("layout", "device", "pin_memory", "memory_format", "non_blocking", "dim_order")


def _clamped(convolution: Callable[..., Any]) -> Callable[..., Any]:
    """et_vk.conv_with_clamp: a convolution's arguments, then the least and the greatest value."""

    def call(*args: Any) -> Any:
        *given, low, high = args
        (result,) = convolution(*given)
        return (np.clip(result, np.float32(low), np.float32(min(high, float(np.finfo(np.float32).max)))),)

    return call


def _from_torch(space: str, base: str, overload: str | None, where: str) -> Callable[..., Any]:
    """A function over arrays that calls torch. Its arguments come in the order of the overload's schema."""
    import torch

    if (space, base) == ("et_vk", "conv_with_clamp"):
        return _clamped(_from_torch("aten", "convolution", "default", where))
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
