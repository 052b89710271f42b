"""What the patterns share: the quantized tensors around an operator, and the node that replaces it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from refsim.ops.base.arg import Kind
from refsim.ops.base.registry import OPS
from refsim.partition.fx_program import FxProgram, Operator
from refsim.partition.nodes import (
    CLONE,
    CLONE_DIM_ORDER,
    DEQUANTIZE,
    DEQUANTIZE_BY_TENSOR,
    QUANTIZE,
    QUANTIZE_BY_TENSOR,
    RELU,
    argument,
    calls,
    is_node,
    only_user,
)
from refsim.partition.refusal import Refused

INT8_RANGE = (-128, 127)
_IDENTITIES = (CLONE, CLONE_DIM_ORDER)
#: The operators that take a scale and a zero point made at run time.
_BY_TENSOR = {QUANTIZE: QUANTIZE_BY_TENSOR, DEQUANTIZE: DEQUANTIZE_BY_TENSOR}


@dataclass(frozen=True)
class Output:
    """The node whose readers get the new node; its parameters, which are those of a quantize, or none of a float."""

    node: fx.Node

    @property
    def parameters(self) -> tuple[float | int, ...]:
        return ()


@dataclass(frozen=True)
class Quantized(Output):
    """An int8 tensor with one scale and zero point: a quantize or dequantize node's view of it.

    ``node`` is the dequantize or the quantize; ``source`` what it reads.
    """

    source: fx.Node
    scale: float
    zp: int

    @property
    def parameters(self) -> tuple[float, int]:
        return (self.scale, self.zp)


@dataclass(frozen=True)
class Match:
    """Nodes that one q8ta operator computes.

    ``operator`` is its name. ``nodes`` are all of them, the anchor included. ``output`` is the quantize, whose readers
    get the new node; without one it is among ``nodes``. ``notes`` are for the report.
    ``sources`` is what it reads where that is not quantized: floats, or indices.
    """

    operator: str
    anchor: fx.Node
    nodes: tuple[fx.Node, ...]
    output: Output
    inputs: tuple[Quantized, ...]
    relu: fx.Node | None = None
    notes: tuple[str, ...] = ()
    sources: tuple[fx.Node, ...] = ()


def quantized(node: Any, name: str, anchor: fx.Node, code: str) -> Quantized:
    """The parameters of a quantize or dequantize (``name``). Raises Refused with ``code`` for another node."""
    if not calls(node, name, _BY_TENSOR[name]):
        raise Refused(code, anchor, f"got {node}" if is_node(node) else f"got {node!r}")
    source, scale, zp, low, high = node.args[:5]
    if not isinstance(scale, float | int) or not isinstance(zp, int):
        raise Refused(code, anchor, f"{node} has parameters that change between runs")
    if (low, high) != INT8_RANGE or str(argument(node, 5)) != "torch.int8":
        raise Refused("quant-range", anchor, f"{node}: got {low} to {high} as {argument(node, 5)}")
    return Quantized(node, source, float(scale), zp)


def quantized_inputs(anchor: fx.Node, count: int) -> tuple[Quantized, ...] | None:
    """The first ``count`` arguments, all dequantized; None if none is. Raises Refused if some are not usable."""
    args = [argument(anchor, index) for index in range(count)]
    if not any(calls(arg, DEQUANTIZE) for arg in args):
        return None
    return tuple(quantized(arg, DEQUANTIZE, anchor, "input-float") for arg in args)


def quantized_output(
    anchor: fx.Node, tail: Sequence[str] = ()
) -> tuple[Quantized, fx.Node | None, list[fx.Node]]:
    """The quantize behind ``anchor``, the relu in front of it if there is one, and all nodes between the two.

    ``tail`` names the operators that may stand between, each at most once and in this order. Each node must have a
    single user. Raises Refused if there is no such quantize.
    """
    passed: list[fx.Node] = []
    current = only_user(anchor)
    for name in tail:
        if calls(current, name):
            passed.append(current)
            current = only_user(current)
    if current is None:
        last = passed[-1] if passed else anchor
        raise Refused("output-float", anchor, f"{last} has {len(last.users)} users")
    found = quantized(current, QUANTIZE, anchor, "output-float")
    return found, next((node for node in passed if calls(node, RELU)), None), passed


def skip_identities(node: fx.Node | None, passed: list[fx.Node]) -> fx.Node | None:
    """Follow single users from ``node`` to the first that is no clone. The clones are added to ``passed``."""
    while node is not None and calls(node, *_IDENTITIES):
        passed.append(node)
        node = only_user(node)
    return node


def operator(name: str) -> Operator:
    """The target of a node that calls a q8ta operator (``q8ta_add``), with the argument names of its definition."""
    spec = OPS[name]
    return Operator(spec.serialized, tuple(arg.name for arg in spec.args if arg.kind is not Kind.OUTPUT))


def replace(program: FxProgram, match: Match, args: Sequence[Any]) -> fx.Node:
    """Put the q8ta node where the anchor stands, and give it to the users of the output."""
    node = program.call(match.anchor, operator(match.operator), args, match.output.node.meta["val"])
    match.output.node.replace_all_uses_with(node)
    return node
