"""A run on a runtime that ignores groups: triage names the defect, and blames no operator behind it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from saved import arrays

from device.simulated import Bug, Runtime, no_bug
from refsim.aten.convolution import DEFECTS
from refsim.cli.kit.program import main
from refsim.core.buffer import FILL, PackedBuffer
from refsim.core.layout import PACKED_4W4C, WIDTH_PACKED
from refsim.core.rng import Rng
from refsim.core.tensor import TensorDesc
from refsim.device.calls import add_call, tensor
from refsim.device.collect import write as write_dump
from refsim.device.expose import ExposeOptions, expose, write
from refsim.device.triage import triage
from refsim.device.verdicts import FOLLOWS, SAME, WRONG, Triage
from refsim.formats.pte.edit import single_delegate
from refsim.formats.pte.read import read_pte
from refsim.formats.vkgraph.edit import GraphEditor
from refsim.golden import judge
from refsim.graph.build import build
from refsim.graph.graph import Node
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.q8ta_add import ALPHA_IGNORED
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


def added() -> bytes:
    """quantize, a sum with half of itself, dequantize."""
    graph, q = GraphEditor(), TensorDesc(IMAGE.shape, PACKED_4W4C)
    spec = OPS["q8ta_add"]
    params = spec.make_params(
        dict(a_scale=SCALE, a_zp=ZP, b_scale=SCALE, b_zp=-11, out_scale=0.03, out_zp=-9, alpha=0.5)
    )
    call = spec.bind(params, {"a": q, "b": q}, {}, q.layout, out_shape=q.shape)
    packed = add(graph, "q8ta_quantize", graph.input(tensor(graph, IMAGE)), IMAGE, q, scale=SCALE, zp=ZP)
    add_call(graph, call, {"a": packed, "b": packed}, made := tensor(graph, call.out))
    graph.output(add(graph, "q8ta_dequantize", made, call.out, IMAGE, scale=0.03, zp=-9))
    return single_delegate(graph.blob(), [("float32", IMAGE.shape)], [("float32", IMAGE.shape)])


def in_float(groups: int) -> bytes:
    """A float convolution of one tap, then quantize, relu, dequantize."""
    graph = GraphEditor()
    q = TensorDesc(IMAGE.shape, PACKED_4W4C)
    x = graph.input(tensor(graph, IMAGE))
    weight = graph.constant(Rng(4).floats(0.5, (8, 8 // groups, 1, 1)))
    pairs = [graph.literal(pair) for pair in ((1, 1), (0, 0), (1, 1))]
    rest = [graph.literal(value) for value in (False, (0, 0), groups)]
    made = tensor(graph, IMAGE)
    graph.call("aten.convolution.default", x, weight, graph.literal(None), *pairs, *rest, made)
    packed = add(graph, "q8ta_quantize", made, IMAGE, q, scale=SCALE, zp=ZP)
    clamped = add(graph, "q8ta_relu", packed, q, q, in_scale=SCALE, in_zp=ZP, out_scale=SCALE, out_zp=ZP)
    graph.output(add(graph, "q8ta_dequantize", clamped, q, IMAGE, scale=SCALE, zp=ZP))
    return single_delegate(graph.blob(), [("float32", IMAGE.shape)], [("float32", IMAGE.shape)])


def values_of(data: bytes) -> list[int]:
    """What the nodes but the last write."""
    pte = read_pte(data, "m.pte")
    ((_, blob),) = pte.blobs(pte.plan())
    return [node.outputs[0] for node in build(blob, "m.pte").nodes[:-1]]


def off(node: Node, inputs: Mapping[str, PackedBuffer], right: PackedBuffer) -> PackedBuffer:
    """A convolution that is wrong in each element."""
    if node.operator != "aten.convolution":
        return right
    return PackedBuffer.pack(right.unpack() + np.float32(0.5), right.desc.layout, dtype="float32")


def ignored(node: Node, inputs: Mapping[str, PackedBuffer], right: PackedBuffer) -> PackedBuffer:
    if node.call is None or GROUPS_IGNORED not in node.call.defects:
        return right
    found = judge.defective(BoundCase(pointwise().case, node.call, dict(inputs)), GROUPS_IGNORED, FILL)
    assert found is not None
    return found[0]


def ran(folder: Path, data: bytes, bug: Bug, values: tuple[str, ...] = ()) -> Triage:
    path, outputs = folder / "m.pte", folder / "o.npz"
    path.write_bytes(data)
    exposed = list(expose(path, ExposeOptions(), values, name="e.pte"))
    write(folder / "e.pte", exposed)
    x = Rng(3).uniform(-2, 2, IMAGE.shape).astype(np.float32)
    arrays(folder / "x.npz", [x], "in")
    made = Runtime(exposed[0].data, bug=bug).run([x])
    arrays(outputs, made)
    return triage([(folder / "e.pte", [outputs])], [x])


def bisected(folder: Path, found: Triage, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    """What bisect says of the dump of that run, in which something is wrong."""
    write_dump(folder / "dump", found.collected)
    line = f"bisect {folder}/m.pte -i {folder}/x.npz --actual {folder}/dump"
    assert main([*line.split(), *more]) == 1
    return capsys.readouterr().out


def test_ignored_groups(tmp_path: Path) -> None:
    found = ran(tmp_path, quantized(), ignored)
    assert [v.verdict for v in found.verdicts] == [SAME, WRONG, SAME]
    assert found.verdicts[1].row.cause == GROUPS_IGNORED.note


#: Outputs of the convolution, of quantize and of relu.
MADE, QUANTIZED, CLAMPED = (f"delegate0_v{value}" for value in values_of(in_float(groups=2)))


def test_a_float_convolution_that_is_known_to_be_wrong(tmp_path: Path) -> None:
    found = ran(tmp_path, in_float(groups=2), off, (MADE, QUANTIZED, CLAMPED))
    assert [(v.row.operator, v.verdict) for v in found.verdicts] == [
        ("aten.convolution", WRONG), ("q8ta_quantize", SAME), ("q8ta_relu", SAME), ("q8ta_dequantize", SAME),
    ]  # fmt: skip
    assert found.verdicts[0].cause == DEFECTS[0].note


def test_its_reader_is_not_blamed_where_it_was_not_dumped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ran(tmp_path, in_float(groups=2), off, (QUANTIZED, CLAMPED))
    assert [v.verdict for v in found.verdicts] == [FOLLOWS, SAME, SAME]
    assert found.same and found.verdicts[0].cause.endswith(DEFECTS[0].note)
    told = bisected(tmp_path, found, capsys)
    assert "not judged: node 1 q8ta_quantize" in told and "wrong: " not in told


def test_the_bug_beside_a_defect_is_the_cause(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """alpha ignored, as by upstream, and another zero point of b: triage and bisect name the latter."""

    def bug(node: Node, inputs: Mapping[str, PackedBuffer], right: PackedBuffer) -> PackedBuffer:
        if node.call is None or ALPHA_IGNORED not in node.call.defects:
            return right
        params = replace(node.call.params, alpha=1.0, b_zp=node.call.params.a_zp)
        return replace(node.call, params=params).expected(inputs)

    found = ran(tmp_path, added(), bug)
    assert [v.verdict for v in found.verdicts] == [SAME, WRONG, SAME]
    row = found.verdicts[1].row
    assert row.alone is not None and row.alone.causes[0].name == "another tensor's quantization"
    first = json.loads(bisected(tmp_path, found, capsys, "--json"))["report"]["causes"][0]
    assert (first["name"], first["exact"], first["weak"]) == ("another tensor's quantization", True, False)


def test_nothing_excuses_a_convolution_that_is_right_everywhere(tmp_path: Path) -> None:
    found = ran(tmp_path, in_float(groups=1), off, (QUANTIZED, CLAMPED))
    assert found.verdicts[0].verdict == WRONG and not found.verdicts[0].row.cause


@pytest.mark.parametrize("groups", [1, 2])
def test_a_runtime_that_has_no_such_defect_is_right(groups: int, tmp_path: Path) -> None:
    found = ran(tmp_path, in_float(groups), no_bug, (QUANTIZED, CLAMPED))
    assert [(v.verdict, v.cause) for v in found.verdicts] == [(SAME, "")] * 3
