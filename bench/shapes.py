"""What changing shapes costs: python -m bench.shapes. Runs of each shape in turn in one prepared model with dynamic
dims, against as many static copies, each prepared for its one shape."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import refsim
from bench.harness import ROOT, Bench, main
from refsim.exec.model import PreparedModel

PROGRAMS = ROOT / "tests" / "data" / "dynamic"
NAMES = ("fcn_add", "general_bound", "im2col", "lin_rows", "seq_slice")


class Both(NamedTuple):
    """Inputs shape by shape, the model that takes all of them, and the copies, one for each."""

    many: Sequence[list[np.ndarray]]
    model: PreparedModel
    copies: Sequence[PreparedModel]


def setup(path: Path) -> Both:
    """The shapes that ExecuTorch's runtime was recorded with."""
    model = refsim.load(path)
    with np.load(path.with_suffix(".io.npz")) as held:
        shapes = sorted({name.partition(".")[0] for name in held.files if ".in" in name})
        many = [[held[k] for k in sorted(held.files) if k.startswith(f"{shape}.in")] for shape in shapes]
    return Both(many, model.prepare(), [model.at(inputs).prepare() for inputs in many])


def changing(data: Both) -> None:
    for inputs in data.many:
        data.model.run(inputs)


def copies(data: Both) -> None:
    for inputs, copy in zip(data.many, data.copies, strict=True):
        copy.run(inputs)


BENCHES = [
    Bench(
        f"shapes of {name}",
        setup=lambda path=PROGRAMS / f"{name}.pte": setup(path),
        run=changing,
        peers={"static copies": copies},
    )
    for name in NAMES
]

if __name__ == "__main__":
    sys.exit(main("shapes", BENCHES))
