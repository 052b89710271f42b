"""Edits that give a kernel what it lacks, where it was edited in place: a factor, a summand, parentheses, a clamp."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from refsim.bytediff.search.expressions import loops, set_before
from refsim.bytediff.search.site import Alternative, KernelSite, call, kinds, times

KIND = "missing"
#: So many variables are tried.
MOST = 8
_SUMS = (ast.Add, ast.Sub)


def factor(site: KernelSite) -> Iterator[Alternative]:
    """A summand or an argument times 4, times another factor of the function, or rounded up to whole words."""
    node = site.node
    if node not in _places(site.tree):
        return
    four = ast.Constant(4)
    yield Alternative(times(four, node), KIND, 2)
    if isinstance(node, ast.Name | ast.Subscript):
        up = ast.BinOp(ast.BinOp(node, ast.Add(), ast.Constant(3)), ast.FloorDiv(), four)
        yield Alternative(times(up, four), KIND, 2)
    for other in _factors(site)[:MOST]:
        yield Alternative(times(node, other), KIND)


def summand(site: KernelSite) -> Iterator[Alternative]:
    """A variable or a zero point of the launch added, or taken off."""
    node = site.node
    if isinstance(node, ast.Name | ast.Call) and node in _places(site.tree):
        for zero in _zero_points(site):
            for op in (ast.Sub(), ast.Add()):
                yield Alternative(ast.BinOp(node, op, zero), KIND, 2)
    if not (isinstance(node, ast.Name | ast.Subscript) and node in _operands(site.tree)):
        return
    own = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    near = [*loops(site.tree, node), *reversed(set_before(site.tree, node))]
    for name in [name for name in dict.fromkeys(near) if name not in own][:MOST]:
        for op in (ast.Add(), ast.Sub()):
            yield Alternative(ast.BinOp(node, op, ast.Name(name, ast.Load())), KIND, 2)


def parentheses(site: KernelSite) -> Iterator[Alternative]:
    """``a * b * c + d`` as ``a * (b * c + d)``."""
    node: ast.BinOp = site.node
    if not isinstance(node.op, _SUMS):
        return
    factors, left = list[ast.expr](), node.left
    while isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mult):
        factors.insert(0, left.right)
        left = left.left
    factors.insert(0, left)
    for at in range(1, len(factors)):
        inner = ast.BinOp(_product(factors[at:]), node.op, node.right)
        yield Alternative(times(_product(factors[:at]), inner), KIND, 2)


def clamp(site: KernelSite) -> Iterator[Alternative]:
    """A byte kept within its range, where one is returned or put into a word."""
    node = site.node
    nodes = list(ast.walk(site.tree))
    returned = (each.value for each in nodes if isinstance(each, ast.Return))
    put = (each.args[2] for each in nodes if isinstance(each, ast.Call) and site.called(each) == "insert")
    if any(node is each for each in (*returned, *put)):
        low = call("max", node, ast.Constant(-128))
        yield Alternative(call("min", low, ast.Constant(127)), KIND, 2)


def _zero_points(site: KernelSite) -> list[ast.expr]:
    """The words of the launch that are zero points, where the function has the words."""
    scope = site.function.__globals__
    if not any(argument.arg == "push" for argument in site.tree.args.args):
        return []
    names = [name for name in kinds(site.names.rows, scope) if name.endswith("ZP") and name in scope]
    push = ast.Name("push", ast.Load())
    return [ast.Subscript(push, site.names.ref(name, scope[name]), ast.Load()) for name in names]


def _product(factors: list[ast.expr]) -> ast.expr:
    found, *rest = factors
    for other in rest:
        found = times(found, other)
    return found


@lru_cache(256)
def _operands(tree: ast.FunctionDef) -> frozenset[ast.expr]:
    """What is added up, divided or multiplied."""
    sums = [node for node in ast.walk(tree) if isinstance(node, ast.BinOp)]
    return frozenset(part for node in sums for part in (node.left, node.right))


@lru_cache(256)
def _places(tree: ast.FunctionDef) -> frozenset[ast.expr]:
    """Summands, arguments of calls, indices, and what variables are set to."""
    found: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, _SUMS):
            found += (node.left, node.right)
        elif isinstance(node, ast.Call):
            found += node.args
        elif isinstance(node, ast.Subscript):
            found.append(node.slice)
        elif isinstance(node, ast.Assign):
            found.append(node.value)
    return frozenset(found)


def _factors(site: KernelSite) -> list[ast.expr]:
    """The factors of products in the function that are no numbers, each once."""
    found: dict[str, ast.expr] = {}
    for node in ast.walk(site.tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for part in (node.left, node.right):
                if not isinstance(part, ast.Constant | ast.BinOp):
                    found.setdefault(ast.unparse(part), part)
    known = set(set_before(site.tree, site.node))
    return [
        part
        for part in found.values()
        if all(
            each.id in known or each.id in site.names.texts
            for each in ast.walk(part)
            if isinstance(each, ast.Name)
        )
    ]
