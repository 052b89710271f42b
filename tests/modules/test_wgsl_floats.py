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
#: Operators of one value, with arguments, and whether the device computes them.
ONE: list[tuple[str, tuple[Any, ...], bool]] = [
    ("aten.relu.default", (), True),
    ("aten.clamp.default", (0.0, 6.0), True),
    ("aten.clamp.default", (None, 1.0), True),
    ("aten.clamp.default", (-0.0,), True),
    ("aten.clamp.default", (3.0, 1.0), True),
    ("aten.hardtanh.default", (), True),
    ("aten.hardtanh.default", (0, 6), True),
    ("aten.sigmoid.default", (), False),
    ("aten.hardswish.default", (), False),
]
MEANS: list[tuple[tuple[int, ...], list[int], bool]] = [
    ((2, 3, 4, 4), [2, 3], True),
    ((5, 3, 16, 64), [-1, -2], True),
    ((3, 2048), [1], True),
    ((2, 3, 5, 4), [2, 3], False),
    ((2, 4, 8, 2), [1], False),
]
#: An average's kernel and what follows it, and whether the device computes it.
AVERAGES: list[tuple[tuple[Any, ...], tuple[int, int], bool]] = [
    (([4, 4],), (2, 3), True),
    (([2, 4], [1, 2]), (7, 6), True),
    (([2, 2], [], [0, 0], False, True, None), (4, 7), True),
    (([3, 3],), (2, 4), False),
    (([2, 2], [2, 2], [1, 1]), (5, 8), False),
]
TWO: list[tuple[str, tuple[Any, ...], bool]] = [
    ("aten.add.Tensor", (), True),
    ("aten.add.Tensor", (1,), True),
    ("aten.sub.Tensor", (), True),
    ("aten.mul.Tensor", (), True),
    ("aten.add.Tensor", (0.5,), False),
]


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with needs_device(), executor_named(f"wgsl:{RIGHT}@{INDEX}") as found:
        yield found


def compared(executor: Executor, links: tuple[Link, ...], data: np.ndarray) -> list[str]:
    """Who computed each node: the host's reason, or nothing. The bits are those of the host."""
    graph = ChainCase("floats", data.shape, -1.0, 1.0, links, (len(links),), 0).graph("floats", FLAT)
    by: list[str] = []

    def tell(event: Event) -> None:
        by.extend(event.on_host for _ in event.nodes)

    (found,) = run_graph(graph, [data], executor, observe=Observer(tell, lambda *_: False))
    (need,) = run_nodes(graph, [data], executor)
    assert found.tobytes() == need.tobytes()
    return by


@pytest.mark.parametrize(("op", "args", "device"), ONE)
def test_one_value(executor: Executor, op: str, args: tuple[Any, ...], device: bool) -> None:
    data = np.random.default_rng(1).normal(0, 4, SHAPE).astype(np.float32)
    if device:
        data.reshape(-1)[: len(SPECIAL)] = SPECIAL
    (by,) = compared(executor, (Link(op, (0,), args=args, shapes=(SHAPE,)),), data)
    assert (by == "") == device


@pytest.mark.parametrize(("op", "args", "device"), TWO)
def test_two_values(executor: Executor, op: str, args: tuple[Any, ...], device: bool) -> None:
    data = np.random.default_rng(2).normal(0, 4, SHAPE).astype(np.float32)
    first = Link("aten.clamp.default", (0,), args=(-1.0, 2.5), shapes=(SHAPE,))
    *_, by = compared(executor, (first, Link(op, (0, 1), args=args, shapes=(SHAPE,))), data)
    assert (by == "") == device


@pytest.mark.parametrize(("shape", "dims", "device"), MEANS)
def test_means(executor: Executor, shape: tuple[int, ...], dims: list[int], device: bool) -> None:
    data = np.random.default_rng(3).normal(0, 4, shape).astype(np.float32)
    left = tuple(size for d, size in enumerate(shape) if d not in [dim % len(shape) for dim in dims])
    (by,) = compared(
        executor, (Link("aten.mean.dim", (0,), args=(tuple(dims), False), shapes=(left,)),), data
    )
    assert (by == "") == device


@pytest.mark.parametrize(("args", "size", "device"), AVERAGES)
def test_averages(executor: Executor, args: tuple[Any, ...], size: tuple[int, int], device: bool) -> None:
    data = np.random.default_rng(4).normal(0, 4, (2, 3, 8, 14)).astype(np.float32)
    link = Link("aten.avg_pool2d.default", (0,), args=tuple(map(_tuple, args)), shapes=((2, 3, *size),))
    (by,) = compared(executor, (link,), data)
    assert (by == "") == device


def _tuple(arg: Any) -> Any:
    return tuple(arg) if isinstance(arg, list) else arg


def test_another_shape_is_repeated_by_the_host(executor: Executor) -> None:
    data = np.ones((2, 4, 1), np.float32)
    mean = Link("aten.mean.dim", (0,), args=((1, 2), True), shapes=((2, 1, 1),))
    *_, by = compared(executor, (mean, Link("aten.add.Tensor", (0, 1), shapes=((2, 4, 1),))), data)
    assert by
