"""Loading and running files: what `refsim.load` takes, what `run` checks and reports."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import refsim
from refsim.cli import main
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import GraphError, ParameterError
from refsim.exec.cpu import EmulatedExecutor
from refsim.exec.executor import run_graph
from refsim.formats.literals import Bool, Double, Int, Null, String
from refsim.formats.pte import read as pte
from refsim.formats.pte import schema as program
from refsim.formats.vkgraph.schema import OperatorCall, ValueList, VkGraph, VkTensor
from refsim.formats.vkgraph.write import write_blob
from refsim.graph.build import build

MODELS = Path(__file__).parents[1] / "data" / "models"
LINEAR = MODELS / "linear_head.pte"


@pytest.fixture
def blob(tmp_path: Path) -> Path:
    """The first delegate of linear_head as a file of its own, its constants inside."""
    from refsim.formats.vkgraph.write import write_blob

    container = pte.load(LINEAR)
    ((_, found),) = container.blobs(container.plan())
    path = tmp_path / "linear_head.vkblob"
    path.write_bytes(inlined(write_blob, found))
    return path


def inlined(write_blob, found) -> bytes:
    from dataclasses import replace

    from refsim.formats.vkgraph.write import pack_constants

    rows, raw = pack_constants([bytes(c) for c in found.constants])
    return write_blob(replace(found.graph, constants=tuple(rows)), raw)


def test_a_bare_delegate_runs(blob: Path) -> None:
    """The same bytes as the whole file, of which it is all."""
    with np.load(MODELS / "linear_head.io.npz") as io:
        x, need = io["in0"], io["upstream_out0"]
    model = refsim.load(blob)
    assert model.plan is None
    assert model.input_shapes() == [(x.shape, x.dtype)]
    assert model.run([x])[0].tobytes() == need.tobytes()
    assert [n.name for _, n in model.nodes()] == [n.name for _, n in refsim.load(LINEAR).nodes()]


def test_unknown_executor() -> None:
    with pytest.raises(ParameterError, match="executor: unknown; got 'tpu', need "):
        refsim.load(LINEAR).run([np.zeros((6, 32), np.float32)], executor="tpu")


def test_events_report_every_node_in_order() -> None:
    with np.load(MODELS / "mixed_ops.io.npz") as io:
        x = io["in0"]
    model = refsim.load(MODELS / "mixed_ops.pte")
    seen: list = []
    model.run([x], observe=seen.append)
    assert [(e.delegate, e.node.number) for e in seen] == [(d, n.number) for d, n in model.nodes()]
    for event in seen:
        assert event.seconds >= 0
        assert set(event.outputs) == set(event.node.outputs)
        for value, held in event.outputs.items():
            tensor = event.graph.tensors[value]
            assert isinstance(held, PackedBuffer) == (tensor.desc is not None)
            assert held.unpack().shape == tensor.shape


# --- damaged plans -----------------------------------------------------------------------------------------


def any_value(rng: random.Random, count: int) -> object:
    ids = tuple(rng.randrange(count) for _ in range(rng.randrange(4)))
    sizes = tuple(rng.choice((0, 1, 2, 16)) for _ in range(rng.randrange(4)))
    order = tuple(range(len(sizes)))
    return rng.choice((
        Null(), Int(3), Int(-1), Double(float("nan")), Bool(True), String("x"), program.IntIdList(ids),
        program.TensorList(ids), program.OptionalTensorList((-1, *ids)),
        program.Tensor(rng.choice((1, 3, 6, 7, 12)), sizes, order, rng.choice((0, 1))),
    ))  # fmt: skip


def damaged(plan: program.Plan, rng: random.Random) -> program.Plan:
    """The plan around the delegates with other values, ids, arguments or instructions."""
    values, inputs, outputs = list(plan.values), list(plan.inputs), list(plan.outputs)
    steps, operators = list(plan.chains[0].instructions), list(plan.operators)
    for _ in range(rng.choice((1, 1, 2))):
        kind, anything = rng.randrange(7), rng.randrange(len(values))
        at = rng.randrange(len(steps))
        args = list(getattr(steps[at], "args", ()))
        if kind < 2:
            used = [*args, *inputs, *outputs]
            values[rng.choice(used)] = any_value(rng, len(values))
        elif kind == 2:
            rng.choice((inputs, outputs)).append(anything)
        elif kind == 3:
            ids = rng.choice((inputs, outputs))
            ids[rng.randrange(len(ids))] = anything
        elif kind == 4 and args:
            args[rng.randrange(len(args))] = anything
            steps[at] = replace(steps[at], args=tuple(args[: rng.choice((len(args), 1))]))
        elif kind == 5:
            call = rng.choice((program.MoveCall(anything, at), program.JumpFalseCall(anything, 0)))
            steps.insert(at, call)
        elif kind == 6 and operators:
            operators[0] = program.Operator(
                rng.choice(("aten::cat", "aten::relu", "", "x")), rng.choice(("out", ""))
            )
    chain = replace(plan.chains[0], instructions=tuple(steps))
    return replace(
        plan,
        values=tuple(values),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        chains=(chain,),
        operators=tuple(operators),
    )


def test_an_input_that_is_no_tensor() -> None:
    whole = refsim.load(LINEAR)
    assert whole.plan is not None
    values = list(whole.plan.values)
    values[whole.plan.inputs[0]] = Double(3.0)
    with pytest.raises(GraphError, match=r"input 0: not a tensor; got Double"):
        replace(whole, plan=replace(whole.plan, values=tuple(values))).run([np.zeros((6, 32), np.float32)])


def test_an_operator_that_gives_too_little() -> None:
    """A float operator with two outputs in the graph and one result."""
    from refsim.formats.vkgraph.read import Blob
    from refsim.formats.vkgraph.schema import OperatorCall, ValueList, VkGraph, VkTensor

    values = (VkTensor(5, (4,)), VkTensor(5, (4,)), VkTensor(5, (4,)), ValueList((1, 2)))
    graph = VkGraph("", (OperatorCall(0, "aten.relu.default", (0, 3)),), values, (0,), (1, 2))
    built = build(Blob(graph, ()), "delegate")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"node 0 aten\.relu\.default: gives fewer results; got 1, need 2"):
        run_graph(built, [np.zeros(4, np.float32)], EmulatedExecutor())


def test_results_without_elements(tmp_path: Path) -> None:
    """The two further results of a batch norm: no buffer holds them, and every executor goes on."""
    image, row, none = (VkTensor(5, dims, memory_layout=2) for dims in ((1, 4, 3, 3), (4,), (0,)))
    values = (image, row, row, row, row, Double(0.1), Double(1e-3), image, none, none, ValueList((7, 8, 9)))
    name = "aten._native_batch_norm_legit_no_training.default"
    call = OperatorCall(0, name, (0, 1, 2, 3, 4, 5, 6, 10))
    (tmp_path / "delegate.bin").write_bytes(
        write_blob(VkGraph("", (call,), values, (0, 1, 2, 3, 4), (7,)), b"")
    )
    model = refsim.load(tmp_path / "delegate.bin")
    x = np.arange(36, dtype=np.float32).reshape(1, 4, 3, 3)
    given = [
        x,
        *(np.array(v, np.float32) for v in ([1, 2, 3, 4], [4, 3, 2, 1], [0, 9, 18, 27], [1, 4, 9, 16])),
    ]
    _, weight, bias, mean, var = (a if a.ndim == 4 else a.reshape(1, 4, 1, 1) for a in given)
    need = ((x - mean) / np.sqrt(var + np.float32(1e-3))) * weight + bias
    for executor in ("cpu", "cpu:emulated"):
        for observe in (None, lambda event: None):
            (out,) = model.run(given, executor, observe)
            assert out.tobytes() == need.tobytes()
    assert main(["inspect", str(tmp_path / "delegate.bin")]) == 0
