"""The recorded programs with dynamic dims, shape by shape, and what the runtime gave."""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import refsim

FOLDER = Path(__file__).parents[1] / "data" / "dynamic"
NAMES = sorted(path.stem for path in FOLDER.glob("*.pte"))
#: Where the runtime keeps the bound's shape, stops, or computes the first image alone: its outputs and buffers are
#: no reference at smaller shapes (docs/dynamic.md has the defects).
DEFECTS = {
    "clone_branch": "D1", "split_glu": "D2", "split_dyn": "D2", "batch_conv": "D3", "gemv_lead": "D4",
    "perm_neg": "D5", "w4_4d": "D6", "idxsel": "D9",
}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """One shape of a program: its inputs, the runtime's outputs, and torch's. None where there is no such output."""

    program: str
    number: int

    @property
    def inputs(self) -> list[np.ndarray]:
        return [held for k in range(9) if (held := self.array(f"in{k}")) is not None]

    def array(self, name: str) -> np.ndarray | None:
        return arrays(self.program).get(f"s{self.number}.{name}")

    def recorded(self, output: int) -> np.ndarray | None:
        """What the runtime gave; for integer outputs what torch gave, which is the same."""
        held = self.array(f"vk{output}")
        return self.array(f"torch{output}") if held is None else held

    def meant(self, output: int) -> np.ndarray | None:
        """What the program means, by torch."""
        held = self.array(f"torch{output}")
        return self.array(f"vk{output}") if held is None else held

    def buffers(self) -> dict[tuple[int, int], bytes]:
        """The packed buffers by delegate and value."""
        path = FOLDER / f"{self.program}.shapes.zip"
        if not path.exists():
            return {}
        found = {}
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if place := re.fullmatch(rf"s{self.number}/delegate(\d+)_v(\d+)\.bin", name):
                    found[int(place[1]), int(place[2])] = archive.read(name)
        return found


@cache
def arrays(program: str) -> dict[str, np.ndarray]:
    with np.load(FOLDER / f"{program}.io.npz") as file:
        return dict(file)


@cache
def about(program: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bytes(arrays(program)["about"]))
    return found


def shapes(program: str) -> list[Shape]:
    """The recorded shapes, the bound first."""
    return [one for n in range(9) if (one := Shape(program, n)).inputs]


def path(program: str) -> Path:
    return FOLDER / f"{program}.pte"


def model(program: str) -> refsim.Model:
    """A fresh model."""
    return refsim.load(path(program))


EVERY = [(program, one.number) for program in NAMES for one in shapes(program)]
