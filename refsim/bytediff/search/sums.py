"""Edits of products and sums of floats: another order, parts that are scaled alone, roundings that are left out."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import combinations
from typing import Any

from refsim.bytediff.search.expressions import value_of
from refsim.bytediff.search.site import Alternative, KernelSite, call, cloned, times
from refsim.ops.base import epilogue


def order(site: KernelSite) -> Iterator[Alternative]:
    """Floats added or multiplied in another order, or scaled before the zero point is taken away."""
    node: ast.BinOp = site.node
    left, right = node.left, node.right
    if not isinstance(node.op, ast.Mult):
        return
    for inner, outer in ((left, right), (right, left)):
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mult):
            for a, b in ((inner.left, inner.right), (inner.right, inner.left)):
                yield Alternative(times(times(outer, a), b), "order", 1)
    yield from (Alternative(made, "order", 1) for made in _apart(site, node))
    inverse = site.names.text(right)
    if inverse == "inv":
        one = call("np.float32", ast.Constant(1.0))
        yield Alternative(ast.BinOp(left, ast.Div(), ast.BinOp(one, ast.Div(), right)), "order", 1)


def _apart(site: KernelSite, product: ast.expr) -> Iterator[ast.expr]:
    """``f32(q - zp) * scale`` with each part scaled alone, or the first one only, by all factors or by some."""
    factors = _factors(site, product)
    for inner in factors:
        taken = inner.args[0] if isinstance(inner, ast.Call) and len(inner.args) == 1 else None
        if not (
            isinstance(inner, ast.Call) and isinstance(taken, ast.BinOp) and isinstance(taken.op, ast.Sub)
        ):
            continue
        others = [factor for factor in factors if factor is not inner]
        parts = [ast.Call(inner.func, [part], []) for part in (taken.left, taken.right)]
        each = [_product([part, *others]) for part in parts]
        yield ast.BinOp(each[0], ast.Sub(), each[1])
        for other in (name for name in _scales(site) if name not in map(ast.unparse, others)):
            yield ast.BinOp(each[0], ast.Sub(), times(parts[1], ast.Name(other, ast.Load())))
        for count in range(1, len(others) + 1):
            for first in combinations(others, count):
                less = ast.BinOp(_product([parts[0], *first]), ast.Sub(), parts[1])
                yield _product([less, *(factor for factor in others if factor not in first)])


def _scales(site: KernelSite) -> list[str]:
    return [argument.arg for argument in site.tree.args.args if argument.arg.endswith("scale")]


def _factors(site: KernelSite, node: ast.expr) -> list[ast.expr]:
    """What is multiplied, a variable by what it was set to before if that is a product."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*_factors(site, node.left), *_factors(site, node.right)]
    value = value_of(site, node)
    if value is not node and isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        return _factors(site, value)
    return [node]


def _product(factors: Sequence[ast.expr]) -> ast.expr:
    return reduce(times, factors)


def neighbours(site: KernelSite) -> Iterator[Alternative]:
    """``sums[t] + sums[t + half]`` with the two that stand beside each other."""
    left, right = site.node.left, site.node.right
    if not isinstance(site.node.op, ast.Add) or not isinstance(left, ast.Subscript):
        return
    first: ast.expr = times(ast.Constant(2), left.slice)
    second = ast.BinOp(first, ast.Add(), ast.Constant(1))
    if ast.unparse(right).startswith(f"{ast.unparse(left)[:-1]} + "):
        both = [ast.Subscript(left.value, place, ast.Load()) for place in (first, second)]
        yield Alternative(ast.BinOp(both[0], ast.Add(), both[1]), "order", 1)


