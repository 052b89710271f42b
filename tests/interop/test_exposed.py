"""ExecuTorch's own readers load exposed files, and see in them what was appended."""

from __future__ import annotations

from pathlib import Path

import executorch.backends.vulkan.serialization.vulkan_graph_serialize as serialize
import pytest
from executorch.exir._serialize._program import deserialize_pte_binary

from interop.test_serialization import MODELS, assert_equal, to_theirs
from refsim.device.expose import ExposeOptions, expose
from refsim.device.manifest import VALUES
from refsim.formats.pte.read import load, read_pte

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
