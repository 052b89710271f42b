"""Append to a serialized graph: values, operators, inputs and outputs. Nothing that is there is moved or changed.

Lists of values and operators refer to values by their ids, so a value may only be added behind the others. An operator
may be added anywhere in the chain. What ET-VK's runtime makes of aliases, fills and clones is told in docs/device.md.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from refsim.core.dtypes import BY_NAME
from refsim.core.errors import GraphError
from refsim.core.layout import WIDTH_PACKED, Layout
from refsim.formats.flatbuffer.encode import ALIGNMENT
from refsim.formats.limits import check_ids
from refsim.formats.literals import Bool, Double, DoubleList, Int, IntList, Null, String
from refsim.formats.vkgraph.read import Blob
from refsim.formats.vkgraph.schema import STORAGES, OperatorCall, Value, ValueList, VkBytes, VkGraph, VkTensor
from refsim.formats.vkgraph.write import write_blob

BUFFER, TEXTURE_3D = (code for code, name in STORAGES.items() if name in ("BUFFER", "TEXTURE_3D"))
#: Operators of ET-VK's runtime that an edited graph is made of: they move bytes and compute nothing.
FULL, CLONE, PREPACK = "aten.full.default", "aten.clone.default", "et_vk.prepack.default"
_PLAIN: dict[type, type] = {bool: Bool, int: Int, float: Double, str: String}


class GraphEditor:
    """A graph to which values and operators are appended; `blob` gives the delegate with them.

    Value ids and positions in the chain are those of the graph as it was given. An operator that is added at position
    ``before`` runs before the operator that had this number, and behind what was added there earlier; the length of
    the old chain means the end. Without a graph the editor starts with an empty one.
    """

    def __init__(self, source: Blob | None = None, where: str = "graph") -> None:
        if source is not None and (lost := source.unread(where)):
            raise GraphError(where, "has fields that would be lost in another file", got=", ".join(lost))
        graph = source.graph if source is not None else VkGraph("0", (), (), (), ())
        self.where = where
        self._source = graph
        self._raw = bytearray(source.constants.raw if source is not None else b"")
        self._values: list[Value] = list(graph.values)
        self._constants: list[VkBytes] = list(graph.constants)
        self._inputs: list[int] = list(graph.input_ids)
        self._outputs: list[int] = list(graph.output_ids)
        self._added: dict[int, list[OperatorCall]] = defaultdict(list)
        self._literals: dict[tuple[type, str], int] = {}
        self._node = 1 + max((call.node_id for call in graph.chain), default=-1)
        self._object = 1 + max((v.mem_obj_id for v in graph.values if isinstance(v, VkTensor)), default=-1)

    # --- values ---

    def value(self, value: Value) -> int:
        """Append a value of the schema; returns its id."""
        self._values.append(value)
        return len(self._values) - 1

    def literal(self, value: Any) -> int:
        """The id of a plain value: None, bool, int, float, str, a tuple of ints or floats. Equal ones share it."""
        key = (type(value), repr(value))
        if key not in self._literals:
            if value is None:
                held: Value = Null()
            elif isinstance(value, tuple):
                floats = any(isinstance(item, float) for item in value)
                held = DoubleList(tuple(map(float, value))) if floats else IntList(value)
            else:
                held = _PLAIN[type(value)](value)
            self._literals[key] = self.value(held)
        return self._literals[key]

    def values(self, ids: tuple[int, ...]) -> int:
        """The id of a list of values."""
        return self.value(ValueList(ids))

    def tensor(
        self,
        dtype: str,
        dims: tuple[int, ...],
        layout: Layout = WIDTH_PACKED,
        *,
        storage: int = BUFFER,
        mem_obj_id: int = -1,
    ) -> int:
        """Append a tensor of a dtype by name; dims are outermost first. By default it is a buffer of its own."""
        code = _code(dtype)
        return self.value(VkTensor(code, tuple(dims), -1, mem_obj_id, storage, layout.schema_value, code))

    def alias(self, number: int, nbytes: int, dtype: str = "int32") -> int:
        """Append a second view of a value's memory: ``nbytes`` bytes as a contiguous buffer of 4-byte elements.

        The value must have a memory object, see `memory` and `own_memory`. The runtime makes the object as large
        as its largest member. An alias that is only read has no barrier of its own: what wrote the memory must have
        been waited for, by a reader of the value itself or by a fill before it.
        """
        tensor = self.row(number)
        if tensor.mem_obj_id < 0:
            raise GraphError(f"{self.where}: value {number}", "has no memory object", need="one to share")
        if nbytes % 4 or nbytes <= 0:
            raise GraphError(
                f"{self.where}: value {number}", "no whole words", got=nbytes, need="a multiple of 4"
            )
        return self.tensor(dtype, (nbytes // 4,), mem_obj_id=tensor.mem_obj_id)

    def constant(self, array: np.ndarray) -> int:
        """Append a constant, stored in the blob itself; returns the id of its tensor."""
        data = np.asarray(array, order="C")
        start = len(self._raw) + -len(self._raw) % ALIGNMENT
        self._raw += bytes(start - len(self._raw)) + data.tobytes()
        self._constants.append(VkBytes(start, data.nbytes))
        code = _code(str(data.dtype))
        return self.value(VkTensor(code, data.shape, len(self._constants) - 1, staging_datatype=code))

    def own_memory(self, number: int) -> int:
        """Give a tensor a memory object that nothing else has; returns the object's number."""
        self._values[number] = replace(self.row(number), mem_obj_id=self._object)
        self._object += 1
        return self._object - 1

    def memory(self, number: int) -> int:
        """The memory object of a tensor; it gets one if it had an allocation that no other can share."""
        held = self.row(number).mem_obj_id
        return held if held >= 0 else self.own_memory(number)

    def row(self, number: int) -> VkTensor:
        """A tensor as it stands now; GraphError for a constant, or a value that is no tensor."""
        check_ids(f"{self.where}: value", (number,), len(self._values))
        held = self._values[number]
        if not isinstance(held, VkTensor) or held.is_constant:
            raise GraphError(
                f"{self.where}: value {number}", "has no memory to share", got=type(held).__name__
            )
        return held

    # --- the chain ---

    def call(self, name: str, *args: int, before: int | None = None) -> int:
        """Add an operator; its arguments are value ids, the output's last. Returns the id of the output."""
        at = len(self._source.chain) if before is None else before
        check_ids(f"{self.where}: {name}", args, len(self._values))
        check_ids(f"{self.where}: {name}: position", (at,), len(self._source.chain) + 1)
        self._added[at].append(OperatorCall(self._node, name, tuple(args)))
        self._node += 1
        return args[-1]

    def clone(self, number: int, into: int, before: int | None = None) -> int:
        """Copy a tensor into another one of the same dims."""
        return self.call(CLONE, number, self.literal(None), into, before=before)

    def prepack(self, constant: int, into: int) -> int:
        """Bring a constant into a tensor, once, when the runtime loads the graph."""
        return self.call(PREPACK, constant, into)

    def fills(self, sizes: Mapping[int, int], byte: int, before: int = 0) -> dict[int, int]:
        """Set the memory of values, so many bytes of each, to one byte, over and over; their int32 aliases.

        The runtime's fill takes a float. Of int32 words it can write only 0 and -1 exactly, so for another byte the
        words are zeroed first and then written once more, through a float32 alias, as the float of the same bits. What
        comes next waits for the fills, and the second ones wait for the first.
        """
        words = {number: self.alias(number, nbytes) for number, nbytes in sizes.items()}
        exact = {0x00: 0, 0xFF: -1}
        for number, alias in words.items():
            self._full(sizes[number], exact.get(byte, 0), alias, before)
        if words:
            self.wait(before)
        if words and byte not in exact:
            (bits,) = struct.unpack("<f", bytes((byte,)) * 4)
            for number, nbytes in sizes.items():
                self._full(nbytes, float(bits), self.alias(number, nbytes, "float32"), before)
            self.wait(before)
        return words

    def _full(self, nbytes: int, value: float, into: int, before: int) -> None:
        self.call(FULL, self.literal((nbytes // 4,)), self.literal(value), into, before=before)

    def wait(self, before: int | None = None) -> None:
        """Let everything that stands before wait for its end: a word is written, and read at once.

        The runtime puts a barrier between the writer and the reader of one tensor, and none between two aliases.
        """
        written, read = self.tensor("int32", (1,)), self.tensor("int32", (1,))
        self.call(FULL, self.literal((1,)), self.literal(0), written, before=before)
        self.clone(written, read, before=before)

    def follows(self, position: int) -> bool:
        """Whether the old operator at a position reads what the one before it wrote, so that it waits for that."""
        chain = self._source.chain
        if not 0 < position < len(chain):
            return position == len(chain)
        return bool(
            set(self._flat(chain[position - 1].args[-1:])) & set(self._flat(chain[position].args[:-1]))
        )

    def _flat(self, ids: tuple[int, ...]) -> Iterator[int]:
        for number in ids:
            held = self._values[number]
            yield from self._flat(held.items) if isinstance(held, ValueList) else (number,)

    # --- the border ---

    def input(self, number: int) -> int:
        """Make a tensor an input, behind the others; returns its place among them."""
        self._inputs.append(number)
        return len(self._inputs) - 1

    def output(self, number: int) -> int:
        """Make a tensor an output, behind the others; returns its place among them.

        The runtime copies outputs when the whole chain has run. Memory that is written again until then gives the
        later bytes. A packed int8 tensor cannot be an output; give out an int32 alias of it.
        """
        self._outputs.append(number)
        return len(self._outputs) - 1

    # --- the result ---

    def graph(self) -> VkGraph:
        """The graph with everything that was appended."""
        chain: list[OperatorCall] = []
        for number, call in enumerate((*self._source.chain, None)):
            chain += self._added.get(number, [])
            chain += [] if call is None else [call]
        return replace(
            self._source,
            chain=tuple(chain),
            values=tuple(self._values),
            constants=tuple(self._constants),
            input_ids=tuple(self._inputs),
            output_ids=tuple(self._outputs),
        )

    def blob(self) -> bytes:
        """The delegate blob of `graph`. FormatError or LimitError for a graph that the reader would refuse."""
        return write_blob(self.graph(), bytes(self._raw), self.where)


def _code(dtype: str) -> int:
    row = BY_NAME.get(dtype)
    if row is None or row.delegate is None:
        raise GraphError("tensor", "a dtype that no delegate holds", got=dtype)
    return row.delegate
