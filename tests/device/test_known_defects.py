"""A run on a runtime that ignores groups: triage names the defect, and blames no operator behind it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from device.simulated import Bug, Runtime
from refsim.core.buffer import FILL, PackedBuffer
from refsim.core.layout import PACKED_4W4C, WIDTH_PACKED
from refsim.core.rng import Rng
from refsim.core.tensor import TensorDesc
from refsim.device.calls import add_call, tensor
from refsim.device.expose import Options, expose, write
from refsim.device.triage import triage
from refsim.device.verdicts import SAME, WRONG, Triage
from refsim.formats.pte.edit import single_delegate
from refsim.formats.vkgraph.edit import GraphEditor
from refsim.golden import known
from refsim.graph.graph import Node
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.q8ta_conv2d_pw import GROUPS_IGNORED

IMAGE = TensorDesc((1, 8, 3, 4), WIDTH_PACKED, "float32")
SCALE, ZP = 0.02, 5


def pointwise() -> BoundCase:
    params = dict(in_scale=SCALE, in_zp=ZP, out_scale=1.5, out_zp=-9, kernel_size=(1, 1), groups=2)
    return bind(
        Case("q8ta_conv2d_pw", params, {"x": (IMAGE.shape, "4W4C")}, "4W4C", features={"out_channels": 8})
    )


def add(graph: GraphEditor, op: str, x: int, given: TensorDesc, out: TensorDesc, **params: object) -> int:
    """A quantize or dequantize of a tensor."""
    spec = OPS[op]
    call = spec.bind(spec.make_params(params), {"x": given}, {}, out.layout, out_shape=out.shape)
    number = tensor(graph, out)
    add_call(graph, call, {"x": x}, number)
    return number


def quantized() -> bytes:
    """quantize, a pointwise convolution in two groups, dequantize."""
    graph, call = GraphEditor(), pointwise().call
    q = TensorDesc(IMAGE.shape, PACKED_4W4C)
    x = graph.input(tensor(graph, IMAGE))
    packed = add(graph, "q8ta_quantize", x, IMAGE, q, scale=SCALE, zp=ZP)
    add_call(graph, call, {"x": packed}, made := tensor(graph, call.out))
    graph.output(add(graph, "q8ta_dequantize", made, call.out, IMAGE, scale=1.5, zp=-9))
    return single_delegate(graph.blob(), [("float32", IMAGE.shape)], [("float32", IMAGE.shape)])


def ignored(node: Node, inputs: dict[str, PackedBuffer], right: PackedBuffer) -> PackedBuffer:
    if node.call is None or GROUPS_IGNORED not in node.call.defects:
        return right
    found = known.expected(BoundCase(pointwise().case, node.call, dict(inputs)), GROUPS_IGNORED, FILL)
    assert found is not None
    return found[0]


def ran(folder: Path, data: bytes, bug: Bug) -> Triage:
    path, outputs = folder / "m.pte", folder / "o.npz"
    path.write_bytes(data)
    exposed = list(expose(path, Options(), name="e.pte"))
    write(folder / "e.pte", exposed)
    x = Rng(3).uniform(-2, 2, IMAGE.shape).astype(np.float32)
    made = Runtime(exposed[0].data, bug=bug).run([x])
    np.savez(outputs, **{f"out{number}": array for number, array in enumerate(made)})
    return triage([(folder / "e.pte", [outputs])], [x])


def test_ignored_groups(tmp_path: Path) -> None:
    found = ran(tmp_path, quantized(), ignored)
    assert [v.kind for v in found.verdicts] == [SAME, WRONG, SAME]
    assert found.verdicts[1].row.cause == GROUPS_IGNORED.note
