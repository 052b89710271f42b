"""Small models of the zoo: the same outputs, to the bit, and the same graph as when they were committed. No torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import refsim
from bench.zoo.committed import graph_lines
from refsim.exec.model import Model

FOLDER = Path(__file__).parents[1] / "data" / "zoo"
NAMES = sorted(path.stem for path in FOLDER.glob("*.pte"))
STEP = 1 / 255  # of an output's range
#: Operators in which NumPy's own exp, tanh, log or power may round otherwise on a CPU with other vector instructions.
FUNCTIONS = {"exp", "gelu", "_log_softmax", "pow", "sigmoid", "_softmax", "tanh"}


def load(name: str) -> Model:
    return refsim.load(FOLDER / f"{name}.pte")


def io(name: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    with np.load(FOLDER / f"{name}.npz") as file:
        arrays = dict(file)
    return tuple([arrays[key] for key in sorted(arrays) if key.startswith(kind)] for kind in ("in", "out"))


def operators(model: Model) -> set[str]:
    assert model.plan is not None
    return {node.name for _, node in model.nodes()} | set(map(str, model.plan.operators))


def is_exact(model: Model) -> bool:
    """Whether another CPU gives the same bits."""
    return not {name.replace("::", ".").split(".")[1] for name in operators(model)} & FUNCTIONS


@pytest.mark.parametrize("executor", ["cpu", "cpu:emulated"])
@pytest.mark.parametrize("name", NAMES)
def test_outputs(name: str, executor: str) -> None:
    inputs, needed = io(name)
    model = load(name)
    found = model.run(inputs, executor)
    assert len(found) == len(needed)
    for out, need in zip(found, needed, strict=True):
        assert (out.shape, out.dtype) == (need.shape, need.dtype)
        if is_exact(model):
            assert out.tobytes() == need.tobytes()
        else:
            assert np.abs(out - need).max() <= STEP * np.ptp(need)


@pytest.mark.parametrize("name", NAMES)
def test_graph(name: str) -> None:
    assert "\n".join(graph_lines(load(name))) + "\n" == (FOLDER / f"{name}.graph").read_text()
