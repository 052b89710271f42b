"""Put conversions in front of arithmetic on tensors of unequal dtypes, so that each operator sees one dtype."""

from __future__ import annotations

import torch
from torch import fx

from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import is_single_tensor, target_name

#: Operators that ExecuTorch does this for, and whether integers become float32.
_ARITHMETIC = {
    "aten.add.Tensor": False,
    "aten.mul.Tensor": False,
    "aten.sub.Tensor": False,
    "aten.div.Tensor": True,
    "aten.div.Tensor_mode": False,
    "aten.minimum.default": False,
}
COPY = torch.ops.aten._to_copy.default


def run(program: FxProgram) -> FxProgram:
    program = program.copy()
    for node in program.calls():
        if target_name(node) in _ARITHMETIC and all(is_single_tensor(arg) for arg in node.args[:2]):
            dtype = _dtype(node)
            for index, source in enumerate(node.args[:2]):
                assert isinstance(source, fx.Node)
                if source.meta["val"].dtype != dtype:
                    node.update_arg(index, convert(program, node, source, dtype))
    return program


def convert(program: FxProgram, reader: fx.Node, source: fx.Node, dtype: torch.dtype) -> fx.Node:
    """A node in front of ``reader`` that gives ``source`` in another dtype."""
    return program.call(reader, COPY, (source,), source.meta["val"].to(dtype), {"dtype": dtype})


def _dtype(node: fx.Node) -> torch.dtype:
    """The dtype that torch computes in. A tensor without dims counts less there: it does not widen a float16."""
    values = [arg.meta["val"] for arg in node.args[:2] if isinstance(arg, fx.Node)]
    dtype = torch.result_type(*values)
    to_float = _ARITHMETIC[target_name(node)] or node.kwargs.get("rounding_mode", "") is None
    return torch.get_default_dtype() if to_float and not dtype.is_floating_point else dtype
