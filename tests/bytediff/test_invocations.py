"""KernelSpec.work_item says which point of a launch's global_size writes a word; the kernels are the witness."""

from __future__ import annotations

import numpy as np
import pytest

from refsim.bytediff.invocations import work_items
from refsim.core.rng import Rng
from refsim.ops.base.binding import bind
from refsim.ops.base.registry import OPS, kernel_of
from refsim.ops.base.spec import Call, Dispatch

SENTINEL = 0x5A5A5A5A
KERNELS = [name for name, op in OPS.items() if op.kernel is not None]


def _written(
    call: Call, step: Dispatch, buffers: dict[str, np.ndarray], covered: tuple[int, int, int]
) -> np.ndarray:
    """Words that the kernel writes when only that much of the global_size is run."""
    launch = step.launch
    kernel = kernel_of(launch.shader).run
    spec = np.array(launch.spec, np.uint32).astype(np.int64)
    push = np.array(launch.push, np.uint32).view(np.int32)
    results = []
    for fill in (SENTINEL, ~SENTINEL):  # whatever a word becomes, it cannot equal both
        out = np.full(launch.out.words, fill, np.int32)
        kernel(covered[::-1], spec, push, *(buffers[name] for name in step.inputs), out)
        results.append(out == fill)
    return ~(results[0] & results[1])


@pytest.mark.parametrize("name", KERNELS)
def test_the_point_of_a_word_is_the_one_that_writes_it(name: str) -> None:
    rng = Rng(7)
    for _ in range(12):
        bound = bind(OPS[name].sample(rng))
        (step,) = bound.call.dispatches()
        buffers = {k: b.words.copy() for k, b in bound.inputs.items()} | bound.call.const_words()
        global_size = step.launch.global_size
        whole = _written(bound.call, step, buffers, global_size)
        points = work_items(step.launch)
        for axis in range(3):
            for limit in {1, global_size[axis] // 2, global_size[axis] - 1} - {0, global_size[axis]}:
                covered = tuple(limit if a == axis else n for a, n in enumerate(global_size))
                written = _written(bound.call, step, buffers, covered)  # type: ignore[arg-type]
                np.testing.assert_array_equal(
                    written, whole & (points[axis] < limit), err_msg=f"{bound.case}"
                )
