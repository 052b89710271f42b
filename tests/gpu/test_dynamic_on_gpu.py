"""Programs with dynamic dims on a device: one session after another in the same memory, with the same constants."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from refsim.core.qmath import CANONICAL
from refsim.exec.factory import executor_named
from refsim.sweep.models import ModelRunner
from refsim.sweep.plan import GRAPHS, Chunk, SweepVariant
from refsim_gpu.executor import KomputeExecutor
from refsim_gpu.run_memory import recorded

sys.path.insert(0, str(Path(__file__).parents[1] / "exec"))
from recorded_shapes import NAMES, model, shapes
from test_dynamic import buffers


@pytest.mark.parametrize("name", NAMES)
def test_every_shape_is_as_on_the_cpu(executor: KomputeExecutor, name: str) -> None:
    program = model(name)
    for one in shapes(name):
        assert buffers(program, one.inputs, executor) == buffers(program, one.inputs, "cpu")
        for out, need in zip(program.run(one.inputs, executor), program.run(one.inputs, "cpu"), strict=True):
            assert (out.shape, out.dtype) == (need.shape, need.dtype)
            if out.tobytes() != need.tobytes():  # functions are the device's own
                assert np.abs(out - need).max() <= 2e-6 * np.abs(need).max()


def test_one_program_through_five_shapes_in_poisoned_memory(executor: KomputeExecutor) -> None:
    program, kept = model("fcn_add"), shapes("fcn_add")
    assert len(kept) == 5
    ready = program.prepare(executor)
    need = {one.number: program.run(one.inputs, "cpu")[0].tobytes() for one in kept}
    for one in kept:
        assert ready.run(one.inputs)[0].tobytes() == need[one.number]
    sessions = [executor.session(program.at(one.inputs).graphs[0]) for one in kept]
    lanes = {id(lane): lane for session in sessions for lane in session._made}
    (lane,) = lanes.values()
    assert lane.nbytes == sessions[0]._blocks.nbytes
    pipelines = dict(executor.device._pipelines)
    parts = {part for session in sessions for part in session._constants.values()}
    assert parts == set(sessions[0]._constants.values())  # uploaded once
    for one in [*kept, *reversed(kept)]:
        filled = [("fill", ((lane.memory, 0, lane.nbytes), 0x5A5A5A5A))]
        executor.device.run(recorded(executor.device, filled, False))
        lane.owner = None
        assert ready.run(one.inputs)[0].tobytes() == need[one.number]
    assert pipelines == executor.device._pipelines


def test_runs_of_several_shapes_in_flight(executor: KomputeExecutor) -> None:
    program, kept = model("im2col"), shapes("im2col")
    begun = [program.submit(one.inputs, executor) for one in kept for _ in range(2)]
    need = [program.run(one.inputs, "cpu")[0].tobytes() for one in kept for _ in range(2)]
    assert [run.finish()[0].tobytes() for run in begun] == need


def test_a_program_in_a_process_of_its_own() -> None:
    """The child knows the copies of a program as such."""
    program = model("fcn_add")
    isolated = executor_named("gpu")
    for one in shapes("fcn_add"):
        assert program.run(one.inputs, isolated)[0].tobytes() == program.run(one.inputs, "cpu")[0].tobytes()
    isolated.forget(program.graphs[0])
    again = shapes("fcn_add")[1]
    assert program.run(again.inputs, isolated)[0].tobytes() == program.run(again.inputs, "cpu")[0].tobytes()


def test_padding_of_the_bound_is_what_it_was_after_a_smaller_shape(executor: KomputeExecutor) -> None:
    """Rows that no kernel writes lie where the smaller run had another value: a linear of 9 rows, then of 4."""
    chunk = Chunk(GRAPHS, 22, 1, 7, (CANONICAL,), (SweepVariant("gpu"),), shrink=False)
    (outcome,) = ModelRunner().run(chunk, {SweepVariant("gpu"): executor})
    assert outcome.statuses["same"] == 1, outcome.failures
