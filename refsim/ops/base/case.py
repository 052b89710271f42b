"""A case: one call of an operator as plain data, with a seed from which binding.py makes its arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

from refsim.core.errors import ParameterError, ShapeError
from refsim.core.layout import layout as layout_named


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

    @property
    def configuration(self) -> str:
        """Shapes, layouts and parameters in one line, without the scales and the seed."""
        inputs = [
            f"{name}={as_text(shape)}:{layout_named(stored)}" for name, (shape, stored) in self.inputs.items()
        ]
        values = {name: one for name, one in {**self.params, **self.features}.items() if "scale" not in name}
        params = [f"{name}={as_text(one)}" for name, one in values.items() if one is not None]
        data = [
            *([f"style={self.style}"] if self.style != "random" else []),
            *(["poison"] if self.poison else []),
        ]
        return " ".join([*inputs, f"out:{layout_named(self.out_layout)}", *params, *data])

    def changed(self, **changes: Any) -> Case:
        """The case with other values by name: a shape or a layout of an input, ``out`` (its layout), a parameter or a
        feature. What is neither yet is a feature if `FEATURES` knows it, else a parameter."""
        params, inputs, features = dict(self.params), dict(self.inputs), dict(self.features)
        out = changes.pop("out", self.out_layout)
        for name, value in changes.items():
            if name in inputs and isinstance(value, tuple | str):
                shape, layout = inputs[name]
                inputs[name] = (shape, value) if isinstance(value, str) else (value, layout)
            elif name in FEATURES and name not in params:
                features[name] = value
            else:
                params[name] = value
        return replace(self, params=params, inputs=inputs, out_layout=out, features=features)

    def refused(self, error: type[Exception], match: str, **changes: Any) -> ErrorCase:
        """The case with these changes, as one that must be refused."""
        return ErrorCase(self.changed(**changes), error, match)


def as_text(value: Any) -> str:
    """A shape or another value: ``1x8x4x4``."""
    return "x".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


@dataclass(frozen=True)
class ErrorCase:
    """A call that must be refused: the case, the type of the error, and a text that its message must contain."""

    case: Case
    error: type[Exception]
    match: str


# --- what a case may say, since cases come from files too --------------------------------------------------


def _count(value: Any) -> bool:
    return type(value) is int and 0 < value < 1 << 31


def _real(value: Any) -> bool:
    return type(value) in (int, float) and isfinite(value) and abs(value) < 2.0**64


#: Feature -> whether a value is one, and how an error calls it.
FEATURES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "bias": (lambda value: isinstance(value, bool), "true or false"),
    "ties": (lambda value: isinstance(value, bool), "true or false"),
    "outside": (lambda value: isinstance(value, bool), "true or false"),
    "out_channels": (_count, "a number from 1 on"),
    "scale": (_real, "a number"),
    "table": (
        lambda value: isinstance(value, tuple | list) and len(value) == 2 and all(map(_count, value)),
        "rows and columns",
    ),
    "style": (lambda value: isinstance(value, str), "a text"),
}


class CaseFeatures(dict[str, Any]):
    """The features of a case, checked. ParameterError if one that is asked for is missing."""

    def __init__(self, case: Case, **more: Any) -> None:
        super().__init__({**case.features, **more})
        self._op = case.op
        for name, value in self.items():
            fits, need = FEATURES.get(name, (lambda _: True, ""))
            if not fits(value):
                raise ParameterError(case.op, f"feature {name} does not fit", got=repr(value)[:80], need=need)

    def __missing__(self, name: str) -> Any:
        raise ParameterError(self._op, f"feature {name} is missing", need=FEATURES[name][1])


def check_case(case: Case) -> None:
    """ParameterError or ShapeError unless each field of a case is what its type says."""
    fields = {"params": case.params, "inputs": case.inputs, "features": case.features}
    for name, value in fields.items():
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise ParameterError(case.op, f"{name} are no values by name", got=repr(value)[:80])
    for name, one in (("out_layout", case.out_layout), ("style", case.style)):
        if not isinstance(one, str):
            raise ParameterError(case.op, f"{name} is no text", got=repr(one)[:80])
    if type(case.seed) is not int or not 0 <= case.seed < 1 << 64:
        raise ParameterError(case.op, "seed is out of range", got=repr(case.seed)[:80], need="0 to 2**64 - 1")
    for name, tensor in case.inputs.items():
        shape, layout = tensor if isinstance(tensor, tuple) and len(tensor) == 2 else (None, None)
        if not isinstance(shape, tuple | list) or not isinstance(layout, str):
            got = repr(tensor)[:80]
            raise ShapeError(case.op, f"input {name} is no tensor", got=got, need="a shape and a layout")
