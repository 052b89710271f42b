"""The stages of a model, each for a process of its own: make it, let ExecuTorch lower it, lower it, run the files.

All return plain data. Files lie in a folder per model: the quantized program, inputs, torch's outputs and ExecuTorch's
file, which no change of refsim can change; and refsim's own file.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.zoo import limited
from bench.zoo.catalogue import MODELS
from bench.zoo.limited import Row
from bench.zoo.results import off

PROGRAM, DATA, THEIRS, OURS = "program.pt2", "data.npz", "executorch.pte", "refsim.pte"
MADE, EXPORTED = "made.json", "exported.json"  # rows of the stages that are done once
#: A float output counts its steps as an int8 one would: this many in the range of torch's values.
FLOAT_STEPS = 255
NOISE = 2.0**-23  # what a sum in another order makes of a value
NOT_LOWERED: Row = {"error": None, "graph": None, "clones": 0, "clones_there": 0}
#: What is known of a file that did not load.
EMPTY: Row = {"error": None, "torch": [], "nodes": 0, "operators": [], "delegates": 0, "outputs": []}


def make(name: str, folder: Path) -> Row:
    """Write the quantized program, its inputs, and what torch computes from them."""
    import torch

    from bench.zoo.build import outputs, program, steps

    started = time.monotonic()
    exported, inputs = program(MODELS[name])
    torch.export.save(exported, str(folder / PROGRAM))
    needed = outputs(exported, inputs)
    arrays = {f"in{i}": value for i, value in enumerate(inputs)}
    arrays |= {f"out{i}": value for i, value in enumerate(needed)}
    np.savez(folder / DATA, **{key: value.detach().contiguous().numpy() for key, value in arrays.items()})
    calls = sum(node.op == "call_function" for node in exported.graph.nodes)
    row = {"scales": steps(exported), "nodes": calls, "seconds": round(time.monotonic() - started, 2)}
    (folder / MADE).write_text(json.dumps(row))
    return row


def export(folder: Path) -> Row:
    """Write ExecuTorch's file, or its error."""
    started = time.monotonic()
    row: Row = {"error": None}
    (folder / THEIRS).unlink(missing_ok=True)
    with told(row, "error"):
        (folder / THEIRS).write_bytes(executorch(folder / PROGRAM))
    row["seconds"] = round(time.monotonic() - started, 2)
    (folder / EXPORTED).write_text(json.dumps(row))
    return row


def executorch(path: Path) -> bytes:
    """The file that ExecuTorch makes of a program."""
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
    from executorch.exir import to_edge_transform_and_lower

    from refsim.partition.load import load

    edge = to_edge_transform_and_lower(load(path, trust=True), partitioner=[VulkanPartitioner()])
    data: bytes = edge.to_executorch().buffer
    return data


def lower(name: str, folder: Path) -> Row:
    """Write refsim's file, and compare its graphs with those of ExecuTorch's."""
    from bench.zoo.contents import delegates, difference, operators
    from refsim.formats.pte.read import read_pte
    from refsim.partition.container import write
    from refsim.partition.load import load
    from refsim.partition.lower import lower as lower_program

    started = time.monotonic()
    row: Row = dict(NOT_LOWERED)
    (folder / OURS).unlink(missing_ok=True)
    with told(row, "error"):
        lowered = lower_program(load(folder / PROGRAM, trust=True), name)
        (folder / OURS).write_bytes(write(lowered))
        row["clones"] = sum(not each.reused for d in lowered.delegates for each in d.transitions)
    if (folder / THEIRS).exists() and row["error"] is None:
        with told(row, "graph"):
            files = [read_pte((folder / file).read_bytes(), file) for file in (OURS, THEIRS)]
            row["graph"] = difference(*files)
            row["clones_there"] = sum(n for op, n in operators(delegates(files[1])).items() if "clone" in op)
    row["seconds"] = round(time.monotonic() - started, 2)
    return row


