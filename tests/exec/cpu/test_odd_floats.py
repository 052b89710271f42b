"""Floats that are no number, no finite one, or too large for an integer, quantized as the definition does it."""

from __future__ import annotations

import numpy as np
import pytest

from refsim.core.buffer import PackedBuffer
from refsim.core.layout import WIDTH_PACKED
from refsim.core.tensor import TensorDesc
from refsim.exec.cpu import EmulatedExecutor, NativeExecutor
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS

ODD = np.array(
    [np.nan, -np.nan, np.inf, -np.inf, 3e38, -3e38, 0.0, -0.0, 1e-40, 0.5, -0.5, 1.5, 2.5, 127.5, -128.5, 1e9, -1e9,
     2.2e9, -2.2e9, 8388608.5], np.float32
)  # fmt: skip


@pytest.mark.parametrize("layout", ["4C", "4W4C", "4C1W", "4W"])
@pytest.mark.parametrize("zp", [-128, -127, 0, 5, 127])
@pytest.mark.parametrize("scale", [1.0, 0.02, 2.0**60, 2.0**-60])
def test_odd_floats_are_quantized_as_defined(scale: float, zp: int, layout: str) -> None:
    shape = (1, 7, 3, 37)  # pixels and channels that fill no vector and no word
    with np.errstate(over="ignore"):
        x = np.resize(np.concatenate([ODD, ODD * np.float32(scale)]), shape).astype(np.float32)
    op, f32 = OPS["q8ta_quantize"], np.dtype(np.float32)
    given = {"x": TensorDesc(shape, WIDTH_PACKED, f32)}
    prepared = Prepared(op.bind(op.make_params({"scale": scale, "zp": zp}), given, {}, layout))
    inputs = {"x": PackedBuffer.pack(x, WIDTH_PACKED, dtype=f32)}
    executor = NativeExecutor()
    assert executor.choose(prepared).route != "emulated"
    made = executor.run_prepared(prepared, inputs)
    assert made.raw.tobytes() == EmulatedExecutor().run_prepared(prepared, inputs).raw.tobytes()
    want = op.define(prepared.call.params, prepared.call.target, x)
    assert np.array_equal(made.unpack(), want)
