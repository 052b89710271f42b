"""GPU work in a child process: the same bytes, and a child that dies is one typed error."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from examples import UNARY

from refsim.core.errors import DeviceError, ShapeError
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
    bound = bind(OPS["q8ta_conv2d"].cases[0])
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
    bound = bind(UNARY.cases[0])
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


def test_a_graph_is_sent_again_to_a_new_child(device: Device) -> None:
    model = load(MODELS / "linear_head.pte")
    inputs = [np.load(MODELS / "linear_head.io.npz")["in0"]]
    with isolated() as executor:
        (first,) = model.run(inputs, executor)
        assert executor._worker is not None
        executor._worker.kill()
        (again,) = model.run(inputs, executor)
    assert np.array_equal(first, again)


def test_a_silent_child_is_given_up(device: Device) -> None:
    bound = bind(UNARY.cases[0])
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
