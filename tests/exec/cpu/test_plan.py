"""Whole graphs: the same outputs as node by node, memory shared soundly, nothing left over from another run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from examples import UNARY

from refsim.core.errors import ParameterError, ShapeError
from refsim.core.lifetimes import ALIGN
from refsim.core.rng import Rng
from refsim.exec.cpu import EmulatedExecutor, NativeExecutor, plan
from refsim.exec.cpu.thread_pool import JobList
from refsim.exec.model import load

MODELS = sorted((Path(__file__).parents[2] / "data" / "models").glob("*.pte"))


def inputs_of(path: Path, seed: int) -> list[np.ndarray]:
    shapes = load(path).input_shapes()
    return [Rng(seed).uniform(-3.0, 3.0, shape).astype(dtype) for shape, dtype in shapes]


@pytest.mark.parametrize("own_layouts", [True, False])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_same_outputs_as_the_model(path: Path, threads: int, own_layouts: bool) -> None:
    model, executor = load(path), NativeExecutor(threads, own_layouts=own_layouts)
    for seed in (1, 2, 1):  # a second run must not see what the first left behind
        given = inputs_of(path, seed)
        expected = model.run(given, EmulatedExecutor())
        actual = model.run(given, executor)
        assert [a.tobytes() for a in actual] == [e.tobytes() for e in expected], seed
        assert [a.shape for a in actual] == [e.shape for e in expected]


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_observed_nodes_have_the_models_bytes(path: Path) -> None:
    model, given = load(path), inputs_of(path, 3)
    seen: list[list[bytes]] = []
    for executor in (EmulatedExecutor(), NativeExecutor(2)):
        taken: list[bytes] = []
        model.run(given, executor, lambda event, taken=taken: taken.extend(
            held.raw.tobytes() if hasattr(held, "raw") else held.tobytes() for held in event.outputs.values()
        ))  # fmt: skip
        seen.append(taken)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_memory_is_close_to_the_least(path: Path, threads: int) -> None:
    model, executor = load(path), NativeExecutor(threads)
    for graph in model.graphs.values():
        memory = executor.session(graph).memory
        assert memory.live <= memory.values <= 1.5 * memory.live + 8 * ALIGN
        assert memory.weights == sum(t.data.nbytes for t in graph.tensors.values() if t.data is not None)
        assert memory.constants >= memory.weights / 2, "the weights are not counted"
        # of a few hundred bytes, argument blocks and alignment are the most
        assert memory.total <= 1.5 * (memory.weights + memory.live) + 4096, memory


def test_constants_are_laid_out_for_who_reads_them_and_counted() -> None:
    path = MODELS[0].with_name("linear_head.pte")
    (graph,) = load(path).graphs.values()
    nodes = [node.prepared for node in graph.nodes if node.prepared and node.prepared.constants]
    native = NativeExecutor().session(graph).memory
    assert not any(prepared._words for prepared in nodes), "native kernels read no words"
    emulated = NativeExecutor(force={"*": "emulated"}).session(graph).memory
    words = [prepared.words(name) for prepared in nodes for name in prepared.constants]
    largest = max(array.nbytes for array in words)
    assert native.weights / 2 < largest <= emulated.constants <= sum(array.nbytes for array in words)


def test_larger_constants_are_given_up_for_memory() -> None:
    graph = load(next(p for p in MODELS if p.stem == "mixed_ops")).graphs[0]
    free, kept = NativeExecutor(memory_limit=1e9).session(graph), NativeExecutor().session(graph)
    assert [step.route for step in free.steps].count("winograd4") == 1
    assert free.memory.ratio > 1.5 > kept.memory.ratio
    (row,) = [row for row in kept.rows() if "winograd4" in row["rejected"] and row["operator"] == "q8ta_conv2d"
              and "more than 1.5 times" in row["rejected"]["winograd4"]]  # fmt: skip
    assert row["route"] == "gemm"
    forced = NativeExecutor(force={"q8ta_conv2d_im2col": "winograd4"}).session(graph)
    assert "winograd4" in [step.route for step in forced.steps], "what is asked for is not given up"


def test_chains_are_joined_only_where_nobody_reads_between() -> None:
    model = load(next(p for p in MODELS if p.stem.startswith("mobilenet")))
    (graph,) = model.graphs.values()
    steps = NativeExecutor().session(graph).steps
    joined = [step for step in steps if len(step.nodes) == 3]
    assert len(joined) == 34
    for step in joined:
        names = [n.call.op.name if n.call else n.name for n in step.nodes]
        assert names == ["q8ta_dequantize", "aten.hardtanh.default", "q8ta_quantize"]
    assert sorted(n.number for step in steps for n in step.nodes) == [n.number for n in graph.nodes]


def test_threads_are_woken_for_long_graphs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def threads(name: str) -> set[int]:
        (graph, *_) = load(MODELS[0].with_name(f"{name}.pte")).graphs.values()
        return {part.threads for part in NativeExecutor(2).session(graph)._parts if isinstance(part, JobList)}

    monkeypatch.setattr(plan, "WAKING", 300_000)
    assert threads("linear_head") == {1}
    assert threads("refine_seg") == {2}
    monkeypatch.setattr(plan, "WAKING", 0)
    assert threads("linear_head") == {2}


def test_wrong_inputs_are_refused() -> None:
    graph = load(MODELS[0]).graphs[0]
    plan = NativeExecutor().session(graph)
    with pytest.raises(ShapeError, match="wrong number of inputs"):
        plan.run([])
    with pytest.raises(ShapeError, match="wrong shape"):
        plan.run([np.zeros((1, 2), np.float32)])


def test_routes_are_asked_for_by_the_operator_that_is_shown() -> None:
    (graph, *_) = load(MODELS[0].with_name("mixed_ops.pte")).graphs.values()

    def routes(force: dict[str, str]) -> dict[str, str]:
        rows = NativeExecutor(force=force).session(graph).rows()
        return {row["operator"]: row["route"] for row in rows}

    assert routes({})["q8ta_conv2d"] == "gemm"
    # the kernel that the composite becomes has the last word, any operator the first
    assert routes({"q8ta_conv2d": "emulated", "*": "gemm"})["q8ta_conv2d"] == "emulated"
    assert (
        routes({"q8ta_conv2d_general": "gemm", "q8ta_conv2d_im2col": "gemm", "q8ta_conv2d": "emulated"})[
            "q8ta_conv2d"
        ]
        == "gemm"
    )


@pytest.mark.parametrize(
    ("force", "problem"),
    [
        ({"q8ta_ad": "linear"}, "got q8ta_ad, need .*q8ta_add"),
        (
            {"q8ta_add": "gemm"},
            "route of q8ta_add: unknown; got gemm, need emulated, fma, linear, lut, via_nhwc",
        ),
        ({"*": "fast"}, "got fast, need .*gemm8.*winograd4"),
    ],
)
def test_routes_that_there_are_not_are_refused(force: dict[str, str], problem: str) -> None:
    (graph, *_) = load(MODELS[0].with_name("mixed_ops.pte")).graphs.values()
    with pytest.raises(ParameterError, match=problem):
        NativeExecutor(force=force).session(graph)


def test_rows_tell_routes_and_reasons() -> None:
    graph = load(next(p for p in MODELS if p.stem == "mixed_ops")).graphs[0]
    rows = NativeExecutor(force={UNARY.name: "emulated"}).session(graph).rows()
    by_operator = {row["operator"]: row for row in rows}
    assert by_operator[UNARY.name]["route"] == "emulated" and not by_operator[UNARY.name]["kernel"]
    assert by_operator[UNARY.name]["rejected"]["linear"] == "emulated is forced"
    assert by_operator["q8ta_conv2d_dw"]["kernel"].startswith("depthwise_")
    assert "winograd4" in by_operator["q8ta_conv2d_pw"]["rejected"]
