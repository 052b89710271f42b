"""A case: one call of an operator as plain data, with a seed from which binding.py makes its arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """A self-contained call: parameters, shapes, layouts, and the seed of its data.

    ``features`` says which constants to make (out_channels, bias). ``style`` names the kind of data (styles.STYLES).
    With ``poison``, the padding of the inputs holds random bytes instead of 0.
    """

    op: str
    params: Mapping[str, Any]
    inputs: Mapping[str, tuple[tuple[int, ...], str]]  # name -> shape, layout
    out_layout: str
    seed: int = 0
    features: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    style: str = "random"
    poison: bool = False

    def __str__(self) -> str:
        inputs = " ".join(f"{name}={'x'.join(map(str, s))}:{lay}" for name, (s, lay) in self.inputs.items())
        params = " ".join(f"{k}={v}" for k, v in {**self.params, **self.features}.items())
        note = f" # {self.note}" if self.note else ""
        data = f" style={self.style}{' poison' if self.poison else ''}" if self.style != "random" else ""
        return f"{self.op} {inputs} out:{self.out_layout} {params} seed={self.seed}{data}{note}"


@dataclass(frozen=True)
class ErrorCase:
    """A call that must be refused: the case, the type of the error, and a text that its message must contain."""

    case: Case
    error: type[Exception]
    match: str
