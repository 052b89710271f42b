"""Many runs of one model: a device that flips bytes now and then is found out, with the place and the right result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from refsim.bytediff.versions import RIGHT, WRONG, judge
from refsim.core.buffer import ByteKind, PackedBuffer, offsets
from refsim.core.launch import Launch
from refsim.exec.emulated import EmulatedExecutor
from refsim.exec.executor import Executor
from refsim.exec.factory import executor_named
from refsim.exec.model import Model, load
from refsim.exec.repeat import EXAMPLES, Repeated, repeat
from refsim.ops.base.prepared import Prepared

MODELS = Path(__file__).parents[1] / "data" / "models"
DEPTHWISE, SHUFFLE = "q8ta_conv2d_dw", "q8ta_pixel_shuffle"

Fault = Callable[[PackedBuffer, np.random.Generator], None]


class Flaky(Executor):
    """The emulated kernels; but after some operators, in the runs that are named, a fault changes bytes."""

    name = "flaky"

    def __init__(self, faults: Mapping[str, tuple[Fault, frozenset[int]]], seed: int = 0) -> None:
        self.inner, self.faults = EmulatedExecutor(), faults
        self.draw = np.random.default_rng(seed)
        self.calls = dict.fromkeys(faults, 0)

    def run(self, launch: Launch, inputs):
        return self.inner.run(launch, inputs)

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        out = self.inner.run_prepared(prepared, inputs)
        name = prepared.call.op.name
        if name in self.faults:
            fault, when = self.faults[name]
            if self.calls[name] in when:
                fault(out, self.draw)
            self.calls[name] += 1
        return out


def flips(choose: Callable[[PackedBuffer], np.ndarray], once: bool = True) -> Fault:
    """Other bytes in the chosen places; the same ones in each run, or fresh ones."""

    def fault(out: PackedBuffer, draw: np.random.Generator) -> None:
        at = choose(out)
        out.raw[at] ^= 0x55 if once else draw.integers(1, 256, at.shape, np.uint8)

    return fault


def block(out: PackedBuffer) -> np.ndarray:
    return np.arange(5 * 16, 6 * 16)


def lane(out: PackedBuffer) -> np.ndarray:
    return np.flatnonzero((np.arange(out.desc.nbytes) % 4 == 1) & (out.kinds() == ByteKind.VALUE))


def channel(out: PackedBuffer) -> np.ndarray:
    return offsets(out.desc)[:, 3].reshape(-1)


@pytest.fixture(scope="module")
def mixed() -> Model:
    return load(MODELS / "mixed_ops.pte")


@pytest.fixture(scope="module")
def inputs() -> list[np.ndarray]:
    return [np.load(MODELS / "mixed_ops.io.npz")["in0"]]


def once_in(*runs: int) -> frozenset[int]:
    return frozenset(runs)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("choose", "names"),
    [
        (block, {"blocks", "invocations (the tile that each writes)", "workgroups"}),
        (lane, {"lanes of the words"}),
        (channel, {"channels"}),
    ],
)
def test_what_flips_is_found_and_which_is_right(choose, names: set[str], mixed, inputs) -> None:
    found = repeat(mixed, inputs, Flaky({DEPTHWISE: (flips(choose), once_in(2, 5))}), 6)
    assert not found.same and found.runs == 6
    assert found.first is not None and found.first.operator == DEPTHWISE
    assert [len(runs) for runs in found.first.results.values()] == [4, 2]
    assert [e.runs for e in found.examples] == [(0, 1, 3, 4), (2, 5)] and found.results[1] == (2, 5)
    versions = [e.held for e in found.examples]
    assert found.bound is not None
    judged = judge(versions, found.bound)  # type: ignore[arg-type]
    assert [v.verdict for v in judged.versions] == [RIGHT, WRONG]
    assert judged.flips == len(choose(versions[0])) and judged.padding == 0
    assert judged.region is not None and judged.region.name in names and judged.region.touched == 1


def test_the_first_of_two_operators_is_named(mixed, inputs) -> None:
    """The later one flips in an earlier run; what was kept of it is dropped."""
    faults = {SHUFFLE: (flips(block), once_in(1)), DEPTHWISE: (flips(lane), once_in(3))}
    found = repeat(mixed, inputs, Flaky(faults), 4)
    assert found.first is not None and found.first.operator == DEPTHWISE
    distinct = {b.operator: len(b.results) for b in found.buffers}
    assert distinct[DEPTHWISE] == 2 and distinct[SHUFFLE] == 3 and len(found.buffers[1].results) == 1
    assert [len(runs) for runs in found.results] == [2, 1, 1]
    assert found.bound is not None and found.bound.call.op.name == DEPTHWISE
    judged = judge([e.held for e in found.examples], found.bound)  # type: ignore[misc]
    assert [v.verdict for v in judged.versions] == [RIGHT, WRONG]


@pytest.mark.few(1)
@pytest.mark.parametrize("when", [0, 1, 2])
def test_a_single_run_that_is_wrong_is_never_taken_for_the_right_one(when: int, mixed, inputs) -> None:
    """Not even if it is the first: memory that nobody wrote often differs there."""
    found = repeat(mixed, inputs, Flaky({DEPTHWISE: (flips(block), once_in(when))}), 3)
    assert found.first is not None and found.first.operator == DEPTHWISE
    assert found.examples[1].runs == (when,) and [v.verdict for v in judged_of(found)] == [RIGHT, WRONG]


def test_only_few_contents_are_kept(mixed, inputs) -> None:
    every = flips(block, once=False)
    found = repeat(mixed, inputs, Flaky({DEPTHWISE: (every, frozenset(range(1, 99)))}), 12)
    assert found.first is not None and len(found.first.results) == 12 == len(found.results)
    assert len(found.examples) == EXAMPLES
    assert [v.verdict for v in judged_of(found)] == [RIGHT] + [WRONG] * (EXAMPLES - 1)


def judged_of(found: Repeated):
    return judge([e.held for e in found.examples], found.bound).versions  # type: ignore[misc]


def test_an_operator_in_a_later_delegate(mixed, inputs) -> None:
    found = repeat(mixed, inputs, Flaky({"q8ta_linear_gemv": (flips(block_of_few), once_in(1))}), 3)
    assert found.first is not None and (found.first.delegate, found.first.operator) == (1, "q8ta_linear_gemv")
    assert [v.verdict for v in judged_of(found)] == [RIGHT, WRONG]
    assert len(found.by_outputs) == 2


def block_of_few(out: PackedBuffer) -> np.ndarray:
    return np.arange(4)


def test_what_does_not_reach_the_outputs_is_found_too(mixed, inputs) -> None:
    """Padding that nobody reads."""

    def padding(out: PackedBuffer) -> np.ndarray:
        return np.flatnonzero(out.kinds() != ByteKind.VALUE)

    found = repeat(mixed, inputs, Flaky({"q8ta_linear_gemv": (flips(padding), once_in(1))}), 3)
    assert not found.same and len(found.by_outputs) == 1


@pytest.mark.parametrize("name", ["cpu", "cpu:emulated"])
def test_the_executors_repeat_themselves(name: str, mixed, inputs) -> None:
    told: list[None] = []
    found = repeat(mixed, inputs, executor_named(name, 2), 3, lambda: told.append(None))
    assert found.same and found.runs == len(told) == 3
    assert found.first is None and found.examples == () and found.bound is None
    assert len(found.buffers) == 16 and all(len(b.results) == 1 for b in found.buffers)
    nbytes = {b.name: b.nbytes for b in found.buffers}
    assert nbytes["delegate0_v24"] == 3 * 32 * 32 * 4 and nbytes["delegate0_v54"] == 8192


def test_runs_are_the_same_with_sessions_and_without(mixed, inputs) -> None:
    a, b = (repeat(mixed, inputs, runner, 1) for runner in (executor_named("cpu"), Flaky({})))
    assert [(x.name, x.digests) for x in a.buffers] == [(x.name, x.digests) for x in b.buffers]
    assert [x.digests for x in a.outputs] == [x.digests for x in b.outputs]
