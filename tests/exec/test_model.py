"""Loading, preparing and running files: what is taken, what is checked and reported, and outputs that stay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from exec.recorded import DATA, files, inputs, outputs

import refsim
from refsim.cli import main
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import GraphError, LimitError, ParameterError, ShapeError
from refsim.exec.cpu import EmulatedExecutor, NativeExecutor
from refsim.exec.executor import run_graph
from refsim.exec.model import Model
from refsim.formats.literals import Double
from refsim.formats.pte import read as pte
from refsim.formats.vkgraph.read import Blob
from refsim.formats.vkgraph.schema import OperatorCall, ValueList, VkGraph, VkTensor
from refsim.formats.vkgraph.write import pack_constants, write_blob
from refsim.graph.build import build
from refsim.graph.interpreter import Event

LINEAR, MIXED = (DATA / "models" / f"{name}.pte" for name in ("linear_head", "mixed_ops"))
Arrays = list[np.ndarray]


def delegate() -> Blob:
    """The only one of linear_head."""
    container = pte.load(LINEAR)
    ((_, blob),) = container.blobs(container.plan())
    return blob


def shown(arrays: Arrays) -> list[tuple[object, ...]]:
    return [(a.shape, a.dtype, a.tobytes()) for a in arrays]


def test_a_bare_delegate_runs(tmp_path: Path) -> None:
    """With its constants inside: the same bytes as the whole file, of which it is all."""
    blob, path = delegate(), tmp_path / "linear_head.vkblob"
    rows, raw = pack_constants([bytes(c) for c in blob.constants])
    path.write_bytes(write_blob(replace(blob.graph, constants=tuple(rows)), raw))
    model, (x,) = refsim.load(path), inputs(LINEAR)
    assert model.plan is None and model.input_shapes() == [(x.shape, x.dtype)]
    assert shown(model.run([x])) == shown(outputs(LINEAR))
    assert [n.name for _, n in model.nodes()] == [n.name for _, n in refsim.load(LINEAR).nodes()]


def test_events_report_every_node_in_order() -> None:
    model, seen = refsim.load(MIXED), list[Event]()
    model.run(inputs(MIXED), observe=seen.append)
    assert [(e.delegate, e.node.number) for e in seen] == [(d, n.number) for d, n in model.nodes()]
    for event in seen:
        assert event.seconds >= 0 and set(event.outputs) == set(event.node.outputs)
        for value, held in event.outputs.items():
            tensor = event.graph.tensors[value]
            assert isinstance(held, PackedBuffer) == (tensor.desc is not None)
            assert (held.unpack() if isinstance(held, PackedBuffer) else held).shape == tensor.shape


# --- prepared --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", files("models", "networks", "heads"), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_a_prepared_model_gives_the_same_outputs(path: Path) -> None:
    """And keeps them: a later run does not write into an earlier one's."""
    model, executor = refsim.load(path), NativeExecutor()
    prepared = model.prepare(executor)
    given = [model.random_inputs(seed) for seed in (1, 2)]
    expected = [shown(model.submit(inputs, executor).finish()) for inputs in given]
    for run in (prepared.run, lambda inputs: model.run(inputs, executor)):
        found = [run(inputs) for inputs in given]
        assert [shown(arrays) for arrays in found] == expected


def test_any_executor_can_be_prepared() -> None:
    model = refsim.load(MIXED)
    given = model.random_inputs(1)
    first, *others = (
        shown(model.prepare(each).run(given)) for each in ("cpu", "cpu:emulated", EmulatedExecutor())
    )
    assert others == [first, first]


def test_executors_that_take_turns_keep_their_own_sessions() -> None:
    model = refsim.load(LINEAR)
    executors = [NativeExecutor(), NativeExecutor(2)]
    for executor in executors * 2:
        model.run(model.random_inputs(1), executor)
    assert all(len(executor._plans) == 1 for executor in executors)


# --- what is refused -------------------------------------------------------------------------------------


def test_unknown_executor() -> None:
    with pytest.raises(ParameterError, match="executor: unknown; got 'tpu', need "):
        refsim.load(LINEAR).run(inputs(LINEAR), executor="tpu")


