"""Run exported programs on the simulated runtime: FOLDER OUTPUTS. A mutated copy of the sources runs this too."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from device.simulated import Runtime


def run(folder: Path, target: Path) -> None:
    """The outputs of NAME.pte as NAME.npz."""
    target.mkdir(exist_ok=True)
    for path in sorted(folder.glob("*.pte")):
        outputs = Runtime(path.read_bytes()).run([])
        arrays = {f"out{number}": array for number, array in enumerate(outputs)}
        np.savez(target / f"{path.stem}.npz", **arrays)  # type: ignore[arg-type]


if __name__ == "__main__":
    run(*map(Path, sys.argv[1:]))
