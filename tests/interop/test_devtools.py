"""ExecuTorch's developer tools beside refsim's reading of their files."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from executorch.devtools import Inspector
from executorch.devtools.etrecord import parse_etrecord

import refsim
from refsim.devtools.etdump_file import read_etdump
from refsim.devtools.origins import origins
from refsim.devtools.record import read_exported
from refsim.exec.model import load
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


@pytest.mark.parametrize("wrong", [None, 137])
def test_a_comparator_for_the_inspector(tmp_path: Path, wrong: int | None) -> None:
    """The example of docs/devtools.md: the gap of each delegate call, seen by the Inspector itself."""
    x = devtools_files.example_input()
    devtools_files.write_etdump(tmp_path, x.numpy(), wrong)
    inspector = Inspector(
        etdump_path=str(tmp_path / "net.etdp"), debug_buffer_path=str(tmp_path / "net.bin"),
        etrecord=str(COMMITTED / "net.etrecord"),
    )  # fmt: skip
    comparator = refsim.inspector_comparator(COMMITTED / "net.pte")
    table = inspector.calculate_numeric_gap(comparator)
    assert len(table) == 2
    assert [gap for gaps in table["gap"] for gap in gaps] == [float(wrong is not None), 0.0]
    assert set(table["runtime_ops"][0]) == {"DELEGATE_CALL"} and len(table["aot_ops"][0]) > 9
    first, second = comparator.gaps
    assert (first.delegate, first.value, first.elements) == (0, "delegate0_v77", 512)
    assert (second.differing, second.steps, second.largest) == (0, 0, 0.0)
    if wrong is not None:
        assert first.first == (0, 2, 1, 1) and first.largest == pytest.approx(0.25, abs=1e-6)
    largest = inspector.calculate_numeric_gap(refsim.inspector_comparator(COMMITTED / "net.pte", "largest"))
    assert largest["gap"][0] == [first.largest]


def test_an_etdump_as_devtools_reads_it(tmp_path: Path) -> None:
    """Events, tensors and values of a real run of ExecuTorch's runtime."""
    devtools_files.write_runtime(tmp_path)
    for folder in (tmp_path, COMMITTED):
        inspector = Inspector(
            etdump_path=str(folder / "runtime.etdp"), debug_buffer_path=str(folder / "runtime.bin")
        )
        (block,) = [block for block in inspector.event_blocks if block.name == "Execute"]
        ours = read_etdump(folder / "runtime.etdp", folder / "runtime.bin")
        (run,) = ours.executions()
        held = ours.arguments(run)
        names = [event.profile.name or event.profile.delegate_name for event in run.events if event.profile]
        assert names == [event.name for event in block.events]
        compared = 0
        for event in block.events:
            if event.debug_data:
                for mine, theirs in zip(held[event._instruction_id], event.debug_data, strict=True):
                    assert mine is not None and np.array_equal(mine, theirs.numpy())
                    compared += 1
        assert compared > 4
