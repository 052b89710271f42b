"""Another library's rule of requantization as a function: it stands for a kernel's epilogue, and is edited like it."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable
from typing import Any

import numpy as np

from refsim.core.jit import jitable, select
from refsim.core.qmath import TIE_AWAY, TIE_UP, TRUNCATE, clamp, f32, round_half, wrap32
from refsim.ops.base import epilogue
from refsim.ops.base.requantization import Requantization, tree_of

#: What the function's file is called where a cause names a line.
FILE = "--rule"
#: The names of a rule, as the epilogue's arguments have them. Whole numbers stay whole until they meet a float.
_NAMES = {"acc": "acc", "sx": "in_scale", "sw": "weight_scale", "so": "OUT_SCALE", "bias": "bias", "zp": "zp"}
_WHOLE = ("acc", "zp")
_ROUNDED = {"round_even": "0", "round_away": "TIE_AWAY", "round_up": "TIE_UP", "trunc": "TRUNCATE"}
_SOURCE = """\
def rule(acc, wsum, in_zp, weight_scale, in_scale, bias, inv, zp, flags):
    acc = wrap32(acc - np.int64(in_zp) * wsum)
    bias = bias if flags & HAS_BIAS else f32(0.0)
    return np.int32({})
"""


@jitable
def number(value: Any) -> Any:
    """A float; 0 for NaN."""
    return select(value == value, value, np.float32(0.0))


def function_of(rule: Requantization, out_scale: float) -> Callable[..., Any]:
    """The rule as a function with an epilogue's arguments, of a call with this output scale."""
    written, _ = _written(tree_of(rule.text))
    source = _SOURCE.format(written)
    linecache.cache[FILE] = len(source), None, source.splitlines(keepends=True), FILE
    space: dict[str, Any] = {
        "__name__": __name__, "np": np, "f32": f32, "wrap32": wrap32, "clamp": clamp, "number": number,
        "round_half": round_half, "TIE_AWAY": TIE_AWAY, "TIE_UP": TIE_UP, "TRUNCATE": TRUNCATE,
        "RELU": epilogue.RELU, "HAS_BIAS": epilogue.HAS_BIAS, "OUT_SCALE": np.float32(out_scale),
    }  # fmt: skip
    exec(compile(source, FILE, "exec"), space)
    made: Callable[..., Any] = space["rule"]
    return made


def _written(node: ast.expr) -> tuple[str, bool]:
    """An expression of a rule as a kernel's, and whether it is a whole number."""
    match node:
        case ast.Constant(value=value):
            if isinstance(value, int):
                return repr(value), True
            return ("f32(np.inf)" if repr(value) == "inf" else f"f32({value!r})"), False
        case ast.Name(id=name):
            return _NAMES[name], name in _WHOLE
        case ast.UnaryOp(operand=operand):
            text, whole = _written(operand)
            return f"(-{text})", whole
        case ast.BinOp(left=a, op=op, right=b):
            texts, whole = _alike([_written(a), _written(b)], not isinstance(op, ast.Div))
            return f"({ast.unparse(ast.BinOp(ast.Name(texts[0]), op, ast.Name(texts[1])))})", whole
        case ast.Call(func=ast.Name(id="relu"), args=[value]):
            text, whole = _written(value)
            zero = "0" if whole else "f32(0.0)"
            return f"(np.maximum({text}, {zero}) if flags & RELU else {text})", whole
        case ast.Call(func=ast.Name(id="clamp"), args=args):
            texts, whole = _alike(list(map(_written, args)))
            return f"clamp({', '.join(texts)})", whole
        case ast.Call(func=ast.Name(id=name), args=[value]):
            (text,), _ = _alike([_written(value)], False)
            return f"round_half(number({text}), {_ROUNDED[name]})", False
    raise AssertionError(ast.dump(node))  # `Requantization` refuses it


def _alike(parts: list[tuple[str, bool]], may_be_whole: bool = True) -> tuple[list[str], bool]:
    """Numbers of one kind: whole if all are."""
    whole = may_be_whole and all(one for _, one in parts)
    return [text if whole or not one else f"f32({text})" for text, one in parts], whole
