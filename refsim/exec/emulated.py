"""The emulating executor: every kernel as one invocation after another, over the packed words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refsim.core.buffer import PackedBuffer
from refsim.core.jit import ready
from refsim.core.launch import Launch
from refsim.core.qmath import wrap32
from refsim.exec.executor import Executor
from refsim.ops.base.registry import OPS


class EmulatedExecutor(Executor):
    """Runs the Numba kernels of refsim/ops; the slow, plain one that is for looking inside.

    With NUMBA_DISABLE_JIT=1 in the environment they are Python functions that a debugger can step through.
    """

    name = "cpu:emulated"

    def run(self, launch: Launch, inputs: Sequence[np.ndarray]) -> PackedBuffer:
        kernel = OPS[launch.shader].kernel
        assert kernel is not None
        out = PackedBuffer(launch.out)
        x, y, z = launch.reached
        spec = np.array(launch.spec, np.uint32).astype(np.int64)
        push = np.array(launch.push, np.uint32).view(np.int32)
        written = out.words.view(_WrappingWords) if ready().config.DISABLE_JIT else out.words
        with np.errstate(over="ignore"):  # plain Python warns where compiled integers wrap
            kernel((z, y, x), spec, push, *(_writable(words) for words in inputs), written)
        out.check_guards(launch.shader)
        return out


def _writable(words: np.ndarray) -> np.ndarray:
    """Read-only arrays are another type to Numba, and would compile every kernel twice."""
    return words if words.flags.writeable else words.copy()


class _WrappingWords(np.ndarray):
    """int32 words that take any integer modulo 2**32, as a compiled store does."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, wrap32(int(value)))
