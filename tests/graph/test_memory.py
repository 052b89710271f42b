"""Lifetimes and memory objects: upstream's plans are sound, ours are, and an unsound one is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from refsim.core.errors import GraphError
from refsim.formats.literals import Int
from refsim.formats.pte import read as pte
from refsim.formats.vkgraph.schema import OperatorCall, ValueList, VkGraph, VkTensor
from refsim.graph import memory

MODELS = sorted((Path(__file__).parents[1] / "data" / "models").glob("*.pte"))
INT8, FLOAT = 2, 5
PACKED_4W4C = 3


def graphs() -> list[tuple[str, VkGraph]]:
    found = []
    for path in MODELS:
        container = pte.load(path)
        found += [(f"{path.stem} {n}", blob.graph) for n, blob in container.blobs(container.plan())]
    return found


@pytest.mark.parametrize(("name", "graph"), graphs(), ids=lambda v: v if isinstance(v, str) else "")
def test_plans_of_real_graphs(name: str, graph: VkGraph) -> None:
    memory.check(graph, name)
    shared, unshared = memory.total(graph)
    assert shared < unshared
    planned = memory.plan(graph)
    memory.check(planned, name)
    assert memory.total(planned)[1] == unshared
    # no more than 3 % above upstream's, mostly below
    assert memory.total(planned)[0] <= 1.03 * shared
    assert memory.plan(planned) == planned
    alone = memory.with_objects(graph, {})
    memory.check(alone, name)
    assert memory.total(alone) == (unshared, unshared)


def tensor(*dims: int, mem: int = -1, constant: int = -1, datatype: int = FLOAT, row: int = 0) -> VkTensor:
    return VkTensor(datatype, dims, constant, mem, 0, row)


def chain(*calls: tuple[str, tuple[int, ...]]) -> tuple[OperatorCall, ...]:
    return tuple(OperatorCall(number, name, args) for number, (name, args) in enumerate(calls))


def test_lifetimes() -> None:
    plain = (tensor(4),) * 3
    values = (*plain, tensor(4, constant=0), *plain[:2], Int(1), ValueList((4, 5)))
    calls = chain(("et_vk.prepack.default", (3, 1)), ("a", (0, 6, 2)), ("b", (2, 1, 7)), ("c", (4, 0)))
    graph = VkGraph("0", calls, values, (0,), (5,))
    lives = memory.lifetimes(graph)
    assert lives == {
        0: memory.Lifetime(-1, 3),
        1: memory.Lifetime(-1, 4),  # prepacked: for good
        2: memory.Lifetime(1, 2),
        4: memory.Lifetime(2, 3),
        5: memory.Lifetime(2, 4),
    }
    assert memory.lifetimes(VkGraph("0", (), (tensor(1),), (0,), (0,)))[0] == memory.Lifetime(-1, 0)


def line(*objects: int) -> VkGraph:
    """x0 -> x1 -> x2 -> ..., each in the object given."""
    values = tuple(tensor(8, mem=mem) for mem in objects)
    calls = chain(*(("op", (n, n + 1)) for n in range(len(objects) - 1)))
    return VkGraph("0", calls, values, (0,), (len(objects) - 1,))


@pytest.mark.parametrize(
    ("objects", "values"), [((0, 0, 1, 1), "value 0"), ((0, 1, 1, 0), "value 1"), ((2, 1, 0, 0), "value 2")]
)
def test_unsound(objects: tuple[int, ...], values: str) -> None:
    with pytest.raises(GraphError, match=f"needed at the same time; got {values}"):
        memory.check(line(*objects), "graph")


def test_an_input_and_a_later_output_do_not_share_while_both_are_needed() -> None:
    graph = line(0, 1, 0)
    memory.check(graph)
    with pytest.raises(GraphError, match="value 0"):
        memory.check(replace(graph, output_ids=(0, 2)))


@pytest.mark.parametrize(
    ("value", "nbytes"),
    [
        (tensor(1, 3, 2, 5), 120),
        (tensor(1, 3, 2, 5, datatype=INT8, row=PACKED_4W4C), 64),
        (tensor(1, 3, 2, 5, datatype=INT8, row=9), 40),  # open: as 4C1W
        (tensor(datatype=INT8, row=PACKED_4W4C), 16),
        (tensor(datatype=INT8, row=6), 4),  # 4C
        (tensor(5, 3, datatype=INT8, row=0), 15),  # plain
    ],
)
def test_bytes(value: VkTensor, nbytes: int) -> None:
    assert memory.nbytes(value) == nbytes
