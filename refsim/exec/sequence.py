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
from refsim.core.errors import GraphError, RefsimError, UnsupportedError
from refsim.core.launch import Launch
from refsim.core.layout import C, H, W
from refsim.core.resize import Resize
from refsim.core.tensor import TensorDesc
from refsim.exec.executor import Executor
from refsim.exec.model import Model
from refsim.formats.vkgraph.read import Blob
from refsim.formats.vkgraph.schema import OperatorCall, Value, VkTensor
from refsim.graph.build import bound
from refsim.graph.graph import Graph, Node, Tensor
from refsim.graph.interpreter import Observer, logical, results, run_node, stored
from refsim.graph.shapes import at_shapes
from refsim.graph.values import flat
from refsim.ops.base.registry import OPS
from refsim.ops.base.traits import Family

Held = PackedBuffer | np.ndarray
#: What memory holds at first in a second process, to see which elements depend on it: 66, and 48.56 as a float.
_OTHER_FILL = 0x42


@dataclass(frozen=True)
class StepOfSequence:
    """One run of a sequence: outputs as the process gives them, what the program means, and whether the run would have
    given the same in a process of its own. ``stopped``: why it gives none. ``never``: of each output, the elements that
    depend on memory into which no run wrote; they are those of memory that is zeros at first."""

    outputs: list[np.ndarray]
    meant: list[np.ndarray]
    as_alone: bool
    stopped: str = ""
    never: Sequence[np.ndarray] = ()

    def wrong(self, output: int) -> int:
        """Elements that differ where the program means one."""
        found, need = self.outputs[output], self.meant[output]
        return int(np.count_nonzero(_apart(found[tuple(map(slice, need.shape))], need)))

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
    process, other = OneProcess(model, executor), OneProcess(model, executor, _OTHER_FILL)
    for inputs in many:
        meant = model.run(inputs, executor)
        try:
            found = process.outputs(inputs)
        except GraphError as error:
            if not process.stopped:
                raise
            yield StepOfSequence([], meant, _stops(model, inputs, executor), str(error))
            continue
        try:
            never = [_apart(a, b) for a, b in zip(found, other.outputs(inputs), strict=True)]
        except RefsimError:  # such memory is nothing that an operator takes, as an index
            never = [np.ones(a.shape, bool) for a in found]
        alone = OneProcess(model, executor).outputs(inputs)
        same = all(a.tobytes() == b.tobytes() for a, b in zip(found, alone, strict=True))
        yield StepOfSequence(found, meant, same, never=never)


def _apart(found: np.ndarray, need: np.ndarray) -> np.ndarray:
    """Where two arrays have other bits."""
    bits = f"V{need.dtype.itemsize}"
    apart: np.ndarray = np.ascontiguousarray(found).view(bits) != np.ascontiguousarray(need).view(bits)
    return apart


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
        frozen = self.process.frozen(self.graph)
        actual = self._actual(inputs, number, frozen) if frozen else self.graph
        steps = {node.outputs: node for node in actual.nodes}
        steps |= {(value,): steps.pop((one,)) for value, one in self.computed.items()}
        values: dict[int, Held] = {t.id: t.data for t in actual.tensors.values() if t.data is not None}
        for value, array in zip(actual.inputs, inputs, strict=True):
            self._keep(number, actual, value, stored(actual, value, array, actual.where), values, None)
        for node in self.graph.nodes:
            if (step := steps.get(node.outputs)) is None:
                found = self._left(node, number, actual, values, frozen[node.outputs[0]])
            else:
                values |= {n: self._beyond(number, actual, n) for n in step.reads if n in self.wide}
                found = run_node(actual, step, values, self.process)
                if node.first_only is not None:
                    step, (value,), (held,) = None, node.outputs, found.values()
                    found = {value: self._over(number, actual.tensors[value], held, node.first_only)}
            for value, held in found.items():
                self._keep(number, actual, value, held, values, step)
            if observe is not None:
                observe.report(number, actual, (node,), found, 0.0)
        return [logical(actual, values, value) for value in actual.outputs]

    def _actual(self, inputs: Sequence[np.ndarray], number: int, frozen: Mapping[int, Resize]) -> Graph:
        """The graph with the shapes that upstream gives its values, without the operators that are not resized."""
        blob = self.process.blob(number)
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
        made = bound(replace(copy, graph=graph), self.graph.where, self.graph.target)
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
            array = memory.view(tensor.dtype)[_places(self.root.tensors[tensor.id], tensor.shape)]
            array[place] = part[place]
            return array if desc is None else PackedBuffer.pack(array, desc.layout, dtype=desc.dtype)
        whole = PackedBuffer(desc)
        whole.raw[:] = memory[: desc.nbytes]
        array = whole.unpack()
        array[place] = part[place]
        elements = whole.kinds() == ByteKind.VALUE
        whole.raw[elements] = PackedBuffer.pack(array, desc.layout, dtype=desc.dtype).raw[elements]
        return whole

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
