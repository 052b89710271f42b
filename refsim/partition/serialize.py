"""A tagged delegate program as a serialized graph: values, the chain of operator calls, constants."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import fx

from refsim.aten.bridge import is_known
from refsim.core.dtypes import BY_DELEGATE_CODE, name_of
from refsim.core.errors import GraphError
from refsim.formats import literals
from refsim.formats.vkgraph import schema
from refsim.formats.vkgraph.schema import VkBytes, VkGraph
from refsim.formats.vkgraph.write import named_constant, pack_constants, write_blob
from refsim.graph.shapes import SYMBOLS
from refsim.ops.base.registry import OPS
from refsim.partition.fx_program import FxProgram, Operator
from refsim.partition.nodes import GETITEM, is_number, is_tensor, target_name, tensors_of
from refsim.partition.passes.tag_layouts import REPR
from refsim.partition.repset.sets import DEFAULT_REPR, Storage, TensorRepr

VERSION = "0"
_CODES = {row.name: code for code, row in BY_DELEGATE_CODE.items() if row.computed}
#: Devices need not have 64-bit types: such tensors are held in 32 bits.
_NARROWED = {"int64": "int32", "float64": "float32"}


@dataclass(frozen=True)
class Serialized:
    """A graph whose constants have the digest of their bytes as name.

    ``data`` has the bytes by that name, ``values`` the id of each node's result by the node's name.
    """

    graph: VkGraph
    data: Mapping[str, bytes]
    values: Mapping[str, int] = field(default_factory=dict)

    def blob(self, where: str = "graph", inline: bool = True) -> bytes:
        """The delegate blob: ``inline`` with its constants in it, else they are to be named data of the .pte."""
        if not inline:
            return write_blob(self.graph, where=where)
        rows, raw = pack_constants([self.data[row.named_key] for row in self.graph.constants])
        return write_blob(replace(self.graph, constants=rows), raw, where)


def serialize(program: FxProgram, where: str = "delegate") -> Serialized:
    """The graph of a tagged program. Tensors do not share memory yet: `refsim.graph.memory` plans that."""
    writer = _Writer(program, where)
    for node in program.graph.nodes:
        if node.op == "placeholder":
            writer.placeholder(node)
        elif node.op == "call_function":
            writer.call(node)
    outputs = tuple(writer.ids[node] for node in program.outputs())
    graph = VkGraph(
        VERSION,
        tuple(writer.chain),
        tuple(writer.values),
        tuple(writer.inputs),
        outputs,
        tuple(writer.constants),
    )
    return Serialized(graph, writer.data, {node.name: number for node, number in writer.ids.items()})


class _Writer:
    def __init__(self, program: FxProgram, where: str) -> None:
        self.program = program
        self.where = where
        self.values: list[Any] = []
        self.chain: list[schema.OperatorCall] = []
        self.inputs: list[int] = []
        self.constants: list[VkBytes] = []
        self.data: dict[str, bytes] = {}
        self.ids: dict[fx.Node, int] = {}
        self.scalars: dict[tuple[type, Any], int] = {}

    def add(self, value: Any) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def placeholder(self, node: fx.Node) -> None:
        if not node.users and node.name in self.program.constants:
            return
        self.ids[node] = self.output(node)
        if node.name not in self.program.constants:
            self.inputs.append(self.ids[node])

    def call(self, node: fx.Node) -> None:
        if target_name(node) == GETITEM:
            source, index = node.args[0], node.args[1]
            assert isinstance(source, fx.Node) and isinstance(index, int)
            self.ids[node] = self.values[self.ids[source]].items[index]
            return
        name, number = target_name(node), len(self.chain)
        if OPS.serialized(name) is None and name not in SYMBOLS and not is_known(name):
            raise GraphError(
                f"{self.where}: {node}", "nothing computes this operator in a delegate", got=name
            )
        args = [self.argument(node, value) for value in arguments_of(node)]
        self.ids[node] = self.output(node)
        self.chain.append(schema.OperatorCall(number, name, (*args, self.ids[node])))

    def output(self, node: fx.Node) -> int:
        """The value that a node produces: a tensor, a list of them, or a number."""
        if is_number(node):
            return self.add(schema.SymInt(0))  # each run computes it
        tensors = tensors_of(node)
        given = node.meta.get(REPR, DEFAULT_REPR)
        if is_tensor(node.meta["val"]):
            return self.add(self.tensor(node, tensors[0], given))
        items = [self.add(self.tensor(node, tensor, given[i])) for i, tensor in enumerate(tensors)]
        return self.add(schema.ValueList(tuple(items)))

    def tensor(self, node: fx.Node, fake: Any, given: TensorRepr) -> schema.VkTensor:
        dtype = name_of(fake.dtype)
        held = _NARROWED.get(dtype, dtype)
        if held not in _CODES:
            raise GraphError(f"{self.where}: {node}", "a dtype that no delegate holds", got=dtype)
        row = given.memory_layout
        return schema.VkTensor(
            datatype=_CODES[held],
            dims=tuple(int(size) for size in fake.shape),
            constant_id=self.constant(node, held) if node.name in self.program.constants else -1,
            storage_type=int(given.storage_type) if row is not None else int(Storage.DEFAULT),
            memory_layout=row.schema_value if row is not None else schema.DEFAULT_LAYOUT,
            # constants are stored as they are held; an input keeps its dtype until it is on the device
            staging_datatype=_CODES[held],
        )

    def constant(self, node: fx.Node, dtype: str) -> int:
        tensor = self.program.constants[node.name].to(getattr(torch, dtype)).contiguous()
        data = np.ascontiguousarray(tensor.cpu().numpy()).tobytes()
        key = hashlib.sha256(data).hexdigest()
        if key not in self.data:
            self.data[key] = data
            self.constants.append(named_constant(key, len(data)))
        return list(self.data).index(key)

    def argument(self, node: fx.Node, value: Any) -> int:
        if isinstance(value, fx.Node):
            return self.ids[value]
        if isinstance(value, bool | int | float):
            # an int is no float here, unlike in upstream's serializer: a zero point stays an Int
            key = (type(value), value)
            if key not in self.scalars:
                kind: Any = {bool: literals.Bool, int: literals.Int, float: literals.Double}[type(value)]
                self.scalars[key] = self.add(kind(value))
            return self.scalars[key]
        if isinstance(value, str):
            return self.add(literals.String(value))
        if isinstance(value, list | tuple):
            return self.list(node, list(value))
        if value is None or isinstance(
            value, torch.dtype | torch.device | torch.layout | torch.memory_format
        ):
            return self.add(literals.Null())
        raise GraphError(f"{self.where}: {node}", "an argument that cannot be serialized", got=repr(value))

    def list(self, node: fx.Node, items: list[Any]) -> int:
        for kind, made in ((bool, literals.BoolList), (int, literals.IntList), (float, literals.DoubleList)):
            if all(type(item) is kind for item in items) and (items or kind is int):
                return self.add(made(tuple(items)))
        return self.add(schema.ValueList(tuple(self.argument(node, item) for item in items)))


def arguments_of(node: fx.Node) -> list[Any]:
    """All arguments of a call in the order of its schema, defaults filled in."""
    target = node.target
    if is_number(node) and not hasattr(target, "_schema"):
        return list(node.args)
    if isinstance(target, Operator):
        names = target.arguments
        defaults = dict(zip(names[len(names) - len(target.defaults) :], target.defaults, strict=True))
        given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
        return [given.get(name, defaults.get(name)) for name in names]
    values = []
    for index, argument in enumerate(target._schema.arguments):
        if index < len(node.args) and not argument.kwarg_only:
            values.append(node.args[index])
        else:
            values.append(node.kwargs.get(argument.name, argument.default_value))
    return values
