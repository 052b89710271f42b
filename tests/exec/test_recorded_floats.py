"""What recordings prove about float values that no runtime records: those inside delegates (docs/numerics.md).

The bundled mobilenet is the recorded model with float operators: a hardtanh between each dequantize and quantize, and
a mean. ET-VK's runtime recorded the int8 value behind each of them, and test_models.py compares every byte.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from exec.recorded import DATA, inputs, outputs

import refsim
from refsim import aten
from refsim.aten.table import TABLE
from refsim.core.buffer import PackedBuffer
from refsim.core.layout import C
from refsim.graph.graph import Graph, Node, refs
from refsim.graph.interpreter import Kept

MODEL = DATA / "models" / "mobilenet_v2_035_96.pte"
ENCODER = DATA / "groups" / "encoder.pte"


@cache
def run() -> tuple[Graph, dict[int, np.ndarray]]:
    """The graph, and its values as arrays."""
    model, kept = refsim.load(MODEL), Kept()
    model.run(inputs(MODEL), observe=kept)
    arrays = {n: held.unpack() if isinstance(held, PackedBuffer) else held for (_, n), held in kept.items()}
    return model.graphs[0], arrays


def recorded(value: int) -> np.ndarray:
    """An int8 value as the runtime wrote it."""
    desc = run()[0].tensors[value].desc
    assert desc is not None
    with zipfile.ZipFile(MODEL.with_suffix(".dump.zip")) as archive:
        entries = json.loads(archive.read("delegate0.json"))
        (name,) = (entry["raw"] for entry in entries if entry["fb_value_id"] == value)
        return PackedBuffer.from_raw(archive.read(name), desc.shape, desc.layout).unpack()


def reader(node: Node) -> Node:
    """Of its output."""
    (found,) = (other for other in run()[0].nodes if node.outputs[0] in refs(other.args))
    return found


def quantized(node: Node, x: np.ndarray) -> np.ndarray:
    assert node.call is not None
    result: np.ndarray = node.call.define({"x": x})
    return result


def named(name: str) -> list[Node]:
    return [node for node in run()[0].nodes if node.name == name]


def test_bytes_behind_each_clamp_fix_both_bounds() -> None:
    """Without a bound other bytes would follow: below 0 behind each of the 35 clamps, above 6 behind those listed."""
    values, clamps = run()[1], named("aten.hardtanh.default")
    compared, low, high = 0, [], []
    for node, after in ((node, reader(node)) for node in clamps):
        if "quantize" not in after.name:
            continue  # the last one, which the mean reads
        x, bytes_ = values[node.args[0].id], recorded(after.outputs[0])
        assert np.array_equal(quantized(after, values[node.outputs[0]]), bytes_)
        compared += bytes_.size
        low.append(int(np.count_nonzero(quantized(after, np.minimum(x, 6)) != bytes_)))
        high.append(int(np.count_nonzero(quantized(after, np.maximum(x, 0)) != bytes_)))
    assert (len(clamps), compared, min(low)) == (35, 470_304, 794)
    assert (sum(map(bool, high)), sum(high)) == (5, 10)


def test_bytes_behind_the_mean_fix_it_to_half_a_step_and_not_its_order() -> None:
    """A mean of nine whole numbers of steps is no tie, so rounding errors never reach the byte."""
    (node,), (view,), values = named("aten.mean.dim"), named("aten.view_copy.default"), run()[1]
    x, mean, after = values[node.args[0].id], aten.find(node.name, "mean"), reader(view)
    by_width = values[node.outputs[0]]
    by_height = mean.run((x, (-2, -1), True, None), "mean", aten.Place(packed=C))[0]
    in_memory = mean.run((x, (-1, -2), True, None), "mean")[0]
    bytes_, scale = recorded(after.outputs[0]), float(after.args[1])
    for means in (by_width, by_height, in_memory):
        assert np.array_equal(quantized(after, means.reshape(1, -1)), bytes_)
    # floats, of 1280
    assert [np.count_nonzero(means != by_width) for means in (by_height, in_memory)] == [275, 309]
    steps = by_width.astype(np.float64) / scale
    assert np.abs(steps - np.floor(steps) - 0.5).min() > 1 / 18 - 1e-5
    shifted = quantized(after, (by_width + np.float32(scale / 2)).reshape(1, -1))
    assert np.count_nonzero(shifted != bytes_) == 644  # of 1280


def test_the_recorded_encoder_tells_the_shaders_layer_norm_from_the_portable_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its 512 floats went through layer norms, softmax and gelu, whose functions are the device's own polynomials.

    Most are the device's bits all the same; fewer if the layer norms add up and scale as the portable kernel does.
    """
    (need,) = outputs(ENCODER)

    def same() -> tuple[int, float]:
        (out,) = refsim.load(ENCODER).run(inputs(ENCODER))
        return int(np.count_nonzero(out == need)), float(np.abs(out - need).max())

    equal, off = same()
    assert equal >= 300 and off < 2.5e-7  # of 512, and of 3.4
    monkeypatch.setitem(TABLE, "native_layer_norm", replace(TABLE["native_layer_norm"], delegate=None))
    equal, off = same()
    assert equal <= 220 and off > 3e-7
