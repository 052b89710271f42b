"""Runs of several shapes as one process of ET-VK runs them: what one leaves in memory is there for the next.

An operator that upstream does not resize (refsim/core/resize.py) keeps the bound's shape. Where it writes nothing, or
reads behind its smaller input, lies what was written before: by an earlier run, or by another value in the same memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from refsim.core import index
from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.core.errors import GraphError, UnsupportedError
from refsim.core.launch import Launch
from refsim.core.layout import C, H, W
from refsim.core.resize import Resize
from refsim.exec.executor import Executor
from refsim.exec.model import Model
from refsim.formats.vkgraph.read import Blob
from refsim.formats.vkgraph.schema import OperatorCall, Value, VkTensor
from refsim.graph.build import bound
from refsim.graph.graph import Graph, Node, Tensor
from refsim.graph.interpreter import Observer, logical, results, run_node, stored
from refsim.graph.shapes import Sizes, at_shapes, zeros
from refsim.graph.values import flat
from refsim.ops.base.registry import OPS

Held = PackedBuffer | np.ndarray


@dataclass(frozen=True)
class StepOfSequence:
    """One run of a sequence: outputs as the process gives them, what the program means, and whether the run would have
    given the same in a process of its own. ``stopped``: why it gives none."""

    outputs: list[np.ndarray]
    meant: list[np.ndarray]
    as_alone: bool
    stopped: str = ""

    def wrong(self, output: int) -> int:
        """Elements that differ where the program means one."""
        found, need = self.outputs[output], self.meant[output]
        inside = np.ascontiguousarray(found[tuple(map(slice, need.shape))])
        bits = f"V{need.dtype.itemsize}"
        return int(np.count_nonzero(inside.view(bits) != np.ascontiguousarray(need).view(bits)))

    def stale(self, output: int) -> int:
        """Elements beside those that the program means."""
        return int(self.outputs[output].size - self.meant[output].size)

    @property
    def right(self) -> bool:
        count = len(self.outputs)
        return not self.stopped and not any(self.wrong(k) or self.stale(k) for k in range(count))


def sequence(
    model: Model, many: Sequence[Sequence[np.ndarray]], executor: Executor
) -> Iterator[StepOfSequence]:
    """Runs of a model with these inputs, one after another in one process. UnsupportedError as `OneProcess.outputs`."""
    process = OneProcess(model, executor)
    for inputs in many:
        meant = model.run(inputs, executor)
        try:
            found = process.outputs(inputs)
        except GraphError as error:
            if not process.stopped:
                raise
            yield StepOfSequence([], meant, _stops(model, inputs, executor), str(error))
            continue
        alone = OneProcess(model, executor).outputs(inputs)
        same = all(a.tobytes() == b.tobytes() for a, b in zip(found, alone, strict=True))
        yield StepOfSequence(found, meant, same)


def _stops(model: Model, inputs: Sequence[np.ndarray], executor: Executor) -> bool:
    try:
        OneProcess(model, executor).outputs(inputs)
    except GraphError:
        return True
    return False


class OneProcess(Executor):
    """Runs a model at one shape after another; the memory stays. ``fill``: the byte that all of it has at first.

    Images are taken to lie in memory row by row, which is true on lavapipe; where a device has another order, the stale
    rows of a value that shares memory with an image are others.
    """

    name = "one process"

    def __init__(self, model: Model, inner: Executor, fill: int = 0) -> None:
        self._model, self._inner, self._fill = model.bound or model, inner, fill
        self._memory: dict[tuple[int, int, int], np.ndarray] = {}
        self._copy = self._model
        self.stopped = ""

    def outputs(self, inputs: Sequence[np.ndarray], observe: Observer | None = None) -> list[np.ndarray]:
        """The outputs of the next run, those of the bound's shape where upstream leaves them so.

        GraphError where the runtime throws, as it then does in every later run, and UnsupportedError where nobody knows
        what an operator leaves.
        """
        self._copy = self._model.at(inputs)
        return self._copy.run(inputs, self, observe)

    def run(self, launch: Launch, inputs: Sequence[np.ndarray]) -> PackedBuffer:
        return self._inner.run(launch, inputs)

    def session(self, graph: Graph, watched: Set[int] = frozenset()) -> _Run:
        return _Run(self, graph)

    def frozen(self, graph: Graph) -> dict[int, Resize]:
        """The values that keep the bound's shape, and why."""
        found: dict[int, Resize] = {}
        for node, resize in graph.misshaped():
            if resize.stops:
                self.stopped = self.stopped or f"{node}: {resize.note}"
            elif not resize.keeps or node.meaning is not None:
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

    def memory(self, delegate: int, tensor: Tensor, root: Graph) -> np.ndarray:
        """The memory of a value, in bytes: that of its memory object, or its own."""
        shared = tensor.mem_obj_id >= 0
        place = (delegate, tensor.mem_obj_id, -1) if shared else (delegate, -1, tensor.id)
        if place not in self._memory:
            sharers = [t for t in root.tensors.values() if t.mem_obj_id == place[1]] if shared else [tensor]
            size = max(_extent(root.tensors[t.id]) for t in sharers)
            fill = 0 if _image(tensor) else self._fill
            self._memory[place] = np.full(size, fill, np.uint8)
        return self._memory[place]


