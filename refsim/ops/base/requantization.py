"""Requantization by another library's rule: what follows an integer sum, as an expression of a few names.

``acc`` is the sum of (x - zero point) * w, ``sx``, ``sw`` and ``so`` are the scales of input, weights and output,
``bias`` is in real units, 0 without one, and ``zp`` is the output's zero point. ``relu(v)`` is v where the call has
no relu. Numbers are binary32, and each operation rounds once. ``acc`` and ``zp`` are whole until they meet a float.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from types import CodeType
from typing import Any

import numpy as np

from refsim.core import choices
from refsim.core.errors import ParameterError
from refsim.core.jit import jitable, select
from refsim.core.qmath import QMAX, QMIN, TIE_AWAY, TIE_UP, TRUNCATE, clamp, f32, round_half

MOST_CHARACTERS = 300
#: Python itself refuses 200 parentheses in each other.
DEEPEST = 100
#: What a rule may name, and whether that is a whole number.
NAMES = {"acc": True, "sx": False, "sw": False, "so": False, "bias": False, "zp": True}
#: What a rule may call to round, and the flag of `round_half` for it.
_ROUNDED = {"round_even": "0", "round_away": "TIE_AWAY", "round_up": "TIE_UP", "trunc": "TRUNCATE"}
#: What a rule may call -> how many numbers it takes.
FUNCTIONS = {**dict.fromkeys(_ROUNDED, 1), "clamp": 3, "relu": 1}
#: Rules by name: ExecuTorch's own, and those of libraries that keep the sum in float.
RULES: Mapping[str, str] = {
    "executorch": "clamp(round_even(relu(acc * (sw * sx) + bias) * (1 / so)) + zp, -128, 127)",
    "ncnn": "clamp(round_away(relu(acc * (1 / ((1 / sx) * (1 / sw))) + bias) * (1 / so)), -127, 127)",
    "xnnpack": "round_even(clamp((acc + round_even(bias / (sx * sw))) * (sx * sw / so), -128 - zp, 127 - zp)) + zp",
}


@jitable
def number(value: Any) -> Any:
    """A float; 0 for NaN, as in refsim's own rounding."""
    return select(value == value, value, np.float32(0.0))


@jitable
def floored(value: Any, zero: Any, has_relu: Any) -> Any:
    """A number, at least ``zero`` where there is a relu; NaN stays."""
    return select((has_relu != 0) & (value < zero), zero, value)


#: What the text of a rule as Python calls.
SCOPE: Mapping[str, Any] = {
    "np": np, "floored": floored, "f32": f32, "clamp": clamp, "number": number, "round_half": round_half,
    "TIE_AWAY": TIE_AWAY, "TIE_UP": TIE_UP, "TRUNCATE": TRUNCATE,
}  # fmt: skip


@dataclass(frozen=True)
class Requantization:
    """A rule, by its expression. ParameterError for what is no rule."""

    text: str

    def __post_init__(self) -> None:
        depth = max(accumulate((each == "(") - (each == ")") for each in self.as_python({})))
        if depth > DEEPEST:
            raise ParameterError(repr(self.text), "nested too deep", got=depth, need=f"<= {DEEPEST}")

    def __call__(self, relu: bool, **given: Any) -> np.ndarray:
        """int8 output. ParameterError where the rule gives other values."""
        with np.errstate(all="ignore"):
            found = np.asarray(eval(self._code, {**SCOPE, **given, "has_relu": relu}))
        wrong = ~((found >= QMIN) & (found <= QMAX) & (found == np.rint(found)))
        if wrong.any():
            need = f"whole numbers from {QMIN} to {QMAX}: round and clamp"
            raise ParameterError(repr(self.text), "gives no int8", got=float(found[wrong].flat[0]), need=need)
        return found.astype(np.int8)

    @cached_property
    def _code(self) -> CodeType:
        return compile(self.as_python({}), "--rule", "eval")

    def as_python(self, names: Mapping[str, str]) -> str:
        """The rule as an expression over `SCOPE`, of arrays or in a kernel, with these names instead of its own.

        ``has_relu`` names whether the call has a relu.
        """
        return self._written(_tree_of(self.text), names)[0]

    def _written(self, node: ast.expr, names: Mapping[str, str]) -> tuple[str, bool]:
        """An expression, and whether it is a whole number."""

        def alike(parts: list[ast.expr], may_be_whole: bool = True) -> tuple[list[str], bool]:
            """Numbers of one kind: whole if all are."""
            found = [self._written(part, names) for part in parts]
            whole = may_be_whole and all(one for _, one in found)
            return [text if whole or not one else f"f32({text})" for text, one in found], whole

        match node:
            case ast.Constant(value=int() as value) if type(value) is not bool:
                return repr(value), True
            case ast.Constant(value=float() as value):
                return ("f32(np.inf)" if value == np.inf else f"f32({value!r})"), False
            case ast.Name(id=name) if name in NAMES:
                return names.get(name, name), NAMES[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                text, whole = self._written(operand, names)
                return f"(-{text})", whole
            case ast.BinOp(left=a, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() as op, right=b):
                (first, last), whole = alike([a, b], not isinstance(op, ast.Div))
                return f"({ast.unparse(ast.BinOp(ast.Name(first), op, ast.Name(last)))})", whole
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if FUNCTIONS.get(name) == len(args):
                if name in _ROUNDED:
                    return f"round_half(number({alike(args, False)[0][0]}), {_ROUNDED[name]})", False
                texts, whole = alike(args)
                if name == "clamp":
                    return f"clamp({', '.join(texts)})", whole
                zero = "0" if whole else "f32(0.0)"
                return f"floored({texts[0]}, {zero}, {names.get('has_relu', 'has_relu')})", whole
        need = f"numbers, {', '.join(NAMES)}, + - * /, {', '.join(FUNCTIONS)}"
        raise ParameterError(repr(self.text), "not allowed in a rule", got=ast.unparse(node), need=need)


def requantization(text: str) -> Requantization:
    """The rule of a name in `RULES`, or of an expression."""
    if text.isidentifier() and text not in RULES:
        raise ParameterError("rule", "unknown", got=text, need=choices.need(text, RULES, "or an expression"))
    return Requantization(RULES.get(text, text))


def _tree_of(text: str) -> ast.expr:
    """The expression of a rule. ParameterError for what is none."""
    if len(text) > MOST_CHARACTERS:
        got = f"{len(text)} characters"
        raise ParameterError(f"{text[:20]!r}...", "too long", got=got, need=f"<= {MOST_CHARACTERS}")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ParameterError(repr(text), "not an expression", need=RULES["executorch"]) from None
