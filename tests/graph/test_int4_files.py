"""Operators with 4-bit weights in files: what upstream's runtime wrote, and what it does wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from delegates import BUFFER, FLOAT32, INT32, Builder, bisected, graph_of
from exec.recorded import files, inputs, outputs

import refsim
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import RefsimError
from refsim.core.qmath import LAVAPIPE, NVIDIA
from refsim.core.rng import Rng
from refsim.exec.cpu import EmulatedExecutor, NativeExecutor
from refsim.exec.executor import run_graph
from refsim.formats.literals import Bool, Int, Null
from refsim.formats.vkgraph.schema import VkTensor
from refsim.ops.base import int4
from refsim.ops.base.target import Target


@pytest.mark.parametrize("path", files("ops"), ids=lambda path: path.stem)
def test_the_bits_of_upstream_by_definition(path: Path) -> None:
    """Under lavapipe's profile. A profile that fuses gives other bits, but for a lookup, which adds up nothing."""
    (graph,) = refsim.load(path).graphs.values()
    (x,), (need,) = inputs(path), outputs(path)
    (node,) = (node for node in graph.nodes if node.call is not None and node.call.op.int4 is not None)
    found = {}
    for profile in (LAVAPIPE, NVIDIA):
        call = node.call.op.bind(
            node.call.params, node.call.descs, node.call.consts, node.call.out.layout, target=Target(profile)
        )
        (name,) = call.descs
        found[profile.name] = call.define({name: x})
    assert found["lavapipe"].tobytes() == need.tobytes()
    assert (found["nvidia"].tobytes() != need.tobytes()) == ("x" in node.inputs)


# --- defects ----------------------------------------------------------------------------------------------


def embedding(
    shape: tuple[int, ...] = (3, 5), buffer: bool = False, group: int = 16, linear: bool = True
) -> tuple[bytes, np.ndarray, np.ndarray]:
    """A lookup of a table of 19 rows and 64 columns: the delegate, the values and the scales."""
    b, rng = Builder(), Rng(3)
    storage = {"storage_type": BUFFER} if buffer else {}
    values = int4.random_values("random", rng, (19, 64)).astype(np.int8)
    scales = int4.random_scales("random", rng, (19, 64 // group))
    stored = int4.packed(values)
    indices = b.add(VkTensor(INT32, shape, memory_layout=0, **storage))
    args = (
        b.constant(stored if linear else stored >> 4 | stored << 4),
        b.constant(scales),
        b.add(Int(group)),
    )
    out = b.add(VkTensor(FLOAT32, (*shape, 64), memory_layout=0, **storage))
    b.call("et_vk.embedding_q4gsw.default", *args, indices, b.add(Bool(linear)), out)
    return b.blob((indices,), out), values, scales


def linear(
    shape: tuple[int, ...] = (2, 3, 32), name: str = "et_vk.linear_q4gsw.default", out: int = 12
) -> bytes:
    """A product with 12 outputs and groups of 8."""
    b, rng, k = Builder(), Rng(4), shape[-1]
    x = b.add(VkTensor(FLOAT32, shape, memory_layout=0))
    weight = int4.packed(int4.random_values("random", rng, (out, k)))
    args = (b.constant(weight), b.constant(int4.random_scales("random", rng, (k // 8, out))), b.add(Int(8)))
    bias = b.add(Null())
    result = b.add(VkTensor(FLOAT32, (*shape[:-1], out), memory_layout=0))
    b.call(name, x, *args, bias, result)
    return b.blob((x,), result)


@pytest.mark.parametrize("linear_weight", [True, False])
@pytest.mark.parametrize("shape", [(), (5,), (3, 5), (2, 3, 5), (2, 2, 1, 3)])
def test_executors_look_up_every_row(shape: tuple[int, ...], linear_weight: bool) -> None:
    data, values, scales = embedding(shape, linear=linear_weight)
    graph = graph_of(data)
    indices = Rng(9).ints(0, 18, shape).astype(np.int32)
    need = (values.astype(np.float32) * np.repeat(scales, 16, 1))[indices]
    for executor in (NativeExecutor(), NativeExecutor(own_layouts=False), EmulatedExecutor()):
        (out,) = run_graph(graph, [indices], executor)
        assert out.shape == (*shape, 64) and out.tobytes() == need.tobytes()


def test_planes_are_computed_alike_and_the_other_name_means_the_same() -> None:
    whole, plane = graph_of(linear()), graph_of(linear((3, 32), "et_vk.q4gsw_linear.default"))
    x = Rng(2).uniform(-1.0, 1.0, (2, 3, 32)).astype(np.float32)
    for executor in (NativeExecutor(), EmulatedExecutor()):
        (out,) = run_graph(whole, [x], executor)
        each = [run_graph(plane, [part], executor)[0] for part in x]
        assert out.tobytes() == np.array(each).tobytes()


@pytest.mark.parametrize(
    ("data", "text"), [(embedding()[0], "first row of the indices"), (linear(), "first plane")]
)
def test_bisect_names_the_defect(
    data: bytes, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A device that does what upstream's kernel does: the bytes of its dump are those of the defect."""
    path = tmp_path / "delegate.bin"
    path.write_bytes(data)
    (node,) = graph_of(data).nodes
    ((name, desc),) = node.call.descs.items()
    x = Rng(5).ints(1, 18, desc.shape).astype(np.int32)
    x = x if desc.dtype == "int32" else Rng(5).uniform(-1.0, 1.0, desc.shape).astype(np.float32)
    (defect,) = node.call.defects
    device = np.ma.filled(defect.values(node.call, {name: x}), np.float32(-7e30))
    raw = PackedBuffer.pack(device, node.call.out.layout).raw.tobytes()
    printed, content = bisected(path, x, lambda _: raw, tmp_path, capsys)
    (line,) = [line for line in printed.splitlines() if line.startswith("cause: ")]
    assert text in line and text in next(iter(content["causes"].values()))


# --- files that no runtime takes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "need"),
    [
        (linear((3, 30)), "K is no multiple of 4"),
        (linear((3, 32), out=10), "N is no multiple of 4"),
        (embedding(group=24)[0], "group_size does not divide"),
    ],
)
def test_refused(data: bytes, need: str) -> None:
    with pytest.raises(RefsimError, match=need):
        graph_of(data)
