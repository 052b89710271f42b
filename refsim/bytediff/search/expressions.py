"""Edits that ask for more of a function than a pattern: operators, comparisons, names, loops, lanes, arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import combinations, permutations, product
from typing import Any

import numpy as np

from refsim.bytediff.search.plain import ADDED
from refsim.bytediff.search.site import (
    Alternative,
    KernelSite,
    Renamed,
    assigned,
    call,
    cloned,
    counted,
    kinds,
    loops,
    names_set,
    set_before,
    similar,
    times,
    value_of,
)  # fmt: skip

#: So many other names stand for one at most.
MOST_NAMES = 6
#: Constants beyond are masks and the like, which nobody is off by one in.
MOST_CONSTANT = 256

_SWAPPED: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Add,), ast.FloorDiv: (ast.Mod, ast.Mult),
    ast.Mod: (ast.FloorDiv,), ast.LShift: (ast.RShift,), ast.RShift: (ast.LShift,), ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd, ast.BitXor), ast.BitXor: (ast.BitOr,), ast.Div: (ast.Mult,),
}  # fmt: skip
_SIGNS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%", ast.LShift: "<<", ast.RShift: ">>",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.Div: "/", ast.Pow: "**",
}  # fmt: skip
_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.GtE), ast.Gt: (ast.GtE, ast.Lt), ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,),
}  # fmt: skip
#: How a signed byte becomes an unsigned one: as it is read, or by what is added and not taken away again.
_TO_UNSIGNED = ((ast.BitAnd(), 255), (ast.Add(), 128))
#: What a whole-buffer constant of one kind may be confused with: names of dims, and of their strides.
_DIMS = ("W", "H", "C", "N")
_FAMILIES = (
    _DIMS,
    tuple(f"{dim}_STRIDE" for dim in _DIMS),
    ("W", "W_STRIDE"),
    ("H", "H_STRIDE"),
    ("C", "C_STRIDE"),
)


def operators(site: KernelSite) -> Iterator[Alternative]:
    """Another operator; or, of the turns of a loop that are dealt out to lanes, a stretch for each."""
    left, right, op = site.node.left, site.node.right, type(site.node.op)
    yield from (Alternative(ast.BinOp(left, other(), right), "operator") for other in _SWAPPED.get(op, ()))
    if op is ast.Mod and (count := _turns(site.tree, left)) is not None:
        up = ast.BinOp(ast.BinOp(count, ast.Add(), right), ast.Sub(), ast.Constant(1))
        own = ast.BinOp(left, ast.FloorDiv(), ast.BinOp(up, ast.FloorDiv(), right))
        yield Alternative(own, "order", 2)


def regrouped(site: KernelSite) -> Iterator[Alternative]:
    """An operator that is replaced in the text, or parentheses left out of it: what binds is then another one."""
    node: ast.BinOp = site.node
    outer, right = type(node.op), ast.unparse(node.right)
    texts = [("parentheses", outer, ast.unparse(node.left))]
    texts += [("operator", other, ast.unparse(node.left)) for other in _SWAPPED.get(outer, ())]
    if isinstance(node.left, ast.BinOp):
        a, b = ast.unparse(node.left.left), ast.unparse(node.left.right)
        inner = _SWAPPED.get(type(node.left.op), ())
        texts += [("operator", outer, f"{a} {_SIGNS[other]} {b}") for other in inner]
    for kind, op, left in texts:
        made = ast.parse(f"{left} {_SIGNS[op]} {right}", mode="eval").body
        if isinstance(made, ast.BinOp) and type(made.op) is not op:
            yield Alternative(made, kind, 2 if kind == "parentheses" else 3)


def names_exchanged(site: KernelSite) -> Iterator[Alternative]:
    """Two variables of one kind taken for each other in both parts: ``w % r * r + h % r`` for ``h % r * r + w % r``."""
    left, right = (_variables(part) for part in (site.node.left, site.node.right))
    for a, b in product(sorted(left - right), sorted(right - left)):
        if similar(a, b):
            turned = Renamed({a: b, b: a}).visit(cloned(site.node))
            yield Alternative(turned, "values exchanged")


def _variables(node: ast.expr) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


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
    """Another of a variable's attributes that the function asks for."""
    node: ast.Attribute = site.node
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
    """A variable: others that were set before and sound like it."""
    node: ast.Name = site.node
    found = [other for other in set_before(site.tree, node) if similar(node.id, other)]
    for other in found[-MOST_NAMES:]:
        yield Alternative(ast.Name(other, ast.Load()), "name")


def kept(site: KernelSite) -> Iterator[Alternative]:
    """A number that a loop sets anew in each turn, set in the first one alone: a sum that is not reset."""
    for name, value in assigned(site.tree):
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


