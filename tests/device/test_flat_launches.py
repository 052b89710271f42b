"""Kernels on flat tensors: who writes the words of a buffer, and which of their calls verbs call wrong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from refsim.bytediff import diff
from refsim.core.buffer import PackedBuffer
from refsim.device.bisect import bisect, launched_flat
from refsim.device.dumped import run_on
from refsim.exec.cpu import EmulatedExecutor
from refsim.exec.executor import OURS, YOURS, Source
from refsim.exec.factory import executor_named
from refsim.exec.model import load
from refsim.formats.kernels import UPSTREAM_WGSL, read, written_flat
from refsim.golden.judge import SAME
from refsim.golden.rules import case, case_name
from refsim.golden.telling import TellingCase
from refsim.golden.two_runs import two_runs
from refsim.modules.verification import fitted
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.module_call import Host, why_not
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call
from refsim.ops.flat.call import laid_flat, refusal

ROWS = read(UPSTREAM_WGSL, {})
MODELS = Path(__file__).parents[1] / "data" / "models"


class RightKernels(EmulatedExecutor):
    """Right kernels on flat tensors."""

    name = "right"
    foreign = flat = True

    def source(self, call: Call) -> Source:
        return Source(OURS if refusal(call) else YOURS, (call.op.name,))

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        return self.meant(prepared.call).expected(inputs)


def drawn(op: str) -> BoundCase:
    one = TellingCase(case_name(op, 3), op, case(op, 3))
    return fitted(one, lambda call: why_not(call, Host(rows=ROWS)) is None).bound


@pytest.mark.parametrize("op", ROWS)
def test_every_invocation_writes_and_a_diff_names_the_one(op: str) -> None:
    bound = drawn(op)
    last, geometry = written_flat(bound.call), launched_flat(bound.call)
    assert last is not None and geometry is not None
    assert set(last.items[0]) == set(range(last.global_size[0])) and not last.items[1:].any()
    right = bound.call.expected(bound.inputs)
    wrong = PackedBuffer(right.desc)
    wrong.raw[:] = right.raw
    wrong.raw[-1] ^= 1
    (found,) = diff(right, wrong, call=bound, geometry=geometry, search=0).differences
    assert found.writer is not None and found.writer.work_item[0] == last.global_size[0] - 1


def test_a_linear_writes_tiles_of_four_rows() -> None:
    example = OPS["q8ta_linear"].cases.example.changed(x=(2, 3, 8), out_channels=12, activation="none")
    last = written_flat(laid_flat(bind(example).call))
    assert last is not None and last.global_size == (6, 1, 1)
    assert last.items[0].reshape(6, 3).tolist() == [[0, 1, 2]] * 4 + [[3, 4, 5]] * 2


def test_packed_calls_are_launched_as_refsim_does() -> None:
    assert launched_flat(bind(OPS["q8ta_relu"].cases.example).call) is None


def test_right_kernels_are_bisected_by_their_own_meaning() -> None:
    model, runner = load(MODELS / "refine_seg.pte"), RightKernels()
    given = model.random_inputs(0)
    ran = run_on(model, given, runner)
    as_packed = bisect(model, ran, given, explained=0, profile=None, device=True, limit=1)
    assert [row.operator for row in as_packed if row.run is not None and not row.run.same]
    rows = bisect(model, ran, given, explained=0, runner=runner, profile=None, device=True, limit=1)
    assert rows and all(row.run is not None and row.run.same for row in rows)


def test_right_kernels_are_judged_by_their_own_meaning_in_two_runs() -> None:
    model = load(MODELS / "refine_seg.pte")
    runners = {"cpu": executor_named("cpu"), "right": RightKernels()}
    found = two_runs(model, model.random_inputs(0), runners, lambda: None)
    judged = [row.judged for row in found.buffers if row.different]
    assert judged and all(one is not None and one.verdict == SAME for one in judged)
