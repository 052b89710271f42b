"""expose --verify: what expose writes passes, and a file that computes something else is refused for its reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from refsim.core.errors import GraphError
from refsim.device.expose import Exposed, ExposeOptions, expose
from refsim.device.strip import verify
from refsim.exec.model import load
from refsim.formats.pte.read import read_pte
from refsim.formats.pte.write import write_pte
from refsim.formats.vkgraph.schema import VkGraph, VkTensor
from refsim.formats.vkgraph.write import write_blob

MODELS = Path(__file__).parents[1] / "data" / "models"
NET = MODELS / "linear_head.pte"

Change = Callable[[VkGraph, bytearray], VkGraph]


def edited(file: Exposed, change: Change) -> Exposed:
    """The file with another graph in its first delegate."""
    pte = read_pte(file.data, "m.pte")
    ((_, blob), *_) = pte.blobs(pte.plan())
    place = pte.plan().delegates[0].processed
    assert place is not None
    raw = bytearray(blob.constants.raw)
    graph = change(blob.graph, raw)
    segments: list[memoryview | bytes] = list(pte.segments)
    segments[place.index] = write_blob(graph, bytes(raw), "m.pte")
    return replace(file, data=write_pte(pte.program, segments))


def another_operand(graph: VkGraph, raw: bytearray) -> VkGraph:
    at = next(n for n, call in enumerate(graph.chain) if "linear" in call.name)
    call = graph.chain[at]
    other = next(n for n, row in enumerate(graph.values) if type(row) is not VkTensor and n not in call.args)
    changed = replace(call, args=(call.args[0], other, *call.args[2:]))
    return replace(graph, chain=(*graph.chain[:at], changed, *graph.chain[at + 1 :]))


def another_weight(graph: VkGraph, raw: bytearray) -> VkGraph:
    """Two constants of one length change their places."""
    rows = list(graph.constants)
    one, other = next((m, n) for n in range(len(rows)) for m in range(n) if rows[m].length == rows[n].length)
    rows[one], rows[other] = rows[other], rows[one]
    return replace(graph, constants=tuple(rows))


def another_dtype(graph: VkGraph, raw: bytearray) -> VkGraph:
    number = graph.input_ids[0]
    row = graph.values[number]
    assert isinstance(row, VkTensor)
    changed = replace(row, memory_layout=row.memory_layout + 1)
    return replace(graph, values=(*graph.values[:number], changed, *graph.values[number + 1 :]))


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("way", [None, "values"])
@pytest.mark.parametrize("name", ["linear_head", "mixed_ops"])
def test_what_expose_writes_is_unchanged(name: str, way: str | None, share: bool) -> None:
    path = MODELS / f"{name}.pte"
    model = load(path)
    (file,) = expose(path, ExposeOptions(way, share, None if share or way else 0x5A))
    found = verify(model, file)
    assert found.operators == sum(len(graph.nodes) for graph in model.graphs.values())
    assert found.outputs == file.manifest.own
    assert found.handed == len(file.manifest.outputs) - file.manifest.own


@pytest.mark.parametrize(
    ("change", "what"),
    [(another_operand, "operators"), (another_weight, "values"), (another_dtype, "values")],
)
def test_another_program_is_refused(change: Change, what: str) -> None:
    (file,) = expose(NET, ExposeOptions(None, False, 0x5A))
    with pytest.raises(GraphError, match=f"{what} changed when values were exposed"):
        verify(load(NET), edited(file, change))


def test_memory_that_is_written_again_is_refused() -> None:
    """A fill that runs behind the writer of a value is what the reader of that value gets."""
    (file,) = expose(NET, ExposeOptions(None, False, 0x5A))
    source = load(NET)
    quantized = source.graphs[0].nodes[1].inputs["x"]

    def late(graph: VkGraph, raw: bytearray) -> VkGraph:
        fill = next(n for n, call in enumerate(graph.chain) if quantized in _together(graph, call.args[-1]))
        reader = next(n for n, call in enumerate(graph.chain) if quantized in call.args[:-1])
        rest = [call for n, call in enumerate(graph.chain) if n != fill]
        return replace(graph, chain=(*rest[: reader - 1], graph.chain[fill], *rest[reader - 1 :]))

    with pytest.raises(GraphError, match="reads memory that was written again"):
        verify(source, edited(file, late))


def _together(graph: VkGraph, number: int) -> set[int]:
    """The values in the memory of a value, which is none of them."""
    mine = graph.values[number]
    if not isinstance(mine, VkTensor) or mine.mem_obj_id < 0:
        return set()
    held = [row.mem_obj_id if isinstance(row, VkTensor) else None for row in graph.values]
    return {n for n, memory in enumerate(held) if memory == mine.mem_obj_id} - {number}
