"""Values that follow from single bytes: which do, what nodes make them, and which nodes need not run then."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from refsim.core.layout import PACKED_4C, WIDTH_PACKED
from refsim.core.tensor import TensorDesc
from refsim.graph import bytewise
from refsim.graph.bytewise import BYTES, ByteTable
from refsim.graph.graph import Graph, Node, Ref, Tensor
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target

SHAPE = (1, 4, 2, 3)
F32, INT8 = np.dtype(np.float32), np.dtype(np.int8)
SCALE, ZP = np.float32(0.5), 3
REAL = (BYTES.astype(np.float32) - ZP) * SCALE


class Made:
    """A graph of value 0, which is int8, node by node."""

    def __init__(self, dtype: np.dtype[Any] = INT8) -> None:
        self.tensors = {0: Tensor(0, SHAPE, dtype, PACKED_4C if dtype == INT8 else WIDTH_PACKED)}
        self.nodes: list[Node] = []

    def value(self, shape: tuple[int, ...] = SHAPE, dtype: np.dtype[Any] = F32) -> int:
        number = len(self.tensors)
        self.tensors[number] = Tensor(number, shape, dtype, PACKED_4C if dtype == INT8 else WIDTH_PACKED)
        return number

    def convert(self, name: str, x: int, scale: float = 0.5, zp: int = ZP) -> int:
        op = OPS[f"q8ta_{name}"]
        out = self.value(self.tensors[x].shape, INT8 if name == "quantize" else F32)
        layout, desc = self.tensors[out].layout, self.tensors[x].desc
        assert layout is not None and desc is not None
        call = op.bind(
            op.make_params({"scale": scale, "zp": zp}), {"x": TensorDesc(desc.shape, desc.layout)}, {}, layout
        )
        self.nodes.append(Node(len(self.nodes), 0, name, (Ref(x),), (out,), Prepared(call), {"x": x}))
        return out

    def call(self, name: str, *args: Any, shapes: Sequence[tuple[int, ...]] = (SHAPE,)) -> int:
        outs = tuple(self.value(shape) for shape in shapes)
        self.nodes.append(Node(len(self.nodes), 0, name, args, outs))
        return outs[0]

    def graph(self) -> Graph:
        return Graph("test", self.tensors, tuple(self.nodes), (0,), (), Target())


def same(table: ByteTable, source: int, values: np.ndarray, nodes: set[int]) -> bool:
    equal = table.values.dtype == values.dtype and np.array_equal(table.values, values)
    return equal and table.source == source and table.nodes == nodes


RELU = "aten.relu.default"


def chain() -> tuple[Made, list[int]]:
    """Dequantize, relu, quantize, dequantize, relu."""
    made = Made()
    d = made.convert("dequantize", 0)
    r = made.call(RELU, Ref(d))
    q = made.convert("quantize", r, 0.25, -100)
    e = made.convert("dequantize", q, 0.25, -100)
    return made, [d, r, q, e, made.call(RELU, Ref(e))]


def test_a_chain_is_followed_to_its_end() -> None:
    made, (d, r, q, e, s) = chain()
    found = bytewise.tables(made.graph(), {})
    relu = np.maximum(REAL, np.float32(0))
    whole = np.clip(np.rint(relu * np.float32(4)) - 100, -128, 127).astype(np.int8)
    again = (whole.astype(np.float32) + 100) * np.float32(0.25)
    assert list(found) == [d, r, q, e, s]
    assert (
        same(found[d], 0, REAL, {0})
        and same(found[r], 0, relu, {0, 1})
        and same(found[q], 0, whole, {0, 1, 2})
    )
    assert same(found[e], 0, again, {0, 1, 2, 3}) and same(found[s], 0, again, {0, 1, 2, 3, 4})


def test_behind_a_value_that_is_kept_another_chain_begins() -> None:
    made, (_, r, q, e, s) = chain()
    found = bytewise.tables(made.graph(), {}, {q})
    again = (BYTES.astype(np.float32) + 100) * np.float32(0.25)
    assert found[q].source == 0 and found[q].nodes == {0, 1, 2}
    assert same(found[e], q, again, {3})
    assert same(found[s], q, np.maximum(again, np.float32(0)), {3, 4})
    assert bytewise.tables(made.graph(), {}, {r})[e].source == 0, "only what is dequantized begins one"


def test_floats_that_come_from_no_bytes_are_no_tables() -> None:
    made = Made(F32)
    q = made.convert("quantize", made.call(RELU, Ref(0)))
    d = made.convert("dequantize", q)
    found = bytewise.tables(made.graph(), {})
    assert list(found) == [d] and same(found[d], q, REAL, {2})


def with_number(shape: tuple[int, ...]) -> tuple[Made, int, dict[int, np.ndarray]]:
    made = Made()
    number = made.value(shape)
    return made, number, {number: np.full(shape, -1.5, np.float32)}


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1, 1)])
def test_arithmetic_with_a_number(shape: tuple[int, ...]) -> None:
    made, number, constants = with_number(shape)
    d = made.convert("dequantize", 0)
    right, left = (
        made.call("aten.mul.Tensor", Ref(d), Ref(number)),
        made.call("aten.sub.Tensor", Ref(number), Ref(d)),
    )
    found = bytewise.tables(made.graph(), constants)
    assert same(found[right], 0, REAL * np.float32(-1.5), {0, 1})
    assert same(found[left], 0, np.float32(-1.5) - REAL, {0, 2})
    assert set(bytewise.tables(made.graph(), {})) == {d}
    several = {number: np.ones(4, np.float32)}
    assert set(bytewise.tables(made.graph(), several)) == {d}


def test_numbers_that_nodes_make() -> None:
    """They need not run either: a number may be computed, quantized and dequantized first."""
    made, number, constants = with_number((1,))
    negative = made.call("aten.neg.default", Ref(number), shapes=((1,),))
    q = made.convert("quantize", negative, 0.5, 0)
    n = made.convert("dequantize", q, 0.5, 0)
    d = made.convert("dequantize", 0)
    out = made.call("aten.mul.Tensor", Ref(d), Ref(n))
    found = bytewise.tables(made.graph(), constants)
    assert set(found) == {d, out}
    assert same(found[out], 0, REAL * np.float32(1.5), {0, 1, 2, 3, 4})


def test_of_two_tensors_nothing_follows() -> None:
    made = Made()
    d = made.convert("dequantize", 0)
    other = made.convert("dequantize", made.value(SHAPE, INT8))
    both = made.call("aten.add.Tensor", Ref(d), Ref(other), 1)
    twice = made.call("aten.add.Tensor", Ref(d), Ref(d), 1)
    found = bytewise.tables(made.graph(), {})
    assert both not in found and same(found[twice], 0, REAL + REAL, {0, 3})


@pytest.mark.parametrize(
    "name, args, shapes",
    [
        ("aten.softmax.int", (-1,), (SHAPE,)),  # not on single elements
        ("aten.no_such.default", (), (SHAPE,)),
        ("any.thing.default", (), (SHAPE,)),
        ("aten.relu.default", (), ((2, 4, 2, 3),)),  # of another shape
        ("aten.relu.default", (), (SHAPE, SHAPE)),  # of two values
    ],
)
def test_what_makes_no_table(name: str, args: tuple[Any, ...], shapes: tuple[tuple[int, ...], ...]) -> None:
    made = Made()
    d = made.convert("dequantize", 0)
    made.call(name, Ref(d), *args, shapes=shapes)
    assert set(bytewise.tables(made.graph(), {})) == {d}


def test_an_operator_that_only_torch_knows_makes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made()
    d = made.convert("dequantize", 0)
    r = made.call(RELU, Ref(d))
    assert set(bytewise.tables(made.graph(), {})) == {d, r}
    monkeypatch.setattr(bytewise.aten, "find", lambda name, where: SimpleNamespace(row=None))
    assert set(bytewise.tables(made.graph(), {})) == {d}


def test_plain_arguments_count() -> None:
    made = Made()
    d = made.convert("dequantize", 0)
    clamped = made.call("aten.hardtanh.default", Ref(d), -2.0, 1.5)
    assert same(
        bytewise.tables(made.graph(), {})[clamped], 0, np.clip(REAL, -2, 1.5).astype(np.float32), {0, 1}
    )


def test_int8_operators_and_those_without_a_kernel_make_none() -> None:
    made, (_, r, q, _, _) = chain()
    before = set(bytewise.tables(made.graph(), {}))
    relu = OPS["q8ta_relu"]
    params = relu.make_params({"in_scale": 0.25, "in_zp": 0, "out_scale": 0.5, "out_zp": 0})
    call = relu.bind(params, {"x": TensorDesc(SHAPE, PACKED_4C)}, {}, PACKED_4C)
    made.nodes.append(Node(5, 0, "relu", (Ref(q),), (made.value(SHAPE, INT8),), Prepared(call), {"x": q}))
    meant: Any = SimpleNamespace(op=relu)
    made.nodes.append(Node(6, 0, RELU, (Ref(r),), (made.value(),), meaning=meant))
    assert set(bytewise.tables(made.graph(), {})) == before


def test_a_tensor_without_dims_is_no_table() -> None:
    made = Made()
    made.tensors[0] = Tensor(0, (), INT8, PACKED_4C)
    d = made.convert("dequantize", 0)
    made.tensors[d] = Tensor(d, (), F32, WIDTH_PACKED)
    made.call(RELU, Ref(d), shapes=((),))
    assert set(bytewise.tables(made.graph(), {})) <= {d}


# --- which nodes need not run ----------------------------------------------------------------------------


def steps(made: Made, chosen: Sequence[int], kept: Sequence[int] = ()) -> dict[int, list[int]]:
    graph = made.graph()
    tables = bytewise.tables(graph, {}, set(kept))
    found = bytewise.steps(graph, {value: tables[value] for value in chosen}, set(kept))
    return {value: [node.number for node in nodes] for value, nodes in found.items()}


def test_what_only_a_table_reads_need_not_run() -> None:
    made, (d, r, q, _, s) = chain()
    assert steps(made, [q]) == {q: [0, 1, 2]}
    assert steps(made, [s]) == {s: [0, 1, 2, 3, 4]}
    assert steps(made, [q], [r]) == {q: [2]}, "what is kept is made, and so is what makes it"
    assert steps(made, [q], [d]) == {q: [1, 2]}
    assert steps(made, [q], [q]) == {q: [0, 1, 2]}
    assert steps(made, [q, s], [q]) == {q: [0, 1, 2], s: [3, 4]}
    assert steps(made, [q, s]) == {s: [0, 1, 2, 3, 4]}, "only nodes read it that need not run"
    assert steps(made, []) == {}


def test_what_another_node_reads_is_made() -> None:
    made, (_, r, q, _, _) = chain()
    made.call("aten.softmax.int", Ref(r), -1)
    assert steps(made, [q]) == {q: [2]}


def test_nodes_stand_with_the_first_value_that_is_made_of_them() -> None:
    made = Made()
    d = made.convert("dequantize", 0)
    r = made.call(RELU, Ref(d))
    a, b = made.convert("quantize", r, 0.25, 0), made.convert("quantize", r, 0.125, 0)
    assert steps(made, [a, b]) == {a: [0, 1, 2], b: [3]}
    assert steps(made, [b, a]) == {b: [0, 1, 3], a: [2]}
    assert steps(made, [a]) == {a: [2]}


def test_a_node_that_is_not_of_a_table_keeps_what_it_reads() -> None:
    """Tables as somebody else may choose them: of the nodes that make a value, one is not named, or one is not read."""
    made = Made()
    d = made.convert("dequantize", 0)
    r = made.call(RELU, Ref(d))
    s = made.call(RELU, Ref(made.call(RELU, Ref(r))))
    made.call(RELU, Ref(d))  # nobody reads it
    for nodes, wanted in (
        ({1, 2, 3}, [1, 2, 3]),
        ({1, 3}, [3]),
        ({1, 2, 3, 4}, [1, 2, 3]),
        ({0, 1, 2, 3}, [1, 2, 3]),
    ):
        found = bytewise.steps(made.graph(), {s: ByteTable(0, BYTES, frozenset(nodes))}, frozenset())
        assert [node.number for node in found[s]] == wanted


def test_readers_of_values() -> None:
    made, (d, r, q, e, s) = chain()
    made.call("aten.cat.default", (Ref(r), Ref(s)), 1)
    found = bytewise.readers_of(made.graph())
    numbers = {value: [node.number for node in found[value]] for value in (0, d, r, q, e, s)}
    assert numbers == {0: [0], d: [1], r: [2, 5], q: [3], e: [4], s: [5]}
    assert found[99] == []
