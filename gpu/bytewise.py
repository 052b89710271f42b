"""Values that follow from single bytes: what a dequantize and operators on single elements make of an int8 tensor.

Such a value is a table of 256 numbers, made by the CPU's own reference. So a chain from a dequantize to a quantize is a
table of 256 bytes, exact by construction, whatever stands in between: a clamp, a hardswish, a sigmoid, a gelu.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from refsim import aten
from refsim.core.errors import RefsimError
from refsim.core.launch import Launch
from refsim.core.tensor import TensorDesc
from refsim.graph.graph import Graph, Node, Ref
from refsim.ops.base import elementwise
from refsim.ops.base.traits import Family
from refsim_gpu.float_words import ROWS

#: Operators on the elements of one tensor, or of several of one shape.
ELEMENTWISE = frozenset((
    "relu", "relu6", "hardtanh", "clamp", "hardswish", "hardsigmoid", "leaky_relu", "elu", "sigmoid", "silu", "tanh",
    "gelu", "exp", "log", "expm1", "log1p", "sqrt", "rsqrt", "reciprocal", "abs", "neg", "sign", "floor", "ceil",
    "trunc", "round", "hardshrink", "sin", "cos", "erf", "clone", "clone_copy", "alias_copy", "detach_copy",
    "_to_copy", "_to_dim_order_copy", "_clone_dim_order", "add", "sub", "rsub", "mul", "div", "pow", "minimum",
    "maximum",
))  # fmt: skip
#: Every byte, in the order of a table.
BYTES = np.arange(256, dtype=np.uint8).view(np.int8)


@dataclass(frozen=True)
class Table:
    """What a value is for each byte of an int8 value."""

    source: int
    values: np.ndarray


def tables(graph: Graph, constants: Mapping[int, np.ndarray]) -> dict[int, Table]:
    """The float values of a graph that follow from single bytes."""
    found: dict[int, Table] = {}
    for node in graph.nodes:
        call = node.call
        if call is not None and call.op.family is Family.DEQUANTIZE:
            found[node.outputs[0]] = Table(node.inputs["x"], quantized(node, BYTES))
        elif node.is_float and (made := _of_elements(graph, node, found, constants)) is not None:
            found[node.outputs[0]] = made
    return found


def quantized(node: Node, values: np.ndarray) -> np.ndarray:
    """What a quantize or dequantize makes of each of these."""
    call = node.call
    assert call is not None
    return call.op.define(call.params, call.target, values)


def _of_elements(
    graph: Graph, node: Node, known: Mapping[int, Table], constants: Mapping[int, np.ndarray]
) -> Table | None:
    """The table of a float node's output, if it has one."""
    if node.name.split(".")[1] not in ELEMENTWISE or len(node.outputs) != 1:
        return None
    out = graph.tensors[node.outputs[0]]
    args: list[Any] = []
    sources = set()
    for arg in node.args:
        if not isinstance(arg, Ref):
            args.append(arg)
        elif arg.id in known and graph.tensors[arg.id].shape == out.shape:
            sources.add(known[arg.id].source)
            args.append(known[arg.id].values)
        elif arg.id in constants and constants[arg.id].size == 1:
            args.append(constants[arg.id].reshape(()))
        else:
            return None
    if len(sources) != 1 or out.dtype != np.float32:
        return None
    try:
        (made,) = aten.find(node.name, str(node)).run(args, str(node), graph.place(node))
    except (RefsimError, ValueError):  # the host says so
        return None
    if made.shape != BYTES.shape or made.dtype != np.float32:
        return None
    return Table(sources.pop(), made)


def bytes_launch(x: TensorDesc, out: TensorDesc, padding: int) -> Launch:
    """A byte for each byte; ``padding`` is what the output's own operator leaves beyond the elements."""
    return _launch("float/bytes", x, out, PADDING=padding)


def values_launch(x: TensorDesc, out: TensorDesc) -> Launch:
    """A float for each byte."""
    return _launch("float/values", x, out)


def _launch(shader: str, x: TensorDesc, out: TensorDesc, **values: object) -> Launch:
    push, spec = ROWS[shader]
    tensors = {"x": x, "out": out}
    size, local, tile = elementwise.tiled(out, [x])
    return Launch(shader, out, spec.pack(tensors), push.pack(tensors, **values), size, local, tile)