def test_wrong_inputs_are_refused() -> None:
    model = refsim.load(MIXED)
    (x,) = model.random_inputs(1)
    prepared = model.prepare()
    model.run([x])  # from now on inputs that fit take a short way
    wrongs: tuple[tuple[Arrays, str], ...] = (
        ([], "number of inputs"), ([x[:, :2]], "does not fit"), ([x.astype(np.float64)], "float64"),
    )  # fmt: skip
    for wrong, problem in wrongs:
        for run in (prepared.run, model.run):
            with pytest.raises(ShapeError, match=problem):
                run(wrong)
    kept = x.copy()
    assert shown(prepared.run([np.asfortranarray(x)])) == shown(prepared.run([x]))
    assert np.array_equal(x, kept)


def test_what_cannot_run_is_refused_before(monkeypatch: pytest.MonkeyPatch) -> None:
    model = refsim.load(MIXED)
    with pytest.raises(GraphError, match="not a Vulkan delegate"):
        Model(model.path, {0: model.graphs[0]}, model.plan, model.container).prepare()
    monkeypatch.setenv("REFSIM_MAX_BYTES", "1")
    with pytest.raises(LimitError, match="delegate 0"):
        model.prepare()


def test_an_input_that_is_no_tensor() -> None:
    whole = refsim.load(LINEAR)
    assert whole.plan is not None
    values = list(whole.plan.values)
    values[whole.plan.inputs[0]] = Double(3.0)
    with pytest.raises(GraphError, match=r"input 0: not a tensor; got Double"):
        replace(whole, plan=replace(whole.plan, values=tuple(values))).run(inputs(LINEAR))


def test_a_missing_value_names_the_node() -> None:
    """A graph whose chain lost its first operator reads a value that nothing wrote."""
    blob = delegate()
    headless = replace(blob, graph=replace(blob.graph, chain=blob.graph.chain[1:]))
    with pytest.raises(GraphError, match=r"node 0 et_vk\.q8ta_linear.*nothing wrote"):
        build(headless, "headless")


def test_an_operator_that_gives_too_little() -> None:
    """A float operator with two outputs in the graph and one result."""
    values = (*[VkTensor(5, (4,))] * 3, ValueList((1, 2)))
    graph = VkGraph("", (OperatorCall(0, "aten.relu.default", (0, 3)),), values, (0,), (1, 2))
    built = build(Blob(graph, ()), "delegate")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"node 0 aten\.relu\.default: gives fewer results; got 1, need 2"):
        run_graph(built, [np.zeros(4, np.float32)], EmulatedExecutor())


def test_results_without_elements(tmp_path: Path) -> None:
    """The two further results of a batch norm: no buffer holds them, and every executor goes on."""
    image, row, none = (VkTensor(5, dims, memory_layout=2) for dims in ((1, 4, 3, 3), (4,), (0,)))
    values = (image, row, row, row, row, Double(0.1), Double(1e-3), image, none, none, ValueList((7, 8, 9)))
    name = "aten._native_batch_norm_legit_no_training.default"
    graph = VkGraph("", (OperatorCall(0, name, (0, 1, 2, 3, 4, 5, 6, 10)),), values, (0, 1, 2, 3, 4), (7,))
    path = tmp_path / "delegate.bin"
    path.write_bytes(write_blob(graph, b""))
    x = np.arange(36, dtype=np.float32).reshape(1, 4, 3, 3)
    rows = np.array([[1, 2, 3, 4], [4, 3, 2, 1], [0, 9, 18, 27], [1, 4, 9, 16]], np.float32)
    weight, bias, mean, var = rows.reshape(4, 1, 4, 1, 1)
    need = ((x - mean) / np.sqrt(var + np.float32(1e-3))) * weight + bias
    for executor in ("cpu", "cpu:emulated"):
        for observe in (None, lambda event: None):
            assert shown(refsim.load(path).run([x, *rows], executor, observe)) == shown([need])
    assert main(["inspect", str(path)]) == 0
