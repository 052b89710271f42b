"""Edits of expressions and statements: operators, comparisons, constants, names, indices, what is left out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from refsim.bytediff.search.plain import ADDED
from refsim.bytediff.search.site import Alternative, KernelSite, Renamed, call, cloned, kinds, similar, times

#: So many other names stand for one at most.
MOST_NAMES = 6
#: Constants beyond are masks and the like, which nobody is off by one in.
MOST_CONSTANT = 256

_SWAPPED: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Add,), ast.FloorDiv: (ast.Mod, ast.Mult),
    ast.Mod: (ast.FloorDiv,), ast.LShift: (ast.RShift,), ast.RShift: (ast.LShift,), ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd, ast.BitXor), ast.BitXor: (ast.BitOr,), ast.Div: (ast.Mult,),
}  # fmt: skip
#: How strongly operators bind: what replaces one in a text may bind otherwise than what is beside it.
_BINDS: dict[type[ast.operator], int] = {
    ast.BitOr: 0, ast.BitXor: 1, ast.BitAnd: 2, ast.LShift: 3, ast.RShift: 3, ast.Add: 4, ast.Sub: 4, ast.Mult: 5,
    ast.FloorDiv: 5, ast.Mod: 5, ast.Div: 5,
}  # fmt: skip
_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.GtE), ast.Gt: (ast.GtE, ast.Lt), ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,),
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


def binary(site: KernelSite) -> Iterator[Alternative]:
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
    if (source := _padded(node)) is not None:
        yield Alternative(source, "operand", 2)
    if op is ast.Mod:
        yield Alternative(ast.Constant(0), "constant", 2)
        if not isinstance(right, ast.Constant):
            yield Alternative(ast.BinOp(left, op(), ast.Constant(2)), "constant", 2)
        if (count := _turns(site.tree, left)) is not None:  # each lane takes a stretch of its own
            up = ast.BinOp(ast.BinOp(count, ast.Add(), right), ast.Sub(), ast.Constant(1))
            own = ast.BinOp(left, ast.FloorDiv(), ast.BinOp(up, ast.FloorDiv(), right))
            yield Alternative(own, "order", 2)
    if op is ast.Sub:
        yield Alternative(ast.UnaryOp(ast.USub(), node), "sign")
        if (ast.unparse(left), ast.unparse(right)) == ("hi", "lo"):  # as if the range had 0 in its middle
            widest = call("max", ast.UnaryOp(ast.USub(), right), left)
            yield Alternative(times(call("np.float32", ast.Constant(2.0)), widest), "operand", 1)
    if op in (ast.Add, ast.Mult, ast.Sub):
        yield Alternative(call("edit_half", node), "type", 1)
        yield Alternative(call("edit_saturated16", node), "type", 2)
        yield Alternative(call("edit_wrapped16", node), "type", 2)


def _padded(node: ast.expr) -> ast.expr | None:
    """The number in ``(number + 3) // 4 * 4``, which is rounded up."""
    whole = node.left if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) else None
    found = whole.left if isinstance(whole, ast.BinOp) and isinstance(whole.op, ast.FloorDiv) else None
    if not (isinstance(found, ast.BinOp) and isinstance(found.op, ast.Add | ast.Sub)):
        return None
    while isinstance(found, ast.BinOp) and isinstance(found.op, ast.Add | ast.Sub):
        found = found.left
    return found


def regrouped(site: KernelSite) -> Iterator[Alternative]:
    """``a * b * c`` written as ``a + b * c``: another operator that binds otherwise, with no parentheses around it.

    Or the parentheses of ``(a - b) * c`` left out, or put there.
    """
    node: ast.BinOp = site.node
    first, second, op = node.left, node.right, node.op
    if isinstance(second, ast.BinOp) and _binds(second.op) < _binds(op):
        made = ast.BinOp(ast.BinOp(first, op, second.left), second.op, second.right)
        yield Alternative(made, "parentheses", 2)
    if not isinstance(first, ast.BinOp):
        return
    a, inner, b = first.left, first.op, first.right
    if _binds(first.op) < _binds(op):
        yield Alternative(ast.BinOp(a, inner, ast.BinOp(b, op, second)), "parentheses", 2)
        return
    if isinstance(op, ast.Add | ast.Sub) and isinstance(inner, ast.Mult):
        yield Alternative(times(ast.BinOp(a, op, second), b), "parentheses", 2)
    for other in _SWAPPED.get(type(inner), ()):
        if _BINDS[other] < _binds(op):
            yield Alternative(ast.BinOp(a, other(), ast.BinOp(b, op, node.right)), "operator")
    for other in _SWAPPED.get(type(op), ()):
        if _BINDS[other] > _binds(inner):
            yield Alternative(ast.BinOp(a, inner, ast.BinOp(b, other(), node.right)), "operator")


