"""Work items just beyond a kernel's output, and declared shapes that say less than they might."""

from __future__ import annotations

import numpy as np
import pytest

from refsim.ops.base import elementwise
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.epilogue import out_channels
from refsim.ops.base.registry import OPS

STAGING = [
    op
    for op in OPS.values()
    if op.kernel is not None
    and (op.kernel.launch, op.kernel.work_item) == (elementwise.launch, elementwise.work_item)
]


@pytest.mark.parametrize("op", STAGING, ids=lambda op: op.name)
def test_one_word_too_many_is_not_written(op) -> None:
    params = {"shape": (1, 4, 1, 35)} if "shape" in {arg.name for arg in op.args} else {}
    given = ((140,), "4W") if params else ((1, 4, 1, 35), "4W4C")
    case = Case(op.name, params, {"x": given}, "4W4C" if params else "4W")
    bound = bind(case)
    (step,) = bound.call.dispatches()
    words, rows, planes = step.launch.global_size
    assert rows == planes == 1 and words == bound.call.out.words
    x = bound.inputs["x"].raw.view(np.int32)
    held = np.full(words + 1, 0x5A5A5A5A, np.int32)
    spec, push = (np.array(of, np.int64) for of in (step.launch.spec, step.launch.push))
    op.kernel.run((1, 1, words + 1), spec, push, x, held[:words])
    assert held[words] == 0x5A5A5A5A
    assert held[:words].tobytes() == bound.call.expected(bound.inputs).raw.tobytes()


@pytest.mark.parametrize(
    "rows, declared, dim, wanted",
    [
        (8, (1, 7, 2, 2), -3, 7),
        (8, (7, 2, 2), -3, 7),
        (7, (1, 7, 2, 2), -3, 7),
        (8, (1, 9, 2, 2), -3, 8),
        (8, (7, 2), -3, 8),  # too few dims to say how many
        (8, (), -1, 8),
        (8, (7,), -1, 7),
        (8, None, -1, 8),
    ],
)
def test_output_channels_are_those_declared_where_the_weight_has_as_many(
    rows: int, declared: tuple[int, ...] | None, dim: int, wanted: int
) -> None:
    assert out_channels(rows, declared, dim) == wanted
