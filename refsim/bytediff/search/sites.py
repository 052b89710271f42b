"""The edits: for each kind of node of a kernel's tree, what might stand there in a wrong kernel.

An alternative is made of the parts of the right one, so a part is never edited twice. Most are rows of the table in
`rules`; what asks for more of a function is a small function over one node, in `expressions`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from refsim.bytediff.search import expressions, missing, rules
from refsim.bytediff.search.site import Alternative, KernelSite, Names, Rule

_RULES: tuple[tuple[Any, Rule], ...] = (
    (ast.expr, rules.written),
    ((ast.BinOp, ast.Tuple), expressions.lanes_alike),
    (ast.BinOp, expressions.operators),
    (ast.BinOp, expressions.regrouped),
    (ast.BinOp, expressions.names_exchanged),
    (ast.Compare, expressions.compare),
    (ast.Constant, expressions.constant),
    ((ast.Constant, ast.Tuple), expressions.kept),
    (ast.Name, expressions.name),
    (ast.Attribute, expressions.kind),
    (ast.Call, expressions.kept_over),
    (ast.Call, expressions.own_lane),
    (ast.Call, expressions.arguments),
    (ast.Call, expressions.hoisted),
    (ast.Tuple, expressions.exchanged),
    (ast.Subscript, expressions.index),
    ((ast.Assign, ast.AugAssign), expressions.statement),
)
#: What a wrong kernel may lack.
_MISSING: tuple[tuple[Any, Rule], ...] = (
    (ast.expr, missing.factor),
    (ast.expr, missing.summand),
    (ast.expr, rules.lacking),
)


def alternatives(
    node: ast.AST, tree: ast.FunctionDef, names: Names, function: FunctionType, lacking: bool = False
) -> Iterator[Alternative]:
    """What might stand for a node in a wrong kernel; or, of one that is ``lacking``, in the right one."""
    if isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
        return
    site = KernelSite(node, tree, names, function)
    seen = {ast.dump(node)}
    for kind, rule in (*_RULES, *(_MISSING if lacking else ())):
        if isinstance(node, kind):
            for made in rule(site):
                key = ast.dump(made.new) if made.new is not None else ""
                if key not in seen:
                    seen.add(key)
                    yield made
