"""A test double of ExecuTorch's runtime with its Vulkan delegate: the rules that the real one was seen to follow.

Memory is real: tensors with one memory object share bytes, all of which begin as noise; the kernels are refsim's
emulated ones and write into it. Outputs are copied when the chain has run. Barriers belong to tensors, not to memory,
and an access that no barrier orders behind an earlier one is noted as a hazard. What the real runtime refuses, this
refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from refsim import aten
from refsim.core.buffer import PackedBuffer
from refsim.core.dtypes import BY_DELEGATE_CODE, BY_PROGRAM_CODE
from refsim.core.errors import UnknownOperatorError
from refsim.core.launch import Launch
from refsim.core.tensor import TensorDesc
from refsim.exec.emulated import EmulatedExecutor
from refsim.formats.pte import schema as pp
from refsim.formats.pte.read import Pte, read_pte
from refsim.formats.vkgraph.edit import CLONE, FULL, PREPACK
from refsim.formats.vkgraph.read import Blob
from refsim.formats.vkgraph.schema import VkTensor
from refsim.graph.build import bound
from refsim.graph.graph import Node, Tensor, refs
from refsim.graph.interpreter import results
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target

NOISE = 20261122
#: Program dtype -> dtypes of a delegate's tensor that it may be staged to or from, beside the same.
CONVERTED = {"int64": "int32", "float16": "float32"}


class Refused(Exception):
    """What the runtime does not load or execute; the message says by which rule."""


@dataclass
class Access:
    """The last accesses to one piece of memory: step and tensor."""

    writes: list[tuple[int, int]] = field(default_factory=list)
    reads: list[tuple[int, int]] = field(default_factory=list)


class Barriers:
    """Who waits for whom. A tensor that was written waits to be read; one that was read waits to be written.

    A barrier orders everything that was dispatched before it, whichever tensor it was for.
    """

    def __init__(self) -> None:
        self.step = 0
        self.last = -1  # the step before which the last barrier stands
        self.seen: dict[int, str] = {}
        self.memory: dict[object, Access] = {}
        self.hazards: list[str] = []

    def run(
        self, name: str, reads: Sequence[tuple[int, object]], writes: Sequence[tuple[int, object]]
    ) -> None:
        """One dispatch; reads and writes are (tensor, memory)."""
        self.step += 1
        if any(self.seen.get(t) == "written" for t, _ in (*reads, *writes)) or any(
            self.seen.get(t) == "read" for t, _ in writes
        ):
            self.last = self.step
        for tensor, memory in reads:
            self._check(name, tensor, memory, self.memory.setdefault(memory, Access()).writes)
        for tensor, memory in writes:
            access = self.memory.setdefault(memory, Access())
            self._check(name, tensor, memory, access.writes + access.reads)
        for tensor, memory in reads:
            self.memory[memory].reads.append((self.step, tensor))
            self.seen[tensor] = "read"
        for tensor, memory in writes:
            self.memory[memory] = Access([(self.step, tensor)])
            self.seen[tensor] = "written"

    def _check(self, name: str, tensor: int, memory: object, before: list[tuple[int, int]]) -> None:
        for step, other in before:
            if self.last <= step < self.step:
                self.hazards.append(
                    f"{name}: value {tensor} does not wait for value {other} in memory {memory}"
                )


#: A bug of the runtime: the words that a node's kernel writes, given its inputs and the right buffer.
Bug = Callable[[Node, Mapping[str, PackedBuffer], PackedBuffer], PackedBuffer]


def no_bug(node: Node, inputs: Mapping[str, PackedBuffer], right: PackedBuffer) -> PackedBuffer:
    """What a right kernel writes."""
    return right


class Delegate:
    """One delegate, loaded: its tensors in memory, its constants prepacked."""

    def __init__(
        self, blob: Blob, where: str, target: Target, rng: np.random.Generator, bug: Bug = no_bug
    ) -> None:
        self.source, self.where, self.bug = blob.graph, where, bug
        for call in self.source.chain:
            known = call.name in (FULL, CLONE, PREPACK) or OPS.serialized(call.name) is not None
            try:
                known = known or aten.find(call.name, where).row is not None
            except UnknownOperatorError:
                known = False
            if not known:
                raise Refused(f"Missing operator: {call.name}")
        self.graph = bound(blob, where, target)
        self._check_prepacked()
        for what, ids in (("input", self.graph.inputs), ("output", self.graph.outputs)):
            for value in ids:
                if self._packed(value):
                    raise Refused(f"{what} value {value}: a packed tensor's staging buffer is too small")
        self.memory = self._allocated(rng)
        self.barriers = Barriers()
        self.written: dict[int, bytes] = {}  # each packed value as its operator left it
        for node in self.graph.nodes:
            if node.name == PREPACK:
                self._run(node)

    def _check_prepacked(self) -> None:
        """What is prepacked has memory of its own, and cannot get that of an object that others share, too."""
        held = [v.mem_obj_id for v in self.source.values if isinstance(v, VkTensor) and v.mem_obj_id >= 0]
        for call in self.source.chain:
            row = self.source.values[call.args[-1]]
            if call.name == PREPACK and isinstance(row, VkTensor) and held.count(row.mem_obj_id) > 1:
                raise Refused("Cannot bind an already bound allocation!")

    def _packed(self, value: int) -> bool:
        desc = self.graph.tensors[value].desc
        return desc is not None and desc.is_int8

    def _size(self, tensor: Tensor) -> int:
        return tensor.desc.nbytes if tensor.desc else prod(tensor.shape) * tensor.dtype.itemsize

    def _allocated(self, rng: np.random.Generator) -> dict[object, np.ndarray]:
        """Memory by object; a tensor without one has its own. An object is as large as its largest tensor."""
        sizes: dict[object, int] = {}
        for tensor in self.graph.tensors.values():
            if tensor.data is None:
                key = self.place(tensor.id)
                sizes[key] = max(sizes.get(key, 0), self._size(tensor))
        return {key: rng.integers(0, 256, size + -size % 16 + 16, np.uint8) for key, size in sizes.items()}

    def place(self, value: int) -> object:
        held = self.source.values[value]
        assert isinstance(held, VkTensor)
        return held.mem_obj_id if held.mem_obj_id >= 0 else f"own {value}"

    # --- one execution ---

    def execute(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        for value, array in zip(self.graph.inputs, inputs, strict=True):
            self._stage(value)
            self.store(value, array)
        for node in self.graph.nodes:
            if node.name != PREPACK:
                reads = [v for v in refs(node.args) if self.graph.tensors[v].data is None]
                self.barriers.run(
                    str(node), [(v, self.place(v)) for v in reads], [(v, self.place(v)) for v in node.outputs]
                )
                self._run(node)
        for value in self.graph.outputs:
            self.barriers.run("output", [(value, self.place(value))], [])
        return [self.load(value) for value in self.graph.outputs]

    def _stage(self, value: int) -> None:
        self.barriers.run("input", [], [(value, self.place(value))])

    def _run(self, node: Node) -> None:
        if node.name == FULL:
            dims, value = node.args[:2]
            tensor = self.graph.tensors[node.outputs[0]]
            if tuple(dims) != tensor.shape:
                raise Refused(f"{node}: fills {dims}, the tensor is {tensor.shape}")
            self.store(tensor.id, np.full(tensor.shape, np.float32(value)).astype(tensor.dtype))
        elif node.name == CLONE and node.prepared is None:
            (source,) = refs(node.args[:1])
            self.store(node.outputs[0], self.load(source))
        elif node.prepared is not None:
            self._kernels(node)
        else:
            self._float(node)
        for value in node.outputs:
            if self._packed(value):
                self.written[value] = self.words(value).tobytes()

    def _kernels(self, node: Node) -> None:
        """The emulated kernels. Padding that ET-VK's kernel does not write stays as it was."""
        assert node.prepared is not None
        read = {name: self.words(value).copy() for name, value in node.inputs.items()}
        held = dict(read) | {name: node.prepared.words(name) for name in node.prepared.constants}
        for step in node.prepared.dispatches:
            held[step.output] = dispatch(step.launch, [held[name] for name in step.inputs])
        written = node.prepared.call.device_defined()
        given = {
            name: self._buffer(words, self.graph.tensors[node.inputs[name]]) for name, words in read.items()
        }
        out = self.bug(node, given, self._buffer(held["out"], self.graph.tensors[node.outputs[0]])).raw
        self.words(node.outputs[0]).view(np.uint8)[written] = out[written]

    def _buffer(self, words: np.ndarray, tensor: Tensor) -> PackedBuffer:
        desc: TensorDesc | None = tensor.desc
        assert desc is not None
        return PackedBuffer.from_raw(words.view(np.uint8), desc.shape, desc.layout, desc.dtype)

    def _float(self, node: Node) -> None:
        values: dict[int, Any] = {}
        for value in refs(node.args):
            tensor = self.graph.tensors[value]
            values[value] = tensor.data if tensor.data is not None else self._held(value)
        for value, array in results(self.graph, node, values).items():
            self.store(value, array)
            held = self._held(value)
            if isinstance(held, PackedBuffer):
                given = {str(n): v for n, v in values.items() if isinstance(v, PackedBuffer)}
                raw = self.bug(node, given, held).raw
                self.memory[self.place(value)][: raw.size] = raw

    # --- memory ---

    def words(self, value: int) -> np.ndarray:
        """The words of a buffer, a view of its memory."""
        tensor = self.graph.tensors[value]
        view: np.ndarray = self.memory[self.place(value)][: self._size(tensor)].view(np.int32)
        return view

    def _held(self, value: int) -> PackedBuffer | np.ndarray:
        tensor = self.graph.tensors[value]
        raw = self.memory[self.place(value)][: self._size(tensor)]
        desc: TensorDesc | None = tensor.desc
        if desc is not None:
            return PackedBuffer.from_raw(raw, desc.shape, desc.layout, desc.dtype)
        return raw.view(tensor.dtype).reshape(tensor.shape).copy()

    def load(self, value: int) -> np.ndarray:
        held = self._held(value)
        shape = self.graph.tensors[value].shape
        return held.unpack().reshape(shape) if isinstance(held, PackedBuffer) else held

    def store(self, value: int, array: np.ndarray) -> None:
        tensor = self.graph.tensors[value]
        desc: TensorDesc | None = tensor.desc
        data = np.asarray(array, tensor.dtype)
        if desc is not None:
            data = PackedBuffer.pack(data.reshape(desc.shape), desc.layout, dtype=desc.dtype).raw
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self.memory[self.place(value)][: raw.size] = raw


