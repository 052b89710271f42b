"""Who writes the words of a buffer of a runtime with flat storage: its own kernels, of which refsim has none."""

from __future__ import annotations

import pytest

from refsim.bytediff import diff
from refsim.core.buffer import PackedBuffer
from refsim.device.bisect import launched_flat
from refsim.formats.kernels import UPSTREAM_WGSL, read, written_flat
from refsim.golden.rules import case, case_name
from refsim.golden.telling import TellingCase
from refsim.modules.verification import fitted
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.module_call import Host, why_not
from refsim.ops.base.registry import OPS
from refsim.ops.flat.call import laid_flat

ROWS = read(UPSTREAM_WGSL, {})


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
