"""GPU work in a child process: the same bytes, and a child that dies is one typed error."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from examples import UNARY

from refsim.core.errors import DeviceError, ShapeError
from refsim.core.plain import plain
from refsim.device.execution import execute
from refsim.device.ran_file import host_lines
from refsim.exec.emulated import EmulatedExecutor
from refsim.exec.isolated import IsolatedExecutor
from refsim.exec.model import load
from refsim.ops.base.binding import bind
from refsim.ops.base.registry import OPS
from refsim_gpu.executor import open_executor
from refsim_gpu.kompute import Device

MODELS = Path(__file__).parents[1] / "data" / "models"
INDEX = int(os.environ.get("REFSIM_DEVICE", "0"))


def isolated(**options: float) -> IsolatedExecutor:
    return IsolatedExecutor(f"gpu:{INDEX}", open_executor, INDEX, **options)


def test_a_call_and_a_graph_come_back_with_the_same_bytes(device: Device) -> None:
    model = load(MODELS / "mixed_ops.pte")
    inputs = [np.load(MODELS / "mixed_ops.io.npz")["in0"]]
    bound = bind(OPS["q8ta_conv2d"].cases.example)
    with isolated() as executor:
        assert executor.run_call(bound.call, bound.inputs) == bound.call.expected(bound.inputs)
        seen: list[str] = []
        first = model.run(inputs, executor, lambda event: seen.append(event.node.name))
        again = model.run(inputs, executor)
    assert len(seen) == sum(1 for _ in model.nodes())
    expected = model.run(inputs, EmulatedExecutor())
    assert all(np.array_equal(a, b) for a, b in zip(first, expected, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(again, expected, strict=True))


def test_a_child_that_dies_is_one_error_and_the_next_call_runs(device: Device) -> None:
    bound = bind(UNARY.cases.example)
    with isolated() as executor:
        executor.open()
        assert executor._worker is not None
        # stopped first, so that the request is under way when the child is killed
        executor._worker.signal(signal.SIGSTOP)
        executor._worker.signal(signal.SIGKILL)
        with pytest.raises(DeviceError, match="the worker process ended") as caught:
            executor._ask("supports", bound.call.dispatches()[0].launch)
        assert "signal 9" in str(caught.value)
        assert executor.run_call(bound.call, bound.inputs) == bound.call.expected(bound.inputs)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["models/mixed_ops", "zoo/conformer"])
def test_several_runs_in_flight_in_the_child(device: Device, name: str) -> None:
    model = load(MODELS.parent / f"{name}.pte")
    many = [model.random_inputs(seed) for seed in range(7)]
    expected = [[a.tobytes() for a in model.run(inputs, "cpu")] for inputs in many]
    with isolated() as executor:
        for in_flight in (1, 3):
            found = list(model.run_many(many, executor, in_flight))
            assert [[a.tobytes() for a in outputs] for outputs in found] == expected
        later = [model.submit(inputs, executor) for inputs in many[:3]]
        assert not any(run.ended for run in later)  # all three are under way at once
        for number in (2, 0, 1):  # in any order
            assert [a.tobytes() for a in later[number].finish()] == expected[number]


def test_a_run_that_nobody_ends_is_dropped(device: Device) -> None:
    model = load(MODELS / "linear_head.pte")
    (graph,) = model.graphs.values()
    inputs = model.random_inputs(0)
    with isolated() as executor:
        begun = executor.begin(graph, inputs)
        del begun
        assert len(executor._dropped) == 1
        executor.begin(graph, inputs).finish()
        assert executor._dropped == []


def test_a_run_in_flight_dies_with_its_child_and_its_graph_is_sent_again(device: Device) -> None:
    model = load(MODELS / "linear_head.pte")
    inputs = model.random_inputs(0)
    with isolated() as executor:
        begun = model.submit(inputs, executor)
        assert executor._worker is not None
        executor._worker.kill()
        (again,) = model.run(inputs, executor)
        with pytest.raises(DeviceError, match="the worker process that began this run has ended"):
            begun.finish()
    assert np.array_equal(again, model.run(inputs, "cpu")[0])


def test_a_run_says_what_the_host_computed_and_why(device: Device) -> None:
    model = load(MODELS.parent / "heads" / "two_heads.pte")
    result = execute(model, model.random_inputs(0), [f"gpu:{INDEX}", "cpu"])
    head, *lines = host_lines(result, f"gpu:{INDEX}")
    assert head.startswith(f"gpu:{INDEX}: 3 operators ran on the host, ")
    assert lines == [
        "  aten.clone: int8 [6, 16]",
        "  linear_q8ta_q8csw x 2: shapes that its kernel does not take",
    ]
    assert list(host_lines(result, "cpu")) == []
    on_host = [row for row in result.nodes if row.on_host]
    assert all(plain(row)["on_host"] == row.on_host for row in on_host)


def test_a_silent_child_is_given_up(device: Device) -> None:
    bound = bind(UNARY.cases.example)
    with isolated(timeout_s=0.2) as executor:
        executor.timeout_s = 60.0
        executor.open()
        executor.timeout_s = 0.2
        assert executor._worker is not None
        executor._worker.signal(signal.SIGSTOP)
        with pytest.raises(DeviceError, match="did not end"):
            executor._ask("supports", bound.call.dispatches()[0].launch)


def test_errors_keep_their_type(device: Device) -> None:
    model = load(MODELS / "linear_head.pte")
    (graph,) = model.graphs.values()
    with isolated() as executor, pytest.raises(ShapeError, match="wrong number of inputs"):
        executor.session(graph).run([])
