"""An example of an executor that another package brings: two kernels of a library that works on plain NCHW arrays.

``vendor`` has both right. ``vendor:truncate`` cuts off where it should round.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from refsim import ExecutorPlugin, OperatorCall, PackedBuffer

F32 = np.float32


def open_executor(arguments: str) -> ExecutorPlugin:
    """NumPy kernels of an imaginary vendor."""
    if arguments not in ("", "truncate"):
        raise ValueError(f"unknown arguments {arguments!r}, need nothing or truncate")
    return Kernels(np.trunc if arguments else np.rint)


class Kernels:
    """Runs q8ta_relu and q8ta_add, in any layout, and refuses everything else."""

    def __init__(self, rounded: np.ufunc) -> None:
        self.rounded = rounded

    def refusal(self, call: OperatorCall) -> str | None:
        if call.op not in ("q8ta_relu", "q8ta_add"):
            return "the library has no such kernel"
        return "only canonical numerics" if call.profile.name != "canonical" else None

    def run(self, call: OperatorCall, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        p = call.params
        if call.op == "q8ta_relu":
            real = np.maximum(_real(inputs["x"], p["in_scale"], p["in_zp"]), F32(0))
        else:
            second = _real(inputs["b"], p["b_scale"], p["b_zp"])
            if p["alpha"] != 1:
                second = F32(p["alpha"]) * second
            real = _real(inputs["a"], p["a_scale"], p["a_zp"]) + second
        steps = self.rounded(real * (F32(1) / F32(p["out_scale"])))
        low, high = -128 - p["out_zp"], 127 - p["out_zp"]
        return call.packed((np.clip(steps, low, high) + p["out_zp"]).astype(np.int8), inputs)


def _real(buffer: PackedBuffer, scale: float, zero_point: int) -> np.ndarray:
    """The real values of an int8 tensor, in NCHW order."""
    return (buffer.unpack().astype(np.int32) - zero_point).astype(F32) * F32(scale)