def check(folder: Path, file: str) -> Row:
    """Where steps come from: the distance from torch without the roundings that lowering leaves out.

    If that is more than a step too, every fused operator alone is compared with torch, where errors cannot add up. And
    torch is compared with itself (``noisy``), with sums that are rounded otherwise.
    """
    import torch

    from bench.zoo import unrounded
    from refsim.partition.check import check as check_program
    from refsim.partition.load import load
    from refsim.partition.lower import lower as lower_program

    row: Row = {"error": None, "left_out": 0, "outputs": [], "noisy": [], "operators": 0, "wrong": []}
    with told(row, "error"):
        lowered = lower_program(load(folder / PROGRAM, trust=True))
        row["left_out"] = len(unrounded.left_out(lowered))
        inputs, _, scales = data(folder)
        tensors = [torch.from_numpy(array) for array in inputs]
        found = [value.numpy() for value in unrounded.outputs(lowered, tensors)]
        row["outputs"] = run_one(folder, file, {f"out{i}": value for i, value in enumerate(found)})["outputs"]
        if off(row):
            noisy = unrounded.outputs(lowered, tensors, noise=NOISE)
            row["noisy"] = [compare(n.numpy(), f, s) for n, f, s in zip(noisy, found, scales, strict=True)]
            checked = check_program(lowered, draws=("uniform",))
            wrong = [f"{each.node}: {each.worst} steps" for each in checked if each.wrong]
            row |= {"operators": len(checked), "wrong": wrong}
    return row


def data(folder: Path) -> tuple[list[np.ndarray], dict[str, np.ndarray], list[float | None]]:
    """A model's inputs, everything by name, and the scales of its outputs' quantizers."""
    with np.load(folder / DATA) as file:
        arrays = dict(file)
    inputs = [arrays[f"in{i}"] for i in range(sum(key.startswith("in") for key in arrays))]
    return inputs, arrays, json.loads((folder / MADE).read_text())["scales"]


def run(folder: Path, files: Sequence[str]) -> Row:
    """Run files on the executor ``cpu``, and compare with what torch computed. A row for each file."""
    return {file: run_one(folder, file) for file in files}


def run_one(folder: Path, file: str, torchs: Mapping[str, np.ndarray] | None = None) -> Row:
    """The row of a file; its outputs are compared with ``torchs``, else with those of the quantized program.

    ``torch`` names the operators that only torch has.
    """
    import refsim
    from refsim.aten.table import row_of

    started = time.monotonic()
    row: Row = dict(EMPTY)
    with told(row, "error"):
        model = refsim.load(folder / file)
        assert model.plan is not None
        nodes = list(model.nodes())
        outside = [str(operator) for operator in model.plan.operators]
        names = sorted({node.name for _, node in nodes} | set(outside))
        row |= {"nodes": len(nodes), "operators": names, "delegates": len(model.graphs)}
        floats = {node.name for _, node in nodes if node.is_float} | set(outside)
        row["torch"] = sorted(each for each in floats if not _in_table(each, row_of))
        inputs, arrays, scales = data(folder)
        needed = arrays if torchs is None else torchs
        found = model.run(inputs)
        row["outputs"] = [
            compare(mine, needed[f"out{i}"], scales[i]) for i, mine in enumerate(found) if f"out{i}" in needed
        ]
    row["seconds"] = round(time.monotonic() - started, 2)
    return row


def _in_table(name: str, row_of: Any) -> bool:
    base, _, overload = name.replace("::", ".").split(".", 1)[1].partition(".")
    return row_of(base, overload or None) is not None


def compare(ours: np.ndarray, torchs: np.ndarray, scale: float | None) -> Row:
    """How far an output is from torch's: in steps of its quantizer, or of 1/255 of its range if it is a float one.

    An output that has another shape or is not finite where torch's is has no number of steps.
    """
    kind = "float" if scale is None else "int8"
    if ours.shape != torchs.shape:
        return {"kind": kind, "steps": None, "why": f"shape {list(ours.shape)}, not {list(torchs.shape)}"}
    if ours.dtype.kind in "iub":
        kind, scale = "integer", 1.0
    one, two = ours.astype(np.float64), torchs.astype(np.float64)
    finite = np.isfinite(two)
    if not np.array_equal(np.isfinite(one), finite) or not np.array_equal(one[~finite], two[~finite], True):
        return {"kind": kind, "steps": None, "why": "not finite in other places"}
    apart = np.abs(one - two, where=finite, out=np.zeros_like(one))
    if scale is None:
        span = float(np.ptp(two[finite])) if finite.any() else 0.0
        scale = (span or float(np.abs(two[finite]).max(initial=0)) or 1.0) / FLOAT_STEPS
    worst = float(apart.max(initial=0)) / scale
    return {
        "kind": kind,
        "steps": worst,
        "differ": float(np.mean(apart > scale / 2)) if apart.size else 0.0,
        "same": bool(ours.tobytes() == np.ascontiguousarray(torchs, ours.dtype).tobytes()),
    }


@contextlib.contextmanager
def told(row: Row, key: str) -> Iterator[None]:
    """Keep an exception as text, and whether it is one of refsim's own."""
    from refsim.core.errors import RefsimError

    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        row[key] = limited.told(error)
        row[f"{key}_typed"] = isinstance(error, RefsimError)
