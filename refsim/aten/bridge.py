"""Find the implementation of a float operator: the NumPy table first, torch if it is installed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from refsim.aten.table import TABLE
from refsim.errors import GraphError, UnknownOperatorError

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
        except (TypeError, ValueError, IndexError, RuntimeError) as error:
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


def _from_torch(space: str, base: str, overload: str | None, where: str) -> Callable[..., Any]:
    """A function over arrays that calls torch's functional overload."""
    import torch

    packet = getattr(getattr(torch.ops, space, None), base, None)
    if packet is None:
        raise UnknownOperatorError(where, "torch does not know the operator", got=f"{space}.{base}")
    out_form = overload is not None and (overload == "out" or overload.endswith("_out"))
    function = packet if out_form or overload is None else getattr(packet, overload, packet)

    def to_torch(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return torch.from_numpy(np.array(value))
        return [to_torch(item) for item in value] if isinstance(value, tuple) else value

    def call(*args: Any) -> Any:
        result = function(*(to_torch(arg) for arg in args))
        many = result if isinstance(result, tuple | list) else (result,)
        return tuple(tensor.detach().numpy() for tensor in many)

    return call
