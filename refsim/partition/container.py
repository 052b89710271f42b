"""Write a lowered program as a .pte file: delegates in segments, their constants as named data, plain kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import fx

from refsim.aten.bridge import is_known
from refsim.core.dtypes import BY_NAME, name_of
from refsim.core.errors import GraphError
from refsim.formats import literals
from refsim.formats.flatbuffer.encode import ALIGNMENT
from refsim.formats.pte import schema as pte
from refsim.formats.pte.read import VULKAN_ID
from refsim.formats.pte.write import write_pte
from refsim.partition.fx_program import Operator
from refsim.partition.lower import Lowered
from refsim.partition.nodes import DYNAMIC, GETITEM, is_number, is_tensor, target_name, tensors_of
from refsim.partition.serialize import arguments_of

ARENA = 1  # 0 is reserved by the format
BOUNDED = 1  # a tensor's sizes may be smaller than the file says


def write(lowered: Lowered) -> bytes:
    """The .pte file; the same lowering gives the same bytes."""
    return _ContainerWriter(lowered).write()


class _ContainerWriter:
    def __init__(self, lowered: Lowered) -> None:
        self.lowered = lowered
        self.values: list[Any] = []
        self.ids: dict[str, int] = {}
        self.literals: dict[tuple[type, Any], int] = {}
        self.operators: list[pte.Operator] = []
        self.instructions: list[Any] = []
        self.constants = bytearray()
        self.offsets = [0]  # place 0 stands for "no data"
        self.arena = 0

    def write(self) -> bytes:
        core = self.lowered.core
        inputs = [self.tensor_of(node) for node in core.inputs()]
        for call in self.lowered.schedule:
            if call.delegate is not None:
                self.delegate(call.delegate)
            else:
                assert call.node is not None
                self.kernel(call.node)
        outputs = [self.id_of(node) for node in core.outputs()]
        segments = [d.serialized.blob(self.lowered.where, inline=False) for d in self.lowered.delegates]
        delegates = tuple(
            pte.Delegate(VULKAN_ID, pte.DelegateData(pte.DELEGATE_SEGMENT, number))
            for number in range(len(segments))
        )
        data = {key: value for d in self.lowered.delegates for key, value in d.serialized.data.items()}
        named = tuple(pte.NamedData(key, len(segments) + at) for at, key in enumerate(data))
        segments += data.values()
        # written without constants too: the runtime refuses a program that has no constant segment
        stored = pte.SegmentOffsets(len(segments), tuple(self.offsets))
        segments.append(bytes(self.constants))
        chain = pte.Chain((), (), tuple(self.instructions))
        plan = pte.Plan(
            "forward",
            tuple(self.values),
            tuple(inputs),
            tuple(outputs),
            (chain,),
            tuple(self.operators),
            delegates,
            (0, self.arena),
        )
        return write_pte(pte.Program(0, (plan,), constant_segment=stored, named_data=named), segments)

    # --- values ---

    def add(self, value: Any) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def id_of(self, node: fx.Node) -> int:
        if node.name not in self.ids:
            value = self.lowered.core.constants.get(node.name)
            if value is None:
                raise GraphError(f"{self.lowered.where}: {node}", "is read before anything wrote it")
            self.ids[node.name] = self.add(self.tensor(node.meta["val"], value))
        return self.ids[node.name]

    def tensor_of(self, node: fx.Node) -> int:
        """The id of a node's tensor, of each of its tensors and then of their list, or of its number."""
        dynamic = bool(node.meta.get(DYNAMIC))
        if is_number(node):
            self.ids[node.name] = self.add(literals.Int(0))
        elif is_tensor(node.meta["val"]):
            self.ids[node.name] = self.add(self.tensor(node.meta["val"], dynamic=dynamic))
        else:
            items = [self.add(self.tensor(tensor, dynamic=dynamic)) for tensor in tensors_of(node)]
            self.ids[node.name] = self.add(pte.TensorList(tuple(items)))
        return self.ids[node.name]

    def tensor(self, fake: Any, data: torch.Tensor | None = None, dynamic: bool = False) -> pte.Tensor:
        code = self.code(fake.dtype)
        sizes = tuple(int(size) for size in fake.shape)
        order = tuple(range(len(sizes)))
        if data is not None:
            index = len(self.offsets)
            self.offsets.append(len(self.constants))
            self.constants += data.contiguous().cpu().numpy().tobytes()
            self.constants += bytes(-len(self.constants) % ALIGNMENT)
            return pte.Tensor(code, sizes, order, index)
        offset = self.arena
        nbytes = prod(sizes) * pte.SCALAR_TYPES[code][1]
        self.arena += nbytes + -nbytes % ALIGNMENT
        place = pte.Allocation(ARENA, offset & 0xFFFFFFFF, offset >> 32)
        return pte.Tensor(code, sizes, order, allocation=place, shape_dynamism=BOUNDED if dynamic else 0)

    def code(self, dtype: torch.dtype) -> int:
        """The program's code of a dtype; GraphError if nothing computes with it."""
        row = BY_NAME.get(name_of(dtype))
        if row is None or not row.computed or row.program is None:
            raise GraphError(self.lowered.where, "a dtype that no plan holds", got=dtype)
        return row.program[0]

    def argument(self, value: Any) -> int:
        if isinstance(value, fx.Node):
            return self.id_of(value)
        if isinstance(value, torch.dtype):
            value = self.code(value)
        if isinstance(value, list | tuple):
            return self.list(list(value))
        kinds = {bool: literals.Bool, int: literals.Int, float: literals.Double, str: literals.String}
        kind = kinds.get(type(value))
        key = (type(value), value if kind else None)
        if key not in self.literals:
            self.literals[key] = self.add(kind(value) if kind else literals.Null())
        return self.literals[key]

    def list(self, items: Sequence[Any]) -> int:
        if any(isinstance(item, fx.Node) and not is_number(item) for item in items):
            if None in items:  # a dim that an index keeps
                ids = tuple(-1 if item is None else self.id_of(item) for item in items)
                return self.add(pte.OptionalTensorList(ids))
            return self.add(pte.TensorList(tuple(self.id_of(item) for item in items)))
        if items and all(type(item) is float for item in items):
            return self.add(literals.DoubleList(tuple(items)))
        if items and all(type(item) is bool for item in items):
            return self.add(literals.BoolList(tuple(items)))
        return self.add(pte.IntIdList(tuple(self.argument(item) for item in items)))

    # --- instructions ---

    def delegate(self, number: int) -> None:
        source = self.lowered.delegates[number].source
        nodes = {node.name: node for node in self.lowered.core.graph.nodes}
        given = [self.id_of(nodes[name]) for name in source.inputs]
        made = [self.tensor_of(nodes[name]) for name in source.outputs]
        self.instructions.append(pte.DelegateCall(number, (*given, *made)))

    def kernel(self, node: fx.Node) -> None:
        if target_name(node) == GETITEM:
            source, index = node.args
            items = self.values[self.ids[str(source)]].items
            self.ids[node.name] = items[index]
            return
        kernel = kernel_of(node)
        if kernel.name not in self.operators:
            self.operators.append(kernel.name)
        args = [self.argument(value) for value in kernel.arguments]
        result = self.tensor_of(node)
        made = self.values[result]
        apart = isinstance(made, pte.TensorList) and not kernel.writes_list
        outputs = made.items if apart else (result,)
        call = pte.KernelCall(self.operators.index(kernel.name), (*args, *outputs, result))
        self.instructions.append(call)