def names_exchanged(site: KernelSite) -> Iterator[Alternative]:
    """Two variables of one kind taken for each other in both parts: ``w % r * r + h % r`` for ``h % r * r + w % r``."""
    left, right = (_variables(part) for part in (site.node.left, site.node.right))
    for a, b in product(sorted(left - right), sorted(right - left)):
        if similar(a, b):
            turned = Renamed({a: b, b: a}).visit(cloned(site.node))
            yield Alternative(turned, "values exchanged")


def _variables(node: ast.expr) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _binds(op: ast.operator) -> int:
    return _BINDS.get(type(op), 6)


def value_of(site: KernelSite, node: ast.expr) -> ast.expr:
    """What a variable was set to last on a line before, whether or not a condition let it; else the node."""
    if not isinstance(node, ast.Name):
        return node
    before = [value for value in _values(site.tree, node.id) if value.lineno < node.lineno]
    return max(before, key=lambda value: value.lineno, default=node)


def compare(site: KernelSite) -> Iterator[Alternative]:
    node: ast.Compare = site.node
    for at, op in enumerate(node.ops):
        for other in _COMPARED.get(type(op), ()):
            ops = [*node.ops[:at], other(), *node.ops[at + 1 :]]
            yield Alternative(ast.Compare(node.left, ops, node.comparators), "compare")
    if len(node.ops) == 2:
        middle, last = node.comparators
        yield Alternative(ast.Compare(node.left, node.ops[:1], [middle]), "condition")
        yield Alternative(ast.Compare(middle, node.ops[1:], [last]), "condition")


def truth(site: KernelSite) -> Iterator[Alternative]:
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


def constant(site: KernelSite) -> Iterator[Alternative]:
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


def kind(site: KernelSite) -> Iterator[Alternative]:
    """Twice as many bits for floats; another of a variable's attributes that the function asks for."""
    node: ast.Attribute = site.node
    if ast.unparse(node) == "np.float32":
        yield Alternative(ast.parse("np.float64", mode="eval").body, "type")
    if isinstance(node.value, ast.Name) and node.value.id in set_before(site.tree, node.value):
        asked = [each for each in ast.walk(site.tree) if isinstance(each, ast.Attribute)]
        base = ast.unparse(node.value)
        others = dict.fromkeys(each.attr for each in asked if ast.unparse(each.value) == base)
        for other in [name for name in others if name != node.attr][:MOST_NAMES]:
            yield Alternative(ast.Attribute(node.value, other, ast.Load()), "name")


def name(site: KernelSite) -> Iterator[Alternative]:
    node: ast.Name = site.node
    text = site.names.texts.get(node.id)
    if text is not None:
        yield from _global(site, text, site.names.originals.get(node.id))
    elif node.id not in ADDED and node.id != "np":
        yield from local(site)


def _global(site: KernelSite, text: str, value: Any) -> Iterator[Alternative]:
    """A named constant: another of its kind, or another number."""
    module, _, name = text.rpartition(".")
    if isinstance(value, np.float32):
        for factor in (2.0, 0.5, -1.0):
            times = call("np.float32", ast.Constant(float(value) * factor))
            yield Alternative(times, "constant")
        for infinite in ("np.inf", "-np.inf") if not value else ():
            yield Alternative(call("np.float32", ast.parse(infinite, mode="eval").body), "constant")
        return
    if not isinstance(value, int) or not name.isupper() or isinstance(value, bool):
        return
    scope = site.function.__globals__
    scope = vars(scope[module]) if module in scope else scope
    held_kinds = kinds(site.names.rows, scope)
    family = [other for group in _FAMILIES if name in group for other in group]
    if name in held_kinds:
        of_kind = [other for other, kind in held_kinds.items() if kind == held_kinds[name]]
        family += sorted(of_kind, key=lambda other: not similar(name, other))
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


