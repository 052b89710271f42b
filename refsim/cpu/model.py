"""The model executor: every kernel as one invocation after another, over the packed words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from refsim.buffer import PackedBuffer
from refsim.executor import Executor
from refsim.launch import Launch
from refsim.op import OPS


class ModelExecutor(Executor):
    """Runs the Numba kernels of refsim/ops; the slow, plain one that is for looking inside."""

    name = "cpu:model"

    def run(self, launch: Launch, inputs: Sequence[np.ndarray]) -> PackedBuffer:
        kernel = OPS[launch.shader].kernel
        assert kernel is not None
        out = PackedBuffer(launch.out)
        x, y, z = launch.covered
        spec = np.array(launch.spec, np.uint32).astype(np.int64)
        push = np.array(launch.push, np.uint32).view(np.int32)
        kernel((z, y, x), spec, push, *(_writable(words) for words in inputs), out.words)
        out.check_guards(launch.shader)
        return out


def _writable(words: np.ndarray) -> np.ndarray:
    """Read-only arrays are another type to Numba, and would compile every kernel twice."""
    return words if words.flags.writeable else words.copy()
