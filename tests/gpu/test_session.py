"""Whole graphs in one sequence: the same bytes as on the CPU, in an order that Vulkan's own checks accept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exec.recorded import DATA, files
from exec.recorded import inputs as inputs_of

from bench.networks import delegate
from bench.peers.net import mobilenet_v2, resnet50
from refsim import load
from refsim.core.errors import GuardError
from refsim.exec.model import Model
from refsim.graph.interpreter import Event, Kept, Observer
from refsim_gpu import system
from refsim_gpu.executor import MOST_SESSIONS, KomputeExecutor
from refsim_gpu.kompute import Device
from refsim_gpu.plan import Plan
from refsim_gpu.run_memory import Blocks, Order

ROOT = Path(__file__).parents[2]
MODELS = DATA / "models"
INDEX = int(os.environ.get("REFSIM_DEVICE", "0"))
LAYER = "VK_LAYER_KHRONOS_validation"
SYNCHRONIZATION = "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT"


def seen(model, inputs, executor, wants) -> dict[tuple[int, int], bytes]:
    found = Kept()
    model.run(inputs, executor, Observer(found, wants))
    return found.raw()


def check(
    model: Model, inputs: list[np.ndarray], executor: KomputeExecutor, *others: list[np.ndarray]
) -> None:
    """Every buffer, some of them, and the outputs alone are those of the CPU; nothing is left of the last run."""
    every = seen(model, inputs, "cpu:emulated", lambda *_: True)
    for wants in (lambda *_: True, lambda _, value: value % 3 == 0):
        found = seen(model, inputs, executor, wants)
        assert set(found) == {key for key in every if wants(*key)}
        assert not [key for key, held in found.items() if held != every[key]]
    for given in (inputs, *others):
        expected = model.run(given, "cpu:emulated")
        assert all(np.array_equal(a, b) for a, b in zip(model.run(given, executor), expected, strict=True))


@pytest.mark.few(2)
@pytest.mark.parametrize("path", files("models"), ids=lambda path: path.stem)
def test_every_buffer_whether_watched_or_not(executor: KomputeExecutor, path: Path) -> None:
    model = load(path)
    first, second = (model.random_inputs(seed) for seed in (1, 2))
    check(model, first, executor, second, first)


@pytest.mark.few(8)
@pytest.mark.parametrize("path", files("zoo", "networks"), ids=lambda path: path.stem)
def test_the_zoo_with_nodes_of_the_host_between(executor: KomputeExecutor, path: Path) -> None:
    check(load(path), inputs_of(path), executor)


@pytest.mark.parametrize(
    "path", files("ops", "heads", "groups"), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_recorded_files(executor: KomputeExecutor, path: Path) -> None:
    """tests/exec/test_recorded_outputs.py holds what the CPU gives against what ET-VK's runtime gave."""
    check(load(path), inputs_of(path), executor)


def test_what_computes_nothing_is_skipped_and_named(executor: KomputeExecutor) -> None:
    """A dequantize, a clamp and a quantize are no step where bounds of the operator before do the same, else one."""
    model = load(MODELS / "mobilenet_v2_035_96.pte")
    (graph,) = model.graphs.values()
    plan = executor.session(graph).plan
    clamps = sum(node.name == "aten.hardtanh.default" for node in graph.nodes)
    jobs = [job for turn in plan.turns for job in turn.jobs]
    assert len(plan.turns) == 1 and plan.why_host == {}
    looked_up = sum(job.launch.shader == "float/bytes" for job in jobs)
    bounded = len(plan.bounded)
    assert bounded == 34 and looked_up + bounded == clamps - 1  # the last one goes into a mean
    assert len(jobs) == len(graph.nodes) - 3 * bounded - 2 * looked_up - 1
    events: list[Event] = []
    model.run(model.random_inputs(1), executor, Observer(events.append, lambda *_: False))
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


# --- order and memory --------------------------------------------------------------------------------------


def test_what_touches_the_same_bytes_is_ordered() -> None:
    order, memory, other = Order(lambda: "order"), object(), object()
    a, b, c = ((memory, at, 256) for at in (0, 256, 512))
    within = (memory, 300, 4)

    def add(name: str, reads: list[Any], writes: list[Any]) -> int:
        return order.add((name, ()), reads, writes)

    assert add("a->b", [a], [b]) == 0
    assert add("a->c", [a], [c]) == 1  # both read a
    assert add("b->elsewhere", [within], [(other, 0, 256)]) == 3
    assert add("c->b", [c], [b]) == 5  # what read b may still do so
    order.settle()
    order.settle()
    names = [name if name != "record" else arguments[0] for name, arguments in order.operations]
    assert names == ["a->b", "a->c", "order", "b->elsewhere", "order", "c->b", "order"]


def test_dead_values_leave_their_memory() -> None:
    (graph,) = load(MODELS / "mobilenet_v2_035_96.pte").graphs.values()
    blocks = Blocks(Plan(graph, frozenset()))
    assert blocks.nbytes < sum(block.nbytes for block in blocks.of.values()) / 3


