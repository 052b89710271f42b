"""One process of a runtime that runs a model at several shapes: what one run leaves in memory is there for the next.

An operator that the runtime does not resize (refsim/core/resize.py) keeps the bound's shape. Where it writes nothing,
or reads behind its smaller input, lies what was written before: by an earlier run, or by another value in that memory.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from math import prod
from typing import Protocol

import numpy as np

from refsim.aten import bridge
from refsim.core import index
from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.core.errors import GraphError, UnsupportedError
from refsim.core.launch import Launch
from refsim.core.layout import FLAT, C, H, W
from refsim.core.resize import Resize
from refsim.core.tensor import TensorDesc
from refsim.exec.executor import Executor
from refsim.exec.prepared import PreparedModel
from refsim.formats.vkgraph.read import Blob
from refsim.formats.vkgraph.schema import OperatorCall, Value, VkTensor
from refsim.graph.flat import bound_graph
from refsim.graph.graph import Graph, Node, Tensor
from refsim.graph.interpreter import Observer, logical, run_node, stored
from refsim.graph.shapes import SYMBOLS, at_shapes
from refsim.graph.values import flat
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from refsim.ops.base.traits import Family

Held = PackedBuffer | np.ndarray


class Shaped(Protocol):
    """What a process asks of a model."""

    @property
    def blobs(self) -> Mapping[int, Blob]: ...
    @property
    def bound(self) -> Shaped | None: ...
    def at(self, inputs: Sequence[np.ndarray]) -> Shaped: ...
    def as_meant(self, runner: Executor, observe: Observer | None = None) -> PreparedModel: ...


class OneProcess(Executor):
    """Runs a model at one shape after another; the memory stays. ``fill``: the byte that all of it has at first.
    ``alone``: each run of a delegate is the first one of its process.

    Images are taken to lie in memory row by row, which is true on lavapipe; where a device has another order, the stale
    rows of a value that shares memory with an image are others.
    """

    name = "one process"
    node_by_node = True

    def __init__(self, model: Shaped, inner: Executor, fill: int = 0, alone: bool = False) -> None:
        self._model, self._inner, self._fill, self._alone = model.bound or model, inner, fill, alone
        self._memory: dict[tuple[int, int, int], np.ndarray] = {}
        self._copy = model
        self.flat, self.stopped = inner.flat, ""

    def outputs(self, inputs: Sequence[np.ndarray], observe: Observer | None = None) -> list[np.ndarray]:
        """The outputs of the next run, those of the bound's shape where upstream leaves them so.

        GraphError where the runtime throws, as it then does in every later run, and UnsupportedError where nobody knows
        what an operator leaves.
        """
        self._copy = self._model.at(inputs)
        return self._copy.as_meant(self, observe).run(inputs)

    def run(self, launch: Launch, inputs: Sequence[np.ndarray]) -> PackedBuffer:
        return self._inner.run(launch, inputs)

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        if self.flat:
            return self._inner.run_prepared(prepared, inputs)
        return super().run_prepared(prepared, inputs)

    def begin(self, delegate: int) -> None:
        """A run of a delegate begins."""
        if self._alone:
            self._memory = {place: held for place, held in self._memory.items() if place[0] != delegate}

    def session(self, graph: Graph, watched: Set[int] = frozenset()) -> _Run:
        return _Run(self, graph)

    def frozen(self, graph: Graph) -> dict[int, Resize]:
        """The values that keep the bound's shape, and why."""
        found: dict[int, Resize] = {}
        for node, resize in graph.misshaped():
            if resize.stops:
                self.stopped = self.stopped or f"{node}: {resize.note}"
            elif not resize.keeps and node.first_only is None:
                raise UnsupportedError(
                    f"{graph.where}: {node}", "nobody knows what it leaves", got=resize.note
                )
            else:
                found |= dict.fromkeys(node.outputs, resize)
        if self.stopped:
            raise GraphError(graph.where, "the runtime throws here, and in every later run", got=self.stopped)
        return found

    def blob(self, number: int) -> Blob:
        return self._copy.blobs[number]

    def late_size(self, number: int) -> int | None:
        """A value whose size becomes a number before the value itself has a size; None if there is none."""
        graph = self._model.blobs[number].graph
        asked = (call.args[0] for call in graph.chain if call.name in SYMBOLS)
        tensors = (n for n in asked if isinstance(graph.values[n], VkTensor) and n not in graph.input_ids)
        return next(tensors, None)

    def memory(self, delegate: int, tensor: Tensor, root: Graph) -> np.ndarray:
        """The memory of a value, in bytes: that of its memory object, or its own."""
        shared = tensor.mem_obj_id >= 0
        place = (delegate, tensor.mem_obj_id, -1) if shared else (delegate, -1, tensor.id)
        if place not in self._memory:
            sharers = [t for t in root.tensors.values() if t.mem_obj_id == place[1]] if shared else [tensor]
            size = max(_extent(root.tensors[t.id]) for t in sharers)
            self._memory[place] = np.full(size, self._fill, np.uint8)
        return self._memory[place]


