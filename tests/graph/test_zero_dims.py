"""Values without dims, as a factor or a hardsigmoid's constant: they keep their shape wherever they go."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from delegates import Builder

import refsim
from refsim.cli import main
from refsim.core.buffer import PackedBuffer
from refsim.formats.vkgraph.read import read_blob
from refsim.formats.vkgraph.schema import VkTensor
from refsim.graph.build import build
from refsim.graph.interpreter import Event

#: int64 would be held as int32: a layout says nothing about it.
INT32 = 3


def scaled() -> bytes:
    """x without dims is quantized, dequantized, converted, and multiplies an image."""
    b, shape = Builder(), (1, 4, 2, 3)
    image, factor = b.activation(shape), b.activation(())
    q = b.quantize(factor, (), "4W", 0.01, 3)
    real = b.dequantize(q, (), 0.01, 3)
    copy = b.call("aten.clone.default", real, b.activation(()))
    whole = b.call("aten._to_copy.default", copy, b.add(VkTensor(INT32, (), memory_layout=0)))
    back = b.call("aten._to_copy.default", whole, b.activation(()))
    total = b.call("aten.add.Tensor", copy, back, b.activation(()))
    return b.blob((image, factor), b.call("aten.mul.Tensor", image, total, b.activation(shape)))


@pytest.fixture
def model(tmp_path: Path) -> refsim.Model:
    path = tmp_path / "delegate.bin"
    path.write_bytes(scaled())
    return refsim.load(path)


X = np.arange(24, dtype=np.float32).reshape(1, 4, 2, 3)


@pytest.mark.parametrize("executor", ["cpu", "cpu:emulated"])
def test_every_executor(model: refsim.Model, executor: str) -> None:
    seen: list[Event] = []
    quantized = np.float32(56 - 3) * np.float32(0.01)
    need = X * (quantized + np.float32(np.int32(quantized)))
    for observe in (None, seen.append):
        (out,) = model.run([X, np.array(0.53, np.float32)], executor, observe)
        assert out.tobytes() == need.tobytes()
    for event in seen[:-1]:
        for value, held in event.outputs.items():
            tensor = event.graph.tensors[value]
            assert tensor.shape == () and (isinstance(held, PackedBuffer) or held.shape == ())


def test_a_dump_holds_one(model: refsim.Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As refsim writes it, and as a list of a whole delegate, whose sizes are then empty."""
    np.savez(tmp_path / "in.npz", in0=X, in1=np.array(0.53, np.float32))
    given, folder = ["-i", str(tmp_path / "in.npz")], tmp_path / "dumps"
    folder.mkdir()
    assert main(["run", model.path, *given, "--dump", "quantize_per_tensor", str(folder)]) == 0
    assert main(["run", model.path, *given, "--golden", str(folder)]) == 0
    graph = build(read_blob(scaled(), "test"), "test")
    value = next(node.outputs[0] for node in graph.q8ta_nodes())
    raw = (folder / f"delegate0_v{value}.bin").read_bytes()
    upstream = tmp_path / "upstream"
    upstream.mkdir()
    (upstream / "value.bin").write_bytes(raw)
    row = {"fb_value_id": value, "sizes": [], "memory_layout_enum": 5, "raw": "value.bin"}
    (upstream / "delegate0.json").write_text(json.dumps([row]))
    capsys.readouterr()
    assert main(["run", model.path, *given, "--golden", str(upstream)]) == 0
    assert "0 bytes differ" in capsys.readouterr().out


def test_the_node_of_a_step_is_its_last(model: refsim.Model) -> None:
    (graph,) = model.graphs.values()
    for count in (1, 2, 3):
        assert Event(0, graph, graph.nodes[:count], {}, 0.0).node is graph.nodes[count - 1]
