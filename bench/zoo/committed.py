"""The small models that are in the repository: their files, refsim's outputs, and the graph as lines of text.

``python -m bench.zoo.committed NAME...`` copies models out of out/zoo, and writes the outputs and graphs. They are
never written anew otherwise: a difference is a change of refsim that a test reports.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

import refsim
from bench.harness import ROOT
from bench.zoo import stages
from refsim.core import atomic_write
from refsim.exec.model import Model
from refsim.formats.pte.schema import DelegateCall, KernelCall
from refsim.graph.graph import Node, Tensor, refs

FOLDER = ROOT / "tests" / "data" / "zoo"
MADE = ROOT / "out" / "zoo"


def graph_lines(model: Model) -> Iterator[str]:
    """A model's plan, and every node with its kernels and tensors: ``shape:layout``, constants in brackets."""
    assert model.plan is not None
    for instruction in model.plan.chains[0].instructions:
        if isinstance(instruction, DelegateCall):
            number = instruction.delegate_index
            graph = model.graphs[number]
            yield f"delegate {number}"
            for node in graph.nodes:
                given = " ".join(_tensor(graph.tensors[i]) for i in refs(node.args))
                made = " ".join(_tensor(graph.tensors[i]) for i in node.outputs)
                yield f"  {node.name} [{_kernels(node)}] {given} -> {made}"
        elif isinstance(instruction, KernelCall):
            yield str(model.plan.operators[instruction.op_index])
        else:
            yield type(instruction).__name__


def _kernels(node: Node) -> str:
    if node.prepared is None:
        return "definition" if node.meaning is not None else "float"
    return ", ".join(dispatch.launch.shader for dispatch in node.prepared.dispatches)


def _tensor(tensor: Tensor) -> str:
    shape = "x".join(map(str, tensor.shape)) or "()"
    text = f"{shape}:{tensor.layout.name if tensor.layout else tensor.dtype}"
    return text if tensor.data is None else f"[{text}]"


def numbered(arrays: Iterable[np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {f"{prefix}{i}": array for i, array in enumerate(arrays)}


def commit(name: str, folder: Path = FOLDER, made: Path = MADE) -> None:
    """Write NAME.pte, NAME.npz (in0.., out0..) and NAME.graph; the file is ExecuTorch's if it made one."""
    theirs = made / name / stages.THEIRS
    data = (theirs if theirs.exists() else made / name / stages.OURS).read_bytes()
    path = atomic_write.make_folder(folder) / f"{name}.pte"
    atomic_write.write(path, data)
    inputs, *_ = stages.data(made / name)
    model = refsim.load(path)
    outputs = model.run(inputs)
    with atomic_write.replacing(folder / f"{name}.npz") as file:
        np.savez_compressed(file, **numbered(inputs, "in"), **numbered(outputs, "out"))  # type: ignore[arg-type]
    atomic_write.write(folder / f"{name}.graph", "".join(f"{line}\n" for line in graph_lines(model)).encode())


def main(names: Sequence[str]) -> int:
    for name in names:
        commit(name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
