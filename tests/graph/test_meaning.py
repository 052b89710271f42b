"""Nodes that no kernel takes: a file that holds them runs by the operator's definition, and says what upstream does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from delegates import INT32, Builder, bisected, graph_of

import refsim
from refsim.cli import main
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import RefsimError
from refsim.core.rng import Rng
from refsim.exec.cpu import EmulatedExecutor, NativeExecutor
from refsim.exec.executor import run_graph
from refsim.formats.literals import Double, String
from refsim.formats.vkgraph.schema import VkTensor
from refsim.graph.graph import Graph
from refsim.graph.interpreter import Event
from refsim.ops.base.registry import OPS


def broadcasting(
    layout: str = "4C", small: tuple[int, ...] = (1, 20, 1, 5), large: tuple[int, ...] = (1, 20, 6, 5)
) -> bytes:
    """quantize two tensors, add the small one to each row of the large one, dequantize."""
    b = Builder()
    inputs = (b.activation(large), b.activation(small))
    x = b.quantize(inputs[0], large, layout, 0.02, 3)
    y = b.quantize(inputs[1], small, layout, 0.03, -5)
    scales = [*b.quantization(0.02, 3), *b.quantization(0.03, -5), *b.quantization(0.05, 7)]
    z = b.call("et_vk.q8ta_add.default", x, y, *scales, b.add(Double(1.0)), b.activation(large, layout))
    return b.blob(inputs, b.dequantize(z, large, 0.05, 7))


def rows(count: int = 20, biases: int = 8) -> bytes:
    """quantize, gemv of several rows, dequantize. The layer has 8 outputs."""
    b, rng = Builder(), Rng(1)
    x = b.activation((count, 16))
    q = b.quantize(x, (count, 16), "4W", 0.02, 3)
    weight = rng.ints(-128, 127, (8, 16)).astype(np.int8)
    consts = [weight, weight.sum(1, dtype=np.int32), np.full(8, 0.01, np.float32)]
    args = (*b.quantization(0.02, 3), *map(b.constant, consts), *b.quantization(0.05, 7))
    bias = b.constant(np.r_[np.linspace(-1, 1, 8), np.full(biases - 8, 9.0)].astype(np.float32))
    out = b.call(
        "et_vk.q8ta_linear_gemv.default",
        q,
        *args,
        bias,
        b.add(String("none")),
        b.activation((count, 8), "4W"),
    )
    return b.blob((x,), b.dequantize(out, (count, 8), 0.05, 7))


def inputs_of(graph: Graph) -> list[np.ndarray]:
    rng = Rng(7)
    return [rng.uniform(-2.0, 2.0, graph.tensors[i].shape).astype(np.float32) for i in graph.inputs]


@pytest.mark.parametrize(
    ("layout", "small", "large"),
    [("4C", (1, 20, 1, 5), (1, 20, 6, 5)), ("4W4C", (1, 20, 1, 5), (1, 20, 6, 5)), ("4W", (1, 1), (1, 6))],
)
def test_an_addition_broadcasts(layout: str, small: tuple[int, ...], large: tuple[int, ...]) -> None:
    graph = graph_of(broadcasting(layout, small, large))
    x, y = inputs_of(graph)
    define = {name: OPS[f"q8ta_{name}"] for name in ("quantize", "dequantize", "add")}

    def convert(name: str, array: np.ndarray, scale: float, zp: int) -> np.ndarray:
        op = define[name]
        result: np.ndarray = op.define(op.make_params({"scale": scale, "zp": zp}), graph.target, x=array)
        return result

    whole = np.broadcast_to(convert("quantize", y, 0.03, -5), x.shape)
    params = define["add"].make_params(
        dict(a_scale=0.02, a_zp=3, b_scale=0.03, b_zp=-5, out_scale=0.05, out_zp=7)
    )
    total = define["add"].define(params, graph.target, a=convert("quantize", x, 0.02, 3), b=whole)
    need = convert("dequantize", total, 0.05, 7)
    for executor in (NativeExecutor(), NativeExecutor(own_layouts=False), EmulatedExecutor()):
        assert run_graph(graph, [x, y], executor)[0].tobytes() == need.tobytes()


def test_a_gemv_has_several_rows() -> None:
    graph, single = graph_of(rows()), graph_of(rows(1))
    (x,) = inputs_of(graph)
    need = [run_graph(single, [row[None]], EmulatedExecutor())[0][0] for row in x]
    for executor in (NativeExecutor(), EmulatedExecutor()):
        assert run_graph(graph, [x], executor)[0].tobytes() == np.array(need).tobytes()


@pytest.mark.parametrize(
    ("small", "need"), [((1, 20, 2, 5), "do not fit"), ((2, 20, 6, 5), "output shape is wrong")]
)
def test_shapes_that_mean_nothing(small: tuple[int, ...], need: str) -> None:
    with pytest.raises(RefsimError, match=need):
        graph_of(broadcasting(small=small))


def test_bisect_names_the_defect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A device whose gemv wrote row 0 only: the other rows of its dump hold what the memory held before."""
    path = tmp_path / "delegate.bin"
    path.write_bytes(rows())

    def wrong(raw: bytes) -> bytes:
        values = PackedBuffer.from_raw(raw, (20, 8), "4W").unpack().copy()
        values[1:] = 0x5A
        return PackedBuffer.pack(values, "4W").raw.tobytes()

    printed, content = bisected(path, inputs_of(graph_of(rows()))[0], wrong, tmp_path, capsys)
    assert "wrong: node 1 q8ta_linear_gemv" in printed
    assert "cause: upstream's kernel computes row 0 only" in printed
    assert "row 0 only" in next(iter(content["causes"].values()))


@pytest.mark.parametrize("count", [1, 20])
def test_a_whole_bias_at_a_slice_of_a_layer(
    count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kernel reads one value per output: the rest has no effect, and inspect says so."""
    x = np.linspace(-2, 2, count * 16, dtype=np.float32).reshape(count, 16)
    outputs = []
    for biases in (8, 24):
        path = tmp_path / f"{biases}.blob"
        path.write_bytes(rows(count, biases))
        outputs.append(refsim.load(path).run([x])[0])
        assert main(["inspect", str(path)]) == 0
        assert ("bias has 24 values for 8 outputs" in capsys.readouterr().out) == (biases == 24)
    assert np.array_equal(*outputs)


# --- values without dims ---


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
    value = next(node.outputs[0] for node in graph_of(scaled()).q8ta_nodes())
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
