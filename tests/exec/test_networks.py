"""Small networks that ExecuTorch made: the outputs that it gave, and every float operator is in the table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import refsim
from refsim import aten

DATA = Path(__file__).parents[1] / "data"
NETWORKS = DATA / "networks"
NAMES = sorted(path.stem for path in NETWORKS.glob("*.pte"))
#: What the output may be off, in parts of the largest value, and why. Others must be the same bits.
OFF = {
    "int8_mixer": (1 / 64, "one step: gelu has its tanh form only in ET-VK"),
    "prelu": (2e-6, "float: other orders of additions"),
    "reflect": (2e-6, "float: other orders of additions"),
    "upsample": (2e-6, "float: other orders of additions"),
    "int8_squeeze": (1 / 128, "one step: the mean in four partial sums, a product next to a tie"),
}


def io(name: str) -> tuple[np.ndarray, np.ndarray]:
    with np.load(NETWORKS / f"{name}.npz") as file:
        return file["in0"], file["out0"]


@pytest.mark.parametrize("executor", ["cpu", "cpu:emulated"])
@pytest.mark.parametrize("name", NAMES)
def test_output(name: str, executor: str) -> None:
    x, need = io(name)
    (out,) = refsim.load(NETWORKS / f"{name}.pte").run([x], executor)
    assert (out.shape, out.dtype) == (need.shape, need.dtype)
    if name in OFF:
        assert np.abs(out - need).max() <= OFF[name][0] * np.abs(need).max()
    else:
        assert out.tobytes() == need.tobytes()


@pytest.mark.parametrize("path", [path for folder in ("networks", "zoo") for path in (DATA / folder).glob("*.pte")],
                         ids=lambda path: path.stem)  # fmt: skip
def test_no_operator_needs_torch(path: Path) -> None:
    model = refsim.load(path)
    assert model.plan is not None
    names = [node.name for _, node in model.nodes() if node.is_float]
    for operator in (*names, *map(str, model.plan.operators)):
        assert aten.find(operator, path.stem).row is not None, operator
