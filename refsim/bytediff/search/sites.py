"""The edits: for each kind of node of a kernel's tree, what might stand there in a wrong kernel.

Everything is a table or a small rule over one node. An alternative is made of the parts of the right one, so a part is
never edited twice.
"""

from __future__ import annotations

import ast
import copy as shallow
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import FunctionType
from typing import Any

import numpy as np

from refsim.bytediff.search.plain import ADDED
from refsim.core.push import Field, Words

#: So many other names stand for one at most.
MOST_NAMES = 6
#: Constants beyond are masks and the like, which nobody is off by one in.
MOST_CONSTANT = 256

_SWAPPED: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Add,), ast.FloorDiv: (ast.Mod, ast.Mult),
    ast.Mod: (ast.FloorDiv,), ast.LShift: (ast.RShift,), ast.RShift: (ast.LShift,), ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd, ast.BitXor), ast.BitXor: (ast.BitOr,), ast.Div: (ast.Mult,),
}  # fmt: skip
_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.GtE), ast.Gt: (ast.GtE, ast.Lt), ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,),
}  # fmt: skip
#: Function -> what might be called instead of it with the same arguments; "" is its first argument alone.
_CALLED: dict[str, tuple[str, ...]] = {
    "np.maximum": ("", "np.minimum"), "np.minimum": ("", "np.maximum"), "np.rint": (
        "np.trunc", "np.floor", "edit_half_up", "edit_half_away", "np.ceil", ""
    ),
    "np.floor": ("np.rint", "np.trunc"), "np.trunc": ("np.rint", "np.floor"), "np.abs": ("",),
    "round_half": ("np.trunc", "np.floor", "edit_half_up", "edit_half_away", "np.ceil", "np.rint", ""),
    "wrap32": ("", "edit_wrapped16", "edit_saturated16"), "flush": ("",), "bounded": ("",),
    "min": ("max",), "max": ("min",),
}  # fmt: skip
#: Of calls to these, arguments that no name tells to be of one kind are exchanged as well.
_EXCHANGED = {
    "mul_add": ((1, 2), (0, 2)), "requant": ((0, 1), (1, 2)), "requant_added": ((0, 1), (1, 2)), "lane": ((0, 1),),
}  # fmt: skip
#: What a whole-buffer constant of one kind may be confused with: names of dims, and of their strides.
_DIMS = ("W", "H", "C", "N")
_FAMILIES = (
    _DIMS,
    tuple(f"{dim}_STRIDE" for dim in _DIMS),
    ("W", "W_STRIDE"),
    ("H", "H_STRIDE"),
    ("C", "C_STRIDE"),
)


@dataclass(frozen=True)
class Alternative:
    """What stands for a node: None if a statement is left out. ``kind`` is the kind of edit.

    ``wants`` says what the right value must be for the edit to change anything: 1 a float, 2 a whole number, 3 either.
    """

    new: ast.expr | None
    kind: str
    wants: int = 3


@dataclass
class Names:
    """The names of a schema's namespace that stand for what other modules have.

    ``rows`` are the operator's own rows of words; those of the modules it uses are found as they are met.
    """

    rows: Sequence[Words]
    texts: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    originals: dict[str, Any] = field(default_factory=dict)

    def of(self, text: str, value: Any, stands: Any = None) -> str:
        """The name for what a module calls ``text``; ``stands``: what a plain copy uses for it."""
        for name, held in self.texts.items():
            if held == text and self.originals.get(name) is value:
                return name
        name = f"{text.replace('.', '_')}__v{len(self.texts)}"
        self.texts[name] = text
        self.originals[name] = value
        self.values[name] = value if stands is None else stands
        return name

    def ref(self, text: str, value: Any) -> ast.Name:
        """An expression for what a module calls ``text``."""
        return ast.Name(self.of(text, value), ast.Load())

    def text(self, node: ast.AST | None) -> str:
        """A node as its author wrote it."""
        if node is None:
            return ""
        return ast.unparse(_Named(self.texts).visit(_cloned(node)))


