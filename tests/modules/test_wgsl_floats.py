"""Float operators that a device computes between WGSL kernels: the host's bits, or the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from needed import needs_device

from modules.wgsl_kernels import INDEX, RIGHT
from refsim.check.runtime import runtime
from refsim.exec.executor import Executor, run_graph
from refsim.exec.factory import executor_named
from refsim.golden.chain import ChainCase, Link
from refsim.graph.interpreter import Event, Observer, run_nodes
from refsim.ops.base.target import Target

SHAPE = (2, 3, 5, 64)
FLAT = Target(runtime=runtime("webgpu").behaviour)
SPECIAL = (-0.0, 0.0, np.nan, np.inf, -np.inf, 1e-42, -1e-42, 3e38, -3e38, 1.0, -1.0, 6.0)
IMAGE, POOLED = (2, 3, 8, 14), "aten.avg_pool2d.default"
FIRST = Link("aten.clamp.default", (0,), args=(-1.0, 2.5), shapes=(SHAPE,))


def one(op: str, *args: Any) -> tuple[Link, ...]:
    return (Link(f"aten.{op}.default", (0,), args=args, shapes=(SHAPE,)),)


def two(op: str, *args: Any) -> tuple[Link, ...]:
    """Of a value and of what is clamped."""
    return (FIRST, Link(f"aten.{op}.Tensor", (0, 1), args=args, shapes=(SHAPE,)))


def mean(shape: tuple[int, ...], *dims: int) -> tuple[Link, ...]:
    left = tuple(size for d, size in enumerate(shape) if d not in [dim % len(shape) for dim in dims])
    return (Link("aten.mean.dim", (0,), args=(dims, False), shapes=(left,)),)


def average(size: tuple[int, int], *args: Any) -> tuple[Link, ...]:
    return (Link(POOLED, (0,), args=args, shapes=((2, 3, *size),)),)


#: What is computed of a tensor of which shape, and whether the device computes the last of it.
CHAINS: dict[str, tuple[tuple[int, ...], tuple[Link, ...], bool]] = {
    "relu": (SHAPE, one("relu"), True),
    "clamp": (SHAPE, one("clamp", 0.0, 6.0), True),
    "clamp without a lower bound": (SHAPE, one("clamp", None, 1.0), True),
    "clamp at -0": (SHAPE, one("clamp", -0.0), True),
    "clamp the wrong way round": (SHAPE, one("clamp", 3.0, 1.0), True),
    "hardtanh": (SHAPE, one("hardtanh"), True),
    "hardtanh of integers": (SHAPE, one("hardtanh", 0, 6), True),
    "sigmoid": (SHAPE, one("sigmoid"), False),
    "hardswish": (SHAPE, one("hardswish"), False),
    "add": (SHAPE, two("add"), True),
    "add once": (SHAPE, two("add", 1), True),
    "sub": (SHAPE, two("sub"), True),
    "mul": (SHAPE, two("mul"), True),
    "add a half": (SHAPE, two("add", 0.5), False),
    **{f"mean of {shape}, {dims}": (shape, mean(shape, *dims), device) for shape, dims, device in (
        ((2, 3, 4, 4), (2, 3), True), ((5, 3, 16, 64), (-1, -2), True), ((3, 2048), (1,), True),
        ((2, 3, 5, 4), (2, 3), False), ((2, 4, 8, 2), (1,), False),
    )},
    "average": (IMAGE, average((2, 3), (4, 4)), True),
    "average with a stride": (IMAGE, average((7, 6), (2, 4), (1, 2)), True),
    "average of all arguments": (IMAGE, average((4, 7), (2, 2), (), (0, 0), False, True, None), True),
    "average of nine": (IMAGE, average((2, 4), (3, 3)), False),
    "average with a border": (IMAGE, average((5, 8), (2, 2), (2, 2), (1, 1)), False),
    "another shape": (
        (2, 4, 1),
        (Link("aten.mean.dim", (0,), args=((1, 2), True), shapes=((2, 1, 1),)),
         Link("aten.add.Tensor", (0, 1), shapes=((2, 4, 1),))),
        False,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with needs_device(), executor_named(f"wgsl:{RIGHT}@{INDEX}") as found:
        yield found


@pytest.mark.parametrize("name", CHAINS)
def test_the_device_gives_the_bits_of_the_host(executor: Executor, name: str) -> None:
    """Or the host computes it, and says why."""
    shape, links, device = CHAINS[name]
    data = np.random.default_rng(1).normal(0, 4, shape).astype(np.float32)
    if device and len(links) == 1 and shape == SHAPE:
        data.reshape(-1)[: len(SPECIAL)] = SPECIAL
    graph = ChainCase("floats", shape, -1.0, 1.0, links, (len(links),), 0).graph("floats", FLAT)
    by: list[str] = []

    def tell(event: Event) -> None:
        by.extend(event.on_host for _ in event.nodes)

    (found,) = run_graph(graph, [data], executor, observe=Observer(tell, lambda *_: False))
    (need,) = run_nodes(graph, [data], executor)
    assert found.tobytes() == need.tobytes()
    assert (by[-1] == "") == device