#: Words of a launch that count something, by which a loop or a row may be one short.
_COUNTS = re.compile(r"K4|IC4|\b[WHC]\b")
_DIM_VALUES = {name: at for at, name in enumerate((*_DIMS, *(f"{dim}_STRIDE" for dim in _DIMS)))}


def local(site: KernelSite) -> Iterator[Alternative]:
    """A variable: others that were set before and sound like it; a zero point that is one off."""
    node: ast.Name = site.node
    if node.id == "zero":  # one of a row, which is no word of the launch
        for op in (ast.Add(), ast.Sub()):
            yield Alternative(ast.BinOp(node, op, ast.Constant(1)), "one off")
    if node.id == "bias" and any(argument.arg == "in_scale" for argument in site.tree.args.args):
        yield Alternative(times(node, ast.Name("in_scale", ast.Load())), "scaled bias", 1)
    if node.id in ("acc", "t") and any(argument.arg == node.id for argument in site.tree.args.args):
        yield Alternative(call("max", node, ast.Constant(0)), "relu")
    for value in _values(site.tree, node.id):
        if (source := _padded(value)) is not None:
            yield Alternative(source, "operand", 2)
    found = [other for other in set_before(site.tree, node) if similar(node.id, other)]
    for other in found[-MOST_NAMES:]:
        yield Alternative(ast.Name(other, ast.Load()), "name")


def set_before(tree: ast.FunctionDef, node: ast.expr) -> list[str]:
    """Arguments, and variables that are set on a line before."""
    names = [argument.arg for argument in tree.args.args]
    names += [other.id for other in _set(tree) if other.lineno <= node.lineno]
    return list(dict.fromkeys(names))


@lru_cache(256)
def _set(tree: ast.FunctionDef) -> tuple[ast.Name, ...]:
    """The names of a function that are set."""
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return tuple(node for node in names if isinstance(node.ctx, ast.Store))


def _values(tree: ast.FunctionDef, name: str) -> list[ast.expr]:
    """What a variable is set to."""
    return [value for each, value in _assigned(tree) if each == name]


@lru_cache(256)
def _assigned(tree: ast.FunctionDef) -> tuple[tuple[str, ast.expr], ...]:
    """The variables of a function that are set one at a time, each with what to."""
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.Assign) and len(node.targets) == 1)
    return tuple(
        (node.targets[0].id, node.value) for node in statements if isinstance(node.targets[0], ast.Name)
    )


def kept(site: KernelSite) -> Iterator[Alternative]:
    """A number that a loop sets anew in each turn, set in the first one alone: a sum that is not reset."""
    for name, value in _assigned(site.tree):
        if value is site.node:
            for loop in loops(site.tree, site.node)[-1:]:
                first = ast.Compare(ast.Name(loop, ast.Load()), [ast.Eq()], [ast.Constant(0)])
                yield Alternative(ast.IfExp(first, value, ast.Name(name, ast.Load())), "kept")


#: Where an invocation that writes several words may have been before: which coordinates it goes through, and in words.
_BEFORE = (
    ("[(q, oh, n) for q in range(ow // 4 * 4, ow + 1)]", "the columns of four"),
    ("[(ow, q, n) for q in range(oh // 4 * 4, oh + 1)]", "the rows of four"),
    ("[(ow, oh, p) for p in range(n + 1)]", "the images"),
    (
        "[(q, oh, p) for p in range(n + 1) for q in range(ow // 4 * 4, ow + 1 if p == n else ow // 4 * 4 + 4)]",
        "the columns of four of each image",
    ),
)


