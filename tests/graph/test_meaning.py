"""Nodes that no kernel takes: a file that holds them runs by the operator's definition, and says what upstream does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from delegates import Builder

import refsim
from refsim.cli import main
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import RefsimError
from refsim.core.rng import Rng
from refsim.exec.cpu import EmulatedExecutor, NativeExecutor
from refsim.exec.executor import run_graph
from refsim.formats.literals import Double, String
from refsim.formats.vkgraph.read import read_blob
from refsim.graph.build import build
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


def graph_of(data: bytes) -> Graph:
    return build(read_blob(data, "test"), "test")


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
    path, folder = tmp_path / "delegate.bin", tmp_path / "dumps"
    path.write_bytes(rows())
    folder.mkdir()
    model = refsim.load(path)
    given = inputs_of(model.graphs[0])
    np.savez(tmp_path / "in.npz", in0=given[0])
    assert (
        main(["run", str(path), "-i", str(tmp_path / "in.npz"), "--dump", "q8ta|gemv|quantize", str(folder)])
        == 0
    )
    seen: list[Event] = []
    model.run(given, observe=seen.append)
    (event,) = [e for e in seen if e.node.meaning is not None]
    ((value, held),) = event.outputs.items()
    assert isinstance(held, PackedBuffer)
    wrong = held.unpack()
    wrong[1:] = 0x5A
    file = folder / f"delegate0_v{value}.bin"
    file.write_bytes(PackedBuffer.pack(wrong, held.desc.layout).raw.tobytes())
    capsys.readouterr()
    arguments = ["bisect", str(path), "--actual", str(folder), "-i", str(tmp_path / "in.npz")]
    assert main(arguments) == 1
    out = capsys.readouterr().out
    assert "wrong: node 1 q8ta_linear_gemv" in out
    assert "cause: upstream's kernel computes row 0 only" in out
    assert main([*arguments, "--json"]) == 1
    (cause,) = json.loads(capsys.readouterr().out)["causes"].values()
    assert "row 0 only" in cause


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
