"""Chains of single elements as tables of bytes: of every operator, in every layout, as the definitions say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from builder import F32, PACKED, Builder, Quantization, Shape, check, check_each

from refsim import aten
from refsim.aten.table import TABLE
from refsim.core.errors import RefsimError
from refsim.core.layout import PACKED_4C, WIDTH_PACKED, Layout
from refsim.core.qmath import PROFILES
from refsim.core.tensor import TensorDesc
from refsim.exec.cpu.elementwise import prepack as elementwise
from refsim.exec.cpu.elementwise.lut_kernel import GATHER, LUT
from refsim.exec.cpu.isa import ISAS, cpu
from refsim.exec.cpu.step import PlanStep
from refsim.exec.cpu.thread_pool import JobList
from refsim.exec.executor import Definition, run_graph
from refsim.graph.bytewise import BYTES, tables
from refsim.graph.graph import Graph, Ref, Tensor
from refsim.ops.base.target import Target

BEFORE, AFTER = (0.03, -11), (0.02, 5)
SHAPE = (2, 5, 6, 7)
#: Arguments by which operators are called: a tensor, the places where it is above a quarter, a tensor of one element.
X, MASK, ONE = "x", "mask", "one"
FORMS: tuple[tuple[Any, ...], ...] = (
    (X,), (X, 0.75), (X, 2), (X, -1.5, 2.0), (X, X), (0.75, X), (X, ONE), (ONE, X),
    (MASK,), (MASK, MASK), (MASK, X, 0.5), (MASK, ONE, X), (X, MASK, 0.5),
)  # fmt: skip
#: Take integers only.
SHIFTS = {"__lshift__", "__rshift__", "bitwise_left_shift", "bitwise_right_shift"}
POINTWISE = sorted({name for name, row in TABLE.items() if row.pointwise} - SHIFTS)


class Chain(Builder):
    """Quantize, dequantize, operators, quantize, dequantize."""

    def __init__(
        self, shape: Shape = SHAPE, layout: Layout = PACKED_4C, target: Target | None = None
    ) -> None:
        super().__init__(target)
        self.shape = shape
        self.real = self.last = self.entered(shape, BEFORE, layout)

    def then(self, base: str, *args: Any, dtype: np.dtype[Any] = F32) -> int:
        self.last = self.float(base, args or (Ref(self.last),), self.shape)
        self.tensors[self.last] = Tensor(self.last, self.shape, dtype, WIDTH_PACKED)
        return self.last

    def one(self, value: float) -> int:
        at = self.tensor((1,), F32, WIDTH_PACKED)
        self.tensors[at] = Tensor(at, (1,), F32, WIDTH_PACKED, data=np.array([value], np.float32))
        return at

    def form(self, base: str, form: tuple[Any, ...], dtype: np.dtype[Any]) -> int:
        """An operator called in one of `FORMS`."""
        mask = self.then("gt.Scalar", Ref(self.real), 0.25, dtype=np.dtype(bool)) if MASK in form else -1
        names = {X: Ref(self.real), MASK: Ref(mask), ONE: Ref(self.one(0.3)) if ONE in form else None}
        return self.then(base, *(names[arg] if isinstance(arg, str) else arg for arg in form), dtype=dtype)

    def end(self, layout: Layout = PACKED_4C, *others: int, after: Quantization = AFTER) -> Graph:
        return self.graph(self.through(self.last, after, layout), *others)


def every_byte(shape: Shape = SHAPE) -> np.ndarray:
    """What a quantize makes every byte of, several times."""
    return (np.resize(BYTES, shape).astype(np.float32) - BEFORE[1]) * np.float32(BEFORE[0])


def looked_up(graph: Graph) -> list[PlanStep]:
    """The steps that look bytes up; the outputs are right."""
    return [step for step in check(graph, [every_byte(graph.tensors[0].shape)]) if step.route == "lut"]


def numbers(steps: Sequence[PlanStep]) -> list[list[int]]:
    """Which nodes each step has."""
    return [[node.number for node in step.nodes] for step in steps]


def test_the_input_has_every_byte() -> None:
    graph = Chain().end()
    op = graph.nodes[0].call
    assert op is not None
    assert len(np.unique(op.op.define(op.params, op.target, every_byte()))) == 256


def calls(base: str) -> Iterator[tuple[Any, ...]]:
    """The forms in which an operator takes arguments and gives a float or a truth value for each element."""
    x = every_byte((256,))
    values = {X: x, MASK: x > 0.25, ONE: np.array([0.3], np.float32)}
    for form in FORMS:
        try:
            given = [values.get(arg, arg) if isinstance(arg, str) else arg for arg in form]
            (made,) = aten.find(f"aten.{base}", "test").run(given, "test", aten.Place())
        except (RefsimError, ValueError):
            continue
        if made.shape == x.shape and made.dtype in (np.float32, np.bool_):
            yield form, made.dtype


@pytest.mark.parametrize("base", POINTWISE)
def test_an_operator_of_the_table(base: str) -> None:
    found = list(calls(base))
    assert found, "called in no form"
    for form, dtype in found:
        b = Chain()
        b.form(base, form, dtype)
        if dtype != np.float32:
            b.then("where.self", Ref(b.last), Ref(b.real), 0.5)
        graph = b.end()
        (step,) = looked_up(graph)
        assert {node.number for node in step.nodes} == set(range(1, len(graph.nodes) - 1)), form


@pytest.mark.parametrize("profile", ["canonical", "nvidia"])
@pytest.mark.parametrize("base", POINTWISE)
def test_a_table_has_the_bits_of_the_definition(base: str, profile: str) -> None:
    """Before anything is quantized, which hides an ulp."""
    for form, dtype in (row for row in calls(base) if MASK not in row[0]):
        b = Chain(target=Target(PROFILES[profile]))
        made = b.form(base, form, dtype)
        graph = b.graph(made, b.tensors[1].id)
        table = tables(graph, {t.id: t.data for t in graph.tensors.values() if t.data is not None})[made]
        values, source = run_graph(graph, [every_byte()], Definition())
        assert table.values[source.view(np.uint8)].tobytes() == values.tobytes(), form


@pytest.mark.parametrize("after", PACKED, ids=str)
@pytest.mark.parametrize("before", PACKED, ids=str)
def test_layouts(before: Layout, after: Layout) -> None:
    for shape in (SHAPE, (1, 8, 8, 8), (3, 9, 12), (17, 20), (300,)):
        b = Chain(shape, before)
        b.then("hardswish.default")
        b.then("mul.Tensor", Ref(b.last), 1.7)
        assert numbers(looked_up(b.end(after))) == [[1, 2, 3, 4]]


@pytest.mark.parametrize("scale", [2.0**-60, 1e-3, 2.0**60])
@pytest.mark.parametrize("base", ["exp", "log", "rsqrt", "neg", "reciprocal"])
def test_results_that_saturate_or_are_no_numbers(base: str, scale: float) -> None:
    b = Chain()
    b.then(f"{base}.default")
    check(b.end(after=(scale, 7)), [every_byte()])


def test_a_chain_goes_on_behind_a_quantize() -> None:
    """x * sigmoid(x), the sigmoid quantized: still a table of one byte; what is between does not run."""
    b = Chain()
    gate = b.through(b.then("sigmoid.default"), (1 / 256, -128))
    b.then("mul.Tensor", Ref(b.real), Ref(gate))
    assert numbers(looked_up(b.end())) == [[1, 2, 3, 4, 5, 6]]


def test_what_somebody_else_reads_is_made_all_the_same() -> None:
    b = Chain()
    half = b.then("sigmoid.default")
    b.then("mul.Tensor", Ref(b.last), 3.0)
    assert numbers(check(b.end(PACKED_4C, half), [every_byte()])) == [[3, 4]]


def test_numbers_that_nodes_make_before_the_tensor_is_there() -> None:
    b = Chain()
    number = b.float("clone.default", (Ref(b.one(1.5)),), (1,))
    first = b.nodes.pop()
    b.then("mul.Tensor", Ref(b.real), Ref(number))
    b.last = b.through(b.last, AFTER)
    b.nodes = [replace(node, number=at) for at, node in enumerate((first, *b.nodes))]
    assert numbers(check(b.graph(b.last), [every_byte()])) == [[0, 2, 3, 4]]


def test_two_chains_from_one_tensor() -> None:
    b = Chain()
    first = b.through(b.then("sigmoid.default"), AFTER)
    b.then("tanh.default", Ref(b.real))
    assert numbers(looked_up(b.end(PACKED_4C, first))) == [[1, 2, 3], [5, 6]]


@pytest.mark.parametrize("threads", [1, 2])
def test_watched_values(threads: int) -> None:
    b = Chain()
    b.then("sigmoid.default")
    b.then("add.Tensor", Ref(b.last), Ref(b.one(0.25)))
    check_each(b.end(), [every_byte()], threads)


def test_tensors_that_must_not_be_tables() -> None:
    """Of another shape, of neighbours."""
    b = Chain()
    b.shape = (1, *SHAPE[1:])
    b.then("slice_copy.Tensor", Ref(b.real), 0, 0, 1)
    assert not looked_up(b.end())
    b = Chain()
    other = b.through(b.real, AFTER)
    b.then("cumsum.default", Ref(other), 1)
    assert numbers(check(b.end(), [every_byte()])) == [[1, 2]]


@pytest.mark.parametrize("isa", [cpu().isa, ISAS[-1]], ids=lambda isa: isa.name)
@pytest.mark.parametrize("count", [4, 60, 64, 1000, 70_000])
def test_both_kernels_look_every_byte_up(isa: Any, count: int) -> None:
    table = np.random.default_rng(count).permutation(BYTES)
    desc = TensorDesc((1, 4, 1, count), PACKED_4C)
    e = elementwise.by_table(table, desc, desc, isa)
    assert e.op == (LUT if isa.lookup else GATHER)
    x = np.random.default_rng(1).integers(-128, 128, desc.nbytes, np.int8)
    out = np.zeros_like(x)
    JobList([elementwise.lower(e, isa)], 1, {"x": x.ctypes.data, "out": out.ctypes.data}).run()
    assert np.array_equal(out, table[x.view(np.uint8)])
