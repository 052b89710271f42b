"""Whole graphs in one sequence: the same bytes as on the CPU, in an order that Vulkan's own checks accept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from refsim import load
from refsim.core.buffer import PackedBuffer
from refsim.core.layout import LAYOUTS
from refsim.core.tensor import TensorDesc
from refsim.graph.interpreter import Event, Observer
from refsim_gpu import system
from refsim_gpu.executor import MOST_SESSIONS, KomputeExecutor
from refsim_gpu.kompute import Device
from refsim_gpu.session import Order, Pool

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
MODELS = DATA / "models"
INDEX = int(os.environ.get("REFSIM_DEVICE", "0"))
LAYER = "VK_LAYER_KHRONOS_validation"
SYNCHRONIZATION = "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT"


@pytest.fixture(scope="module", params=[False, True], ids=["layer", "plain"])
def executor(request: pytest.FixtureRequest, device: Device) -> Iterator[KomputeExecutor]:
    with KomputeExecutor(INDEX, plain=request.param) as opened:
        assert request.param or opened.device.layer is not None, "kp is a plain one; fix: make gpu"
        yield opened


@pytest.fixture(scope="module")
def zoo(device: Device) -> Iterator[KomputeExecutor]:
    with KomputeExecutor(INDEX) as opened:
        yield opened


def seen(model, inputs, executor, wants) -> dict[tuple[int, int], np.ndarray]:
    found: dict[tuple[int, int], np.ndarray] = {}

    def tell(event: Event) -> None:
        for value, held in event.outputs.items():
            found[event.delegate, value] = np.array(held.raw if isinstance(held, PackedBuffer) else held)

    model.run(inputs, executor, Observer(tell, wants))
    return found


def files(folder: str) -> list[Path]:
    return sorted((DATA / folder).glob("*.pte"))


@pytest.mark.parametrize("path", files("models"), ids=lambda path: path.stem)
def test_every_buffer_whether_watched_or_not(executor: KomputeExecutor, path: Path) -> None:
    model = load(path)
    inputs, other = model.random_inputs(1), model.random_inputs(2)
    every = seen(model, inputs, "cpu:emulated", lambda *_: True)
    wishes = (lambda *_: True, lambda _, value: value % 3 == 0)
    for wants in wishes:
        found = seen(model, inputs, executor, wants)
        assert set(found) == {key for key in every if wants(*key)}
        assert not [key for key, held in found.items() if not np.array_equal(held, every[key])]
    first, second = (model.run(given, "cpu") for given in (inputs, other))
    for given, expected in (
        (inputs, first),
        (other, second),
        (inputs, first),
    ):  # nothing is left of the last run
        outputs = model.run(given, executor)
        assert all(np.array_equal(a, b) for a, b in zip(outputs, expected, strict=True))


@pytest.mark.parametrize("path", [*files("zoo"), *files("networks")], ids=lambda path: path.stem)
def test_the_zoo_with_nodes_of_the_host_between(device: Device, zoo: KomputeExecutor, path: Path) -> None:
    """Of each committed model every buffer, some of them, and the outputs alone."""
    model = load(path)
    archive = np.load(path.with_suffix(".npz"))
    inputs = [archive[name] for name in sorted(archive) if name.startswith("in")]
    every = seen(model, inputs, "cpu:emulated", lambda *_: True)
    for wants in (lambda *_: True, lambda _, value: value % 3 == 0):
        found = seen(model, inputs, zoo, wants)
        assert set(found) == {key for key in every if wants(*key)}
        assert not [key for key, held in found.items() if not np.array_equal(held, every[key])]
    expected = model.run(inputs, "cpu:emulated")
    assert all(np.array_equal(a, b) for a, b in zip(model.run(inputs, zoo), expected, strict=True))


def test_what_computes_nothing_is_skipped_and_named(zoo: KomputeExecutor) -> None:
    """Between two convolutions a dequantize, a clamp and a quantize are one look-up; each node is in one event."""
    model = load(MODELS / "mobilenet_v2_035_96.pte")
    (graph,) = model.graphs.values()
    plan = zoo.session(graph).plan
    clamps = sum(node.name == "aten.hardtanh.default" for node in graph.nodes)
    jobs = [job for turn in plan.turns for job in turn.jobs]
    assert len(plan.turns) == 1 and plan.why_host == {}
    assert (
        sum(job.launch.shader == "float/bytes" for job in jobs) == clamps - 1
    )  # the last one goes into a mean
    events: list[Event] = []
    model.run(model.random_inputs(1), zoo, Observer(events.append, lambda *_: False))
    assert [node.number for event in events for node in event.nodes] == list(range(len(graph.nodes)))
    assert all(event.seconds > 0 for event in events)


def test_sessions_share_constants_and_do_not_pile_up(executor: KomputeExecutor) -> None:
    model = load(MODELS / "mixed_ops.pte")
    graph = max(model.graphs.values(), key=lambda graph: len(graph.nodes))
    whole = executor.session(graph)
    before = dict(executor._graphs[id(graph)][1])
    values = [value for node in graph.nodes for value in node.outputs]
    for value in values:
        assert executor.session(graph, {value}) is executor.session(graph, {value})
    _, constants, sessions = executor._graphs[id(graph)]
    assert constants == before and len(before) and len(sessions) == MOST_SESSIONS
    assert executor.session(graph) is not whole


# --- order -------------------------------------------------------------------------------------------------


class Recorded:
    """A device that says what it is asked for."""

    layer = None

    def unordered(self, algorithm: str) -> str:
        return algorithm

    def order(self, written: list[str]) -> str:
        return "order"

    def tensor(self, memory: np.ndarray) -> SimpleNamespace:
        return SimpleNamespace(size=lambda: memory.size)


def test_what_touches_the_same_tensor_is_ordered() -> None:
    order = Order(Recorded())  # type: ignore[arg-type]
    a, b, c, d = "abcd"
    assert order.dispatch("a->b", [a], b) == 0
    assert order.dispatch("a->c", [a], c) == 1  # both read a
    assert order.dispatch("b,c->d", [b, c], d) == 3
    assert order.dispatch("a->b again", [a], b) == 5  # d may still be reading the old b
    order.settle()
    order.settle()
    assert order.operations == ["a->b", "a->c", "order", "b,c->d", "order", "a->b again", "order"]


def test_dead_values_leave_their_memory() -> None:
    def value(width: int) -> PackedBuffer:
        return PackedBuffer(TensorDesc((1, 4, 4, width), LAYOUTS["PACKED_INT8_4W4C"]))

    pool = Pool(Recorded(), shared=True)  # type: ignore[arg-type]
    first = pool.tensor(value(64), own=False)
    assert pool.tensor(value(64), own=False) is not first
    pool.release(first)
    assert pool.tensor(value(64), own=True) is not first
    assert pool.tensor(value(128), own=False) is not first  # too small
    assert pool.tensor(value(60), own=False) is first
    assert pool.tensor(value(60), own=False) is not first


RUN = """
import sys
from refsim import load
from refsim_gpu import session
from refsim_gpu.executor import KomputeExecutor
if "unordered" in sys.argv:
    session.Order.settle = lambda self: None
with KomputeExecutor({index}) as gpu:
    model = load({model!r})
    inputs = model.random_inputs(1)
    for observe in (None, None, lambda event: None):
        model.run(inputs, gpu, observe)
"""


def validated(*arguments: str) -> str:
    checks = {"VK_INSTANCE_LAYERS": LAYER, "VK_LAYER_ENABLES": SYNCHRONIZATION}
    script = RUN.format(index=INDEX, model=str(MODELS / "mixed_ops.pte"))
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=os.environ | checks, cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.skipif(
    not system.has_layer(LAYER), reason="no validation layer; fix: apt-get install vulkan-validationlayers"
)
def test_vulkan_finds_nothing_and_would_find_a_missing_barrier(device: Device) -> None:
    assert validated() == ""
    assert "SYNC-HAZARD-READ-AFTER-WRITE" in validated("unordered")
