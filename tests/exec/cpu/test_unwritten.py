"""Every element of an output is written: what lay in its buffer before never shows, and it is never 0 by luck."""

from __future__ import annotations

import numpy as np
import pytest
from examples import small

from refsim.core.buffer import GUARD, PackedBuffer
from refsim.core.tensor import TensorDesc
from refsim.exec import emulated
from refsim.exec.cpu import EmulatedExecutor, NativeExecutor
from refsim.exec.cpu import executor as native
from refsim.exec.executor import Executor
from refsim.golden import rules
from refsim.ops.base.binding import bind
from refsim.ops.base.registry import OPS

#: Cases of the corpus for each operator, of small tensors.
EACH, MOST_WORDS = 12, 8000
EXECUTORS = {"cpu": NativeExecutor(), "cpu, 3 threads": NativeExecutor(3), "cpu:emulated": EmulatedExecutor()}


class Filled(PackedBuffer):
    """A buffer with something in it from the beginning."""

    def __init__(self, desc: TensorDesc) -> None:
        super().__init__(desc)
        self.words[:] = GUARD


@pytest.mark.few(38)
@pytest.mark.parametrize("executor", EXECUTORS.values(), ids=EXECUTORS)
@pytest.mark.parametrize("op", OPS)
def test_what_lay_there_before_does_not_show(
    op: str, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (native, emulated):
        monkeypatch.setattr(module, "PackedBuffer", Filled)
    chosen = list(small(op, EACH, MOST_WORDS))
    assert len(chosen) == EACH
    for name, bound in chosen:
        out = executor.run_call(bound.call, bound.inputs)
        assert np.array_equal(out.unpack(), bound.call.expected(bound.inputs).unpack()), name


@pytest.mark.parametrize("executor", EXECUTORS.values(), ids=EXECUTORS)
def test_rows_that_a_table_lacks_are_zeros(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (native, emulated):
        monkeypatch.setattr(module, "PackedBuffer", Filled)
    for number in range(EACH):
        bound = bind(rules.case("embedding_q4gsw", number))
        weight = bound.call.consts["weight"]
        assert weight is not None
        beyond = (-1, len(weight), 2**31 - 1, -(2**31), len(weight) - 1, 0)
        indices = bound.inputs["indices"].data
        indices[:] = np.resize(np.array(beyond, np.int32), indices.size)
        out = executor.run_call(bound.call, bound.inputs)
        assert out == bound.call.expected(bound.inputs), bound.case
        assert not out.data[: out.desc.shape[-1]].any(), bound.case
