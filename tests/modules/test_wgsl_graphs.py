"""Whole files on WGSL kernels of our own: what ExecuTorch's WebGPU runtime recorded for its calls and models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from exec.test_webgpu import DATA, OWN, RECORDED, arrays, bits, model
from needed import needs_device

from modules.wgsl_kernels import INDEX, RIGHT
from refsim.check.runtime import runtime
from refsim.core.errors import DeviceError, MissingDependencyError
from refsim.exec import factory
from refsim.exec.executor import Executor, run_graph
from refsim.exec.factory import executor_named
from refsim.exec.model import load
from refsim.formats import kernels
from refsim.formats.profiles import profile
from refsim.golden.chain import ChainCase, Link
from refsim.graph.interpreter import Event, Observer, run_nodes
from refsim.ops.base.target import Target


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with needs_device(), executor_named(f"wgsl:{RIGHT}@{INDEX}") as found:
        yield found


ROWS = kernels.read(RIGHT / kernels.NAME)


def on_kernels(case: str) -> bool:
    """Whether all operators of a case but casts and float ones have a kernel in the folder."""
    return all(node.is_float or node.operator in ROWS for node in model(case).graphs[0].nodes)


@pytest.mark.few(24)
@pytest.mark.parametrize("case", [name for name in RECORDED if on_kernels(name) and not name.startswith(OWN)])
def test_a_recorded_file_has_the_recorded_bits(executor: Executor, case: str) -> None:
    own = profile(executor.device_info().numerics)
    expected = arrays(case, "out") if own.name == "lavapipe" else model(case, own).run(arrays(case, "in"))
    assert bits(model(case).run(arrays(case, "in"), executor)) == bits(expected)


@pytest.mark.few(3)
@pytest.mark.parametrize("case", ["wg_mobile", "wg_mobile.alpha", "x_add", "x_maxpool", "x_res"])
def test_an_observer_sees_every_value_and_who_computed_it(executor: Executor, case: str) -> None:
    """Watched or not, a run gives the same; kernels and the host take turns."""
    held, inputs = model(case, profile(executor.device_info().numerics)), arrays(case, "in")
    mine: dict[int, bytes] = {}
    by: Counter[bool] = Counter()

    def tell(event: Event) -> None:
        mine.update({value: _bytes(array) for value, array in event.outputs.items()})
        by[not event.on_host] += len(event.nodes)

    watched = held.run(inputs, executor, Observer(tell))
    assert bits(watched) == bits(held.run(inputs, executor))
    theirs: dict[int, bytes] = {}
    held.run(inputs, "cpu", lambda event: theirs.update({v: _bytes(a) for v, a in event.outputs.items()}))
    assert mine == theirs
    assert by[True] >= 3


def _bytes(held: object) -> bytes:
    return np.asarray(getattr(held, "raw", held)).tobytes()


@pytest.mark.parametrize("case", ["wg_mobile", "wg_mobile.alpha", "x_add", "x_res"])
def test_a_whole_graph_is_one_command_buffer(executor: Executor, case: str) -> None:
    """Float operators between the kernels stay on the device, too."""
    steps: list[int] = []

    def tell(event: Event) -> None:
        steps.append(len(event.nodes))

    held = model(case, profile(executor.device_info().numerics))
    outs = held.run(arrays(case, "in"), executor, Observer(tell, lambda *_: False))
    assert steps == [len(held.graphs[0].nodes)]
    assert bits(outs) == bits(held.run(arrays(case, "in"), "cpu"))


def test_a_smaller_shape_runs_on_kernels_of_the_bound(executor: Executor) -> None:
    """Three operators that the runtime does not resize: each reads zeros behind its smaller input."""
    held = load(DATA / "dynamic" / "batch_conv.pte", model("x_add").graphs[0].target)
    x = np.random.default_rng(0).uniform(-1, 1, (2, 8, 8, 8)).astype(np.float32)
    (out,) = held.run([x], executor)
    assert out.shape == (4, 8, 8, 8) and bits([out]) == bits(held.run([x], "cpu"))


@pytest.mark.long
def test_a_device_is_chosen_by_its_name(executor: Executor) -> None:
    name = executor.device_info().name
    with executor_named(f"wgsl:{RIGHT}@{name[:4].lower()}") as other:
        assert other.device_info().name == name
    with pytest.raises(DeviceError, match="no such device"):
        executor_named(f"wgsl:{RIGHT}@voodoo")


def test_without_the_package_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    wgsl = factory.backend("wgsl")
    monkeypatch.setitem(__import__("sys").modules, "wgpu", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'refsim\[webgpu\]'"):
        wgsl.names()


# --- float operators between kernels: the host's bits, or the host ---


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
