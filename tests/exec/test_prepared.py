"""A prepared model: the same outputs as a run that decides everything anew, and outputs that stay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import refsim
from refsim.core.errors import GraphError, LimitError, ShapeError
from refsim.core.rng import Rng
from refsim.exec.cpu import EmulatedExecutor, NativeExecutor
from refsim.exec.executor import Executor
from refsim.exec.model import Model

DATA = Path(__file__).parents[1] / "data"
PATHS = sorted(path for folder in ("models", "networks", "heads") for path in (DATA / folder).glob("*.pte"))


def inputs_of(model: Model, seed: int) -> list[np.ndarray]:
    shapes = model.input_shapes()
    return [Rng(seed).uniform(-3.0, 3.0, shape).astype(dtype) for shape, dtype in shapes]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_same_outputs(path: Path) -> None:
    model, executor = refsim.load(path), NativeExecutor()
    prepared = model.prepare(executor)
    given = [inputs_of(model, seed) for seed in (1, 2)]
    expected = [[a.copy() for a in model.submit(inputs, executor).finish()] for inputs in given]
    found = [
        prepared.run(inputs) for inputs in given
    ]  # both are kept: a later run must not write into the first's
    ran = [model.run(inputs, executor) for inputs in given]
    for actual in (found, ran):
        assert [[(a.shape, a.dtype, a.tobytes()) for a in arrays] for arrays in actual] == [
            [(a.shape, a.dtype, a.tobytes()) for a in arrays] for arrays in expected
        ]


def test_any_executor_can_be_prepared() -> None:
    model = refsim.load(DATA / "models" / "mixed_ops.pte")
    given = inputs_of(model, 1)
    executors: tuple[str | Executor, ...] = ("cpu", "cpu:emulated", EmulatedExecutor())
    outputs = {b"".join(a.tobytes() for a in model.prepare(executor).run(given)) for executor in executors}
    assert len(outputs) == 1


def test_executors_that_take_turns_keep_their_own_sessions() -> None:
    model = refsim.load(DATA / "models" / "linear_head.pte")
    given = inputs_of(model, 1)
    executors = [NativeExecutor(), NativeExecutor(2)]
    for executor in executors * 2:
        model.run(given, executor)
    assert all(len(executor._plans) == 1 for executor in executors)


def test_wrong_inputs_are_refused() -> None:
    model = refsim.load(DATA / "models" / "mixed_ops.pte")
    (x,) = inputs_of(model, 1)
    prepared = model.prepare()
    model.run([x])  # from now on inputs that fit take a short way
    for wrong, problem in (
        ([], "number of inputs"),
        ([x[:, :2]], "does not fit"),
        ([x.astype(np.float64)], "float64"),
    ):
        with pytest.raises(ShapeError, match=problem):
            prepared.run(wrong)
        with pytest.raises(ShapeError, match=problem):
            model.run(wrong)
    kept = x.copy()
    (expected,), (turned,) = prepared.run([x]), prepared.run([np.asfortranarray(x)])
    assert np.array_equal(turned, expected) and np.array_equal(x, kept)


def test_what_cannot_run_is_refused_before(monkeypatch: pytest.MonkeyPatch) -> None:
    model = refsim.load(DATA / "models" / "mixed_ops.pte")
    with pytest.raises(GraphError, match="not a Vulkan delegate"):
        Model(model.path, {0: model.graphs[0]}, model.plan, model.container).prepare()
    monkeypatch.setenv("REFSIM_MAX_BYTES", "1")
    with pytest.raises(LimitError, match="delegate 0"):
        model.prepare()
