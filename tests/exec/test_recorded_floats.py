"""What recordings prove about float values that no runtime records: those inside delegates.

The bundled mobilenet is the recorded model with float operators: a hardtanh between each dequantize and quantize, and
a mean. ET-VK's runtime recorded the int8 value behind each of them, and test_models.py compares every byte.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refsim
from refsim import aten
from refsim.aten.table import TABLE
from refsim.core.buffer import PackedBuffer
from refsim.core.layout import C
from refsim.graph.graph import Graph, Node

MODELS = Path(__file__).parents[1] / "data" / "models"
MODEL = MODELS / "mobilenet_v2_035_96"


@cache
def run() -> tuple[Graph, dict[int, np.ndarray]]:
    """The graph, and its values as arrays."""
    with np.load(f"{MODEL}.io.npz") as io:
        x = io["in0"]
    values: dict[int, np.ndarray] = {}

    def keep(event: Any) -> None:
        for number, held in event.outputs.items():
            values[number] = held.unpack() if isinstance(held, PackedBuffer) else held

    model = refsim.load(f"{MODEL}.pte")
    model.run([x], observe=keep)
    return model.graphs[0], values


def recorded(value: int) -> np.ndarray:
    """An int8 value as the runtime wrote it."""
    graph, _ = run()
    desc = graph.tensors[value].desc
    assert desc is not None
    with zipfile.ZipFile(f"{MODEL}.dump.zip") as archive:
        entries = json.loads(archive.read("delegate0.json"))
        (name,) = (entry["raw"] for entry in entries if entry["fb_value_id"] == value)
        return PackedBuffer.from_raw(archive.read(name), desc.shape, desc.layout).unpack()


def reader(value: int) -> Node:
    (node,) = (n for n in run()[0].nodes if value in n.inputs.values() or any(value == r.id for r in refs(n)))
    return node


def refs(node: Node) -> list[Any]:
    return [arg for arg in node.args if hasattr(arg, "id")]


def quantized(node: Node, x: np.ndarray) -> np.ndarray:
    assert node.call is not None
    result: np.ndarray = node.call.define({"x": x})
    return result


def test_bytes_behind_each_clamp_fix_both_bounds() -> None:
    """Without a bound other bytes would follow: below 0 behind each of the 35 clamps, above 6 behind those listed."""
    graph, values = run()
    clamps = [node for node in graph.nodes if node.name == "aten.hardtanh.default"]
    assert len(clamps) == 35
    compared, low, high = 0, [], []
    for node in clamps:
        after = reader(node.outputs[0])
        if "quantize" not in after.name:
            continue  # the last one, which the mean reads
        x, bytes_ = values[node.args[0].id], recorded(after.outputs[0])
        assert np.array_equal(quantized(after, values[node.outputs[0]]), bytes_)
        compared += bytes_.size
        low.append(int(np.count_nonzero(quantized(after, np.minimum(x, 6)) != bytes_)))
        high.append(int(np.count_nonzero(quantized(after, np.maximum(x, 0)) != bytes_)))
    assert compared == 470_304
    assert min(low) == 794
    assert (sum(map(bool, high)), sum(high)) == (5, 10)


def orders() -> dict[str, np.ndarray]:
    """The 1280 means of 3 x 3: in the shader's order, and in two others."""
    graph, values = run()
    (node,) = (n for n in graph.nodes if n.name == "aten.mean.dim")
    x = values[node.args[0].id]
    mean = aten.find(node.name, "mean")
    place = aten.Place(packed=C)
    return {
        "by width": values[node.outputs[0]],
        "by height": mean.run((x, (-2, -1), True, None), "mean", place)[0],
        "in memory": mean.run((x, (-1, -2), True, None), "mean")[0],
    }


def test_bytes_behind_the_mean_fix_it_to_half_a_step_and_not_its_order() -> None:
    """A mean of nine whole numbers of steps is no tie, so rounding errors never reach the byte."""
    graph, _ = run()
    found = orders()
    (node,) = (n for n in graph.nodes if n.name == "aten.view_copy.default")
    after = reader(node.outputs[0])
    assert after.call is not None
    bytes_, scale = recorded(after.outputs[0]), float(after.args[1])
    for means in found.values():
        assert np.array_equal(quantized(after, means.reshape(1, -1)), bytes_)
    differing = {name: int(np.count_nonzero(means != found["by width"])) for name, means in found.items()}
    assert differing == {"by width": 0, "by height": 275, "in memory": 309}  # floats, of 1280
    steps = found["by width"].astype(np.float64) / scale
    assert np.abs(steps - np.floor(steps) - 0.5).min() > 1 / 18 - 1e-5
    shifted = quantized(after, (found["by width"] + np.float32(scale / 2)).reshape(1, -1))
    assert np.count_nonzero(shifted != bytes_) == 644  # of 1280


def test_the_mean_in_nine_plain_additions() -> None:
    """The order again, written out for 3 x 3: a partial sum for each column, then the columns, then one division."""
    graph, values = run()
    (node,) = (n for n in graph.nodes if n.name == "aten.mean.dim")
    x = values[node.args[0].id][0]
    columns = [(x[:, 0, w] + x[:, 1, w]) + x[:, 2, w] for w in range(3)]
    need = ((columns[0] + columns[1]) + columns[2]) / np.float32(9)
    assert np.array_equal(values[node.outputs[0]].reshape(-1), need)


def test_the_recorded_encoder_tells_the_shaders_layer_norm_from_the_portable_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its 512 floats went through layer norms, softmax and gelu, whose functions are the device's own polynomials.

    Most are the device's bits all the same; fewer if the layer norms add up and scale as the portable kernel does.
    """
    path = MODELS.parent / "groups" / "encoder"
    with np.load(f"{path}.npz") as file:
        x, need = file["in0"], file["out0"]

    def same() -> tuple[int, float]:
        (out,) = refsim.load(f"{path}.pte").run([x])
        return int(np.count_nonzero(out == need)), float(np.abs(out - need).max())

    equal, off = same()
    assert equal >= 300 and off < 2.5e-7  # of 512, and of 3.4
    monkeypatch.setitem(TABLE, "native_layer_norm", replace(TABLE["native_layer_norm"], delegate=None))
    equal, off = same()
    assert equal <= 220 and off > 3e-7
