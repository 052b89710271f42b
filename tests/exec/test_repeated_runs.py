"""Many runs of one model, and a wrong call that runs again: what varies is found out, and which bytes are right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pytest
from examples import UNARY
from exec.recorded import DATA
from exec.recorded import inputs as inputs_of

from refsim.bytediff.versions import RIGHT, WRONG, Judgement, judge
from refsim.core.buffer import ByteKind, PackedBuffer, offsets
from refsim.core.errors import DeviceError, PackingError
from refsim.core.launch import Launch
from refsim.exec.again import PACKED, REPEATS
from refsim.exec.cpu import NativeExecutor
from refsim.exec.emulated import EmulatedExecutor
from refsim.exec.executor import Executor
from refsim.exec.factory import executor_named
from refsim.exec.model import Model, load
from refsim.exec.repeat import EXAMPLES, Repeated, repeat
from refsim.golden.check import DIFFERENT, ERROR
from refsim.golden.check import run as run_case
from refsim.golden.rules import case
from refsim.ops.base.binding import bind
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.spec import Call

MIXED = DATA / "models" / "mixed_ops.pte"
DEPTHWISE, SHUFFLE, GEMV = "q8ta_conv2d_dw", "q8ta_pixel_shuffle", "q8ta_linear_gemv"

Choose = Callable[[PackedBuffer], np.ndarray]


class Flaky(Executor):
    """The emulated kernels; but after some operators, in the runs that are named, the chosen bytes are others.

    ``fresh``: in each run other ones.
    """

    name = "flaky"

    def __init__(self, faults: Mapping[str, tuple[Choose, Iterable[int]]], fresh: bool = False) -> None:
        self.inner, self.faults, self.fresh = EmulatedExecutor(), faults, fresh
        self.draw = np.random.default_rng(0)
        self.calls = dict.fromkeys(faults, 0)

    def run(self, launch: Launch, inputs: Sequence[np.ndarray]) -> PackedBuffer:
        return self.inner.run(launch, inputs)

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        out, name = self.inner.run_prepared(prepared, inputs), prepared.call.op.name
        if name in self.faults:
            choose, when = self.faults[name]
            if self.calls[name] in when:
                at = choose(out)
                out.raw[at] ^= self.draw.integers(1, 256, at.shape, np.uint8) if self.fresh else 0x55
            self.calls[name] += 1
        return out


def block(out: PackedBuffer) -> np.ndarray:
    return np.arange(5 * 16, 6 * 16)


def lane(out: PackedBuffer) -> np.ndarray:
    return np.flatnonzero((np.arange(out.desc.nbytes) % 4 == 1) & (out.kinds() == ByteKind.VALUE))


def channel(out: PackedBuffer) -> np.ndarray:
    return offsets(out.desc)[:, 3].reshape(-1)


def first_word(out: PackedBuffer) -> np.ndarray:
    return np.arange(4)


def padding(out: PackedBuffer) -> np.ndarray:
    """That nobody reads."""
    return np.flatnonzero(out.kinds() != ByteKind.VALUE)


@pytest.fixture(scope="module")
def mixed() -> Model:
    return load(MIXED)


@pytest.fixture(scope="module")
def inputs() -> list[np.ndarray]:
    return inputs_of(MIXED)


def judged_of(found: Repeated) -> Judgement:
    assert found.bound is not None
    return judge([e.held for e in found.examples], found.bound)  # type: ignore[misc]


def verdicts(found: Repeated) -> list[str]:
    return [version.verdict for version in judged_of(found).versions]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("choose", "where"),
    [(block, "only in invocation"), (lane, "only in lane"), (channel, "only at c = ")],
)
def test_what_flips_is_found_and_which_is_right(choose: Choose, where: str, mixed, inputs) -> None:
    found = repeat(mixed, inputs, Flaky({DEPTHWISE: (choose, (2, 5))}), 6)
    assert not found.same and found.runs == 6
    assert found.first is not None and found.first.operator == DEPTHWISE
    assert [len(runs) for runs in found.first.results.values()] == [4, 2]
    assert [e.runs for e in found.examples] == [(0, 1, 3, 4), (2, 5)] and found.results[1] == (2, 5)
    judged = judged_of(found)
    assert verdicts(found) == [RIGHT, WRONG]
    assert judged.flips == len(choose(found.examples[0].held)) and judged.padding == 0  # type: ignore[arg-type]
    assert judged.pattern[0].startswith(where)


@pytest.mark.parametrize(
    ("operator", "choose", "when", "outputs"),
    [
        # memory that nobody wrote often differs in the first run: a single one is never taken for the right one
        pytest.param(DEPTHWISE, block, 0, 1),
        pytest.param(DEPTHWISE, block, 1, 1, marks=pytest.mark.long),
        pytest.param(DEPTHWISE, block, 2, 1, marks=pytest.mark.long),
        pytest.param(GEMV, first_word, 1, 2, id="a later delegate"),
        pytest.param(GEMV, padding, 1, 1, id="what does not reach the outputs"),
    ],
)
def test_a_single_run_that_is_wrong(
    operator: str, choose: Choose, when: int, outputs: int, mixed, inputs
) -> None:
    found = repeat(mixed, inputs, Flaky({operator: (choose, (when,))}), 3)
    assert not found.same and found.first is not None and len(found.by_outputs) == outputs
    assert (found.first.delegate, found.first.operator) == (int(operator == GEMV), operator)
    assert found.examples[1].runs == (when,) and verdicts(found)[0] == RIGHT
    assert choose is padding or verdicts(found) == [RIGHT, WRONG]


def test_the_first_of_two_operators_is_named(mixed, inputs) -> None:
    """The later one flips in an earlier run; what was kept of it is dropped."""
    found = repeat(mixed, inputs, Flaky({SHUFFLE: (block, (1,)), DEPTHWISE: (lane, (3,))}), 4)
    assert found.first is not None and found.first.operator == DEPTHWISE
    distinct = {b.operator: len(b.results) for b in found.buffers}
    assert distinct[DEPTHWISE] == 2 and distinct[SHUFFLE] == 3 and len(found.buffers[1].results) == 1
    assert [len(runs) for runs in found.results] == [2, 1, 1]
    assert found.bound is not None and found.bound.call.op.name == DEPTHWISE
    assert verdicts(found) == [RIGHT, WRONG]


def test_only_few_contents_are_kept(mixed, inputs) -> None:
    found = repeat(mixed, inputs, Flaky({DEPTHWISE: (block, range(1, 99))}, fresh=True), 12)
    assert found.first is not None and len(found.first.results) == 12 == len(found.results)
    assert len(found.examples) == EXAMPLES and verdicts(found) == [RIGHT] + [WRONG] * (EXAMPLES - 1)


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


# --- a call that is wrong runs again ---------------------------------------------------------------------


BOUND = bind(UNARY.cases.example)
RIGHT_BYTES = BOUND.call.expected(BOUND.inputs)
WRONG_ONCE = [1, 1, 1]


class Scripted(Executor):
    """Adds one number to all bytes of an output after the other, or fails at None; ``other`` is the one opened anew."""

    name = "scripted"

    def __init__(self, added: Sequence[int | None], threads: int = 1, other: Executor | None = None) -> None:
        self.left, self.threads, self.other = list(added), threads, other

    def anew(self, threads: int) -> Executor | None:
        assert threads == 1
        return self.other

    def run(self, launch: object, inputs: object) -> PackedBuffer:
        raise NotImplementedError

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        added = self.left.pop(0)
        if added is None:
            raise DeviceError("scripted", "lost")
        return PackedBuffer.from_raw(
            RIGHT_BYTES.raw + np.uint8(added), RIGHT_BYTES.desc.shape, RIGHT_BYTES.desc.layout
        )


@pytest.mark.parametrize(
    ("added", "threads", "other", "named"),
    [
        (WRONG_ONCE, 1, None, ""),
        (WRONG_ONCE, 1, WRONG_ONCE, ""),
        (WRONG_ONCE, 1, [None], ""),
        (WRONG_ONCE, 1, [0], "stale state"),
        (WRONG_ONCE, 4, [0], "threads"),
        (WRONG_ONCE, 4, WRONG_ONCE, ""),
        ([1, 2, 3], 1, [0], "other bytes each time"),
        ([1, 2, 3], 4, [0], "threads"),
        ([1, 2, 3], 4, [1], "other bytes each time"),
        ([1, 0, 0], 1, None, "other bytes each time"),
        ([1, None], 1, [0], "stale state"),
    ],
)
def test_what_running_again_shows(
    added: list[int | None], threads: int, other: list[int | None] | None, named: str
) -> None:
    assert len(WRONG_ONCE) == 1 + REPEATS
    executor = Scripted(added, threads, None if other is None else Scripted(other))
    found = run_case(UNARY.name, executor.name, executor, BOUND, RIGHT_BYTES)
    causes = list(found.causes)
    assert found.status == DIFFERENT
    assert [cause.name for cause in causes if cause.observed] == ([named] if named else [])
    assert (causes[0].name == named) is bool(named)
    if named:  # no edit gives bytes that change by themselves
        assert all(cause.place is None for cause in causes)


class Several(Scripted):
    """One that knows other ways to compute a call."""

    def __init__(
        self, others: Mapping[str, list[int | None]], added: Sequence[int | None] = WRONG_ONCE
    ) -> None:
        super().__init__(added)
        self.others = others

    def alternatives(self, call: Call) -> Iterator[tuple[str, Executor]]:
        yield "kernel A", self
        yield from ((name, Scripted(added)) for name, added in self.others.items())


@pytest.mark.parametrize(
    ("executor", "said"),
    [
        (Several({"B": [0]}), ["computed by kernel A; right by B"]),
        (
            Several({"B": [0], "C": [1], "D": [0], "untried": [0]}),
            ["computed by kernel A; right by B and D, wrong as well by C"],
        ),
        (Several({"B": [1], "C": [None]}), []),
        (Several({"B": [0]}, [1, 2, 3]), []),
        (Scripted(WRONG_ONCE), []),
    ],
    ids=["right", "several", "none right", "other bytes each time", "one way"],
)
def test_which_ways_to_compute_it_are_right(executor: Executor, said: list[str]) -> None:
    found = run_case(UNARY.name, executor.name, executor, BOUND, RIGHT_BYTES)
    assert [line for line in found.pattern if line.startswith("computed by")] == said


def test_every_native_route_is_a_way_and_right() -> None:
    bound = bind(case("q8ta_conv2d", 1515))
    (own, _), (emulated, _), *others = ways = list(NativeExecutor().alternatives(bound.call))
    assert "kernel of refsim/exec/cpu/" in own and "emulated" in emulated and len(others) >= 2
    expected = bound.call.expected(bound.inputs)
    assert all(executor.run_call(bound.call, bound.inputs) == expected for _, executor in ways)


class Packs(EmulatedExecutor):
    """Gives an output that is off by one, since a module packed its weights otherwise."""

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        error = PackingError("pack.spv", "packs weight [8] otherwise")
        error.buffer = super().run_prepared(prepared, inputs)
        error.buffer.raw[:] += 1
        raise error


def test_weights_that_are_packed_otherwise_are_the_cause() -> None:
    found = run_case(UNARY.name, "packs", Packs(), BOUND, RIGHT_BYTES)
    assert found.status == ERROR and found.message in found.causes[0].detail
    assert found.causes[0].name == PACKED and all(cause.place is None for cause in found.causes)


def test_a_fresh_process_gives_the_right_bytes() -> None:
    executor = EmulatedExecutor().anew(1)
    assert executor is not None and executor.run_call(BOUND.call, BOUND.inputs) == RIGHT_BYTES
