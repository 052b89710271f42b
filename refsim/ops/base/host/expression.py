"""Words: sizes, strides, parameters, the names of `words.WORDS`, and small sums and products of them.

``w``, ``h``, ``c`` and ``n`` are sizes of the output, ``x.c`` is one of tensor x. ``ceil(c / 4)`` is rounded up. A word
is parsed by Python's parser, and only the nodes that are listed here are evaluated. Whole numbers stay exact. As soon
as a float takes part, every operation is rounded to binary32.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from refsim.core import choices
from refsim.core.errors import ParameterError
from refsim.core.layout import DIM_NAMES
from refsim.core.tensor import TensorDesc
from refsim.ops.base.host import words
from refsim.ops.base.host.words import CallSite

MOST_CHARACTERS = 200
Number = int | np.float32

_SIZES = {name.lower(): dim for dim, name in enumerate(DIM_NAMES)}


def _stride(dim: int) -> Callable[[TensorDesc], int]:
    return lambda desc: desc.strides_whcn[dim]


#: What may stand behind ``T.``, beside the sizes: strides count blocks of T's layout.
OF_TENSORS: Mapping[str, Callable[[TensorDesc], int]] = {
    **{f"stride_{name}": _stride(at) for name, at in _SIZES.items()},
    "words": lambda desc: desc.words,
    "numel": lambda desc: desc.numel,
}
#: What may stand behind ``C.`` of a constant: how many elements it has, and how many lie in one row of it.
OF_CONSTANTS: Mapping[str, Callable[[np.ndarray], int]] = {
    "numel": lambda value: value.size,
    "row": lambda value: value.shape[-1],
}
#: Functions of whole numbers. ``ceil`` stands before a quotient.
FUNCTIONS: Mapping[str, Callable[..., int]] = {"min": min, "max": max}
CEIL = "ceil"

_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Div: operator.truediv,
}  # fmt: skip
_COMPARED: Mapping[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
_WHOLE = (ast.FloorDiv, ast.Mod)


def word(site: CallSite, text: str, local: tuple[int, ...] = ()) -> int:
    """A word as 32 bits, unsigned. A float is rounded to binary32, the inverse of a rounded scale once more.

    ``local`` is the workgroup, for ``local.x``. Raises ParameterError for what is no word, or has no such value.
    """
    name, of = words.split(text)
    if of:
        if name not in words.WORDS:
            raise site.unknown("word", text, [f"{known}:T" for known in words.WORDS])
        return words.WORDS[name](site, of)
    value = _Evaluation(site, text, local).value(_tree(text))
    if isinstance(value, np.float32):
        return int(value.view(np.uint32))
    if not -(1 << 31) <= value < 1 << 32:
        raise ParameterError(repr(text), "does not fit a word", got=value, need="32 bits")
    return value & 0xFFFFFFFF


def count(site: CallSite, text: str) -> int:
    """A number of invocations or workgroups."""
    value = _Evaluation(site, text, ()).value(_tree(text))
    if not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise ParameterError(repr(text), "no number of invocations", got=value, need="0 to 2**31 - 1")
    return value


def holds(site: CallSite, text: str) -> bool:
    """Whether a comparison such as ``n == 1`` or ``x.c % 4 == 0`` holds."""
    tree = _tree(text)
    if not isinstance(tree, ast.Compare) or any(type(each) not in _COMPARED for each in tree.ops):
        raise ParameterError(repr(text), "no comparison", need="one such as n == 1")
    evaluation = _Evaluation(site, text, ())
    values = [evaluation.value(each) for each in (tree.left, *tree.comparators)]
    steps = zip(tree.ops, values, values[1:], strict=False)
    return all(_COMPARED[type(how)](a, b) for how, a, b in steps)


def factors(text: str) -> list[tuple[int, int]] | None:
    """A product of sizes of the output and of parts of them, as (dim, part) with the fastest last; None for others.

    A part is 1, 4 or 8: ``h * ceil(c / 4)`` is [(1, 1), (2, 4)]. Numbers are left out.
    """
    found: list[tuple[int, int]] = []
    left = [_tree(text)]
    while left:
        match left.pop():
            case ast.BinOp(left=a, op=ast.Mult(), right=b):
                left += [b, a]  # the left one is taken next
            case ast.Constant(value=int(number)) if type(number) is int:
                pass
            case ast.Name(id=name) if name in _SIZES:
                found.append((_SIZES[name], 1))
            case ast.Call(
                func=ast.Name(id="ceil"),
                args=[ast.BinOp(left=ast.Name(id=name), op=ast.Div(), right=ast.Constant(value=int(by)))],
            ) if name in _SIZES and by in (4, 8):
                found.append((_SIZES[name], by))
            case _:
                return None
    return found


@lru_cache(4096)
def _tree(text: str) -> ast.expr:
    if len(text) > MOST_CHARACTERS:
        raise ParameterError(
            f"{text[:20]!r}...", "too long", got=f"{len(text)} characters", need=f"<= {MOST_CHARACTERS}"
        )
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        need = "one such as ceil(x.c / 4), or a comparison such as x.c % 4 == 0"
        raise ParameterError(repr(text), "not an expression", need=need) from None


class _Evaluation:
    """The value of a parsed word in a call."""

    def __init__(self, site: CallSite, text: str, local: tuple[int, ...]) -> None:
        self.site, self.text = site, text
        self.local = dict(zip("xyz", local, strict=False))

    def value(self, node: ast.expr) -> Number:
        match node:
            case ast.Constant(value=int(whole)) if type(whole) is int:
                return whole
            case ast.Constant(value=float(number)):
                with np.errstate(over="ignore"):
                    return np.float32(number)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.value(operand)
            case ast.Name(id=name):
                return self._name(name)
            case ast.Attribute(value=ast.Name(id=of), attr=attribute):
                return self._attribute(of, attribute)
            case ast.Call(
                func=ast.Name(id="ceil"), args=[ast.BinOp(left=a, op=ast.Div(), right=b)], keywords=[]
            ):
                return -self._computed(ast.FloorDiv, -self.value(a), self.value(b))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS and args:
                values = [self.value(each) for each in args]
                return FUNCTIONS[name](*values) if len(values) > 1 else values[0]
            case ast.BinOp(left=a, op=op, right=b) if type(op) in _OPERATORS:
                return self._computed(type(op), self.value(a), self.value(b))
        allowed = f"numbers, names, + - * // %, {CEIL}(a / b), {', '.join(FUNCTIONS)}"
        raise self._error("not allowed in a word", got=ast.unparse(node), need=allowed)

    def _computed(self, how: type, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            if how is ast.Div:
                raise self._error("a quotient of whole numbers", got="/", need=f"// or {CEIL}(a / b)")
            if how in _WHOLE and b == 0:
                raise self._error("division by zero")
            found: int = _OPERATORS[how](a, b)
            if abs(found) >= 1 << 64:
                raise self._error("too large", got=found, need="< 2**64")
            return found
        if how in _WHOLE:
            raise self._error("a float in // , % or ceil", need="whole numbers")
        with np.errstate(all="ignore"):
            return np.float32(_OPERATORS[how](np.float32(a), np.float32(b)))

    def _name(self, name: str) -> Number:
        if name in _SIZES:
            return self.site.tensor("out").sizes_whcn[_SIZES[name]]
        if name in words.WORDS:
            return words.WORDS[name](self.site, "")
        params = self.site.call.params
        value = getattr(params, name, None) if not name.startswith("_") else None
        if isinstance(value, float | np.floating):
            return np.float32(value)
        if isinstance(value, int | np.integer):
            return int(value)
        scale = getattr(params, name.removeprefix("inv_"), None)
        if name.startswith("inv_") and isinstance(scale, float | np.floating):
            return self.site.call.inverse(float(scale))
        raise self._error("unknown word", got=name, need=choices.need(name, names(self.site)))

    def _attribute(self, of: str, attribute: str) -> int:
        if of == "local" and attribute in self.local:
            return self.local[attribute]
        if of in self.site.tensors:
            desc = self.site.tensor(of)
            if attribute in _SIZES:
                return desc.sizes_whcn[_SIZES[attribute]]
            if attribute in OF_TENSORS:
                return OF_TENSORS[attribute](desc)
        constant = self.site.call.consts.get(of)
        if constant is not None and attribute in OF_CONSTANTS:
            return OF_CONSTANTS[attribute](constant)
        pair = getattr(self.site.call.params, of, None) if not of.startswith("_") else None
        if isinstance(pair, tuple) and len(pair) == 2 and attribute in ("h", "w"):
            return int(pair[attribute == "w"])
        raise self._error(
            "unknown word", got=f"{of}.{attribute}", need=choices.need(f"{of}.{attribute}", names(self.site))
        )

    def _error(self, what: str, *, got: object = None, need: object = None) -> ParameterError:
        return ParameterError(repr(self.text), what, got=got, need=need)


def names(site: CallSite) -> list[str]:
    """All names that a plain word may have in a call of this operator."""
    params = vars(site.call.params) if hasattr(site.call.params, "__dict__") else {}
    numbers = [name for name, value in params.items() if isinstance(value, int | float | np.number)]
    pairs = [name for name, value in params.items() if isinstance(value, tuple) and len(value) == 2]
    inverses = [f"inv_{name}" for name in numbers if name.endswith("scale")]
    tensors = [f"{name}.{what}" for name in site.tensors for what in (*_SIZES, *OF_TENSORS)]
    tensors += [f"{name}.{what}" for name in site.call.consts for what in OF_CONSTANTS]
    flags = ["apply_bias"] if "bias" in site.call.consts else []
    flags += ["activation"] if "activation" in params else []
    counts = ["k4", "oc4"] if "groups" in params else []
    return [
        *_SIZES, *numbers, *inverses, *(f"{name}.{side}" for name in pairs for side in "hw"), *flags, *counts, *tensors,
        *(f"local.{axis}" for axis in "xyz"),
    ]  # fmt: skip