def products(site: KernelSite) -> Iterator[Alternative]:
    """a * b + c with its factors in another order, rounded once or twice, or added first."""
    node: ast.Call = site.node
    a, b, c, *rest = node.args
    if all(
        site.called(part.operand if isinstance(part, ast.UnaryOp) else part) == "f32" for part in (a, b, c)
    ):
        whole = _Whole(site).visit(cloned(ast.BinOp(c, ast.Add(), times(a, b))))
        yield Alternative(ast.Call(c.func, [whole], []), "folded", 1)  # type: ignore[attr-defined]
    yield Alternative(call("edit_fused", a, b, c), "fused")
    yield Alternative(ast.BinOp(times(a, b), ast.Add(), c), "fused")
    yield Alternative(times(ast.BinOp(a, ast.Add(), c), b), "order")
    yield Alternative(times(a, b), "operand")
    yield Alternative(ast.BinOp(times(a, b), ast.Sub(), c), "operator")
    yield Alternative(ast.BinOp(a, ast.Add(), c), "operand")
    if isinstance(b, ast.BinOp) and isinstance(b.op, ast.Mult):
        for first, second in ((b.left, b.right), (b.right, b.left)):
            yield Alternative(ast.Call(node.func, [times(a, first), second, c, *rest], []), "order")
            yield Alternative(times(ast.Call(node.func, [a, first, c, *rest], []), second), "order")
    for real in _apart(site, times(a, b)):
        yield Alternative(ast.BinOp(real, ast.Add(), c), "order")
    scaled = value_of(site, c)
    if isinstance(scaled, ast.BinOp) and isinstance(scaled.op, ast.Mult):
        for factor, addend in ((scaled.left, scaled.right), (scaled.right, scaled.left)):
            both = ast.Call(node.func, [a, b, value_of(site, addend), *rest], [])
            yield Alternative(times(factor, both), "order")
            scaled_first = [a, times(b, factor), value_of(site, addend), *rest]
            yield Alternative(ast.Call(node.func, scaled_first, []), "order")


def scaled_first(site: KernelSite) -> Iterator[Alternative]:
    """A sum scaled before the zero point's part is taken off, which is a real number, or scaled by a factor alone."""
    node: ast.Call = site.node
    total: Any = value_of(site, node.args[0])
    second: ast.expr
    if site.called(total) == "mul_add":
        a, b, first, *_ = total.args
        op, second = ast.Add(), times(a, b)
    elif site.called(total) == "f32" and site.called(total.args[0]) == "wrap32":
        whole = total.args[0].args[0]
        op, (first, second) = (
            whole.op,
            (ast.Call(total.func, [part], []) for part in (whole.left, whole.right)),
        )
    else:
        return
    scaled = ast.Call(node.func, [first, *node.args[1:]], [])
    for part in (second, *(times(second, factor) for factor in _factors(site, node.args[1]))):
        yield Alternative(ast.BinOp(scaled, op, part), "order")


def relu_first(site: KernelSite) -> Iterator[Alternative]:
    """The relu before the bias is added."""
    node: ast.Call = site.node
    real, *between, flags = node.args
    bias = (
        next((arg for arg in real.args if ast.unparse(arg) == "bias"), None)
        if isinstance(real, ast.Call)
        else None
    )
    if not isinstance(real, ast.Call) or bias is None:
        return
    relu, has = (site.names.ref(name, vars(epilogue)[name]) for name in ("RELU", "HAS_BIAS"))
    none = call("np.float32", ast.Constant(0.0))
    plain = ast.Call(real.func, [none if arg is bias else arg for arg in real.args], [])
    added = ast.IfExp(ast.BinOp(flags, ast.BitAnd(), has), bias, none)
    total = ast.BinOp(call("max", plain, none), ast.Add(), added)
    without = ast.BinOp(flags, ast.BitAnd(), ast.UnaryOp(ast.Invert(), relu))
    moved = ast.Call(node.func, [total, *between, without], [])
    yield Alternative(
        ast.IfExp(ast.BinOp(flags, ast.BitAnd(), relu), moved, node),
        "relu",
        3,
        "relu before the bias is added",
    )


class _Whole(ast.NodeTransformer):
    """Numbers that are no floats yet."""

    def __init__(self, site: KernelSite) -> None:
        self.site = site

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return node.args[0] if self.site.called(node) == "f32" else self.generic_visit(node)