class _Named(ast.NodeTransformer):
    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self.texts.get(node.id, node.id), node.ctx)


def _cloned(node: ast.AST) -> ast.AST:
    """A deep copy of a tree alone."""
    new = shallow.copy(node)
    for name, value in ast.iter_fields(node):
        if isinstance(value, list):
            setattr(new, name, [_cloned(each) if isinstance(each, ast.AST) else each for each in value])
        elif isinstance(value, ast.AST):
            setattr(new, name, _cloned(value))
    return new


@dataclass(frozen=True)
class Site:
    """A node with what the rules need to know: its function's tree and the names of other modules."""

    node: Any
    tree: ast.FunctionDef
    names: Names
    function: FunctionType

    def called(self, call: ast.AST) -> str:
        """The name of the function that is called, without its module unless that is NumPy."""
        if not isinstance(call, ast.Call):
            return ""
        text = ast.unparse(call.func)
        text = self.names.texts.get(text, text)
        return text if text.startswith("np.") else text.rpartition(".")[2]


def alternatives(
    node: ast.AST, tree: ast.FunctionDef, names: Names, function: FunctionType
) -> Iterator[Alternative]:
    """What might stand for a node."""
    if isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
        return
    site = Site(node, tree, names, function)
    seen = {ast.dump(node)}
    for kind, rule in _RULES:
        if isinstance(node, kind):
            for made in rule(site):
                key = ast.dump(made.new) if made.new is not None else ""
                if key not in seen:
                    seen.add(key)
                    yield made


def _binary(site: Site) -> Iterator[Alternative]:
    node: ast.BinOp = site.node
    left, right, op = node.left, node.right, type(node.op)
    if op in (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr, ast.Div):
        yield Alternative(left, "operand")
    if op in (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr):
        yield Alternative(right, "operand")
    yield from (Alternative(ast.BinOp(left, other(), right), "operator") for other in _SWAPPED.get(op, ()))
    if op in (ast.Sub, ast.FloorDiv, ast.Mod, ast.Div):
        yield Alternative(ast.BinOp(right, node.op, left), "operands exchanged")
    if op is ast.FloorDiv:
        up = ast.BinOp(ast.BinOp(left, ast.Add(), right), ast.Sub(), ast.Constant(1))
        yield Alternative(ast.BinOp(up, ast.FloorDiv(), right), "rounded up", 2)
    if op is ast.Mod:
        yield Alternative(ast.Constant(0), "constant", 2)
    if op is ast.Sub:
        yield Alternative(ast.UnaryOp(ast.USub(), node), "sign")
    if op in (ast.Add, ast.Mult, ast.Sub):
        yield Alternative(_call("edit_half", node), "type", 1)
        yield Alternative(_call("edit_saturated16", node), "type", 2)
        yield Alternative(_call("edit_wrapped16", node), "type", 2)


def _order(site: Site) -> Iterator[Alternative]:
    """Floats added or multiplied in another order, or scaled before the zero point is taken away."""
    node: ast.BinOp = site.node
    left, right = node.left, node.right
    if not isinstance(node.op, ast.Mult):
        return
    for inner, outer in ((left, right), (right, left)):
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mult):
            for a, b in ((inner.left, inner.right), (inner.right, inner.left)):
                yield Alternative(_times(_times(outer, a), b), "order", 1)
        taken = inner.args[0] if isinstance(inner, ast.Call) and len(inner.args) == 1 else None
        if isinstance(inner, ast.Call) and isinstance(taken, ast.BinOp) and isinstance(taken.op, ast.Sub):
            apart = [_times(ast.Call(inner.func, [part], []), outer) for part in (taken.left, taken.right)]
            yield Alternative(ast.BinOp(apart[0], ast.Sub(), apart[1]), "order", 1)
    inverse = site.names.text(right)
    if inverse == "inv":
        one = _call("np.float32", ast.Constant(1.0))
        yield Alternative(ast.BinOp(left, ast.Div(), ast.BinOp(one, ast.Div(), right)), "order", 1)


