"""Shapes one after another in one process: the stale rows that ExecuTorch's runtime was recorded with."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from refsim.check.runtime import runtime
from refsim.core.errors import UnsupportedError
from refsim.exec.factory import executor_named
from refsim.exec.model import load
from refsim.exec.one_process import OneProcess
from refsim.exec.sequence import sequence
from refsim.ops.base.target import Target

sys.path.insert(0, str(Path(__file__).parent))
from recorded_shapes import NAMES, Shape, about, arrays, model, path, shapes
from test_dynamic import OFF, near

#: The runtime throws at the first shape below the bound, and ever after.
STOPS = ("perm_neg", "w4_4d")
#: No run writes the rows behind the first, and the recorded process found no zeros in this memory.
UNWRITTEN = {"gemv_lead": 24}


@pytest.mark.few(12)
@pytest.mark.parametrize("order", ["down", "up", "mix"])
@pytest.mark.parametrize("name", NAMES)
def test_the_recorded_orders(name: str, order: str) -> None:
    """Output for output what the runtime gave in this place of the order, rows that it never wrote included."""
    whole, kept = model(name), {one.number: one for one in shapes(name)}
    numbers = [number for number in about(name)["orders"][order] if number in kept]
    places = [k for k, number in enumerate(about(name)["orders"][order]) if number in kept]
    steps = sequence(whole, [kept[number].inputs for number in numbers], executor_named("cpu"))
    gone = False
    for place, number, step in zip(places, numbers, steps, strict=True):
        gone = gone or (name in STOPS and number > 0)
        assert bool(step.stopped) == gone, place
        for k, out in enumerate(step.outputs):
            need = arrays(name).get(f"{order}.{place}.s{number}.vk{k}")
            need = kept[number].recorded(k) if need is None else need
            assert need is not None and out.shape == need.shape
            never = step.never[k]
            if name in UNWRITTEN:
                assert (
                    never.sum() == UNWRITTEN[name] and len(need[never]) and (out[never] != need[never]).any()
                )
                out, need = np.where(never, 0, out), np.where(never, 0, need)
            assert near(out, need, OFF.get(name, 0.0)), (place, k)


@pytest.mark.parametrize("number", range(4))
def test_every_byte_of_memory_behind_a_clone_that_is_not_resized(number: int) -> None:
    """No value shares memory, and all of it was 0x5A: so was the recorded process, and so are its stale bytes."""
    whole, one = model("clone_branch"), Shape("clone_branch", number)
    tensors = whole.graphs[0].tensors
    tensors |= {n: replace(tensor, mem_obj_id=-1) for n, tensor in tensors.items()}
    process = OneProcess(whole, executor_named("cpu"), 0x5A)
    process.outputs(one.inputs)
    recorded = one.buffers()
    assert len(recorded) == 7
    for (delegate, value), raw in recorded.items():
        found = process.memory(delegate, tensors[value], whole.graphs[0])
        assert found.tobytes() == raw, value


def test_what_a_step_says() -> None:
    kept = shapes("split_glu")
    bound, small, smaller = sequence(
        model("split_glu"), [kept[n].inputs for n in (0, 1, 2)], executor_named("cpu")
    )
    assert bound.right and bound.as_alone
    assert (small.wrong(0), small.stale(0), small.as_alone, small.right) == (0, 56, False, False)
    assert smaller.stale(0) == 104


def test_a_stopped_process_stays_stopped() -> None:
    kept = shapes("perm_neg")
    steps = list(sequence(model("perm_neg"), [kept[n].inputs for n in (0, 1, 0)], executor_named("cpu")))
    assert [bool(step.stopped) for step in steps] == [False, True, True]
    assert [step.as_alone for step in steps] == [True, True, False]


def test_what_no_run_writes() -> None:
    """The convolution writes the first image alone. The others hold what memory held, and every shape shows it."""
    kept = shapes("batch_conv")
    for step in sequence(model("batch_conv"), [kept[n].inputs for n in (0, 1, 2)], executor_named("cpu")):
        (out,) = step.outputs
        assert out.shape == (4, 8, 8, 8) and not step.never[0][0].any() and step.never[0][1:].all()
        assert step.as_alone and not step.right and np.unique(out[1:]).size == 1


def test_a_runtime_that_computes_every_image_is_refused() -> None:
    """Nobody ran one at a smaller batch, so what it reads behind its input is not known."""
    later = load(path("batch_conv"), Target(runtime=runtime("main").behaviour))
    process = OneProcess(later, executor_named("cpu"))
    with pytest.raises(UnsupportedError, match="nobody knows what it leaves"):
        process.outputs(shapes("batch_conv")[1].inputs)
    (out,) = process.outputs(shapes("batch_conv")[0].inputs)
    assert out.tobytes() == later.run(shapes("batch_conv")[0].inputs)[0].tobytes()
