"""Whole files give the outputs that ExecuTorch's runtimes gave, or that were committed, on every executor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from exec.recorded import DATA, OTHER_HEADS, arrays, files, inputs, outputs

from bench.zoo.committed import graph_lines
from refsim import aten
from refsim.bytediff import defects
from refsim.bytediff.evidence import Evidence
from refsim.core.buffer import PackedBuffer
from refsim.exec.cpu import NativeExecutor
from refsim.exec.emulated import EmulatedExecutor
from refsim.exec.model import Model, load
from refsim.exec.trace import Traced, trace
from refsim.golden.judge import SAME
from refsim.ops.base.binding import BoundCase
from refsim.sweep.models import DrawnModel, compared

#: Files that show a known defect of upstream's kernels, which predicts every bit of what these give; and one that
#: upstream refuses.
DEFECTS, REFUSED = ("group256", "twelve_outputs"), "two_planes"
#: How far torch is, which rounds in another order. Here a single row is not quantized, nor is it in upstream's kernel.
TORCH = {"encoder": 1e-6, **dict.fromkeys(("one_row", "one_row_buffer", "one_row_leading"), 0.01)}
#: What an output may be off, in parts of its largest value, and why. Others must be the same bits.
OFF = {
    "int8_mixer": (1 / 64, "one step: gelu has its tanh form only in ET-VK"),
    "prelu": (2e-6, "float: other orders of additions"),
    "reflect": (2e-6, "float: other orders of additions"),
    "upsample": (2e-6, "float: other orders of additions"),
    "int8_squeeze": (1 / 128, "one step: the mean in four partial sums, a product next to a tie"),
    "encoder": (2.9e-7, "softmax, gelu and layer norm have no bit contract across devices; docs/numerics.md"),
}
RECORDED = [
    path
    for path in files("models", "networks", "zoo", "groups", "ops", "heads")
    if path.stem not in OTHER_HEADS
]
STEP = 1 / 255  # of an output's range
#: Operators in which NumPy's own exp, tanh, log or power may round otherwise on a CPU with other vector instructions.
FUNCTIONS = {"exp", "gelu", "_log_softmax", "pow", "sigmoid", "_softmax", "tanh"}


def is_exact(model: Model) -> bool:
    """Whether another CPU gives the same bits."""
    return not {name.replace("::", ".").split(".")[1] for name in operators(model)} & FUNCTIONS


def operators(model: Model) -> set[str]:
    assert model.plan is not None
    return {node.name for _, node in model.nodes() if node.is_float} | set(map(str, model.plan.operators))


def bound(path: Path) -> BoundCase:
    """The call of the last node of a file, with its inputs."""
    nodes: list[Traced] = []
    trace(load(path), inputs(path), EmulatedExecutor(), nodes.append)
    found = nodes[-1].bound
    assert found is not None
    return found


def needed(path: Path) -> list[np.ndarray]:
    """What was recorded, or the definition where that shows a defect or nothing."""
    if path.stem in (*DEFECTS, REFUSED):
        last = bound(path)
        return [last.call.expected(last.inputs).unpack()]
    return outputs(path)


@pytest.mark.parametrize("executor", ["cpu", "cpu:emulated"])
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_outputs(path: Path, executor: str) -> None:
    model = load(path)
    for out, need in zip(model.run(inputs(path), executor), needed(path), strict=True):
        assert (out.shape, out.dtype) == (need.shape, need.dtype)
        off = OFF.get(path.stem, (0.0, ""))[0] * np.abs(need).max()
        if path.parent.name == "zoo" and not is_exact(model):
            off = STEP * np.ptp(need)
        assert np.abs(out - need).max() <= off if off else out.tobytes() == need.tobytes()
        if path.parent.name == "groups":
            assert np.abs(out - arrays(path)["torch0"]).max() < TORCH.get(path.stem, 5e-7)


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_predicts_every_bit_of_the_recording(name: str) -> None:
    (path,) = (path for path in files("groups") if path.stem == name)
    case, (recorded,) = bound(path), outputs(path)
    right = case.call.expected(case.inputs)
    actual = PackedBuffer.pack(recorded, right.desc.layout)
    assert actual != right, "listed, and yet the same"
    (known,) = defects.known(Evidence(right, actual, np.ones(right.desc.numel, bool), case))
    assert np.array_equal(known.cells, recorded.view(np.int32).reshape(-1))


def test_two_planes_are_rows_like_all_others() -> None:
    """What upstream refuses is computed plane by plane, and each plane alone gives the same."""
    (path,) = (path for path in files("groups") if path.stem == REFUSED)
    model, (given,) = load(path), inputs(path)
    assert not outputs(path)
    (both,) = model.run([given])
    chosen = [node.call for node in model.graphs[0].nodes if node.call and not node.call.consts]
    for plane, out in zip(given, both, strict=True):
        rows = dict(zip(("scale", "zp"), (call.define({"x": plane}) for call in chosen), strict=True))
        made = bound(path).call.define({"x": plane, **rows})
        assert made.astype(np.float32).tobytes() == out.tobytes()


@pytest.mark.parametrize("path", files("networks", "zoo"), ids=lambda path: path.stem)
def test_no_operator_needs_torch(path: Path) -> None:
    for operator in operators(load(path)):
        assert aten.find(operator, path.stem).row is not None, operator


@pytest.mark.parametrize("path", files("zoo"), ids=lambda path: path.stem)
def test_graph(path: Path) -> None:
    """The same graph as when the model was committed."""
    assert "\n".join(graph_lines(load(path))) + "\n" == path.with_suffix(".graph").read_text()


# --- watched, watched in part and unwatched --------------------------------------------------------------


FILES = sorted(
    path.relative_to(DATA).as_posix() for path in DATA.rglob("*.pte") if "crashers" not in path.parts
)


@pytest.mark.few(40)
@pytest.mark.parametrize("name", FILES)
def test_what_runs_is_what_is_compared(name: str) -> None:
    model = load(DATA / name)
    drawn = DrawnModel.of(model, model.random_inputs(5), model.random_inputs(6), 5)
    for threads in (1, 2):
        status, why, _ = compared(drawn, NativeExecutor(threads, wake_always=True))
        assert status == SAME, why