class _Run:
    """One delegate at one shape."""

    def __init__(self, process: OneProcess, graph: Graph) -> None:
        self.process, self.graph, self.root = process, graph, graph.root
        self.wide: dict[int, int] = {}  # values of larger sizes than their own, and whose elements these are

    def run(
        self, inputs: Sequence[np.ndarray], number: int = 0, observe: Observer | None = None
    ) -> list[np.ndarray]:
        frozen = self.process.frozen(self.graph)
        actual = self._actual(inputs, number, frozen) if frozen else self.graph
        steps = {node.outputs: node for node in actual.nodes}
        values: dict[int, Held] = {t.id: t.data for t in actual.tensors.values() if t.data is not None}
        for value, array in zip(actual.inputs, inputs, strict=True):
            self._keep(number, actual, value, stored(actual, value, array, actual.where), values, None)
        for node in self.graph.nodes:
            if frozen.keys() & set(node.outputs):
                found = self._left(node, number, actual, values, frozen[node.outputs[0]])
            else:
                step = steps[node.outputs]
                values |= {n: self._beyond(number, actual, n) for n in step.reads if n in self.wide}
                found = run_node(actual, step, values, self.process)
            for value, held in found.items():
                self._keep(number, actual, value, held, values, steps.get(node.outputs))
            if observe is not None:
                observe.report(number, actual, (node,), found, 0.0)
        return [logical(actual, values, value) for value in actual.outputs]

    def _actual(self, inputs: Sequence[np.ndarray], number: int, frozen: Mapping[int, Resize]) -> Graph:
        """The graph with the shapes that upstream gives its values, without the operators that are not resized."""
        known: Sizes = {n: zeros(self.root.tensors[n].shape, self.root.tensors[n].dtype) for n in frozen}
        blob = self.process.blob(number)
        copy, _ = at_shapes(blob, self.root, inputs, self.graph.where, known)
        values = list(copy.graph.values)
        chain = []
        for call in copy.graph.chain:
            if frozen.keys().isdisjoint(flat(copy.graph, call.args[-1:])):
                args = [self._widened(values, call, arg) for arg in call.args]
                chain.append(replace(call, args=tuple(args)))
        graph = replace(copy.graph, chain=tuple(chain), values=tuple(values))
        made = bound(replace(copy, graph=graph), self.graph.where, self.graph.target)
        return replace(made, bound=self.root)

    def _widened(self, values: list[Value], call: OperatorCall, arg: int) -> int:
        """An argument, or for one that became smaller than the output it is added to, a value of the output's sizes."""
        op, out, held = OPS.serialized(call.name), values[call.args[-1]], values[arg]
        if op is None or op.beyond is None or not (isinstance(held, VkTensor) and isinstance(out, VkTensor)):
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

    def _left(
        self, node: Node, number: int, actual: Graph, values: Mapping[int, Held], resize: Resize
    ) -> dict[int, Held]:
        """What lies in the outputs of an operator that is not resized, in the bound's shape."""
        first = self.root
        if resize.reads_all:
            same = next(other for other in first.nodes if other.outputs == node.outputs)
            given = {n: t.data for n, t in first.tensors.items() if t.data is not None}
            given |= {n: self._found(number, actual, n, values) for n in node.reads if n not in given}
            return {n: stored(first, n, a, actual.where) for n, a in results(first, same, given).items()}
        (value,) = node.outputs
        meant = run_node(self.graph, node, self._small(node, actual, values), self.process)[value]
        assert isinstance(meant, PackedBuffer)
        desc = first.tensors[value].desc
        assert desc is not None
        whole = PackedBuffer(desc)
        whole.raw[:] = self.process.memory(number, first.tensors[value], first)[: desc.nbytes]
        array = whole.unpack()
        array[tuple(slice(size) for size in meant.desc.shape)] = meant.unpack()
        elements = whole.kinds() == ByteKind.VALUE
        whole.raw[elements] = PackedBuffer.pack(array, desc.layout, dtype=desc.dtype).raw[elements]
        return {value: whole}

    def _small(self, node: Node, actual: Graph, values: Mapping[int, Held]) -> dict[int, Held]:
        """What a node reads, cut to the sizes that it would have."""
        found: dict[int, Held] = {}
        for value in node.reads:
            shape = self.graph.tensors[value].shape
            array = logical(actual, values, value)[tuple(map(slice, shape))]
            found[value] = stored(self.graph, value, np.ascontiguousarray(array), actual.where)
        return found

    def _found(self, number: int, actual: Graph, value: int, values: Mapping[int, Held]) -> np.ndarray:
        """The elements that a kernel finds where a value has the bound's shape, by its places."""
        tensor = self.root.tensors[value]
        if (desc := tensor.desc) is not None and desc.is_int8:
            raise UnsupportedError(actual.where, "nobody knows what it reads", got=str(desc))
        memory = self.process.memory(number, tensor, self.root)
        return memory.view(tensor.dtype)[_places(tensor, tensor.shape)]

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
        memory.view(tensor.dtype)[_places(tensor, array.shape)] = array


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
