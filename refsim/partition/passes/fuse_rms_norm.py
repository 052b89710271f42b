"""x * rsqrt(mean(x * x) + eps) * weight becomes et_vk.rms_norm, where the mean is over the last dim and keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import fx

from refsim.partition.fx_program import FxProgram, Operator
from refsim.partition.nodes import argument, calls

TARGET = Operator("et_vk.rms_norm.default", ("x", "weight", "eps"))
_MUL, _ADD, _MEAN = "aten.mul.Tensor", "aten.add.Tensor", "aten.mean.dim"
_RSQRT, _POW = "aten.rsqrt.default", "aten.pow.Tensor_Scalar"


def run(program: FxProgram) -> FxProgram:
    program = program.copy()
    for node in program.calls():
        found = _find(program, node)
        if found is not None:
            node.replace_all_uses_with(program.call(node, TARGET, found, node.meta["val"]))
    return program.clean()


def _orders(node: Any) -> Iterator[tuple[Any, Any]]:
    """The two operands, in both orders."""
    yield node.args[0], node.args[1]
    yield node.args[1], node.args[0]


def _find(program: FxProgram, node: fx.Node) -> tuple[Any, Any, float] | None:
    """x, weight and eps, if the node scales a norm."""
    if not calls(node, _MUL):
        return None
    for norm, weight in _orders(node):
        if not calls(norm, _MUL):
            continue
        for root, x in _orders(norm):
            eps = _eps(program, root, x) if calls(root, _RSQRT) else None
            if eps is not None:
                return x, weight, eps
    return None


def _eps(program: FxProgram, root: fx.Node, x: Any) -> float | None:
    """What is added to the mean of squares of ``x``; None if the root is of anything else."""
    added: Any = root.args[0]
    if not calls(added, _ADD):
        return None
    for mean, eps in _orders(added):
        value = program.constant(eps)
        if value is None or value.numel() != 1 or not calls(mean, _MEAN):
            continue
        squares = mean.args[0]
        if list(mean.args[1]) != [-1] or not argument(mean, 2, False):
            continue
        by_itself = calls(squares, _MUL) and squares.args[0] is squares.args[1] is x
        if by_itself or (calls(squares, _POW) and squares.args[0] is x and squares.args[1] == 2):
            return float(value)
    return None
