"""What an operation on bytes gives for every byte, or every pair of bytes: what a faster way must give too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from refsim.core.layout import PACKED_4W
from refsim.core.tensor import TensorDesc
from refsim.exec.cpu.elementwise import prepack as elementwise
from refsim.exec.cpu.elementwise.kernel import BOUNDED, INPUTS
from refsim.exec.cpu.elementwise.prepack import Elementwise
from refsim.exec.cpu.isa import Isa
from refsim.exec.cpu.thread_pool import JobList

#: Every byte, as an unsigned one counts.
BYTES = np.arange(256, dtype=np.uint8).view(np.int8)
_PAIRS = TensorDesc((BYTES.size**2,), PACKED_4W)
_FAR = 4096  # beyond, every sum saturates whatever it is


def integers(e: Elementwise) -> np.ndarray:
    """What the formula rounds to before the zero point is added, for every byte or pair [a, b]."""
    v = e.values

    def real(which: str) -> np.ndarray:
        q = BYTES.astype(np.int32) - v[f"{which}_zp"]
        return q.astype(np.float32) * v[f"{which}_scale"]

    t = real("a")
    if INPUTS[e.op] == 2:
        t = t[:, None] + v["alpha"] * real("b")
    if e.op == BOUNDED:
        t = np.minimum(np.maximum(t, v["least"]), v["most"])
    with np.errstate(over="ignore", invalid="ignore"):
        return np.rint(t * v["inv"]).clip(-_FAR, _FAR).astype(np.int16)


def saturated(e: Elementwise, n: np.ndarray) -> np.ndarray:
    """The bytes that those integers become."""
    return (np.clip(n, int(e.values["low"]), int(e.values["high"])) + int(e.values["zp"])).astype(np.int8)


def computed(e: Elementwise, isa: Isa) -> np.ndarray:
    """What the kernel makes of every pair [a, b]."""
    inputs = {"a": np.repeat(BYTES, BYTES.size), "b": np.tile(BYTES, BYTES.size)}
    out = np.empty((BYTES.size, BYTES.size), np.int8)
    job = elementwise.linear(replace(e, inputs=dict.fromkeys(inputs, _PAIRS), out=_PAIRS), isa)
    addresses = {name: array.ctypes.data for name, array in (inputs | {"out": out}).items()}
    JobList([job], 1, addresses).run()
    return out
