"""A wrong call runs again: what varies, and what makes it right, is said before any edit of a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from examples import UNARY

from refsim.core.buffer import PackedBuffer
from refsim.core.errors import DeviceError
from refsim.exec.again import REPEATS
from refsim.exec.cpu import EmulatedExecutor
from refsim.exec.executor import Executor
from refsim.golden.check import DIFFERENT, run
from refsim.ops.base.binding import bind
from refsim.ops.base.prepared import Prepared

BOUND = bind(UNARY.cases.example)
RIGHT = BOUND.call.expected(BOUND.inputs)
WRONG = [1, 1, 1]


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
        return PackedBuffer.from_raw(RIGHT.raw + np.uint8(added), RIGHT.desc.shape, RIGHT.desc.layout)


@pytest.mark.parametrize(
    ("added", "threads", "other", "named"),
    [
        (WRONG, 1, None, ""),
        (WRONG, 1, WRONG, ""),
        (WRONG, 1, [None], ""),
        (WRONG, 1, [0], "stale state"),
        (WRONG, 4, [0], "threads"),
        (WRONG, 4, WRONG, ""),
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
    assert len(WRONG) == 1 + REPEATS
    executor = Scripted(added, threads, None if other is None else Scripted(other))
    found = run(UNARY.name, executor.name, executor, BOUND, RIGHT)
    causes = list(found.causes)
    assert found.status == DIFFERENT and [cause.name for cause in causes if cause.observed] == [named] * bool(
        named
    )
    assert (causes[0].name == named) is bool(named)
    if named:  # no edit gives bytes that change by themselves
        assert all(cause.place is None for cause in causes)


def test_a_fresh_process_gives_the_right_bytes() -> None:
    executor = EmulatedExecutor().anew(1)
    assert executor is not None and executor.run_call(BOUND.call, BOUND.inputs) == RIGHT
