"""Whole files: the bytes of every buffer are those of ExecuTorch's own Vulkan runtime."""

from __future__ import annotations

import json
import zipfile
from functools import cache

import numpy as np
import pytest
from exec.recorded import DATA, inputs

import refsim
from refsim.core.buffer import PackedBuffer
from refsim.core.layout import BY_SCHEMA_VALUE, PACKED_4C, PACKED_4C1W, PACKED_CONV2D
from refsim.exec.model import Model
from refsim.graph.interpreter import Event

MODELS = DATA / "models"
NAMES = sorted(path.stem for path in MODELS.glob("*.pte"))


@cache
def model(name: str) -> Model:
    return refsim.load(MODELS / f"{name}.pte")


@cache
def events(name: str) -> list[Event]:
    """What every node computes of the recorded input."""
    seen: list[Event] = []
    model(name).run(inputs(MODELS / f"{name}.pte"), observe=seen.append)
    return seen


def dumped(name: str) -> list[tuple[int, dict, np.ndarray | None]]:
    """(delegate, entry, raw bytes or None) of every value in the dump of upstream's run."""
    found = []
    with zipfile.ZipFile(MODELS / f"{name}.dump.zip") as archive:
        for number in sorted(int(n[8:-5]) for n in archive.namelist() if n.endswith(".json")):
            for entry in json.loads(archive.read(f"delegate{number}.json")):
                raw = archive.read(entry["raw"]) if entry.get("raw") else None
                found.append((number, entry, None if raw is None else np.frombuffer(raw, np.uint8)))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_packed_buffer(name: str) -> None:
    """Equal to the dump in every byte that the operator which wrote it defines on a device."""
    written = {(e.delegate, v): (e.node, b) for e in events(name) for v, b in e.outputs.items()}
    compared = 0
    for delegate, entry, raw in dumped(name):
        if not entry["int8x4"]:
            continue
        node, buffer = written.pop((delegate, entry["fb_value_id"]))
        assert isinstance(buffer, PackedBuffer)
        assert raw is not None
        defined = node.call.device_defined() if node.call else np.ones(buffer.raw.size, bool)
        wrong = np.flatnonzero((buffer.raw != raw[: buffer.raw.size]) & defined)
        assert not wrong.size, f"delegate {delegate}, {node}: {wrong.size} bytes differ, first at {wrong[0]}"
        compared += 1
    assert compared
    left = [node for node, b in written.values() if isinstance(b, PackedBuffer) and b.desc.is_int8]
    assert not left, "int8 values that the dump does not have"


@pytest.mark.parametrize("name", NAMES)
def test_resolved_layouts(name: str) -> None:
    """Layout, sizes and strides of each value are those that upstream's runtime resolved."""
    for delegate, entry, _ in dumped(name):
        if not entry["int8x4"]:
            continue
        tensor = model(name).graphs[delegate].tensors[entry["fb_value_id"]]
        assert tensor.layout is BY_SCHEMA_VALUE[entry["memory_layout_enum"]]
        desc = tensor.desc
        assert desc is not None
        assert list(desc.shape) == entry["sizes"]
        rank = len(desc.shape)
        assert list(reversed(desc.strides_whcn))[4 - rank :] == entry["strides"]
        theirs = int(entry["hashed_layout"], 16)
        assert desc.hashed >> 16 == theirs >> 16
        assert rank < 4 or desc.hashed == theirs


@pytest.mark.parametrize("name", NAMES)
def test_chain(name: str) -> None:
    """Operators in upstream's order, each tensor in the layout of the file unless that is still open."""
    for delegate, operators in enumerate(json.loads((MODELS / f"{name}.chain.json").read_text())):
        graph = model(name).graphs[delegate]
        assert [node.name for node in graph.nodes] == [operator["op"] for operator in operators]
        for operator in operators:
            for value, text in operator["tensors"].items():
                stored, storage = text.split(":")
                ours = graph.tensors[int(value)].layout
                assert ours is not None
                if stored == PACKED_CONV2D.name:
                    assert (
                        ours in (PACKED_4C, PACKED_4C1W) or ours.packed_dim_info == PACKED_4C.packed_dim_info
                    )
                elif storage == "BUFFER":
                    assert ours.name == stored