@pytest.mark.few(1)
@pytest.mark.parametrize("coop", ["auto", "emulated"])
@pytest.mark.parametrize(
    "net, bounded, steps", [(mobilenet_v2, 35, 69), (resnet50, 16, 79)], ids=["clamps", "relus"]
)
def test_clamps_and_relus_are_bounds_of_the_operator_before(
    device: Device, net: Any, bounded: int, steps: int, coop: str
) -> None:
    """A clamp to [0, 6] behind each convolution, a relu behind each sum: no steps. All is right, watched or not."""
    model = delegate(net(32, 0.35) if net is mobilenet_v2 else net(32), clamp=net is mobilenet_v2)
    (graph,) = model.graphs.values()
    inputs = model.random_inputs(1)
    with KomputeExecutor(INDEX, coop=coop) as executor:
        plan = executor.session(graph).plan
        jobs = [job for turn in plan.turns for job in turn.jobs]
        assert not [job for job in jobs if job.launch.shader in ("float/bytes", "q8ta_relu")]
        parts = sum(
            isinstance(job.output, tuple) for job in jobs
        )  # of K, or copied windows: one step more each
        assert len(plan.bounded) == bounded and len(jobs) - parts == steps
        check(model, inputs, executor)


def test_guard_words_of_what_comes_back_are_checked(
    executor: KomputeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(MODELS / "linear_head.pte")
    inputs = model.random_inputs(1)
    model.run(inputs, executor)
    (graph,) = model.graphs.values()
    (lane,) = executor.session(graph)._made.values()
    start = lane.start

    def breaks(turn: int, timed: bool, where: str) -> None:
        start(turn, timed, where)
        lane.wait(turn, where)
        (data,) = lane.reads.values()
        data[0] ^= 1

    monkeypatch.setattr(lane, "start", breaks)
    with pytest.raises(GuardError, match=r"node .*wrote before the buffer"):
        model.run(inputs, executor)
    monkeypatch.undo()
    assert executor.session(graph)._made == {}  # that lane is not used again
    assert len(model.run(inputs, executor)) == 1


@pytest.mark.parametrize("name", ["mixed_ops", "int8_attention"])
def test_many_in_flight_give_the_same_bytes(executor: KomputeExecutor, name: str) -> None:
    (path,) = DATA.glob(f"*/{name}.pte")
    model = load(path)
    many = [model.random_inputs(seed) for seed in range(11)]
    expected = [model.run(inputs, "cpu") for inputs in many]
    for in_flight in (1, 3, 8):
        found = list(model.run_many(many, executor, in_flight))
        assert [[a.tobytes() for a in outputs] for outputs in found] == [
            [a.tobytes() for a in e] for e in expected
        ]
    first = next(iter(model.graphs.values()))
    assert len(executor.session(first)._made) == 8
    later = [model.submit(inputs, executor) for inputs in many[:3]]
    for number in (2, 0, 1):  # in any order
        assert [a.tobytes() for a in later[number].finish()] == [a.tobytes() for a in expected[number]]


RUN = """
import sys
from refsim import load
from refsim.ops.base.binding import bind
from refsim.core.rng import Rng
from refsim.ops.base.registry import OPS
from refsim_gpu import run_memory
from refsim_gpu.executor import KomputeExecutor
if "unordered" in sys.argv:
    run_memory.Order.settle = lambda self: None
with KomputeExecutor({index}, coop="emulated" if "coop" in sys.argv else "auto") as gpu:
    for path in {models!r}:
        model = load(path)
        inputs = model.random_inputs(1)
        for observe in (None, None, lambda event: None):
            model.run(inputs, gpu, observe)
        list(model.run_many([inputs] * 3, gpu, 3))
    for op in OPS.values() if "operators" in sys.argv else ():
        for case in (op.cases.example, op.sample(Rng(1)), op.sample(Rng(2))):
            bound = bind(case)
            assert gpu.run_call(bound.call, bound.inputs) == bound.call.expected(bound.inputs)
"""


def validated(models: list[Path], *arguments: str) -> str:
    checks = {"VK_INSTANCE_LAYERS": LAYER, "VK_LAYER_ENABLES": SYNCHRONIZATION, "VK_LAYER_SETTINGS_PATH": ""}
    script = RUN.format(index=INDEX, models=[str(path) for path in models])
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=os.environ | checks, cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.skipif(
    not system.has_layer(LAYER), reason="no validation layer; fix: apt-get install vulkan-validationlayers"
)
def test_vulkan_finds_nothing_and_would_find_a_missing_barrier(device: Device) -> None:
    """In all bundled models, watched and not, several in flight, and in calls of each operator."""
    assert validated(files("models"), "operators") == ""
    assert validated([MODELS / "mixed_ops.pte"], "coop") == ""
    assert "SYNC-HAZARD-READ-AFTER-WRITE" in validated([MODELS / "mixed_ops.pte"], "unordered")


@pytest.mark.long
@pytest.mark.skipif(
    not system.has_layer(LAYER), reason="no validation layer; fix: apt-get install vulkan-validationlayers"
)
def test_vulkan_finds_nothing_in_the_zoo(device: Device) -> None:
    """Whose float operators are on the device and on the host, in several turns."""
    assert (
        validated([path for path in files("zoo") if path.stem in ("centernet", "fastscnn", "imdn", "m5")])
        == ""
    )
