"""The executor `cpu:emulated`: runs each GPU kernel over the packed words, one work item after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from refsim.core import doing
from refsim.core.buffer import PackedBuffer, with_outside
from refsim.core.errors import GuardError
from refsim.core.jit import ready
from refsim.core.launch import Launch
from refsim.core.qmath import wrap32
from refsim.exec.executor import Executor
from refsim.exec.isolated import IsolatedExecutor
from refsim.ops.base.registry import kernel_of

#: A compiled kernel that fails does not say where. One with so few work items is run once more as plain Python.
MOST_PLAIN = 1 << 12


class EmulatedExecutor(Executor):
    """Runs the emulated kernels of refsim/ops. It is slow and simple, and you can look inside.

    With NUMBA_DISABLE_JIT=1 in the environment the kernels are Python functions, and a debugger can step through them.
    """

    name = "cpu:emulated"

    def anew(self, threads: int) -> Executor | None:
        return IsolatedExecutor(self.name, EmulatedExecutor) if type(self) is EmulatedExecutor else None

    def run(self, launch: Launch, inputs: Sequence[np.ndarray]) -> PackedBuffer:
        kernel = kernel_of(launch.shader).run
        out = PackedBuffer(launch.out)
        x, y, z = launch.reached
        spec = np.array(launch.spec, np.uint32).astype(np.int64)
        push = np.array(launch.push, np.uint32).view(np.int32)
        written = out.words.view(_WrappingWords) if ready().config.DISABLE_JIT else out.words
        given = (z, y, x), spec, push, *inputs
        around = given if ready().config.DISABLE_JIT else (*given[:3], *map(with_outside, inputs))
        what = doing.kernel(_module_of(kernel), launch.shader)
        with np.errstate(over="ignore"):  # plain Python warns where compiled integers wrap
            try:
                doing.during(what, kernel, *around, written)
            except (LookupError, ArithmeticError, ValueError) as error:
                failed = error if x * y * z > MOST_PLAIN else _plain_error(kernel, given, out.words) or error
                doing.note(failed, f"while {what} ran")
                raise failed from None
        try:
            out.check_guards(launch.shader)
        except GuardError as error:
            doing.note(error, f"after {what} ran")
            raise
        return out


def _plain_error(
    kernel: Callable[..., object], given: Sequence[Any], out: np.ndarray
) -> LookupError | ArithmeticError | ValueError | None:
    """What stops the kernel as plain Python, whose traceback says where; None if nothing does."""
    try:
        getattr(kernel, "py_func", kernel)(*given, out.view(_WrappingWords))
    except (LookupError, ArithmeticError, ValueError) as error:
        return error
    return None


def _module_of(kernel: Callable[..., object]) -> str:
    """Where a kernel is written."""
    return str(getattr(kernel, "py_func", kernel).__module__)


class _WrappingWords(np.ndarray):
    """int32 words that accept any integer and store it modulo 2**32, as compiled code does."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, wrap32(int(value)))
