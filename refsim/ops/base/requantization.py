"""Requantization by another library's rule: what follows an integer sum, as an expression of a few names.

``acc`` is the sum of (x - zero point) * w, ``sx``, ``sw`` and ``so`` are the scales of input, weights and output,
``bias`` is in real units, 0 without one, and ``zp`` is the output's zero point. ``relu(v)`` is v where the call has
no relu. Numbers are binary32, and each operation rounds once. ``acc`` and ``zp`` are whole until they meet a float.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from refsim.core import choices
from refsim.core.errors import ParameterError
from refsim.core.qmath import QMAX, QMIN, TIE_AWAY, TIE_UP, TRUNCATE, clamp, round_half

MOST_CHARACTERS = 300
NAMES = ("acc", "sx", "sw", "so", "bias", "zp")

_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip


def _rounded(flags: int) -> Callable[[Any], Any]:
    """NaN is 0, as in refsim's own rounding."""

    def rounded(value: Any) -> Any:
        real = np.float32(value)
        return round_half(np.where(np.isnan(real), np.float32(0), real), flags)

    return rounded


#: What a rule may call -> how many numbers it takes, and what it gives.
FUNCTIONS: Mapping[str, tuple[int, Callable[..., Any]]] = {
    "round_even": (1, _rounded(0)),
    "round_away": (1, _rounded(TIE_AWAY)),
    "round_up": (1, _rounded(TIE_UP)),
    "trunc": (1, _rounded(TRUNCATE)),
    "clamp": (3, clamp),
    "relu": (1, partial(np.maximum, 0)),
}
#: Rules by name: ExecuTorch's own, and those of libraries that keep the sum in float.
RULES: Mapping[str, str] = {
    "executorch": "clamp(round_even(relu(acc * (sw * sx) + bias) * (1 / so)) + zp, -128, 127)",
    "ncnn": "clamp(round_away(relu(acc * (1 / ((1 / sx) * (1 / sw))) + bias) * (1 / so)), -127, 127)",
    "xnnpack": "round_even(clamp((acc + round_even(bias / (sx * sw))) * (sx * sw / so), -128 - zp, 127 - zp)) + zp",
}


@dataclass(frozen=True)
class Requantization:
    """A rule, by its expression. ParameterError for what is no rule."""

    text: str

    def __post_init__(self) -> None:
        one = {name: np.float32(1) for name in NAMES}
        self._value(tree_of(self.text), one, False)

    def __call__(self, relu: bool, **given: Any) -> np.ndarray:
        """int8 output. ParameterError where the rule gives other values."""
        with np.errstate(all="ignore"):
            found = np.asarray(self._value(tree_of(self.text), given, relu))
        wrong = ~((found >= QMIN) & (found <= QMAX) & (found == np.rint(found)))
        if wrong.any():
            need = f"whole numbers from {QMIN} to {QMAX}: round and clamp"
            raise ParameterError(repr(self.text), "gives no int8", got=float(found[wrong].flat[0]), need=need)
        return found.astype(np.int8)

    def _value(self, node: ast.expr, given: Mapping[str, Any], relu: bool) -> Any:
        match node:
            case ast.Constant(value=int() | float() as number) if type(number) is not bool:
                return number if isinstance(number, int) else np.float32(number)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._value(operand, given, relu)
            case ast.Name(id=name) if name in given:
                return given[name]
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS and FUNCTIONS[
                name
            ][0] == len(args):
                values = [self._value(each, given, relu) for each in args]
                return values[0] if name == "relu" and not relu else FUNCTIONS[name][1](*values)
            case ast.BinOp(left=a, op=op, right=b) if type(op) in _OPERATORS:
                pair = self._value(a, given, relu), self._value(b, given, relu)
                whole = not isinstance(op, ast.Div) and all(np.asarray(one).dtype.kind == "i" for one in pair)
                return _OPERATORS[type(op)](*(pair if whole else map(np.float32, pair)))
        need = f"numbers, {', '.join(NAMES)}, + - * /, {', '.join(FUNCTIONS)}"
        raise ParameterError(repr(self.text), "not allowed in a rule", got=ast.unparse(node), need=need)


def requantization(text: str) -> Requantization:
    """The rule of a name in `RULES`, or of an expression."""
    if text.isidentifier() and text not in RULES:
        raise ParameterError("rule", "unknown", got=text, need=choices.need(text, RULES, "or an expression"))
    return Requantization(RULES.get(text, text))


def tree_of(text: str) -> ast.expr:
    """The expression of a rule. ParameterError for what is none."""
    if len(text) > MOST_CHARACTERS:
        got = f"{len(text)} characters"
        raise ParameterError(f"{text[:20]!r}...", "too long", got=got, need=f"<= {MOST_CHARACTERS}")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ParameterError(repr(text), "not an expression", need=RULES["executorch"]) from None
