"""Small files for the rules: single calls, delegates and programs, as short as a rule needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from refsim.core.dtypes import BY_DELEGATE_CODE, BY_PROGRAM_CODE
from refsim.formats import literals
from refsim.formats.pte import schema as pte
from refsim.formats.pte.read import VULKAN_ID
from refsim.formats.pte.write import write_pte
from refsim.formats.vkgraph.schema import OperatorCall, ValueList, VkGraph, VkTensor
from refsim.formats.vkgraph.write import named_constant, pack_constants, write_blob

_DELEGATE = {row.name: code for code, row in BY_DELEGATE_CODE.items()}
_PROGRAM = {row.name: code for code, row in BY_PROGRAM_CODE.items()}
BUFFER, TEXTURE, FLAT = 0, 1, 2
W, H, C, INT8_4W4C, INT8_4H4W, INT8_4W, OPEN = 0, 1, 2, 3, 4, 5, 255


@dataclass(frozen=True, eq=False)
class T:
    """A tensor; the same object is the same value. ``key``: a constant whose bytes the program should have."""

    dims: tuple[int, ...]
    dtype: str = "float32"
    storage: int = TEXTURE
    layout: int = C
    constant: bool = False
    obj: int = -1
    staged: str = "unset"
    key: str = ""

    def but(self, **changes: Any) -> T:
        return replace(self, **changes)


def const(*dims: int, dtype: str = "float32") -> T:
    return T(dims, dtype, constant=True, storage=OPEN, layout=OPEN)


class Graph:
    """A delegate, call by call. Tensors that nothing writes are its inputs."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.ids: dict[int, int] = {}
        self.kept: list[Any] = []
        self.chain: list[OperatorCall] = []
        self.constants: list[Any] = []
        self.inputs: list[int] | None = None
        self.outputs: list[int] | None = None

    def add(self, value: Any) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def value(self, given: Any) -> int:
        if isinstance(given, T):
            return self.tensor(given)
        if isinstance(given, list) and any(isinstance(item, T) or item is None for item in given):
            return self.add(ValueList(tuple(self.value(item) for item in given)))
        if isinstance(given, list):
            kind: Any = literals.DoubleList if given and isinstance(given[0], float) else literals.IntList
            return self.add(kind(tuple(given)))
        if given is None:
            return self.add(literals.Null())
        kinds: dict[type, Any] = {
            bool: literals.Bool, int: literals.Int, float: literals.Double, str: literals.String,
        }  # fmt: skip
        return self.add(kinds[type(given)](given))

    def tensor(self, given: T) -> int:
        if id(given) not in self.ids:
            number = -1
            if given.constant:
                number = len(self.constants)
                # floats are scales: 0 is none
                data = np.full(given.dims, given.dtype == "float32", given.dtype).tobytes()
                self.constants.append(named_constant(given.key, len(data)) if given.key else data)
            self.kept.append(given)
            code, staged = _DELEGATE[given.dtype], _DELEGATE[given.staged]
            place = (given.obj, given.storage, given.layout)
            self.ids[id(given)] = self.add(VkTensor(code, given.dims, number, *place, staged))
        return self.ids[id(given)]

    def call(self, name: str, *args: Any) -> Graph:
        ids = tuple(self.value(arg) for arg in args)
        self.chain.append(OperatorCall(len(self.chain), name, ids))
        return self

    def border(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids of inputs and outputs: what was set, else what nothing writes, and what nothing reads."""
        written: set[int] = set()
        read: set[int] = set()
        for operator in self.chain:
            written.update(self._tensors(operator.args[-1:]))
            read.update(self._tensors(operator.args[:-1]))
        computed = [i for i, v in enumerate(self.values) if isinstance(v, VkTensor) and not v.is_constant]
        inputs = [i for i in computed if i not in written] if self.inputs is None else self.inputs
        outputs = (
            [i for i in computed if i not in read and i in written] if self.outputs is None else self.outputs
        )
        return tuple(inputs), tuple(outputs)

    def _tensors(self, ids: Sequence[int]) -> list[int]:
        lists = [self.values[i].items for i in ids if isinstance(self.values[i], ValueList)]
        return [
            i for i in (*ids, *(i for found in lists for i in found)) if isinstance(self.values[i], VkTensor)
        ]

    def blob(self) -> bytes:
        rows, raw = pack_constants(self.constants)
        inputs, outputs = self.border()
        graph = VkGraph("0", tuple(self.chain), tuple(self.values), inputs, outputs, tuple(rows))
        return write_blob(graph, raw)


def call(name: str, *args: Any) -> bytes:
    """A delegate of one call, as a blob."""
    return Graph().call(name, *args).blob()


def float_conv(weight: tuple[int, int, int, int], groups: int = 2, transposed: bool = False) -> bytes:
    """8 channels in; ``weight`` is (OC, IC of a group, kernel), or (IC, OC of a group, kernel) if transposed."""
    x = T((1, 8, 6, 6))
    outputs = weight[1] * groups if transposed else weight[0]
    pairs, out = ([1, 1], [weight[2] // 2] * 2, [1, 1]), x.but(dims=(1, outputs, 6, 6))
    bias = const(outputs)
    return call("aten.convolution.default", x, const(*weight), bias, *pairs, transposed, [0, 0], groups, out)


def program(
    *graphs: Graph,
    kernels: Sequence[str] = (),
    data: dict[str, bytes] | None = None,
    passed: Sequence[pte.Tensor] | None = None,
    drop: int = 0,
    segment: bool = True,
    backend: str = VULKAN_ID,
    specs: tuple[pte.CompileSpec, ...] = (),
) -> bytes:
    """A .pte that calls each delegate once, then kernels without arguments.

    ``passed``: the program's tensors for the first delegate, ``drop``: how many of them are left out.
    """
    values: list[Any] = []
    instructions: list[Any] = []
    for number, graph in enumerate(graphs):
        ids = [i for side in graph.border() for i in side]
        tensors = [outside(graph.values[i]) for i in ids]
        given = list(passed) if passed is not None and number == 0 else tensors
        first = len(values)
        values += given
        instructions.append(pte.DelegateCall(number, tuple(range(first, first + len(given) - drop))))
    operators = tuple(pte.Operator(*name.split(".")) for name in kernels)
    instructions += [pte.KernelCall(number, ()) for number in range(len(kernels))]
    blobs = [graph.blob() for graph in graphs]
    delegates = tuple(
        pte.Delegate(backend, pte.DelegateData(pte.DELEGATE_SEGMENT, number), specs)
        for number in range(len(blobs))
    )
    named = tuple(pte.NamedData(key, len(blobs) + at) for at, key in enumerate(data or {}))
    chain = pte.Chain((), (), tuple(instructions))
    plan = pte.Plan("forward", tuple(values), (), (), (chain,), operators, delegates)
    stored = pte.SegmentOffsets(0, (0,)) if segment else None
    whole = pte.Program(0, (plan,), constant_segment=stored, named_data=named)
    return write_pte(whole, [*blobs, *(data or {}).values()])


def outside(tensor: VkTensor, **changes: Any) -> pte.Tensor:
    """The program's tensor for one at a delegate's border."""
    name = BY_DELEGATE_CODE[tensor.datatype].name
    order = tuple(range(len(tensor.dims)))
    made = pte.Tensor(_PROGRAM[name], tensor.dims, order, allocation=pte.Allocation(1, 0, 0))
    return replace(made, **changes)