def _compare(site: Site) -> Iterator[Alternative]:
    node: ast.Compare = site.node
    for at, op in enumerate(node.ops):
        for other in _COMPARED.get(type(op), ()):
            ops = [*node.ops[:at], other(), *node.ops[at + 1 :]]
            yield Alternative(ast.Compare(node.left, ops, node.comparators), "compare")
    if len(node.ops) == 2:
        middle, last = node.comparators
        yield Alternative(ast.Compare(node.left, node.ops[:1], [middle]), "condition")
        yield Alternative(ast.Compare(middle, node.ops[1:], [last]), "condition")


def _truth(site: Site) -> Iterator[Alternative]:
    """The condition of a branch: always, never, the other way round."""
    test = site.node
    for parent in _tests(site.tree):
        if parent is test:
            yield Alternative(ast.Constant(True), "condition")
            yield Alternative(ast.Constant(False), "condition")
            yield Alternative(ast.UnaryOp(ast.Not(), test), "condition")


@lru_cache(256)
def _tests(tree: ast.FunctionDef) -> tuple[ast.expr, ...]:
    found = [node.test for node in ast.walk(tree) if isinstance(node, ast.If | ast.IfExp)]
    found += [value for node in ast.walk(tree) if isinstance(node, ast.BoolOp) for value in node.values]
    chosen = [node.args[0] for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) == 3]
    return (*found, *(node for node in chosen if isinstance(node, ast.Compare)))


