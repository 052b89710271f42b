"""ExecuTorch's developer tools beside refsim's reading of their files."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from executorch.devtools.etrecord import parse_etrecord

from refsim.exec.model import load
from refsim.formats.exported.files import read_exported
from refsim.graph.origins import origins
from tests.interop import devtools_files

COMMITTED = devtools_files.FOLDER


def test_files_are_made_again(tmp_path: Path) -> None:
    """What this ExecuTorch writes is read as what is committed, and leads to the same lines."""
    devtools_files.make(tmp_path)
    for record in ("net.pt2", "net.etrecord"):
        found, held = (
            origins(load(folder / "net.pte").graphs, read_exported(folder / record).program)
            for folder in (tmp_path, COMMITTED)
        )
        assert found.keys() == held.keys() and len(held) == 14
        for place, origin in found.items():
            assert [f.line for f in origin.frames] == [f.line for f in held[place].frames]
            assert origin.module == held[place].module


def test_an_etrecord_as_devtools_reads_it() -> None:
    """The same operators, tensors, stack traces and debug handles."""
    theirs = parse_etrecord(str(COMMITTED / "net.etrecord"))
    ours = read_exported(COMMITTED / "net.etrecord")
    nodes = [n for n in theirs.edge_dialect_program.graph.nodes if n.op == "call_function"]
    assert [n.name for n in nodes] == [node.outputs[0] for node in ours.program.nodes]
    assert [n.meta["debug_handle"] for n in nodes] == [node.handle for node in ours.program.nodes]
    for node, mine in zip(nodes, ours.program.nodes, strict=True):
        files = [line for line in (node.meta.get("stack_trace") or "").splitlines() if 'File "' in line]
        assert len(files) == len(mine.frames)
    handles = theirs._debug_handle_map["forward"]
    as_sets = {int(k): frozenset(v if isinstance(v, list) else [v]) for k, v in handles.items()}
    assert as_sets == dict(ours.handles)


def test_why_debug_handles_are_not_followed() -> None:
    """The Vulkan backend's own handles are places in the delegate: the last of them are no operators of that part."""
    with zipfile.ZipFile(COMMITTED / "net.etrecord") as file:
        delegates = json.loads(file.read("delegate_map"))["forward"]
    ours = read_exported(COMMITTED / "net.etrecord")
    second = {handle for handles in delegates["2"]["delegate_map"].values() for handle in handles}
    assert not second & ours.handles[2]  # not one of them lies in the delegate
