"""Makes the files of tests/data/devtools with ExecuTorch: python -m tests.interop.devtools_files [FOLDER].

Names of files in stack traces are made relative, so that nothing in them depends on the machine. Archives are deflated.
"""

from __future__ import annotations

import io
import linecache
import logging
import re
import struct
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.devtools.etdump import schema_flatcc as flatcc
from executorch.devtools.etdump.serialize import serialize_to_etdump_flatcc
from executorch.exir import to_edge_transform_and_lower
from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer

from refsim.exec.model import load
from refsim.graph.graph import Graph
from refsim.graph.interpreter import Event, Observer, logical
from tests.lowering.quantize import quantize

FOLDER = Path(__file__).parents[1] / "data" / "devtools"
_PACKAGES = re.compile(rb'[^" ]*/(site-packages/)')


def network() -> torch.nn.Module:
    """The network of net.py, whose code calls itself ``net.py`` wherever it is run."""
    text = (FOLDER / "net.py").read_text()
    linecache.cache["net.py"] = (len(text), None, text.splitlines(True), "net.py")
    names: dict[str, Any] = {"__name__": "net"}
    exec(compile(text, "net.py", "exec"), names)  # our own file
    torch.manual_seed(1)
    made = names["Net"]()
    assert isinstance(made, torch.nn.Module)
    return made


def example_input() -> torch.Tensor:
    return torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(2))


def make(folder: Path) -> None:
    x = example_input()
    program = quantize(network(), [x])
    made = io.BytesIO()
    torch.export.save(program, made)
    (folder / "net.pt2").write_bytes(_portable(made.getvalue()))
    logging.disable(logging.WARNING)
    edge = to_edge_transform_and_lower(program, partitioner=[VulkanPartitioner()], generate_etrecord=True)
    lowered = edge.to_executorch()
    logging.disable(logging.NOTSET)
    (folder / "net.pte").write_bytes(lowered.buffer)
    write_etdump(folder, x.numpy())
    record = lowered.get_etrecord()
    record.update_representative_inputs([[x]])
    made = io.BytesIO()
    record.save(made)
    (folder / "net.etrecord").write_bytes(_portable(made.getvalue()))


def write_etdump(folder: Path, x: np.ndarray, wrong: int | None = None) -> None:
    """An ETDump of a run of net.pte and its debug buffer, in the form that ExecuTorch's runtime gives them.

    ExecuTorch's wheels have no Vulkan backend, so the values are refsim's. Element ``wrong`` of the first delegate's
    output is off by a quarter.
    """
    calls, outputs = _calls(FOLDER / "net.pte", x)
    if wrong is not None:
        calls[0][-1].reshape(-1)[wrong] += 0.25
    buffer = bytearray(32)
    events = []
    for number, arrays in {
        0: calls[0],
        1: [calls[1][0]],
        2: calls[1],
    }.items():  # 1 is the plain kernel between them
        events += [_debug(number, array, buffer) for array in arrays]
        name = "native_call_mean.out" if number == 1 else "DELEGATE_CALL"
        events.append(flatcc.Event(_profile(name, 0, number), None, None))
    events.append(flatcc.Event(_profile("Method::execute", -1, 0), None, None))
    events += [_debug(0, array, buffer, is_output=True) for array in outputs]
    loading = [flatcc.Event(_profile("Method::init", -1, 0), None, None)]
    runs = [flatcc.RunData("Default", -1, None, loading), flatcc.RunData("Execute", -1, None, events)]
    made = serialize_to_etdump_flatcc(flatcc.ETDumpFlatCC(0, runs))
    (folder / "net.etdp").write_bytes(struct.pack("<I", len(made)) + made)
    (folder / "net.bin").write_bytes(buffer)


def _calls(path: Path, x: np.ndarray) -> tuple[dict[int, list[np.ndarray]], list[np.ndarray]]:
    """Inputs and outputs of each delegate, and the outputs of the program."""
    found: dict[int, list[np.ndarray]] = {}
    values: dict[int, dict[int, Any]] = {}
    model = load(path)

    def enter(number: int, graph: Graph, arrays: Sequence[np.ndarray]) -> None:
        found[number], values[number] = [np.array(array) for array in arrays], {}

    def tell(event: Event) -> None:
        values[event.delegate] |= event.outputs

    outputs = model.run([x], "cpu:emulated", Observer(tell, enter=enter))
    for number, graph in model.graphs.items():
        found[number] += [np.array(logical(graph, values[number], value)) for value in graph.outputs]
    return found, outputs


def _profile(name: str, chain: int, instruction: int) -> flatcc.ProfileEvent:
    return flatcc.ProfileEvent(
        name, chain, instruction, -1, None, None, 1000 + instruction, 1001 + instruction
    )


def _debug(number: int, array: np.ndarray, buffer: bytearray, is_output: bool = False) -> flatcc.Event:
    strides = [step // array.itemsize for step in array.strides]
    tensor = flatcc.Tensor(flatcc.ScalarType.FLOAT, list(array.shape), strides, len(buffer))
    value = flatcc.Value(
        "Tensor", tensor, None, None, None, None, None, flatcc.Bool(True) if is_output else None
    )
    buffer += array.tobytes()
    buffer += bytes(-len(buffer) % 64)
    chain = 2**64 - 1 if is_output else 0
    return flatcc.Event(None, None, flatcc.DebugEvent(None, chain, number, -1, None, value))


def write_runtime(folder: Path) -> None:
    """A run of another program on ExecuTorch's own runtime, with the delegate that its wheels have."""

    class Other(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = x * 2.0
            return y.mean((2, 3)) + 1, y.permute(0, 2, 3, 1)

    x = torch.arange(24.0).reshape(1, 2, 3, 4)
    edge = to_edge_transform_and_lower(torch.export.export(Other(), (x,)), partitioner=[XnnpackPartitioner()])
    program = edge.to_executorch().buffer  # the runtime reads it as long as it runs
    module = _load_for_executorch_from_buffer(program, enable_etdump=True, debug_buffer_size=1 << 11)
    module.forward([x])
    module.write_etdump_result_to_file(str(folder / "runtime.etdp"), str(folder / "runtime.bin"))


def _portable(archive: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(made, "w") as new:
        for info in old.infolist():
            row = zipfile.ZipInfo(info.filename)
            # torch reads stored members only; refsim and ExecuTorch read both
            row.compress_type = (
                zipfile.ZIP_DEFLATED if "ETRECORD_V0" in old.namelist() else zipfile.ZIP_STORED
            )
            new.writestr(row, _PACKAGES.sub(rb"\1", old.read(info)))
    return made.getvalue()


if __name__ == "__main__":
    made = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    make(made)
    write_runtime(made)
