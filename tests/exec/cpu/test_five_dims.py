"""Steps over bytes are fused for any number of dims: those before the channels fold into the images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import test_tables
import test_two_inputs

from refsim.exec.cpu import EmulatedExecutor, NativeExecutor, fusion, isa
from refsim.exec.executor import run_graph
from refsim.graph.graph import Graph, Ref

FOUR, FIVE = (2, 8, 4, 4), (2, 1, 8, 4, 4)


def looked_up(shape: tuple[int, ...]) -> Graph:
    chain = test_tables.Chain(shape)
    chain.then("hardswish.default")
    return chain.end()


def clamped(shape: tuple[int, ...]) -> Graph:
    chain = test_tables.Chain(shape)
    chain.then("hardtanh.default", Ref(chain.real), -0.5, 0.5)
    return chain.end()


def two(shape: tuple[int, ...]) -> Graph:
    return test_two_inputs.Two((shape, shape), test_tables.PACKED_4C).end("aten.add.Tensor")


@pytest.mark.parametrize("lookup", [True, False])
@pytest.mark.parametrize("graph", [looked_up, clamped, two])
def test_five_dims_are_fused_as_four_are(
    graph: Callable[[tuple[int, ...]], Graph], lookup: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = isa.cpu()
    if lookup and not here.isa.lookup:
        pytest.skip(f"{here.name} cannot look up bytes in one instruction (avx512vbmi)")
    monkeypatch.setattr(fusion, "cpu", lambda: replace(here, isa=replace(here.isa, lookup=lookup)))
    fused = {}
    for shape in (FOUR, FIVE):
        made = graph(shape)
        given = [np.resize(test_tables.every_byte((256,)), shape) for _ in made.inputs]
        expected = [a.tobytes() for a in run_graph(made, given, EmulatedExecutor())]
        executor = NativeExecutor()
        assert [a.tobytes() for a in run_graph(made, given, executor)] == expected
        fused[len(shape)] = [step.route for step in executor.session(made).steps if len(step.nodes) > 1]
    assert len(fused[4]) == 1 and fused[5] == fused[4], f"{fused}; chosen in refsim/exec/cpu/fusion.py"
