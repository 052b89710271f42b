"""KernelSpec.work_item says which point of a launch's global_size writes a word; the kernels are the witness."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from refsim.bytediff.invocations import work_items
from refsim.core.rng import Rng
from refsim.ops.base.binding import bind
from refsim.ops.base.registry import OPS, kernel_of
from refsim.ops.base.spec import Dispatch

KERNELS = [name for name, op in OPS.items() if op.kernel is not None]


def _written(step: Dispatch, held: Mapping[str, np.ndarray], covered: tuple[int, ...]) -> np.ndarray:
    """Words that the kernel writes when only that much of the global_size is run."""
    launch, kept = step.launch, []
    spec = np.array(launch.spec, np.uint32).astype(np.int64)
    push = np.array(launch.push, np.uint32).view(np.int32)
    for fill in (0x5A5A5A5A, ~0x5A5A5A5A):  # whatever a word becomes, it cannot equal both
        out = np.full(launch.out.words, fill, np.int32)
        kernel_of(launch.shader).run(covered[::-1], spec, push, *(held[name] for name in step.inputs), out)
        kept.append(out == fill)
    return ~(kept[0] & kept[1])


@pytest.mark.parametrize("name", KERNELS)
def test_the_point_of_a_word_is_the_one_that_writes_it(name: str) -> None:
    rng = Rng(7)
    for _ in range(12):
        bound = bind(OPS[name].sample(rng))
        (step,) = bound.call.dispatches()
        held = {k: b.words.copy() for k, b in bound.inputs.items()} | bound.call.const_words()
        sizes, points = step.launch.global_size, work_items(step.launch)
        whole = _written(step, held, sizes)
        for axis, size in enumerate(sizes):
            for limit in {1, size // 2, size - 1} - {0, size}:
                written = _written(step, held, (*sizes[:axis], limit, *sizes[axis + 1 :]))
                np.testing.assert_array_equal(written, whole & (points[axis] < limit), f"{bound.case}")