def dispatch(launch: Launch, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """The words that one emulated kernel writes."""
    return EmulatedExecutor().run(launch, inputs).words


class Runtime:
    """A program, loaded. `run` takes and gives arrays, as a user's app does."""

    def __init__(
        self, data: bytes, target: Target | None = None, seed: int = NOISE, bug: Bug = no_bug
    ) -> None:
        self.pte: Pte = read_pte(data, "program")
        self.plan = self.pte.plan()
        if self.pte.program.constant_segment is None:
            raise Refused("the program has no constant segment")
        self._check_arenas()
        rng = np.random.default_rng(seed)
        self.delegates = {
            number: Delegate(blob, f"delegate {number}", target or Target(), rng, bug)
            for number, blob in self.pte.blobs(self.plan)
        }
        self._check_calls()

    def _check_arenas(self) -> None:
        sizes = self.plan.arena_sizes
        for number, value in enumerate(self.plan.values):
            place = value.allocation if isinstance(value, pp.Tensor) else None
            if place is not None and isinstance(value, pp.Tensor):
                end = place.offset + prod(value.sizes) * dtype_of(value).itemsize
                if not 1 <= place.memory_id < len(sizes) or end > sizes[place.memory_id]:
                    raise Refused(f"value {number} leaves arena {place.memory_id}")

    def _check_calls(self) -> None:
        for step in self.plan.chains[0].instructions:
            if isinstance(step, pp.DelegateCall):
                graph = self.delegates[step.delegate_index].graph
                need = len(graph.inputs) + len(graph.outputs)
                if len(step.args) != need:
                    raise Refused(f"the delegate takes {need} arguments, not {len(step.args)}")
                for argument, value in zip(step.args, (*graph.inputs, *graph.outputs), strict=True):
                    self._check_argument(argument, graph.tensors[value], self.delegates[step.delegate_index])

    def _check_argument(self, argument: int, tensor: Tensor, delegate: Delegate) -> None:
        held = self.plan.values[argument]
        if not isinstance(held, pp.Tensor):
            raise Refused(f"argument {argument} is no tensor")
        if tuple(held.sizes) != tensor.shape:
            raise Refused(f"argument {argument} has sizes {held.sizes}, the delegate {tensor.shape}")
        row = delegate.source.values[tensor.id]
        assert isinstance(row, VkTensor)
        inside = BY_DELEGATE_CODE[row.datatype].name
        outside = BY_PROGRAM_CODE[held.scalar_type].name
        if outside != inside and CONVERTED.get(outside) != inside:
            raise Refused(f"argument {argument} is {outside}, the delegate's tensor is {inside}")

    # --- arenas ---

    def _view(self, number: int) -> np.ndarray:
        held = self.plan.values[number]
        assert isinstance(held, pp.Tensor) and held.allocation is not None
        dtype, start = dtype_of(held), held.allocation.offset
        arena = self.arenas[held.allocation.memory_id]
        return arena[start : start + prod(held.sizes) * dtype.itemsize].view(dtype).reshape(held.sizes)

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        rng = np.random.default_rng(NOISE)
        self.arenas = [rng.integers(0, 256, size + 16, np.uint8) for size in self.plan.arena_sizes]
        for number, array in zip(self.plan.inputs, inputs, strict=True):
            self._view(number)[...] = array
        for step in self.plan.chains[0].instructions:
            if isinstance(step, pp.DelegateCall):
                delegate = self.delegates[step.delegate_index]
                count = len(delegate.graph.inputs)
                given = [self._view(number).copy() for number in step.args[:count]]
                for number, array in zip(step.args[count:], delegate.execute(given), strict=True):
                    self._view(number)[...] = array
            elif isinstance(step, pp.KernelCall):
                self._kernel(step)
        return [self._view(number).copy() for number in self.plan.outputs]

    def _kernel(self, step: pp.KernelCall) -> None:
        """A kernel outside of delegates; those of the bundled models have one output, given twice."""
        name = str(self.plan.operators[step.op_index])
        args = [self._argument(number) for number in step.args[:-2]]
        (result,) = aten.find(name, name).run(args, name)
        self._view(step.args[-1])[...] = result

    def _argument(self, number: int) -> Any:
        held = self.plan.values[number]
        if not isinstance(held, pp.Tensor):
            return self.plan.literal(number)
        data = self.pte.tensor_data(held) if held.is_constant else None
        if data is None:
            return self._view(number).copy()
        return np.frombuffer(data, dtype_of(held)).reshape(held.sizes)

    # --- what a test looks at ---

    def hazards(self) -> list[str]:
        """Accesses that no barrier orders, of all delegates."""
        return [line for delegate in self.delegates.values() for line in delegate.barriers.hazards]

    def written(self) -> Iterator[tuple[str, bytes]]:
        """The bytes of each packed value when its operator had run: name and buffer."""
        for number, delegate in self.delegates.items():
            for value, raw in delegate.written.items():
                yield f"delegate{number}_v{value}", raw


def dtype_of(tensor: pp.Tensor) -> np.dtype[Any]:
    return BY_PROGRAM_CODE[tensor.scalar_type].numpy