def kept_over(site: KernelSite) -> Iterator[Alternative]:
    """The sum of a work item begun with what the same invocation summed for the words before it."""
    rows = (node for node in ast.walk(site.tree) if isinstance(node, ast.For))
    for loop in (part for items in rows if "ndindex" in ast.unparse(items.iter) for part in items.body):
        if isinstance(loop, ast.For) and loop.iter is site.node:
            turn, turns = ast.unparse(loop.target), ast.unparse(loop.iter)
            for before, said in _BEFORE:
                there = f"for x, y, z in {before} if ((ow := x), (oh := y), (n := z))"
                made = ast.parse(f"({turn} {there} for {turn} in {turns})", mode="eval").body
                yield Alternative(made, "kept", 3, f"the sum kept over {said}")


def loops(tree: ast.FunctionDef, node: ast.AST) -> list[str]:
    """The variables that count from 0 in the loops around a node, the outermost first."""
    return [name for name, _, inside in _counted(tree) if node in inside]


def _turns(tree: ast.FunctionDef, node: ast.expr) -> ast.expr | None:
    """How often the loop turns of which a node is the variable."""
    return next((count for name, count, _ in _counted(tree) if name == ast.unparse(node)), None)


@lru_cache(256)
def _counted(tree: ast.FunctionDef) -> tuple[tuple[str, ast.expr, frozenset[ast.AST]], ...]:
    """(variable, how many turns, what is inside) of the loops that count from 0."""
    return tuple(
        (node.target.id, node.iter.args[0], frozenset(each for part in node.body for each in ast.walk(part)))
        for node in ast.walk(tree)
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name)
        and isinstance(node.iter, ast.Call) and len(node.iter.args) == 1
    )  # fmt: skip


def exchanged(site: KernelSite) -> Iterator[Alternative]:
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


def index(site: KernelSite) -> Iterator[Alternative]:
    node: ast.Subscript = site.node
    at = node.slice
    if isinstance(at, ast.Slice | ast.Tuple):
        return
    yield from (
        Alternative(ast.Subscript(node.value, ast.BinOp(at, op, ast.Constant(1)), ast.Load()), "index")
        for op in (ast.Add(), ast.Sub())
    )
    base = ast.unparse(node.value)
    counts = base == "push" and _COUNTS.search(site.names.text(at))
    if counts and any(node is arg for arg in _passed(site.tree)):
        yield Alternative(ast.BinOp(node, ast.Sub(), ast.Constant(1)), "short")
    if base == "acc":
        for held in ("edit_saturated16", "edit_wrapped16", "edit_half_sum"):
            yield Alternative(call(held, node), "total", 2)
    if base not in ("push", "spec", "meta"):
        yield Alternative(ast.Subscript(node.value, ast.Constant(0), ast.Load()), "index")


@lru_cache(256)
def _passed(tree: ast.FunctionDef) -> tuple[ast.expr, ...]:
    """The arguments of all calls."""
    return tuple(arg for node in ast.walk(tree) if isinstance(node, ast.Call) for arg in node.args)


def statement(site: KernelSite) -> Iterator[Alternative]:
    """A statement left out, if what it sets was set before."""
    node = site.node
    if isinstance(node, ast.AugAssign):
        yield Alternative(None, "statement")
        return
    (target,) = node.targets
    names = [each.id for each in _set(site.tree) if each.lineno < node.lineno]
    if isinstance(target, ast.Subscript) or (isinstance(target, ast.Name) and target.id in names):
        yield Alternative(None, "statement")


def branch(site: KernelSite) -> Iterator[Alternative]:
    node: ast.IfExp = site.node
    yield Alternative(ast.IfExp(node.test, node.orelse, node.body), "condition")


@lru_cache(256)
def _grown(tree: ast.FunctionDef) -> tuple[ast.AugAssign, ...]:
    """The statements of a function that add to a variable, and the like."""
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.AugAssign))


def added(site: KernelSite) -> Iterator[Alternative]:
    """What is added to a sum: its sign, its precision."""
    for parent in _grown(site.tree):
        if parent.value is site.node:
            yield Alternative(ast.UnaryOp(ast.USub(), site.node), "sign")
            total = ast.Name(parent.target.id, ast.Load()) if isinstance(parent.target, ast.Name) else None
            if total is not None and isinstance(parent.op, ast.Add):
                for kind in ("edit_saturated16", "edit_wrapped16"):
                    held = call(kind, ast.BinOp(total, ast.Add(), site.node))
                    yield Alternative(ast.BinOp(held, ast.Sub(), total), "type", 2)