def _turns(tree: ast.FunctionDef, node: ast.expr) -> ast.expr | None:
    """How often the loop turns of which a node is the variable."""
    return next((count for name, count, _ in counted(tree) if name == ast.unparse(node)), None)


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
    """A count in the words of a launch that is one short where it is handed on; the first of what has an index."""
    node: ast.Subscript = site.node
    base = ast.unparse(node.value)
    if base == "push" and _COUNTS.search(site.names.text(node.slice)) and "passed" in site.roles:
        yield Alternative(ast.BinOp(node, ast.Sub(), ast.Constant(1)), "short")
    if base not in ("push", "spec", "meta") and not isinstance(node.slice, ast.Slice | ast.Tuple):
        yield Alternative(ast.Subscript(node.value, ast.Constant(0), ast.Load()), "index")


def statement(site: KernelSite) -> Iterator[Alternative]:
    """A statement left out, if what it sets was set before."""
    node = site.node
    if isinstance(node, ast.AugAssign):
        yield Alternative(None, "statement")
        return
    (target,) = node.targets
    names = [each.id for each in names_set(site.tree) if each.lineno < node.lineno]
    if isinstance(target, ast.Subscript) or (isinstance(target, ast.Name) and target.id in names):
        yield Alternative(None, "statement")


# --- calls ------------------------------------------------------------------------------------------------


def lanes_alike(site: KernelSite) -> Iterator[Alternative]:
    """What a function returns, with all lanes of one word as unsigned bytes, or with those of another word."""
    if "returned" not in site.roles:
        return
    called = (node for node in ast.walk(site.node) if isinstance(node, ast.Call))
    words = [site.names.text(node.args[0]) for node in called if site.called(node) == "lane"]
    for word in dict.fromkeys(words):
        if words.count(word) > 1:
            for op, by in _TO_UNSIGNED:
                yield Alternative(_Unsigned(site, word, op, by).visit(cloned(site.node)), "unsigned")

    for a, b in permutations(dict.fromkeys(words), 2):
        yield Alternative(Renamed({a: b}).visit(cloned(site.node)), "squared")


def own_lane(site: KernelSite) -> Iterator[Alternative]:
    """The lane of a word numbered by the variable of a loop around it."""
    if site.called(site.node) == "lane":
        for other in loops(site.tree, site.node):
            own = ast.Call(site.node.func, [site.node.args[0], ast.Name(other, ast.Load())], [])
            yield Alternative(own, "lanes")


class _Unsigned(ast.NodeTransformer):
    def __init__(self, site: KernelSite, word: str, op: ast.operator, by: int) -> None:
        self.site, self.word, self.op, self.by = site, word, op, by

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if self.site.called(node) != "lane" or self.site.names.text(node.args[0]) != self.word:
            return self.generic_visit(node)
        return ast.BinOp(node, self.op, ast.Constant(self.by))


def arguments(site: KernelSite) -> Iterator[Alternative]:
    """Two arguments exchanged that are of one kind, or neighbours."""
    node: ast.Call = site.node
    cores = [_core(site.names.text(arg)) for arg in node.args]
    for i, j in combinations(range(len(cores)), 2):
        if j > i + 1 and not similar(cores[i], cores[j]):
            continue
        args = list(node.args)
        args[i], args[j] = args[j], args[i]
        yield Alternative(ast.Call(node.func, args, node.keywords), "arguments exchanged")


def _core(text: str) -> str:
    """The name in an argument: ``push[A_ZP]`` is A_ZP, ``4 * c4`` is c."""
    name = text.removeprefix("push[").rstrip("]").rpartition(" ")[2]
    return name.rstrip("0123456789") or name


def hoisted(site: KernelSite) -> Iterator[Alternative]:
    """An address taken before a part of a coordinate is added, which then counts words."""
    if site.called(site.node) not in ("buf_idx", "word_idx"):
        return
    for at, place in enumerate(site.node.args[3:], 3):
        place, four = value_of(site, place), None
        if isinstance(place, ast.BinOp) and isinstance(place.op, ast.Mult):
            four, place = place.left, value_of(site, place.right)
        if isinstance(place, ast.BinOp) and isinstance(place.op, ast.Add):
            for first, added in ((place.left, place.right), (place.right, place.left)):
                given = list(site.node.args)
                given[at] = first if four is None else times(four, first)
                made = ast.BinOp(ast.Call(site.node.func, given, []), ast.Add(), added)
                said = f"{site.names.text(added)} added to the address, not to the coordinate"
                yield Alternative(made, "arguments exchanged", 2, said)
