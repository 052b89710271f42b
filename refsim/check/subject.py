"""A file as the rules see it: methods, their delegates, and the operands of every call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from refsim.check.finding import Place
from refsim.core.layout import BY_SCHEMA_VALUE, CHANNELS_PACKED, DIM_NAMES, WIDTH_PACKED, Layout
from refsim.formats.pte.read import Pte
from refsim.formats.pte.schema import Delegate as DelegateEntry
from refsim.formats.pte.schema import Instruction, KernelCall, Plan
from refsim.formats.vkgraph.read import Blob
from refsim.formats.vkgraph.schema import (
    DATATYPES,
    DEFAULT_LAYOUT,
    DEFAULT_STORAGE,
    STORAGES,
    OperatorCall,
    Value,
    ValueList,
    VkGraph,
    VkTensor,
)
from refsim.graph.build import nodes_of_calls
from refsim.graph.graph import Node
from refsim.graph.shapes import SYMBOLS
from refsim.ops.base.target import Target

BUFFER, TEXTURE_3D, TEXTURE_2D = (STORAGES[code] for code in (0, 1, 2))
#: The key of the compile spec that says where tensors lie whose storage the file leaves open.
STORAGE_OVERRIDE = "storage_type_override"


@dataclass(frozen=True)
class Operand:
    """A tensor of a delegate as the runtime holds it: nothing is left open.

    ``storage`` is BUFFER, TEXTURE_3D or TEXTURE_2D, ``dtype`` the name of `DATATYPES`.
    """

    value: int
    tensor: VkTensor
    storage: str

    @property
    def dims(self) -> tuple[int, ...]:
        return self.tensor.dims

    @property
    def dtype(self) -> str:
        return DATATYPES[self.tensor.datatype][0]

    @property
    def is_constant(self) -> bool:
        return self.tensor.is_constant

    @property
    def layout(self) -> Layout | None:
        """None where the file names a layout that there is not."""
        code = self.tensor.memory_layout
        if code != DEFAULT_LAYOUT:
            return BY_SCHEMA_VALUE.get(code)
        few = len(self.dims) < 3 or self.dims[-3] == 1
        return WIDTH_PACKED if few else CHANNELS_PACKED

    @property
    def is_packed_int8(self) -> bool:
        return self.layout is not None and self.layout.packed_int8

    @property
    def packed_dim(self) -> str | None:
        """``W``, ``H`` or ``C``."""
        return None if self.layout is None else DIM_NAMES[self.layout.inner]

    def whcn(self, dim: int) -> int:
        """The size of a dim counted from the innermost; 1 where the tensor has fewer."""
        return self.dims[-1 - dim] if dim < len(self.dims) else 1

    @property
    def extents(self) -> tuple[int, int, int]:
        """Width, height and depth of the texture that holds it: four elements of the packed dim in a texel."""
        sizes = [self.whcn(dim) for dim in range(3)]
        if self.layout is not None:
            sizes[self.layout.inner] = -(-sizes[self.layout.inner] // 4)
        return sizes[0], sizes[1], sizes[2] * prod(self.dims[:-3])


@dataclass(frozen=True)
class Call:
    """One operator call of a delegate, ``step`` its place in the chain.

    ``number`` is that of its node, as `refsim inspect` counts: one call may be several nodes. ``nodes`` are empty where
    refsim does not understand the call.
    """

    delegate: Delegate
    step: int
    number: int
    operator: OperatorCall
    nodes: tuple[Node, ...] = ()

    @property
    def name(self) -> str:
        return self.operator.name

    def place(self, value: int | None = None) -> Place:
        return Place(self.delegate.method, self.delegate.number, self.number, self.name, value)

    def id(self, key: str) -> int | None:
        """The value id of an argument: ``0``, ``-1`` for the output, ``-1.0`` for the first of several outputs."""
        ids: Sequence[int] = self.operator.args
        found = None
        for part in map(int, key.split(".")):
            if not -len(ids) <= part < len(ids):
                return None
            found = ids[part]
            value = self.delegate.graph.values[found]
            ids = value.items if isinstance(value, ValueList) else ()
        return found

    def value(self, key: str) -> Value | None:
        """The value of an argument; None if the call has no such argument."""
        number = self.id(key)
        return None if number is None else self.delegate.graph.values[number]

    def operand(self, key: str) -> Operand | None:
        """The tensor of an argument; None if it is none."""
        number = self.id(key)
        return None if number is None else self.delegate.operand(number)

    @property
    def reads(self) -> tuple[int, ...]:
        """Ids of all tensors among the arguments, those of lists too."""
        return tuple(self.delegate.tensors(self.operator.args[:-1]))

    @property
    def writes(self) -> tuple[int, ...]:
        return tuple(self.delegate.tensors(self.operator.args[-1:]))


@dataclass(frozen=True)
class Delegate:
    """A Vulkan delegate. ``entry`` is its row in the method; a bare blob has none."""

    method: str | None
    number: int
    blob: Blob
    entry: DelegateEntry | None = None
    target: Target = field(default_factory=Target)

    @property
    def graph(self) -> VkGraph:
        return self.blob.graph

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        found: list[Call] = []
        number = 0
        for step, (operator, nodes) in enumerate(
            zip(self.graph.chain, nodes_of_calls(self.blob, self.target), strict=True)
        ):
            found.append(Call(self, step, number, operator, tuple(nodes)))
            number += 0 if operator.name in SYMBOLS else max(len(nodes), 1)
        return tuple(found)

    def place(self, value: int | None = None) -> Place:
        return Place(self.method, self.number, value=value)

    @cached_property
    def default_storage(self) -> str:
        """Where tensors lie whose storage the file leaves open."""
        for spec in self.entry.compile_specs if self.entry is not None else ():
            if spec.key == STORAGE_OVERRIDE and len(spec.value) == 4:
                return STORAGES.get(int.from_bytes(spec.value, "little"), TEXTURE_3D)
        return TEXTURE_3D

    def operand(self, number: int) -> Operand | None:
        value = self.graph.values[number]
        if not isinstance(value, VkTensor):
            return None
        given = value.storage_type
        return Operand(number, value, self.default_storage if given == DEFAULT_STORAGE else STORAGES[given])

    @property
    def operands(self) -> Iterator[Operand]:
        """Every tensor of the graph."""
        for number in range(len(self.graph.values)):
            if (operand := self.operand(number)) is not None:
                yield operand

    def tensors(self, ids: Sequence[int]) -> Iterator[int]:
        """The tensors among values, those of lists too."""
        for number in ids:
            value = self.graph.values[number]
            if isinstance(value, ValueList):
                yield from self.tensors(value.items)
            elif isinstance(value, VkTensor):
                yield number


@dataclass(frozen=True)
class Method:
    """One method of a program with its Vulkan delegates, or one blob alone."""

    name: str | None
    delegates: tuple[Delegate, ...]
    pte: Pte | None = field(default=None, compare=False)
    plan: Plan | None = None

    def place(self, node: int | None = None, operator: str | None = None, value: int | None = None) -> Place:
        return Place(self.name, None, node, operator, value)

    @property
    def calls(self) -> Iterator[Call]:
        for delegate in self.delegates:
            yield from delegate.calls

    @property
    def instructions(self) -> Iterator[tuple[int, Instruction]]:
        """Every instruction with its number; of several chains, one after the other."""
        chains = self.plan.chains if self.plan is not None else ()
        yield from enumerate(instruction for chain in chains for instruction in chain.instructions)

    @property
    def kernels(self) -> Iterator[tuple[int, str]]:
        """(number of the instruction, kernel) of every kernel that is called outside of delegates."""
        for number, instruction in self.instructions:
            if isinstance(instruction, KernelCall) and self.plan is not None:
                yield number, str(self.plan.operators[instruction.op_index])


def blob_method(blob: Blob, target: Target = Target()) -> Method:  # noqa: B008
    """A delegate alone, as a method without a program."""
    return Method(None, (Delegate(None, 0, blob, None, target),))


def methods(pte: Pte, vulkan: str, target: Target = Target()) -> Iterator[Method]:  # noqa: B008
    """Every method of a program. ``vulkan`` is the id of the backend whose delegates are read."""
    for plan in pte.program.plans:
        entries = plan.delegates
        found = (
            Delegate(plan.name, number, blob, entries[number], target) for number, blob in pte.blobs(plan)
        )
        yield Method(plan.name, tuple(d for d in found if entries[d.number].id == vulkan), pte, plan)
