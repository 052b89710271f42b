"""ExecuTorch's serialization reads our blobs, ours reads theirs, and both see the same graph."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import executorch.backends.vulkan.serialization.vulkan_graph_schema as theirs
import executorch.backends.vulkan.serialization.vulkan_graph_serialize as serialize
import pytest
import torch
from executorch.exir._serialize._program import deserialize_pte_binary
from lowering.networks import NETWORKS, program

from refsim.device.expose import ExposeOptions, expose
from refsim.device.manifest import VALUES
from refsim.formats import literals
from refsim.formats.pte.read import load, read_pte
from refsim.formats.vkgraph import schema as ours
from refsim.formats.vkgraph.read import read_blob
from refsim.formats.vkgraph.write import pack_constants, write_blob
from refsim.partition.container import write
from refsim.partition.lower import lower

MODELS = sorted((Path(__file__).parents[1] / "data" / "models").glob("*.pte"))
LISTS = (literals.IntList, literals.DoubleList, literals.BoolList, ours.ValueList)
ENUMS = {
    "datatype": theirs.VkDataType,
    "staging_datatype": theirs.VkDataType,
    "storage_type": theirs.VkStorageType,
    "memory_layout": theirs.VkMemoryLayout,
}


def to_theirs(graph: ours.VkGraph) -> theirs.VkGraph:
    """The same graph in their classes, field by field."""
    return theirs.VkGraph(
        graph.version,
        [theirs.OperatorCall(call.node_id, call.name, list(call.args)) for call in graph.chain],
        [theirs.VkValue(value_to_theirs(value)) for value in graph.values],
        list(graph.input_ids),
        list(graph.output_ids),
        [theirs.VkBytes(part.offset, part.length, part.named_key) for part in graph.constants],
        [],
    )


def value_to_theirs(value: Any) -> Any:
    kind = getattr(theirs, type(value).__name__)
    if isinstance(value, literals.Null):
        return kind()
    if isinstance(value, ours.VkTensor):
        fields = {name: getattr(value, name) for name in value.__slots__}
        return kind(
            **{n: ENUMS[n](v) if n in ENUMS else list(v) if n == "dims" else v for n, v in fields.items()}
        )
    if isinstance(value, LISTS):
        return kind(list(value.items))
    return kind(value.value)


def assert_equal(graph: theirs.VkGraph, other: theirs.VkGraph) -> None:
    """Field by field; their reader prints doubles and gives them back rounded to the last digit that it prints."""
    assert len(graph.values) == len(other.values)
    for number, (one, two) in enumerate(zip(graph.values, other.values, strict=True)):
        assert type(one.value) is type(two.value), number
        if isinstance(one.value, theirs.Double):
            assert math.isclose(one.value.double_val, two.value.double_val, rel_tol=1e-6), number
        else:
            assert one == two, number
    for name in ("version", "chain", "input_ids", "output_ids", "constants", "shaders"):
        assert getattr(graph, name) == getattr(other, name), name


def check_both_ways(graph: ours.VkGraph, constants: list[bytes]) -> None:
    converted = to_theirs(graph)
    # theirs reads ours
    rows, raw = pack_constants(constants)
    inline = ours.VkGraph(graph.version, graph.chain, graph.values, graph.input_ids, graph.output_ids, rows)
    for written, data in ((graph, b""), (inline, raw)):
        blob = write_blob(written, data)
        header = serialize.VulkanDelegateHeader.from_bytes(blob[:30])
        assert header.is_valid() and header.bytes_size == len(data)
        found = serialize.flatbuffer_to_vk_graph(serialize.extract_vk_flatbuffer(blob))
        assert_equal(found, to_theirs(written))
        assert blob[header.bytes_offset : header.bytes_offset + header.bytes_size] == data
    # ours reads theirs: with named data, and with the constants in the blob
    named = [(part.named_key, part.length) for part in graph.constants]
    converted.constants = []
    assert read_blob(serialize.serialize_vulkan_graph(converted, named, [])).graph == graph
    tensors = [torch.frombuffer(bytearray(data), dtype=torch.uint8) for data in constants]
    converted = to_theirs(graph)
    converted.constants = []
    blob = read_blob(serialize.serialize_vulkan_graph(converted, tensors, []))
    assert blob.graph == inline
    assert [bytes(part) for part in blob.constants] == constants


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_bundled(path: Path) -> None:
    container = load(path)
    for _number, blob in container.blobs(container.plan()):
        check_both_ways(blob.graph, [bytes(part) for part in blob.constants])


@pytest.mark.parametrize("name", ["Residuals", "FloatIslands", "Attention", "Classifier", "SharedWeights"])
def test_lowered(name: str) -> None:
    assert name in NETWORKS
    for delegate in lower(program(name)[0], name).delegates:
        graph = delegate.serialized.graph
        check_both_ways(graph, [delegate.serialized.data[row.named_key] for row in graph.constants])


@pytest.mark.parametrize("name", ["TwoDelegates", "Classifier", "FloatConvolution"])
def test_whole_files(name: str) -> None:
    """ExecuTorch reads the .pte around the delegates: plan, delegates, named data, constants of plain kernels."""
    lowered = lower(program(name)[0], name)
    file = deserialize_pte_binary(write(lowered))
    (plan,) = file.program.execution_plan
    assert [delegate.id for delegate in plan.delegates] == ["VulkanBackend"] * len(lowered.delegates)
    for delegate, made in zip(plan.delegates, lowered.delegates, strict=True):
        data = file.program.backend_delegate_data[delegate.processed.index].data
        found = serialize.flatbuffer_to_vk_graph(serialize.extract_vk_flatbuffer(bytes(data)))
        assert_equal(found, to_theirs(made.serialized.graph))
    instructions = [type(i.instr_args).__name__ for i in plan.chains[0].instructions]
    assert instructions == [
        "KernelCall" if call.delegate is None else "DelegateCall"
        for call in lowered.schedule
        if call.node is None or not lowered.core.is_constant(call.node)
    ]
    assert len(plan.inputs) == len(lowered.core.inputs())
    assert len(plan.outputs) == len(lowered.core.outputs())
    wanted = {key: data for d in lowered.delegates for key, data in d.serialized.data.items()}
    stored = {
        key: bytes(file.named_data.buffers[e.buffer_index]) for key, e in file.named_data.pte_data.items()
    }
    assert stored == wanted


# --- exposed files ---


MODES = (ExposeOptions(), ExposeOptions(fill=None, share=True), ExposeOptions(VALUES, fill=None))


@pytest.mark.parametrize("options", MODES, ids=str)
@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_exposed_files_load(path: Path, options: ExposeOptions) -> None:
    (exposed,) = expose(path, options)
    file = deserialize_pte_binary(exposed.data)
    ours = read_pte(exposed.data)
    (plan,) = file.program.execution_plan
    rows = exposed.manifest.outputs
    assert len(plan.outputs) == len(rows)
    tensors = [plan.values[number].val for number in plan.outputs]
    assert [(t.scalar_type.name, tuple(t.sizes)) for t in tensors] == [
        ({"int32": "INT", "float32": "FLOAT"}[row.dtype], row.shape) for row in rows
    ]
    assert tuple(plan.non_const_buffer_sizes) == ours.plan().arena_sizes
    for delegate, (_, blob) in zip(plan.delegates, ours.blobs(ours.plan()), strict=True):
        data = file.program.backend_delegate_data[delegate.processed.index].data
        found = serialize.flatbuffer_to_vk_graph(serialize.extract_vk_flatbuffer(bytes(data)))
        assert_equal(found, to_theirs(blob.graph))
    source = load(path)
    stored = {k: bytes(file.named_data.buffers[e.buffer_index]) for k, e in file.named_data.pte_data.items()}
    assert stored == {key: bytes(value) for key, value in source.named_data.items()}
