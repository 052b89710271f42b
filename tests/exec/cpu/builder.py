"""Graphs written by hand, node by node: bytes, float operators between them, bytes; and what is made of them."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import numpy as np

from refsim.aten.pool import max_pool2d_with_indices
from refsim.core.layout import LAYOUTS, PACKED_4C, PACKED_CONV2D, WIDTH_PACKED, Layout
from refsim.core.rng import Rng
from refsim.core.tensor import TensorDesc
from refsim.exec.cpu import EmulatedExecutor, NativeExecutor
from refsim.exec.cpu.step import PlanStep
from refsim.exec.executor import Executor, run_graph
from refsim.graph.graph import Graph, Node, Ref, Tensor
from refsim.graph.interpreter import Kept, Observer
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target

F32, INT8 = np.dtype(np.float32), np.dtype(np.int8)
PACKED = [layout for layout in LAYOUTS.values() if layout.packed_int8 and layout is not PACKED_CONV2D]
Quantization = tuple[float, int]
Shape = tuple[int, ...]


class Builder:
    """A graph that grows by one node after the other; values are named by their numbers."""

    def __init__(self, target: Target | None = None) -> None:
        self.target = target or Target()
        self.tensors: list[Tensor] = []
        self.nodes: list[Node] = []
        self.inputs: list[int] = []

    def tensor(self, shape: Shape, dtype: np.dtype[Any], layout: Layout | None) -> int:
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

    def through(self, x: int, q: Quantization, layout: Layout = PACKED_4C) -> int:
        """Real values quantized, and dequantized again."""
        int8 = self.convert("q8ta_quantize", x, q, layout)
        return self.convert("q8ta_dequantize", int8, q, WIDTH_PACKED)

    def entered(self, shape: Shape, q: Quantization, layout: Layout = PACKED_4C) -> int:
        """The real values of one more input's bytes."""
        self.inputs.append(self.tensor(shape, F32, WIDTH_PACKED))
        return self.through(self.inputs[-1], q, layout)

    def float(self, name: str, args: tuple[Any, ...], *shapes: Shape) -> int:
        outs = [self.tensor(s, np.dtype(np.int32) if k else F32, WIDTH_PACKED) for k, s in enumerate(shapes)]
        self.nodes.append(Node(len(self.nodes), 0, f"aten.{name}", args, tuple(outs)))
        return outs[0]

    def clamp(self, x: int, *bounds: float | None) -> int:
        return self.float("hardtanh.default", (Ref(x), *bounds), self.tensors[x].shape)

    def max_pool(self, x: int, *window: Any) -> int:
        """Kernel, stride, padding, dilation, ceil mode; the value behind it holds the indices."""
        out = max_pool2d_with_indices(np.zeros(self.tensors[x].shape, F32), *window)[0].shape
        return self.float("max_pool2d_with_indices.default", (Ref(x), *window), out, out)

    def mean(self, x: int, dims: Sequence[int] = (2, 3), keep: bool = True) -> int:
        """Over the pixels of each channel."""
        shape = self.tensors[x].shape[:2]
        return self.float("mean.dim", (Ref(x), [*dims], keep), (*shape, 1, 1) if keep else shape)

    def view(self, x: int, shape: Shape) -> int:
        return self.float("view_copy.default", (Ref(x), list(shape)), shape)

    def graph(self, *outputs: int) -> Graph:
        tensors = dict(enumerate(self.tensors))
        return Graph("test", tensors, tuple(self.nodes), tuple(self.inputs), outputs, self.target)


def drawn(graph: Graph, seed: int = 1) -> list[np.ndarray]:
    rng = Rng(seed)
    return [rng.uniform(-6.0, 6.0, graph.tensors[x].shape).astype(np.float32) for x in graph.inputs]


def ran(
    graph: Graph, given: Sequence[np.ndarray], executor: Executor, wanted: Set[int] = frozenset()
) -> tuple[list[bytes], dict[int, bytes]]:
    """The bytes of the outputs, and of each value that an observer asks for."""
    found = Kept()
    watch = Observer(found, lambda delegate, value: value in wanted)
    outputs = run_graph(graph, given, executor, 0, watch if wanted else None)
    return [out.tobytes() for out in outputs], {value: raw for (_, value), raw in found.raw().items()}


def check(graph: Graph, given: Sequence[np.ndarray] | None = None) -> list[PlanStep]:
    """The same outputs as node by node, on 1 to 3 threads, and again; the steps of more than one node."""
    given = drawn(graph) if given is None else given
    expected = ran(graph, given, EmulatedExecutor())
    executors = [NativeExecutor(threads) for threads in (1, 2, 3)]
    for executor in (*executors, executors[0]):
        assert ran(graph, given, executor) == expected, executor.threads
    return [step for step in executors[-1].session(graph).steps if len(step.nodes) > 1]


def check_each(graph: Graph, given: Sequence[np.ndarray], threads: int) -> None:
    """Every value, asked for alone and with all others, is told as node by node."""
    outputs = {value for node in graph.nodes for value in node.outputs}
    _, expected = ran(graph, given, EmulatedExecutor(), outputs)
    assert expected.keys() == outputs
    for wanted in (*({value} for value in outputs), outputs):
        _, told = ran(graph, given, NativeExecutor(threads), wanted)
        assert told == {value: expected[value] for value in wanted}