#: How ExecuTorch calls the out variants of operators for which torch has none: by the operator's own overload.
_OUT_OVERLOADS = {"": "out", "tensor": "Tensor_out", "dtype": "dtype_out"}
#: What a kernel finds in the tensor that it writes, and takes no argument for.
_FOUND_IN_OUTPUT = ("dtype", "layout", "device", "pin_memory")


@dataclass(frozen=True)
class Kernel:
    """A kernel of the plan: its name, its arguments without outputs, and whether one output is a list of tensors."""

    name: pte.Operator
    arguments: list[Any]
    writes_list: bool = False


def kernel_of(node: fx.Node) -> Kernel:
    """The kernel that writes a node's result into a tensor that it is given, and the arguments that it takes.

    That is ``aten::mean``, ``out``, or ``aten::arange``, ``start_out`` without the options that make a tensor.
    """
    target, values = node.target, arguments_of(node)
    if is_number(node) and not hasattr(target, "_schema"):
        return Kernel(pte.Operator(f"executorch_prim::{target_name(node)}", "Scalar"), values)
    if is_number(node):
        return Kernel(pte.Operator("aten::sym_size", "int"), values)
    if isinstance(target, Operator):
        space, base, _overload = target.name.split(".")
        return Kernel(pte.Operator(f"{space}::{base}", "out"), values)
    schema_name = target._schema.name
    space, _, base = schema_name.partition("::")
    packet = getattr(getattr(torch.ops, space), base)
    given = dict(zip((argument.name for argument in target._schema.arguments), values, strict=True))
    made = {name: value for name, value in given.items() if name not in _FOUND_IN_OUTPUT}
    for wanted in (given, made):
        found = _out_variants(packet, list(wanted))
        if found:
            # add.Scalar_out and add.out have the same names, but other types
            types = {argument.name: str(argument.type) for argument in target._schema.arguments}
            overload = next(
                (name for name, taken in found.items() if taken.items() <= types.items()), next(iter(found))
            )
            outputs = [a for a in getattr(packet, overload)._schema.arguments if a.is_out]
            listed = any(str(output.type) == "List[Tensor]" for output in outputs)
            return Kernel(pte.Operator(schema_name, overload), list(wanted.values()), listed)
    overload = target._schema.overload_name
    if overload not in _OUT_OVERLOADS or not is_known(str(target)):
        raise GraphError(str(node), "nothing computes this operator outside of delegates", got=str(target))
    return Kernel(pte.Operator(schema_name, _OUT_OVERLOADS[overload]), values)


def _out_variants(packet: Any, names: list[str]) -> dict[str, dict[str, str]]:
    """The overloads that write into given tensors and also take ``names``: the types of these arguments."""
    found = {}
    for overload in packet.overloads():
        arguments = getattr(packet, overload)._schema.arguments
        plain = {argument.name: str(argument.type) for argument in arguments if not argument.is_out}
        if list(plain) == names and len(plain) < len(arguments):
            found[overload] = plain
    return found
