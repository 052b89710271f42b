"""The bundled programs: the same operators, order and layouts as ExecuTorch chose, and the bytes of its runtime."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch.ao.quantization.fx._decomposed
import torch.export

import refsim
from refsim.core.layout import BY_SCHEMA_VALUE
from refsim.formats.vkgraph.read import read_blob
from refsim.formats.vkgraph.schema import STORAGES, VkGraph, VkTensor
from refsim.partition.container import write
from refsim.partition.lower import Lowered, lower

MODELS = Path(__file__).parents[1] / "data" / "models"
NAMES = sorted(path.stem for path in MODELS.glob("*.pt2"))


@pytest.fixture(scope="module", params=NAMES)
def model(request: pytest.FixtureRequest) -> tuple[str, Lowered]:
    return request.param, lower(torch.export.load(MODELS / f"{request.param}.pt2"), request.param)


def chain(graph: VkGraph, ids: list[str] | None = None) -> list[tuple[str, list[tuple[str, str]]]]:
    """Operators with their activations: a number by first appearance, and layout and storage."""
    numbers: dict[int, str] = {}
    found = []
    for call in graph.chain:
        tensors = []
        for number in call.args:
            value = graph.values[number]
            if isinstance(value, VkTensor) and not value.is_constant:
                name = numbers.setdefault(number, f"t{len(numbers)}")
                row = BY_SCHEMA_VALUE[value.memory_layout].name
                tensors.append((name, f"{row}:{STORAGES[value.storage_type]}"))
        found.append((call.name, tensors))
    return found


def recorded(operators: list[dict]) -> list[tuple[str, list[tuple[str, str]]]]:
    numbers: dict[str, str] = {}
    return [
        (o["op"], [(numbers.setdefault(i, f"t{len(numbers)}"), place) for i, place in o["tensors"].items()])
        for o in operators
    ]


def test_there_are_programs() -> None:
    assert NAMES == ["linear_head", "linear_head_gemv", "mixed_ops", "refine_seg"]


def test_chain(model: tuple[str, Lowered]) -> None:
    name, lowered = model
    expected = json.loads((MODELS / f"{name}.chain.json").read_text())
    assert [chain(d.serialized.graph) for d in lowered.delegates] == [recorded(ops) for ops in expected]
    assert not any(d.transitions for d in lowered.delegates)


def test_bytes_of_the_runtime(model: tuple[str, Lowered], tmp_path: Path) -> None:
    name, lowered = model
    path = tmp_path / "model.pte"
    path.write_bytes(write(lowered))
    recorded_io = np.load(MODELS / f"{name}.io.npz")
    (out,) = refsim.load(path).run([recorded_io["in0"]])
    assert out.tobytes() == recorded_io["upstream_out0"].tobytes()


def test_blobs_stand_alone(model: tuple[str, Lowered]) -> None:
    name, lowered = model
    for delegate in lowered.delegates:
        blob = read_blob(delegate.serialized.blob(name), name)
        keys = [row.named_key for row in delegate.serialized.graph.constants]
        assert [bytes(part) for part in blob.constants] == [delegate.serialized.data[key] for key in keys]
        assert blob.graph.values == delegate.serialized.graph.values


def test_equal_bytes_every_time(model: tuple[str, Lowered]) -> None:
    name, lowered = model
    again = lower(torch.export.load(MODELS / f"{name}.pt2"), name)
    assert write(again) == write(lowered)
    for one, other in zip(again.delegates, lowered.delegates, strict=True):
        assert one.serialized.blob() == other.serialized.blob()


def test_what_was_refused(model: tuple[str, Lowered]) -> None:
    name, lowered = model
    expected = {"mixed_ops": [("arguments", "mean")]}.get(name, [])
    assert [(r.code, r.node) for r in lowered.refusals] == expected
    assert not lowered.unfused
