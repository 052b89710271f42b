"""Calls of operators in a graph that is being written: each argument as a value that a runtime takes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from refsim.core.tensor import TensorDesc
from refsim.formats.vkgraph.edit import CLONE, GraphEditor
from refsim.ops.base.arg import Kind
from refsim.ops.base.spec import Call


def tensor(graph: GraphEditor, desc: TensorDesc) -> int:
    """A buffer for a tensor in its layout: int8, or float32."""
    return graph.tensor("int8" if desc.is_int8 else "float32", desc.shape, desc.layout)


def add_call(graph: GraphEditor, call: Call, inputs: Mapping[str, int], out: int) -> None:
    """Append an operator that reads these tensors and writes ``out``; constants and parameters are added."""
    args = []
    for arg in call.op.args:
        if arg.kind is Kind.OUTPUT:
            args.append(out)
        elif arg.kind is Kind.INPUT:
            args.append(inputs[arg.name])
        elif arg.kind is Kind.CONST:
            args.append(constant(graph, call.consts[arg.name]))
        else:
            args.append(graph.literal(getattr(call.params, arg.name)))
    if call.op.serialized == CLONE:
        graph.clone(args[0], out)
    else:
        graph.call(call.op.serialized, *args)


def constant(graph: GraphEditor, value: np.ndarray | None) -> int:
    """A constant as exporters write it: sums, scales and biases padded with zeros to a multiple of 4."""
    if value is None:
        return graph.literal(None)
    if value.ndim == 1 and len(value) % 4:
        value = np.pad(value, (0, -len(value) % 4))
    return graph.constant(value)
