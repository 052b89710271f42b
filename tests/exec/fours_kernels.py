"""A sum in NC4HW4 by NumPy alone, as an executor of another package: ``fours``.

``fours:wrong`` takes the zero point of ``a`` for that of ``b``, as `tests/modules/own/wrong` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from refsim import ExecutorPlugin, OperatorCall, PackedBuffer

F32 = np.float32


def fours(values: np.ndarray) -> np.ndarray:
    """NCHW as [n, c / 4, h, w, 4], padded with zeros."""
    n, c, h, w = values.shape
    whole = np.pad(values, ((0, 0), (0, -c % 4), (0, 0), (0, 0)))
    return np.ascontiguousarray(whole.reshape(n, -1, 4, h, w).transpose(0, 1, 3, 4, 2))


def plain(blocks: np.ndarray, channels: int) -> np.ndarray:
    """The way back."""
    n, deep, h, w, _ = blocks.shape
    return blocks.transpose(0, 1, 4, 2, 3).reshape(n, 4 * deep, h, w)[:, :channels]


def add(a: np.ndarray, b: np.ndarray, p: Mapping[str, Any], wrong: bool = False) -> np.ndarray:
    """The sum of two int8 tensors in NC4HW4."""
    first = (a.astype(np.int32) - p["a_zp"]).astype(F32) * F32(p["a_scale"])
    second = (b.astype(np.int32) - p["a_zp" if wrong else "b_zp"]).astype(F32) * F32(p["b_scale"])
    steps = np.rint((first + second) * (F32(1) / F32(p["out_scale"]))) + p["out_zp"]
    return np.clip(steps, -128, 127).astype(np.int8)


def open_executor(arguments: str) -> ExecutorPlugin:
    """NumPy kernels in NC4HW4."""
    return Fours(arguments == "wrong")


class Fours:
    def __init__(self, wrong: bool) -> None:
        self.wrong = wrong

    def refusal(self, call: OperatorCall) -> str | None:
        four = len(call.out.shape) == 4
        return None if call.op == "q8ta_add" and call.params["alpha"] == 1 and four else "no such kernel"

    def run(self, call: OperatorCall, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        a, b = (fours(inputs[name].unpack()) for name in ("a", "b"))
        return call.packed(plain(add(a, b, call.params, self.wrong), call.out.shape[1]), inputs)
