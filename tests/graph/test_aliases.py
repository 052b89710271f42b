"""Values that lie in each other's memory: which are found, and from which read on a graph depends on them."""

from __future__ import annotations

import numpy as np
import pytest

from refsim.core.errors import GraphError
from refsim.core.layout import PACKED_4C, WIDTH_PACKED
from refsim.graph.aliases import RUNTIME, other_view, read_as_another
from refsim.graph.graph import Graph, Node, Ref, Tensor
from refsim.graph.order import check_order
from refsim.ops.base.target import Target

BYTES, WORDS, FLOATS = "int8", "int32", "float32"
#: What an operator reads and writes.
Call = tuple[tuple[int, ...], tuple[int, ...]]


def graph(
    rows: tuple[tuple[str, int], ...],
    *calls: Call,
    inputs: tuple[int, ...] = (0,),
    outputs: tuple[int, ...] = (),
    stored: tuple[int, ...] = (),
) -> Graph:
    """Tensors as (type, memory object), and operators as (what they read, what they write)."""
    tensors = {
        n: Tensor(
            n, (1, 4, 2, 2), np.dtype(dtype), PACKED_4C if dtype == BYTES else WIDTH_PACKED, memory,
            np.zeros((1, 4, 2, 2), dtype) if n in stored else None,
        )
        for n, (dtype, memory) in enumerate(rows)
    }  # fmt: skip
    nodes = tuple(
        Node(k, k, "any.thing.default", tuple(map(Ref, reads)), writes)
        for k, (reads, writes) in enumerate(calls)
    )
    return Graph("test", tensors, nodes, inputs, outputs, Target())


@pytest.mark.parametrize(
    "rows, stored, wanted",
    [
        (((BYTES, 3), (WORDS, 3)), (), (1, 0)),
        (((WORDS, 3), (BYTES, 3)), (), (1, 0)),
        (((BYTES, 0), (WORDS, 0)), (), (1, 0)),
        (((BYTES, 3), (WORDS, 4)), (), (None, None)),  # of other objects
        (((BYTES, -1), (WORDS, -1)), (), (None, None)),  # each has its own
        (((BYTES, 3), (BYTES, 3)), (), (None, None)),  # used again one after the other
        (((WORDS, 3), (WORDS, 3)), (), (None, None)),
        (((BYTES, 3), (FLOATS, 3)), (), (None, None)),
        (((BYTES, 3), (WORDS, 3)), (0,), (None, None)),
        (((BYTES, 3), (WORDS, 3)), (1,), (None, None)),
        (((BYTES, 3), (FLOATS, 3), (WORDS, 3), (WORDS, 3)), (), (2, None, 0, 0)),  # the first
        (((BYTES, 1), (WORDS, 2), (BYTES, 2), (WORDS, 1)), (), (3, 2, 1, 0)),
    ],
)
def test_the_other_view(
    rows: tuple[tuple[str, int], ...], stored: tuple[int, ...], wanted: tuple[int | None, ...]
) -> None:
    given = graph(rows, stored=stored)
    assert tuple(other_view(given, number) for number in range(len(rows))) == wanted


#: Input 0, then bytes 1 and words 2 in one object, bytes 3 elsewhere, floats 4 in that object as well.
ROWS = ((BYTES, 0), (BYTES, 5), (WORDS, 5), (BYTES, 1), (FLOATS, 5), (WORDS, 0))


@pytest.mark.parametrize(
    "calls, inputs, outputs, wanted",
    [
        ([((0,), (1,)), ((2,), (3,))], (0,), (3,), (2, 1)),
        ([((0,), (2,)), ((1,), (3,))], (0,), (3,), (1, 2)),
        ([((0,), (1,)), ((1,), (3,))], (0,), (3,), None),
        ([((0,), (1,)), ((1,), (2,)), ((2,), (3,))], (0,), (3,), None),  # the last that wrote counts
        ([((0,), (1,)), ((0,), (4,)), ((2,), (3,))], (0,), (3,), None),
        ([((0,), (1,)), ((0,), (2,)), ((1,), (3,))], (0,), (3,), (1, 2)),
        ([((5,), (3,))], (0,), (3,), (5, 0)),  # an input writes its memory
        ([((5,), (3,))], (5,), (3,), None),
        ([((0,), (1,))], (0,), (2,), (2, 1)),  # an output reads
        ([((0,), (1,))], (0,), (1,), None),
        ([((0,), (1,))], (0,), (1, 2), (2, 1)),
        ([((0, 5), (1,)), ((2,), (3,))], (0,), (3,), (5, 0)),  # the first such read
        ([((2,), (3,))], (0,), (3,), None),  # of what nothing wrote there is no clash
        ([((0,), (1, 3)), ((3, 2), (4,))], (0,), (4,), (2, 1)),
    ],
)
def test_a_read_that_depends_on_shared_memory(
    calls: list[Call],
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    wanted: tuple[int, int] | None,
) -> None:
    assert read_as_another(graph(ROWS, *calls, inputs=inputs, outputs=outputs)) == wanted


def test_what_is_no_tensor_clashes_with_nothing() -> None:
    given = graph(ROWS, ((9,), (8,)), ((8,), (3,)))
    assert read_as_another(given) is None


def test_an_error_says_which_value_lies_there() -> None:
    """A program that ExecuTorch's runtime can run, and nothing else."""
    shared = graph(ROWS, ((0,), (1,)), ((2,), (3,)), outputs=(3,))
    with pytest.raises(GraphError) as caught:
        check_order(shared, True)
    place = "test: node 1 any.thing.default: reads a value that nothing wrote"
    said = "got value 2, which lies in the memory of value 1"
    assert str(caught.value) == f"{place}; {said}, need {RUNTIME}"
    check_order(shared, False)


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize(
    ("calls", "outputs", "said"),
    [
        (
            [((2,), (1,))],
            (1,),
            "node 0 any.thing.default: reads a value that nothing wrote; got value 2, which",
        ),
        ([((3,), (1,))], (), "node 0 any.thing.default: reads a value that nothing wrote; got value 3"),
        ([((0,), (0,))], (), "node 0 any.thing.default: writes a value again; got value 0"),
        ([((0,), (1,))], (1, 3), "output: reads a value that nothing wrote; got value 3"),
    ],
)
def test_an_order_that_no_runtime_can_run(
    calls: list[Call], outputs: tuple[int, ...], said: str, runs: bool
) -> None:
    with pytest.raises(GraphError) as caught:
        check_order(graph(ROWS, *calls, outputs=outputs), runs)
    assert str(caught.value).startswith(f"test: {said}")
    check_order(graph(ROWS, ((3,), (1,)), stored=(3,)), runs)
