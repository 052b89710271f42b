"""Edits that give a kernel what it lacks, where it was edited in place: a factor, a summand."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from refsim.bytediff.search.site import Alternative, KernelSite, kinds, loops, set_before, times

KIND = "missing"
#: So many variables are tried.
MOST = 8


def factor(site: KernelSite) -> Iterator[Alternative]:
    """A summand or an argument times another factor of the function."""
    if "place" in site.roles:
        yield from (Alternative(times(site.node, other), KIND) for other in _factors(site)[:MOST])


def summand(site: KernelSite) -> Iterator[Alternative]:
    """A variable or a zero point of the launch added, or taken off."""
    node = site.node
    if isinstance(node, ast.Name | ast.Call) and "place" in site.roles:
        for zero in _zero_points(site):
            for op in (ast.Sub(), ast.Add()):
                yield Alternative(ast.BinOp(node, op, zero), KIND, 2)
    if not (isinstance(node, ast.Name | ast.Subscript) and "operand" in site.roles):
        return
    own = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    near = [*loops(site.tree, node), *reversed(set_before(site.tree, node))]
    for name in [name for name in dict.fromkeys(near) if name not in own][:MOST]:
        for op in (ast.Add(), ast.Sub()):
            yield Alternative(ast.BinOp(node, op, ast.Name(name, ast.Load())), KIND, 2)


def _zero_points(site: KernelSite) -> list[ast.expr]:
    """The words of the launch that are zero points, where the function has the words."""
    scope = site.function.__globals__
    if not any(argument.arg == "push" for argument in site.tree.args.args):
        return []
    names = [name for name in kinds(site.names.rows, scope) if name.endswith("ZP") and name in scope]
    push = ast.Name("push", ast.Load())
    return [ast.Subscript(push, site.names.ref(name, scope[name]), ast.Load()) for name in names]


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