class _Run:
    """One delegate at one shape."""

    def __init__(self, process: OneProcess, graph: Graph) -> None:
        self.process, self.graph, self.root = process, graph, graph.root
        self.wide: dict[int, int] = {}  # values of larger sizes than their own, and whose elements these are
        self.computed: dict[
            int, int
        ] = {}  # values that keep a dim of the bound, and what their operators compute

    def run(
        self, inputs: Sequence[np.ndarray], number: int = 0, observe: Observer | None = None
    ) -> list[np.ndarray]:
        self.process.begin(number)
        frozen = self.process.frozen(self.graph)
        actual = self._actual(inputs, number, frozen) if frozen else self.graph
        steps = {node.outputs: node for node in actual.nodes}
        steps |= {(value,): steps.pop((one,)) for value, one in self.computed.items()}
        values: dict[int, Held] = {t.id: t.data for t in actual.tensors.values() if t.data is not None}
        for value, array in zip(actual.inputs, inputs, strict=True):
            self._keep(number, actual, value, stored(actual, value, array, actual.where), values, None)
        for node in self.graph.nodes:
            begin = time.perf_counter()
            ran, read = (actual, node), {value: values[value] for value in node.reads if value in values}
            if (step := steps.get(node.outputs)) is None:
                resize = frozen[node.outputs[0]]
                if resize.reads_all:
                    ran = self.root, next(other for other in self.root.nodes if other.outputs == node.outputs)
                    read = {value: self._found(number, actual, value) for value in node.reads}
                    found = run_node(*ran, read, self.process)
                else:
                    found = self._left(node, number, actual, values)
            else:
                values |= {n: self._beyond(number, actual, n) for n in step.reads if n in self.wide}
                found = self._computed(number, actual, step, values)
                if node.first_only is not None:
                    step, (value,), (held,) = None, node.outputs, found.values()
                    found = {value: self._over(number, actual.tensors[value], held, node.first_only)}
            for value, held in found.items():
                self._keep(number, actual, value, held, values, step)
            if observe is not None:
                graph, one = ran
                observe.report(number, graph, (one,), found, time.perf_counter() - begin, read=read)
        return [logical(actual, values, value) for value in actual.outputs]

    def _actual(self, inputs: Sequence[np.ndarray], number: int, frozen: Mapping[int, Resize]) -> Graph:
        """The graph with the shapes that upstream gives its values, without the operators that are not resized."""
        blob = self.process.blob(number)
        if self.graph.target.runtime.flat and (late := self.process.late_size(number)) is not None:
            what = f"a size is asked for of value {late}, which has that of the run before, if it follows its input"
            raise UnsupportedError(self.graph.where, what, need="sizes of inputs alone")
        copy, _ = at_shapes(blob, self.root, inputs, self.graph.where, frozen)
        values = list(copy.graph.values)
        chain = []
        for call in copy.graph.chain:
            written = tuple(flat(copy.graph, call.args[-1:]))
            if not any(value in frozen and frozen[value].keeps for value in written):
                args = [self._widened(values, call, arg) for arg in call.args]
                if not frozen.keys().isdisjoint(written):
                    args[-1] = self._outer(values, call)
                chain.append(replace(call, args=tuple(args)))
        graph = replace(copy.graph, chain=tuple(chain), values=tuple(values))
        made = bound_graph(replace(copy, graph=graph), self.graph.where, self.graph.target)
        return replace(made, bound=self.root)

    def _outer(self, values: list[Value], call: OperatorCall) -> int:
        """What an operator computes whose output keeps outer dims of the bound: as many as its input has."""
        source, out = values[call.args[0]], values[call.args[-1]]
        assert isinstance(source, VkTensor) and isinstance(out, VkTensor)
        outer = len(out.dims) - 3
        self.computed[call.args[-1]] = len(values)
        values.append(replace(out, dims=(*source.dims[:outer], *out.dims[outer:])))
        return len(values) - 1

    def _widened(self, values: list[Value], call: OperatorCall, arg: int) -> int:
        """An argument, or for one that became smaller than the output it is added to, a value of the output's sizes."""
        op, out, held = OPS.serialized(call.name), values[call.args[-1]], values[arg]
        if (
            op is None
            or op.upstream.beyond is None
            or not (isinstance(held, VkTensor) and isinstance(out, VkTensor))
        ):
            return arg
        alike = self.root.tensors[arg].shape == self.root.tensors[call.args[-1]].shape
        if not alike or held.dims == out.dims:
            return arg
        self.wide[len(values)] = arg
        values.append(replace(held, dims=out.dims))
        return len(values) - 1

    def _beyond(self, number: int, actual: Graph, value: int) -> PackedBuffer:
        """What a kernel finds in a value whose sizes are smaller than it goes: by the strides of these, to its end."""
        desc, asked = actual.tensors[self.wide[value]].desc, actual.tensors[value].desc
        assert desc is not None and asked is not None
        memory = self.process.memory(number, self.root.tensors[self.wide[value]], self.root)
        n, c, h, w = np.indices(tuple(reversed(asked.sizes_whcn)))
        at = index.buf_idx(desc.meta, 0, desc.hashed, w, h, c, n)
        array = np.where(at < memory.size, memory[np.minimum(at, memory.size - 1)], 0).view(np.int8)
        return PackedBuffer.pack(array.reshape(asked.shape), asked.layout, dtype=asked.dtype)

    def _left(self, node: Node, number: int, actual: Graph, values: Mapping[int, Held]) -> dict[int, Held]:
        """What lies in the outputs of an operator that is not resized, in the bound's shape."""
        first = self.root
        (value,) = node.outputs
        if node.call is not None and node.call.op.family is Family.RELAYOUT:
            (source,) = node.reads
            computed: Held = self._blocks(number, actual.tensors[source], first.tensors[value].shape)
        else:
            computed = run_node(self.graph, node, self._small(node, actual, values), self.process)[value]
        return {value: self._over(number, actual.tensors[value], computed, node.first_only)}

    def _blocks(self, number: int, source: Tensor, most: tuple[int, ...]) -> np.ndarray:
        """What a kernel copies that goes over the blocks of its input: padding, too, where the output has elements."""
        desc = source.desc
        assert desc is not None
        shape = [*desc.shape]
        for place in range(len(shape)):
            extent = desc.layout.block_extent(len(shape) - 1 - place)
            shape[place] = -(-shape[place] // extent) * extent
        whole = PackedBuffer(TensorDesc(tuple(shape), desc.layout, desc.dtype))
        memory = self.process.memory(number, self.root.tensors[source.id], self.root)
        whole.raw[:] = memory[: whole.raw.size]
        return whole.unpack()[tuple(map(slice, most))]

    def _over(self, number: int, tensor: Tensor, computed: Held, inner: int | None) -> Held:
        """What lies in an output, with what a kernel writes over it: all that it computes, or the first of what lies
        along the outer dims, ``inner`` others."""
        part = computed.unpack() if isinstance(computed, PackedBuffer) else computed
        outer = 0 if inner is None else max(part.ndim - inner, 0)
        place = (*[slice(1)] * outer, *map(slice, part.shape[outer:]))
        memory = self.process.memory(number, self.root.tensors[tensor.id], self.root)
        desc = tensor.desc
        if desc is None or not desc.is_int8:
            array = _typed(memory, tensor)[_places(self.root.tensors[tensor.id], tensor.shape)]
            array[place] = part[place]
            return array if desc is None else PackedBuffer.pack(array, desc.layout, dtype=desc.dtype)
        whole = PackedBuffer(desc)
        whole.raw[:] = memory[: desc.nbytes]
        array = whole.unpack()
        array[place] = part[place]
        elements = whole.kinds() == ByteKind.VALUE
        whole.raw[elements] = PackedBuffer.pack(array, desc.layout, dtype=desc.dtype).raw[elements]
        return whole

    def _computed(
        self, number: int, actual: Graph, node: Node, values: Mapping[int, Held]
    ) -> dict[int, Held]:
        """The outputs of a node that is resized. On flat storage a view has all of its input, whatever it asks for."""
        if not actual.target.runtime.flat:
            return run_node(actual, node, values, self.process)
        self._copy_words(number, actual, node)
        if not bridge.takes_prefix(node.name):
            return run_node(actual, node, values, self.process)
        (value,) = node.outputs
        part = logical(actual, values, node.reads[0]).reshape(actual.tensors[value].shape)
        return {value: stored(actual, value, part, actual.where)}

    def _copy_words(self, number: int, actual: Graph, node: Node) -> None:
        """A copy of int8 at a smaller shape, as a runtime with flat storage makes it: four bytes an element."""
        source, out = actual.tensors[node.reads[0]], actual.tensors[node.outputs[0]]
        copies = node.meaning is None or node.meaning.op.family is Family.RELAYOUT
        if not copies or out.dtype != np.int8 or out.shape == self.root.tensors[out.id].shape:
            return
        here, there = (self.process.memory(number, self.root.tensors[t.id], self.root) for t in (out, source))
        count = 4 * prod(out.shape)
        if count > min(here.size, there.size):
            what = "the runtime copies four bytes an element, past the end of a buffer; nobody knows what follows"
            raise UnsupportedError(f"{actual.where}: {node}", what, need="the bound's shapes")
        here[:count] = there[:count].copy()

    def _small(self, node: Node, actual: Graph, values: Mapping[int, Held]) -> dict[int, Held]:
        """What a node reads, cut to the sizes that it would have."""
        found: dict[int, Held] = {}
        for value in node.reads:
            shape = self.graph.tensors[value].shape
            array = logical(actual, values, value)[tuple(map(slice, shape))]
            found[value] = stored(self.graph, value, np.ascontiguousarray(array), actual.where)
        return found

    def _found(self, number: int, actual: Graph, value: int) -> Held:
        """The elements that a kernel finds where a value has the bound's shape, by its places."""
        tensor = self.root.tensors[value]
        if tensor.data is not None:
            return tensor.data
        if (desc := tensor.desc) is not None and desc.is_int8 and desc.layout != FLAT:
            raise UnsupportedError(actual.where, "nobody knows what it reads", got=str(desc))
        memory = _typed(self.process.memory(number, tensor, self.root), tensor)
        return stored(self.root, value, memory[_places(tensor, tensor.shape)], actual.where)

    def _keep(
        self,
        number: int,
        actual: Graph,
        value: int,
        held: Held,
        values: dict[int, Held],
        by: Node | None,
    ) -> None:
        values[value] = held
        tensor = self.root.tensors[value]
        memory = self.process.memory(number, tensor, self.root)
        if isinstance(held, PackedBuffer) and held.desc.is_int8:
            written = slice(None) if by is None or by.call is None else by.call.device_defined()
            memory[: held.raw.size][written] = held.raw[written]
            return
        array = logical(actual, values, value)
        _typed(memory, tensor)[_places(tensor, array.shape)] = array


def _image(tensor: Tensor) -> bool:
    return not tensor.buffer and tensor.layout is not None and not tensor.layout.packed_int8


def _whcn(shape: Sequence[int]) -> list[int]:
    return [*reversed(shape), *([1] * (4 - len(shape)))]


def _texels(tensor: Tensor) -> list[int]:
    """Width, height, depth of an image."""
    assert tensor.layout is not None
    w, h, c, n = (
        -(-size // 4) if dim == tensor.layout.inner else size for dim, size in enumerate(_whcn(tensor.shape))
    )
    return [w, h, c * n]


def _extent(tensor: Tensor) -> int:
    """Bytes of the memory of a value at the bound."""
    if _image(tensor):
        return prod(_texels(tensor)) * 4 * tensor.dtype.itemsize
    return max(tensor.nbytes, prod(tensor.shape) * tensor.dtype.itemsize)


def _typed(memory: np.ndarray, tensor: Tensor) -> np.ndarray:
    """Memory as elements of a value's dtype, of which another value may leave no whole number."""
    return memory[: memory.size - memory.size % tensor.dtype.itemsize].view(tensor.dtype)


def _places(tensor: Tensor, shape: Sequence[int]) -> np.ndarray:
    """Where the elements of a value lie in its memory at a shape, in elements."""
    if not _image(tensor):
        return np.arange(prod(shape)).reshape(tuple(shape))
    assert tensor.layout is not None
    inner = tensor.layout.inner
    width, height, _ = _texels(tensor)
    sizes = _whcn(shape)
    deep = _whcn(tensor.shape)[C]
    deep = -(-deep // 4) if inner == C else deep
    at = np.indices(tuple(reversed(sizes)))
    by = {dim: at[3 - dim] for dim in (W, H, C)}
    lane = by[inner] % 4
    by[inner] = by[inner] // 4
    texel = ((at[0] * deep + by[C]) * height + by[H]) * width + by[W]
    return (texel * 4 + lane).reshape(tuple(shape))
