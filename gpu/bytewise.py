"""Launches that look values up which follow from single bytes (refsim.graph.bytewise): bytes, or floats."""

from __future__ import annotations

from refsim.core.launch import Launch
from refsim.core.tensor import TensorDesc
from refsim.ops.base import elementwise
from refsim_gpu.float_words import ROWS


def bytes_launch(x: TensorDesc, out: TensorDesc, padding: int) -> Launch:
    """A byte for each byte; ``padding`` is what the output's own operator leaves beyond the elements."""
    return _launch("float/bytes", x, out, PADDING=padding)


def values_launch(x: TensorDesc, out: TensorDesc) -> Launch:
    """A float for each byte."""
    return _launch("float/values", x, out)


def _launch(shader: str, x: TensorDesc, out: TensorDesc, **values: object) -> Launch:
    push, spec = ROWS[shader]
    tensors = {"x": x, "out": out}
    size, local, tile = elementwise.tiled(out, [x])
    return Launch(shader, out, spec.pack(tensors), push.pack(tensors, **values), size, local, tile)
