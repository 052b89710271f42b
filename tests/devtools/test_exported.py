"""Exported programs in .pt2 files and ETRecords, read without torch."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from refsim.core.errors import FormatError, LimitError
from refsim.devtools.program import MOST_BYTES, parse
from refsim.devtools.record import read_exported
from refsim.graph.origin import Frame

NET = Path(__file__).parents[1] / "data" / "devtools"
TRACE = (
    'File "a b.py", line 7, in forward\n    x = self.stem(x)\n           ^^^^^^\n'
    '  File "/v/site-packages/torch/nn/modules/conv.py", line 565, in forward\n    return self._conv_forward(x)\n'
)


def program(**changes: Any) -> bytes:
    """The JSON of a program of one operator."""
    node = {
        "target": "torch.ops.aten.cat.default",
        "inputs": [{"name": "tensors", "arg": {"as_tensors": [{"name": "x"}, {"name": "w"}]}, "kind": 1},
                   {"name": "dim", "arg": {"as_int": 1}, "kind": 1}],
        "outputs": [{"as_tensor": {"name": "cat"}}],
        "metadata": {"stack_trace": TRACE, "nn_module_stack": "k,,Net;k2,L['self'].a.b,m.Block", "debug_handle": "12"},
    }  # fmt: skip
    specs = [{"user_input": {"arg": {"as_tensor": {"name": "x"}}}}, {"parameter": {"arg": {"name": "w"}}}]
    sizes = {"x": {"sizes": [{"as_int": 2}]}, "cat": {"sizes": [{"as_expr": {"expr_str": "s0"}}]}}
    graph = {"nodes": [{**node, **changes}], "tensor_values": sizes}
    return json.dumps({"graph_module": {"graph": graph, "signature": {"input_specs": specs}}}).encode()


def test_an_operator() -> None:
    found = parse(program(), "p")
    (node,) = found.nodes
    assert (node.target, node.inputs, node.outputs) == ("aten.cat.default", ("x", "w"), ("cat",))
    assert (node.numbers, node.module, node.module_type, node.handle) == ({"dim": 1}, "a.b", "Block", 12)
    assert found.inputs == ("x",) and found.shapes == {"x": (2,), "cat": None}
    assert found.computed == {"x", "cat"}
    assert [frame.is_torch for frame in node.frames] == [False, True]
    assert node.own_frame == Frame("a b.py", 7, "forward", "x = self.stem(x)")


def test_traces() -> None:
    for trace in ("", "File", 'File "', 'File "a", line x, in f', 'File "a", line 1', "x" * 1000):
        (node,) = parse(program(metadata={"stack_trace": trace}), "p").nodes
        assert len(node.frames) <= 1
    many = 'File "a", line 1, in f\n' * 5000
    (node,) = parse(program(metadata={"stack_trace": many}), "p").nodes
    assert len(node.frames) == 256


@pytest.mark.parametrize(
    "changes",
    [{"target": 3}, {"inputs": [{}]}, {"outputs": 5}, {"metadata": None}, {"metadata": {"stack_trace": []}}],
)
def test_damage(changes: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match=r"^p: not a torch.export program"):
        parse(program(**changes), "p")


def test_files_that_are_none(tmp_path: Path) -> None:
    for members, match in (
        ({"x": b""}, "holds no exported program"),
        ({"ETRECORD_V0": b""}, "holds no program of this method"),
        ({"ETRECORD_V0": b"", "exported_program": b"{}"}, "not a torch.export program"),
        ({"m/models/model.json": b"["}, "not JSON"),
    ):
        with zipfile.ZipFile(tmp_path / "z", "w") as file:
            for name, data in members.items():
                file.writestr(name, data)
        with pytest.raises(FormatError, match=match):
            read_exported(tmp_path / "z")
    with zipfile.ZipFile(tmp_path / "z", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("m/models/model.json", b" " * (MOST_BYTES + 1))
    with pytest.raises(LimitError, match="too large"):
        read_exported(tmp_path / "z")
    with pytest.raises(FormatError, match="not an ETRecord"):
        read_exported(NET / "net.pte")
