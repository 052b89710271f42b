"""Known defects of upstream's operators with groups: bisect names them, inspect tells of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from check.small_files import float_conv

from refsim.core.buffer import PackedBuffer
from refsim.core.folder_write import writing
from refsim.exec.model import load
from refsim.formats.dumps import sidecar, value_name, write

DATA = Path(__file__).parents[1] / "data" / "groups"


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("group256", "known defect of upstream: upstream doubles the sums of a group"),
        ("twelve_outputs", "known defect of upstream: upstream reads the weight sums of other outputs"),
    ],
)
def test_bisect_names_the_defect(name: str, cause: str, tmp_path: Path, refsim) -> None:
    """The dump is what ET-VK's own runtime gave for the file."""
    with np.load(DATA / f"{name}.npz") as archive:
        given, out = archive["in0"], archive["out0"]
    (graph,) = load(DATA / f"{name}.pte").graphs.values()
    held = PackedBuffer.pack(out, graph.nodes[-1].call.out.layout)
    with writing(tmp_path) as writer:
        write(writer, sidecar(value_name(0, graph.outputs[0]), held), held)
    np.savez(tmp_path / "in.npz", in0=given)
    done = refsim(f"bisect {DATA}/{name}.pte -i {tmp_path}/in.npz --actual {tmp_path}")
    assert done.status == 1
    assert f"1. {cause}" in done.out, done.out
    assert "predicts every byte" in done.out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("group256", "note: node 2 linear_dq8ca_q4gsw: upstream doubles the sums of a group"),
        (
            "twelve_outputs",
            "note: node 2 linear_dq8ca_q4gsw: upstream reads the weight sums of other outputs",
        ),
        ("two_planes", "note: node 0 choose_qparams_affine: upstream's runtime refuses"),
        ("rows6", None),
    ],
)
def test_inspect_says_what_upstream_gets_wrong(name: str, said: str | None, refsim) -> None:
    done = refsim(f"inspect {DATA}/{name}.pte")
    assert done.status == 0
    assert said in done.out if said else "note:" not in done.out


def test_inspect_says_what_a_float_convolution_gets_wrong(tmp_path: Path, refsim) -> None:
    (tmp_path / "grouped.bin").write_bytes(float_conv((8, 4, 1, 1)))
    (tmp_path / "whole.bin").write_bytes(float_conv((8, 8, 1, 1), groups=1))
    assert "note: node 0 aten.convolution: upstream ignores" in refsim(f"inspect {tmp_path}/grouped.bin").out
    assert "note:" not in refsim(f"inspect {tmp_path}/whole.bin").out
