"""Linear layers with a float output: what ExecuTorch's runtime does wrong, and what of it is right here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from delegates import bisected

import refsim
from refsim.core.buffer import PackedBuffer
from refsim.core.qmath import LAVAPIPE, NVIDIA
from refsim.graph.interpreter import Event
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family

DATA = Path(__file__).parents[1] / "data" / "heads"
TWO = "two_heads"  # one without a bias
REFUSED = ("head_31", "int8_head")  # by ExecuTorch's runtime, when it loads them
PLANES, CONVERTED = "head_07", "head_16"
EXECUTORS = ("cpu", "cpu:emulated")
HEAD = next(op for op in OPS.of_family(Family.FLOAT_LINEAR) if op.upstream.if_quantized)


def ran(
    name: str, executor: str = "cpu", target: Target | None = None
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Our output of a file, and its recorded arrays."""
    recorded = dict(np.load(DATA / f"{name}.npz"))
    (out,) = refsim.load(DATA / f"{name}.pte", target).run([recorded["in0"]], executor)
    return out, recorded


@pytest.mark.parametrize("executor", EXECUTORS)
def test_leading_dims(executor: str) -> None:
    """The runtime writes the first plane of rows; here every row is computed."""
    out, recorded = ran(PLANES, executor)
    first, *others = recorded["upstream_out0"]
    assert out[0].tobytes() == first.tobytes()
    assert not any(plane.any() for plane in others)
    assert np.abs(out - recorded["torch0"]).max() < 1e-6


@pytest.mark.parametrize("executor", EXECUTORS)
def test_out_of_range(executor: str) -> None:
    """A device converts before it clamps; profile lavapipe says what that gives there."""
    out, recorded = ran(CONVERTED, executor)
    device = recorded["upstream_out0"]
    assert (out != device).all()
    assert ran(CONVERTED, executor, Target(LAVAPIPE))[0].tobytes() == device.tobytes()
    assert ran(CONVERTED, executor, Target(NVIDIA))[0].tobytes() != device.tobytes()


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", REFUSED)
def test_a_quantized_activation(name: str, executor: str) -> None:
    """It counts as quantized: the same bits as from the floats that it stands for."""
    recorded = dict(np.load(DATA / f"{name}.npz"))
    seen: list[Event] = []
    (out,) = refsim.load(DATA / f"{name}.pte").run([recorded["in0"]], executor, seen.append)
    assert np.abs(out - recorded["torch0"]).max() < 1e-6
    last = seen[-1].node
    assert last.meaning is not None and last.meaning.op is HEAD
    (value,) = last.inputs.values()
    (q,) = (e.outputs[value] for e in seen if value in e.outputs)
    assert isinstance(q, np.ndarray) and q.dtype == np.int8
    p = last.meaning.params
    floats = (q.astype(np.float32) - np.float32(p.in_zp)) * np.float32(p.in_scale)
    x = PackedBuffer.pack(floats, "W")
    call = HEAD.bind(p, {"x": x.desc}, last.meaning.consts, "W", out_shape=out.shape)
    assert call.expected({"x": x}).unpack().tobytes() == out.tobytes()


@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_output_that_is_called_int8(executor: str) -> None:
    """ExecuTorch gives a head without a bias the dtype of its quantized activation; it is float all the same."""
    recorded = np.load(DATA / f"{TWO}.npz")
    outputs = refsim.load(DATA / f"{TWO}.pte").run([recorded["in0"]], executor)
    for number, out in enumerate(outputs):
        assert out.dtype == np.float32
        assert np.abs(out - recorded[f"torch{number}"]).max() < 1e-6


@pytest.mark.long
@pytest.mark.search(10)
@pytest.mark.parametrize(
    ("name", "cause"),
    [
        (PLANES, "rows of the first plane alone are written"),
        (CONVERTED, "conversion out of range"),
    ],
)
def test_bisect_names_the_defect(
    name: str, cause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the runtime returned, as the dump of a device: the head is wrong, and why."""
    recorded = np.load(DATA / f"{name}.npz")
    raw = recorded["upstream_out0"].tobytes()
    printed, _ = bisected(DATA / f"{name}.pte", recorded["in0"], lambda _: raw, tmp_path, capsys)
    assert "wrong: node 0 linear_q8ta_q8csw" in printed
    assert cause in printed and "predicts every byte" in printed
