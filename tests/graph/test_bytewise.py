"""Values that follow from single bytes: which do, what nodes make them, and which nodes need not run then.

tests/exec/cpu/test_tables.py runs graphs with such values: of every operator, of two tensors, with numbers that nodes
make.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from exec.cpu.builder import F32, INT8, Builder

from refsim.core.layout import PACKED_4C, WIDTH_PACKED
from refsim.graph import bytewise
from refsim.graph.bytewise import BYTES, ByteTable
from refsim.graph.graph import Ref

SHAPE = (1, 4, 2, 3)
Q, OTHER = (0.5, 3), (0.25, -100)
REAL = (BYTES.astype(np.float32) - Q[1]) * np.float32(Q[0])
ZERO = np.float32(0)


class Made(Builder):
    """Value 0 is int8, value 1 what a dequantize makes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = [self.tensor(SHAPE, INT8, PACKED_4C)]
        self.convert("q8ta_dequantize", 0, Q, WIDTH_PACKED)

    def relu(self, x: int) -> int:
        return self.float("relu.default", (Ref(x),), SHAPE)

    def tables(self, kept: Sequence[int] = (), **constants: np.ndarray) -> dict[int, ByteTable]:
        held = {int(name.removeprefix("v")): array for name, array in constants.items()}
        return bytewise.tables(self.graph(), held, set(kept))


def same(table: ByteTable, source: int, values: np.ndarray, nodes: set[int]) -> bool:
    equal = table.values.dtype == values.dtype and np.array_equal(table.values, values)
    return equal and table.source == source and table.nodes == nodes


def chain() -> tuple[Made, list[int]]:
    """Dequantize, relu, quantize, dequantize, relu."""
    made = Made()
    r = made.relu(1)
    q = made.convert("q8ta_quantize", r, OTHER, PACKED_4C)
    e = made.convert("q8ta_dequantize", q, OTHER, WIDTH_PACKED)
    return made, [1, r, q, e, made.relu(e)]


def test_a_chain_is_followed_to_its_end() -> None:
    made, (d, r, q, e, s) = chain()
    found = made.tables()
    relu = np.maximum(REAL, ZERO)
    whole = np.clip(np.rint(relu * np.float32(4)) - 100, -128, 127).astype(np.int8)
    again = (whole.astype(np.float32) + 100) * np.float32(0.25)
    assert list(found) == [d, r, q, e, s]
    for count, (value, values) in enumerate(zip(found, (REAL, relu, whole, again, again), strict=True), 1):
        assert same(found[value], 0, values, set(range(count))), value


def test_behind_a_value_that_is_kept_another_chain_begins() -> None:
    made, (_, r, q, e, s) = chain()
    found = made.tables([q])
    again = (BYTES.astype(np.float32) + 100) * np.float32(0.25)
    assert found[q].source == 0 and found[q].nodes == {0, 1, 2}
    assert same(found[e], q, again, {3}) and same(found[s], q, np.maximum(again, ZERO), {3, 4})
    assert made.tables([r])[e].source == 0, "only what is dequantized begins one"


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1, 1)])
def test_arithmetic_with_a_number(shape: tuple[int, ...]) -> None:
    made = Made()
    number = made.tensor(shape, F32, WIDTH_PACKED)
    right = made.float("mul.Tensor", (Ref(1), Ref(number)), SHAPE)
    left = made.float("sub.Tensor", (Ref(number), Ref(1)), SHAPE)
    found = made.tables(**{f"v{number}": np.full(shape, -1.5, np.float32)})
    assert same(found[right], 0, REAL * np.float32(-1.5), {0, 1})
    assert same(found[left], 0, np.float32(-1.5) - REAL, {0, 2})
    assert set(made.tables()) == set(made.tables(**{f"v{number}": np.ones(4, np.float32)})) == {1}


@pytest.mark.parametrize(
    "name, args, shapes",
    [
        ("softmax.int", (-1,), [SHAPE]),  # not on single elements
        ("no_such.default", (), [SHAPE]),
        ("relu.default", (), [(2, 4, 2, 3)]),  # of another shape
        ("relu.default", (), [SHAPE, SHAPE]),  # of two values
    ],
)
def test_what_makes_no_table(name: str, args: tuple[Any, ...], shapes: list[tuple[int, ...]]) -> None:
    made = Made()
    made.float(name, (Ref(1), *args), *shapes)
    assert set(made.tables()) == {1}


# --- which nodes need not run ----------------------------------------------------------------------------


def steps(made: Made, chosen: Sequence[int], kept: Sequence[int] = ()) -> dict[int, list[int]]:
    tables = made.tables(kept)
    found = bytewise.steps(made.graph(), {value: tables[value] for value in chosen}, set(kept))
    return {value: [node.number for node in nodes] for value, nodes in found.items()}


def test_what_only_a_table_reads_need_not_run() -> None:
    made, (d, r, q, _, s) = chain()
    assert steps(made, [q]) == {q: [0, 1, 2]}
    assert steps(made, [s]) == {s: [0, 1, 2, 3, 4]}
    assert steps(made, [q], [r]) == {q: [2]}, "what is kept is made, and so is what makes it"
    assert steps(made, [q], [d]) == {q: [1, 2]}
    assert steps(made, [q, s], [q]) == {q: [0, 1, 2], s: [3, 4]}
    assert steps(made, [q, s]) == {s: [0, 1, 2, 3, 4]}, "only nodes read it that need not run"
    made.float("softmax.int", (Ref(r), -1), SHAPE)
    assert steps(made, [q]) == {q: [2]}, "another node reads it"


def test_a_node_that_is_not_of_a_table_keeps_what_it_reads() -> None:
    """Tables as somebody else may choose them: of the nodes that make a value, one is not named, or one is not read."""
    made = Made()
    s = made.relu(made.relu(made.relu(1)))
    made.relu(1)  # nobody reads it
    whole = [1, 2, 3]
    for nodes, wanted in (({1, 2, 3}, whole), ({1, 3}, [3]), ({1, 2, 3, 4}, whole), ({0, 1, 2, 3}, whole)):
        found = bytewise.steps(made.graph(), {s: ByteTable(0, BYTES, frozenset(nodes))}, frozenset())
        assert [node.number for node in found[s]] == wanted