def _constant(site: Site) -> Iterator[Alternative]:
    value = site.node.value
    if type(value) is int and abs(value) <= MOST_CONSTANT:
        others: list[Any] = [value + 1, value - 1, 0, 1, 2 * value, value // 2, -value]
    elif type(value) is float:
        others = [0.0, 1.0, 2 * value, value / 2, -value]
    else:
        return
    yield from (
        Alternative(ast.Constant(other), "constant") for other in dict.fromkeys(others) if other != value
    )


def _name(site: Site) -> Iterator[Alternative]:
    node: ast.Name = site.node
    text = site.names.texts.get(node.id)
    if text is not None:
        yield from _global(site, text, site.names.originals.get(node.id))
    elif node.id not in ADDED and node.id != "np":
        yield from _local(site)


def _global(site: Site, text: str, value: Any) -> Iterator[Alternative]:
    """A named constant: another of its kind, or another number."""
    module, _, name = text.rpartition(".")
    if isinstance(value, np.float32):
        for factor in (2.0, 0.5, -1.0):
            times = _call("np.float32", ast.Constant(float(value) * factor))
            yield Alternative(times, "constant")
        return
    if not isinstance(value, int) or not name.isupper() or isinstance(value, bool):
        return
    scope = site.function.__globals__
    scope = vars(scope[module]) if module in scope else scope
    kinds = _kinds(site.names.rows, scope)
    family = [other for group in _FAMILIES if name in group for other in group]
    if name in kinds:
        of_kind = [other for other, kind in kinds.items() if kind == kinds[name]]
        family += sorted(of_kind, key=lambda other: not _similar(name, other))
    found = [other for other in dict.fromkeys(family) if other != name]
    for other in found[:MOST_NAMES]:
        held = scope.get(other, _DIM_VALUES.get(other))
        if isinstance(held, int):
            prefix = f"{module}." if module else ""
            yield Alternative(site.names.ref(prefix + other, held), "name")
    if not found and abs(value) <= MOST_CONSTANT:
        for number in dict.fromkeys((value + 1, value - 1, 0, 1, 2 * value, value // 2, -value)):
            if number != value:
                yield Alternative(ast.Constant(number), "constant")


_DIM_VALUES = {name: at for at, name in enumerate((*_DIMS, *(f"{dim}_STRIDE" for dim in _DIMS)))}


def _kinds(rows: Sequence[Words], scope: dict[str, Any]) -> dict[str, str]:
    """Name of a word -> what kind it is, of a module's own rows and of the operator's."""
    fields: list[Field] = [each for row in rows for each in row.fields]
    for value in scope.values():
        if isinstance(value, Words):
            fields += value.fields
        elif isinstance(value, tuple) and value and isinstance(value[0], Field):
            fields += [each for each in value if isinstance(each, Field)]
    return {
        name: f"{each.type.glsl} {len(each.type.parts)} {each.type.need}"
        for each in fields
        for name in each.constants
    }


def _local(site: Site) -> Iterator[Alternative]:
    """A variable: others that were set before and sound like it."""
    node: ast.Name = site.node
    found = [other for other in _set_before(site.tree, node) if _similar(node.id, other)]
    for other in found[-MOST_NAMES:]:
        yield Alternative(ast.Name(other, ast.Load()), "name")


def _set_before(tree: ast.FunctionDef, node: ast.Name) -> list[str]:
    """Arguments, and variables that are set on a line before."""
    names = [argument.arg for argument in tree.args.args]
    for other in ast.walk(tree):
        if isinstance(other, ast.Name) and isinstance(other.ctx, ast.Store) and other.lineno <= node.lineno:
            names.append(other.id)
    return list(dict.fromkeys(names))


def _similar(a: str, b: str) -> bool:
    """Whether two names are of one kind: single letters, i and j, ih and iw or oh, a_zp and b_zp, lo and hi."""
    if a == b:
        return False
    if {a, b} in _PAIRED:
        return True
    first, second = a.lower(), b.lower()
    if len(first) <= 3 and len(second) <= 3:
        return (len(first) == len(second) == 1) or (
            len(first) == len(second) and bool(set(first) & set(second))
        )
    return bool(set(first.split("_")) & set(second.split("_")) - {"", "x"})


_PAIRED = (
    {"lo", "hi"},
    {"low", "high"},
    {"least", "most"},
    {"ih", "iw"},
    {"IN_SCALE", "INV"},
    {"sums", "scales"},
)


def _called(site: Site) -> Iterator[Alternative]:
    node: ast.Call = site.node
    name = site.called(node)
    for other in _CALLED.get(name, ()):
        if not other:
            yield from (
                Alternative(value, "call") for value in node.args[: 2 if name.startswith("np.m") else 1]
            )
            continue
        count = 1 if name == "round_half" else len(node.args)
        func: ast.expr = ast.parse(other, mode="eval").body
        yield Alternative(ast.Call(func, node.args[:count], []), "call")
    if name in ("np.maximum", "np.minimum") and len(node.args) == 2:
        bounds = {"0": _call("np.float32", ast.Constant(0.0))}
        yield from (
            Alternative(ast.Call(node.func, [node.args[0], b], []), "bound", 1) for b in bounds.values()
        )
    if name in ("lane", "insert"):
        word, lane, *rest = node.args
        turned = (ast.BinOp(ast.Constant(3), ast.Sub(), lane), *(_other_lane(lane, by) for by in (1, 2)))
        yield from (Alternative(ast.Call(node.func, [word, other, *rest], []), "lanes") for other in turned)
    if name == "lane":
        yield Alternative(ast.BinOp(node, ast.BitAnd(), ast.Constant(255)), "unsigned")
    if name in ("requant", "requant_added", "to_int8", "to_int8_added", "bounded"):
        yield Alternative(_call("max", node, ast.Constant(0)), "relu")
        zp = next(
            (arg for arg in node.args if site.names.text(arg).lower().endswith(("zp", "zp]", "zero"))), None
        )
        if zp is not None:
            yield Alternative(_call("max", node, zp), "relu")
    if name in ("f32", "requant", "mul_add", "np.float32", "as_f32"):
        yield Alternative(_call("edit_half", node), "type", 1)
    if name == "mul_add":
        yield from _products(site)
    if name == "range":
        yield from _ranges(node)


def _other_lane(lane: ast.expr, by: int) -> ast.expr:
    return ast.BinOp(lane, ast.BitXor(), ast.Constant(by))


def _products(site: Site) -> Iterator[Alternative]:
    """a * b + c with its factors in another order, rounded once or twice, or added first."""
    node: ast.Call = site.node
    a, b, c, *rest = node.args
    yield Alternative(_call("edit_fused", a, b, c), "fused")
    yield Alternative(ast.BinOp(_times(a, b), ast.Add(), c), "fused")
    yield Alternative(_times(ast.BinOp(a, ast.Add(), c), b), "order")
    yield Alternative(_times(a, b), "operand")
    yield Alternative(ast.BinOp(_times(a, b), ast.Sub(), c), "operator")
    yield Alternative(ast.BinOp(a, ast.Add(), c), "operand")
    if isinstance(b, ast.BinOp) and isinstance(b.op, ast.Mult):
        for first, second in ((b.left, b.right), (b.right, b.left)):
            yield Alternative(ast.Call(node.func, [_times(a, first), second, c, *rest], []), "order")
            yield Alternative(_times(ast.Call(node.func, [a, first, c, *rest], []), second), "order")
    if isinstance(a, ast.Call) and len(a.args) == 1:
        taken = a.args[0]
        if isinstance(taken, ast.BinOp) and isinstance(taken.op, ast.Sub):
            parts = [_times(ast.Call(a.func, [part], []), b) for part in (taken.left, taken.right)]
            real = ast.BinOp(parts[0], ast.Sub(), parts[1])
            yield Alternative(ast.BinOp(real, ast.Add(), c), "order")


def _ranges(node: ast.Call) -> Iterator[Alternative]:
    """A loop that is a step short or long, that begins a step late, or that leaves out what fills no vector."""
    *first, last = node.args[:2]
    begin: ast.expr = first[0] if first else ast.Constant(0)
    one = ast.Constant(1)
    ends = [ast.BinOp(last, ast.Sub(), one), ast.BinOp(last, ast.Add(), one)]
    if len(node.args) <= 2:
        yield from (Alternative(ast.Call(node.func, [*first, end], []), "loop") for end in ends)
        yield Alternative(ast.Call(node.func, [ast.BinOp(begin, ast.Add(), one), last], []), "loop")
        length = ast.BinOp(last, ast.Sub(), begin) if first else last
        for size in (2, 4, 8, 16):
            whole = ast.BinOp(
                ast.BinOp(length, ast.FloorDiv(), ast.Constant(size)), ast.Mult(), ast.Constant(size)
            )
            end = ast.BinOp(begin, ast.Add(), whole) if first else whole
            yield Alternative(ast.Call(node.func, [*first, end], []), "loop")
        backwards = ast.Call(
            node.func, [ast.BinOp(last, ast.Sub(), one), ast.BinOp(begin, ast.Sub(), one)], []
        )
        backwards.args.append(ast.Constant(-1))
        yield Alternative(backwards, "loop")


def _arguments(site: Site) -> Iterator[Alternative]:
    """Two arguments of one kind exchanged."""
    node: ast.Call = site.node
    texts = [site.names.text(arg) for arg in node.args]
    pairs = [
        (i, j) for i in range(len(texts)) for j in range(i + 1, len(texts))
        if _similar(_core(texts[i]), _core(texts[j]))
    ]  # fmt: skip
    for i, j in (*pairs, *_EXCHANGED.get(site.called(node), ())):
        args = list(node.args)
        args[i], args[j] = args[j], args[i]
        yield Alternative(ast.Call(node.func, args, []), "arguments exchanged")


def _core(text: str) -> str:
    """The name in an argument: ``push[A_ZP]`` is A_ZP, ``4 * c4`` is c."""
    name = text.removeprefix("push[").rstrip("]").rpartition(" ")[2]
    return name.rstrip("0123456789") or name


def _tuple(site: Site) -> Iterator[Alternative]:
    """Two of up to five values exchanged; four lanes turned round or rotated."""
    values = site.node.elts
    orders = [
        [j if k == i else i if k == j else k for k in range(len(values))]
        for i in range(len(values)) for j in range(i + 1, len(values))
    ]  # fmt: skip
    if len(values) == 4:
        orders += [[3, 2, 1, 0], [1, 2, 3, 0], [3, 0, 1, 2]]
    for order in orders if 2 <= len(values) <= 5 else ():
        yield Alternative(ast.Tuple([values[k] for k in order], ast.Load()), "values exchanged")


def _index(site: Site) -> Iterator[Alternative]:
    node: ast.Subscript = site.node
    at = node.slice
    if isinstance(at, ast.Slice):
        return
    yield from (
        Alternative(ast.Subscript(node.value, ast.BinOp(at, op, ast.Constant(1)), ast.Load()), "index")
        for op in (ast.Add(), ast.Sub())
    )
    base = ast.unparse(node.value)
    if base not in ("push", "spec", "meta"):
        yield Alternative(ast.Subscript(node.value, ast.Constant(0), ast.Load()), "index")


def _statement(site: Site) -> Iterator[Alternative]:
    """A statement left out, if what it sets was set before."""
    node = site.node
    if isinstance(node, ast.AugAssign):
        yield Alternative(None, "statement")
        return
    (target,) = node.targets
    if isinstance(target, ast.Subscript):
        yield Alternative(None, "statement")
    elif isinstance(target, ast.Name):
        other = [
            each for each in ast.walk(site.tree)
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store) and each.id == target.id
            and each.lineno < node.lineno
        ]  # fmt: skip
        if other:
            yield Alternative(None, "statement")


def _branch(site: Site) -> Iterator[Alternative]:
    node: ast.IfExp = site.node
    yield Alternative(ast.IfExp(node.test, node.orelse, node.body), "condition")


def _added(site: Site) -> Iterator[Alternative]:
    """What is added to a sum: its sign, its precision."""
    for parent in ast.walk(site.tree):
        if isinstance(parent, ast.AugAssign) and parent.value is site.node:
            yield Alternative(ast.UnaryOp(ast.USub(), site.node), "sign")
            total = ast.Name(parent.target.id, ast.Load()) if isinstance(parent.target, ast.Name) else None
            if total is not None and isinstance(parent.op, ast.Add):
                for kind in ("edit_saturated16", "edit_wrapped16"):
                    held = _call(kind, ast.BinOp(total, ast.Add(), site.node))
                    yield Alternative(ast.BinOp(held, ast.Sub(), total), "type", 2)


def _times(a: ast.expr, b: ast.expr) -> ast.BinOp:
    return ast.BinOp(a, ast.Mult(), b)


def _call(name: str, *args: ast.expr) -> ast.Call:
    func: Any = ast.parse(name, mode="eval").body
    return ast.Call(func, list(args), [])


Rule = Callable[[Site], Iterator[Alternative]]
_RULES: tuple[tuple[Any, Rule], ...] = (
    (ast.BinOp, _order), (ast.BinOp, _binary), (ast.Compare, _compare), (ast.expr, _truth), (ast.Constant, _constant),
    (ast.Name, _name), (ast.Call, _called), (ast.Call, _arguments), (ast.Tuple, _tuple), (ast.Subscript, _index),
    (ast.IfExp, _branch), ((ast.Assign, ast.AugAssign), _statement), (ast.expr, _added),
)  # fmt: skip
