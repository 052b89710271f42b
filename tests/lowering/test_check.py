"""The check against torch finds what it is there for: each kind of mistake that a pattern has made somewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from refsim.core.errors import GraphError
from refsim.partition.check import DRAWS, Deviation, check
from refsim.partition.fx_program import FxProgram
from refsim.partition.lower import Lowered, lower
from refsim.partition.nodes import target_name
from refsim.partition.patterns import _weights, add, convolution, linear

from .networks import program


def wrong(name: str) -> list[Deviation]:
    return [d for d in check(lower(program(name)[0], name)) if d.wrong]


def changed_args(module: Any, monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Let a pattern make its node with other arguments: ``change(node, args)``."""
    original = module.fuse

    def fuse(given: FxProgram, match: Any) -> Any:
        node = original(given, match)
        node.args = tuple(change(node, list(node.args)))
        return node

    monkeypatch.setattr(module, "fuse", fuse)


def producers_scale(node: Any, args: list[Any]) -> list[Any]:
    """G2: a chained linear takes its producer's input scale and zero point."""
    producer = args[0]
    if target_name(producer).startswith("et_vk.q8ta_linear"):
        args[1:3] = producer.args[1:3]
    return args


def swapped(one: int, other: int) -> Any:
    def change(_node: Any, args: list[Any]) -> list[Any]:
        args[one], args[other] = args[other], args[one]
        return args

    return change


def reversed_pairs(*places: int) -> Any:
    def change(_node: Any, args: list[Any]) -> list[Any]:
        for at in places:
            args[at] = list(reversed(args[at]))
        return args

    return change


def without(at: int) -> Any:
    def change(_node: Any, args: list[Any]) -> list[Any]:
        args[at] = None
        return args

    return change


MISTAKES: list[tuple[str, str, Any, Any]] = [
    ("scale of the producer", "ChainedLinears", linear, producers_scale),
    ("output's zero point for the input's", "ChainedLinears", linear, swapped(2, 7)),
    ("output's scale for the input's", "Linear3D", linear, swapped(1, 6)),
    ("no bias", "ChainedGemvs", linear, without(8)),
    ("no relu", "ReluElsewhere", linear, lambda _node, args: [*args[:-1], "none"]),
    ("scales of an addition exchanged", "Residuals", add, swapped(2, 4)),
    ("zero points of an addition exchanged", "Residuals", add, swapped(3, 5)),
    ("alpha lost", "AddAlpha", add, lambda _node, args: [*args[:8], 1.0]),
    ("pairs the other way round", "DilatedConvolution", convolution, reversed_pairs(11, 12)),
    ("no relu behind a convolution", "ReluElsewhere", convolution, lambda _node, args: [*args[:-1], "none"]),
    ("no bias of a convolution", "TransposedConvolution", convolution, without(8)),
]


@pytest.mark.parametrize(
    ("name", "module", "change"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES]
)
def test_wrong_arguments(name: str, module: Any, change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    changed_args(module, monkeypatch, change)
    assert wrong(name)


def test_an_operand_that_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """G3: with the second operand left out, what computed it is dead."""
    changed_args(add, monkeypatch, lambda _node, args: [args[0], args[0], *args[2:]])
    with pytest.raises(GraphError, match="nothing reads its result; got q8ta_conv2d_pw"):
        wrong("Residuals")
    monkeypatch.undo()
    changed_args(add, monkeypatch, lambda _node, args: [args[1], args[0], *args[2:]])
    assert wrong("Residuals")


def test_a_relu_dropped_behind_an_addition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(add, "_clamps", lambda zp: True)
    assert [d.operator for d in wrong("AddRelu")] == ["q8ta_add"]


def test_a_square_weight_that_is_not_transposed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        linear, "ARGUMENTS", {name: (*row[:3], True) for name, row in linear.ARGUMENTS.items()}
    )
    monkeypatch.setattr(linear, "check_rows", lambda weight, anchor: None)
    monkeypatch.setattr(_weights, "check_rows", lambda weight, anchor: None)
    assert wrong("SquareMm")


def test_sums_over_the_wrong_dim(monkeypatch: pytest.MonkeyPatch) -> None:
    original = FxProgram.add_constant

    def add_constant(self: FxProgram, name: str, value: torch.Tensor) -> Any:
        return original(self, name, value.flip(0) if name.endswith("_sums") else value)

    monkeypatch.setattr(FxProgram, "add_constant", add_constant)
    assert {d.operator for d in wrong("DepthwiseConvolution")} >= {"q8ta_conv2d_dw", "q8ta_conv2d"}


@pytest.fixture(scope="module")
def lowered() -> Iterator[Lowered]:
    yield lower(program("Residuals")[0], "Residuals")


def test_every_draw_is_reported(lowered: Lowered) -> None:
    for difference in check(lowered):
        assert set(difference.by_draw) == {*DRAWS, "run", "run large"}
        assert not difference.wrong


def test_same_seed_same_result(lowered: Lowered) -> None:
    one, two, other = (check(lowered, seed) for seed in (3, 3, 4))
    assert [d.steps for d in one] == [d.steps for d in two]
    assert [sum(d.steps.values()) for d in one] == [sum(d.steps.values()) for d in other]


def test_a_graph_that_was_changed_afterwards(lowered: Lowered) -> None:
    """What is checked is the serialized graph, not the program that it was made from."""
    from refsim.formats.literals import Double

    (delegate,) = lowered.delegates
    graph = delegate.serialized.graph
    call = next(c for c in graph.chain if c.name == "et_vk.q8ta_add.default")
    at = call.args[2]
    value = graph.values[at]
    assert isinstance(value, Double)
    values = (*graph.values[:at], Double(2 * value.value), *graph.values[at + 1 :])
    fields = {name: getattr(graph, name) for name in graph.__slots__} | {"values": values}
    serialized = replace(delegate.serialized, graph=type(graph)(**fields))
    tampered = replace(lowered, delegates=(replace(delegate, serialized=serialized),))
    assert any(d.wrong for d in check(tampered))


def test_counts() -> None:
    difference = Deviation(0, "n", "op")
    difference.add("a", np.array([1, 2, 3], np.int8), np.array([1, 3, 1], np.int8))
    difference.add("b", np.array([-128], np.int8), np.array([127], np.int8))
    assert difference.steps == {0: 1, 1: 1, 2: 1, 255: 1} and difference.worst == 255
    assert difference.by_draw == {"a": 2, "b": 255} and difference.wrong
