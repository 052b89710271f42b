"""Whole files under tests/data, and the inputs and outputs that were recorded for each."""

from __future__ import annotations

from pathlib import Path

import numpy as np

DATA = Path(__file__).parents[1] / "data"
#: What the recording runtime does wrong, converts out of range, or refuses: tests/graph/test_heads.py says which.
OTHER_HEADS = ("head_07", "head_16", "head_31", "int8_head", "two_heads")


def files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (DATA / folder).glob("*.pte"))


def arrays(path: Path) -> dict[str, np.ndarray]:
    held = path.with_suffix(".io.npz")
    with np.load(held if held.exists() else path.with_suffix(".npz")) as file:
        return dict(file)


def inputs(path: Path) -> list[np.ndarray]:
    return [array for name, array in sorted(arrays(path).items()) if name.startswith("in")]


def outputs(path: Path) -> list[np.ndarray]:
    """Of ExecuTorch's runtime; of models of the zoo those that were committed. None where the runtime has a defect."""
    names = ("out", "upstream_out")
    return [array for name, array in sorted(arrays(path).items()) if name.startswith(names)]
