"""Graphs written by hand, node by node: q8ta conversions and float operators between them."""

from __future__ import annotations

from typing import Any

import numpy as np

from refsim.core.layout import WIDTH_PACKED, Layout
from refsim.core.tensor import TensorDesc
from refsim.graph.graph import Graph, Node, Ref, Tensor
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target

F32, INT8 = np.dtype(np.float32), np.dtype(np.int8)
Quantization = tuple[float, int]


class Builder:
    """A graph of one chain: quantize, dequantize, float operators, quantize, dequantize."""

    def __init__(self, target: Target | None = None) -> None:
        self.target = target or Target()
        self.tensors: list[Tensor] = []
        self.nodes: list[Node] = []

    def tensor(self, shape: tuple[int, ...], dtype: np.dtype[Any], layout: Layout | None) -> int:
        self.tensors.append(Tensor(len(self.tensors), shape, dtype, layout))
        return len(self.tensors) - 1

    def convert(self, name: str, x: int, q: Quantization, layout: Layout) -> int:
        """A quantize to, or a dequantize from, these parameters."""
        source = self.tensors[x]
        dtype = INT8 if name == "q8ta_quantize" else F32
        out = self.tensor(source.shape, dtype, layout)
        op = OPS[name]
        params = op.make_params({"scale": q[0], "zp": q[1]})
        assert source.layout is not None
        x_desc = TensorDesc(source.shape, source.layout)
        call = op.bind(params, {"x": x_desc}, {}, layout, target=self.target)
        self.nodes.append(Node(len(self.nodes), 0, name, (Ref(x),), (out,), Prepared(call), {"x": x}))
        return out

    def float(self, name: str, args: tuple[Any, ...], *shapes: tuple[int, ...]) -> int:
        outs = [self.tensor(s, np.dtype(np.int32) if k else F32, WIDTH_PACKED) for k, s in enumerate(shapes)]
        self.nodes.append(Node(len(self.nodes), 0, name, args, tuple(outs)))
        return outs[0]

    def graph(self, outputs: tuple[int, ...]) -> Graph:
        return Graph("test", dict(enumerate(self.tensors)), tuple(self.nodes), (0,), outputs, self.target)
