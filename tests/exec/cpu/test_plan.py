"""Whole graphs: the same outputs as node by node, memory shared soundly, nothing left over from another run."""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from builder import Builder
from examples import UNARY
from exec.recorded import DATA, files

from refsim.core.errors import ParameterError, RawBufferError, ShapeError
from refsim.core.lifetimes import ALIGN
from refsim.core.rng import Rng
from refsim.exec.cpu import EmulatedExecutor, NativeExecutor, schedule
from refsim.exec.cpu import plan as plans_of
from refsim.exec.cpu.isa import cpu
from refsim.exec.cpu.plan import READ_THERE_BYTES, CpuPlan, Stretch
from refsim.exec.executor import Executor
from refsim.exec.model import Model, load
from refsim.graph.graph import Graph, Node, Ref
from refsim.graph.interpreter import Event, Kept, Observer
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS

MODELS = files("models")
MOBILENET = "mobilenet_v2_035_96"
Seen = dict[tuple[int, int], bytes]


def path_of(name: str) -> Path:
    return DATA / "models" / f"{name}.pte"


def graph_of(name: str) -> Graph:
    """The first of a bundled model."""
    graph: Graph = load(path_of(name)).graphs[0]
    return graph


@pytest.mark.few(2)
@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_outputs_in_the_layouts_of_the_file(path: Path) -> None:
    """test_recorded_outputs.py runs all files in layouts of the plan's own, watched and not."""
    model, executor = load(path), NativeExecutor(3, own_layouts=False)
    for seed in (1, 2, 1):  # a second run must not see what the first left behind
        given = model.random_inputs(seed)
        expected, actual = model.run(given, EmulatedExecutor()), model.run(given, executor)
        assert [(a.shape, a.tobytes()) for a in actual] == [(e.shape, e.tobytes()) for e in expected], seed


# --- observed ------------------------------------------------------------------------------------------


def buffers(model: Model, given: list[np.ndarray], executor: Executor, wants: set[tuple[int, int]]) -> Seen:
    """The bytes of some values (delegate, id)."""
    seen = Kept()
    model.run(given, executor, Observer(seen, lambda delegate, value: (delegate, value) in wants))
    return seen.raw()


def test_padding_that_is_copied_comes_from_a_buffer_in_the_graphs_layout() -> None:
    """A clone copies padding bytes; a watched one must have those that the quantize before it wrote."""
    graph = graph_of("mixed_ops")
    (quantize,) = [n for n in graph.nodes if n.call and n.call.op.name == "q8ta_quantize"]
    (x,) = quantize.outputs
    desc, out = graph.tensors[x].desc, max(graph.tensors) + 1
    assert desc is not None
    call = OPS["q8ta_clone"].bind(OPS["q8ta_clone"].make_params({}), {"x": desc}, {}, desc.layout)
    clone = Node(len(graph.nodes), 0, "clone", (Ref(x),), (out,), Prepared(call), {"x": x})
    tensors = {**graph.tensors, out: replace(graph.tensors[x], id=out)}
    graph = replace(graph, tensors=tensors, nodes=(*graph.nodes, clone))
    model = Model("test", {0: graph})
    given = model.random_inputs(1)
    expected = buffers(model, given, EmulatedExecutor(), {(0, out)})
    for force in ({}, {"q8ta_clone": "emulated"}):
        assert buffers(model, given, NativeExecutor(force=force), {(0, out)}) == expected


def test_times_alone_are_of_the_plan_that_runs_without_an_observer() -> None:
    model, executor = load(path_of(MOBILENET)), NativeExecutor()
    given = model.random_inputs(1)
    ((number, graph),) = model.graphs.items()
    events: list[Event] = []
    outputs = model.run(given, executor, Observer(events.append, lambda delegate, value: False))
    assert [a.tobytes() for a in outputs] == [a.tobytes() for a in model.run(given, executor)]
    assert [event.nodes for event in events] == [step.nodes for step in executor.session(graph).steps]
    assert len(executor._plans) == 1, "the same plan"
    assert all(event.seconds > 0 and not event.outputs and event.delegate == number for event in events)
    assert events[2].node.number == events[2].nodes[-1].number


@pytest.mark.parametrize(("word", "problem"), [(0, "wrote before"), (-1, "wrote behind")])
def test_a_write_beside_a_watched_value_is_an_error(word: int, problem: str) -> None:
    model, executor = load(path_of("linear_head")), NativeExecutor()
    ((number, graph),) = model.graphs.items()
    value = graph.nodes[1].outputs[0]
    observer = Observer(lambda event: None, lambda delegate, asked: asked == value)
    model.run(model.random_inputs(1), executor, observer)
    executor.session(graph, {value})._guarded[value][word] ^= 1
    with pytest.raises(RawBufferError, match=f"delegate {number}: node 1 .*{problem} the buffer"):
        model.run(model.random_inputs(1), executor, observer)


def test_an_observed_run_makes_one_plan_and_prepacks_nothing_else() -> None:
    model, executor = load(path_of("mixed_ops")), NativeExecutor()
    model.run(model.random_inputs(1), executor, lambda event: None)
    assert len(executor._plans) == len(model.graphs) and not executor._calls


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_memory_is_close_to_the_least(path: Path, threads: int) -> None:
    model, executor = load(path), NativeExecutor(threads)
    for graph in model.graphs.values():
        memory = executor.session(graph).memory
        assert memory.live <= memory.values <= 1.5 * memory.live + 8 * ALIGN
        assert memory.weights == sum(t.data.nbytes for t in graph.tensors.values() if t.data is not None)
        assert memory.constants >= memory.weights / 2, "the weights are not counted"
        # a processor that multiplies no bytes keeps weights in 16 bits
        weights = memory.weights * (1 if cpu().isa.dpbusd else 2)
        # of a few hundred bytes, argument blocks and alignment are the most
        assert memory.total <= 1.5 * (weights + memory.live) + 4096, memory


def test_constants_are_laid_out_for_who_reads_them_and_counted() -> None:
    graph = graph_of("linear_head")
    nodes = [node.prepared for node in graph.nodes if node.prepared and node.prepared.constants]
    native = NativeExecutor().session(graph).memory
    assert not any(prepared._words for prepared in nodes), "native kernels read no words"
    emulated = NativeExecutor(force={"*": "emulated"}).session(graph).memory
    words = [prepared.words(name) for prepared in nodes for name in prepared.constants]
    largest = max(array.nbytes for array in words)
    assert native.weights / 2 < largest <= emulated.constants <= sum(array.nbytes for array in words)


@pytest.mark.usefixtures("no_tiles")
def test_larger_constants_are_given_up_for_memory() -> None:
    graph = graph_of("mixed_ops")
    free, kept = NativeExecutor(memory_limit=1e9).session(graph), NativeExecutor().session(graph)
    assert [step.route for step in free.steps].count("winograd4") == 1
    assert free.memory.ratio > 1.5 > kept.memory.ratio
    (row,) = [row for row in kept.rows() if "winograd4" in row.rejected and row.operator == "q8ta_conv2d"
              and "more than 1.5 times" in row.rejected["winograd4"]]  # fmt: skip
    assert row.route == "gemm"
    forced = NativeExecutor(force={"q8ta_conv2d_im2col": "winograd4"}).session(graph)
    assert "winograd4" in [step.route for step in forced.steps], "what is asked for is not given up"


def test_nodes_are_fused_only_where_nobody_reads_between() -> None:
    graph = graph_of(MOBILENET)
    steps = NativeExecutor().session(graph).steps
    joined = int(cpu().isa.lookup)  # then the convolution before them looks the bytes up
    fused = [step for step in steps if len(step.nodes) == 3 + joined]
    assert len(fused) == 34
    for step in fused:
        *before, x, clamp, y = [n.call.op.name if n.call else n.name for n in step.nodes]
        assert [x, clamp, y] == ["q8ta_dequantize", "aten.hardtanh.default", "q8ta_quantize"]
        assert len(before) == joined and all(name.startswith("q8ta_conv2d") for name in before)
    assert sorted(n.number for step in steps for n in step.nodes) == [n.number for n in graph.nodes]


def test_threads_are_woken_for_long_graphs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def threads(name: str) -> set[int]:
        parts = NativeExecutor(2).session(graph_of(name))._parts
        return {part.threads for part in parts if isinstance(part, Stretch)}

    monkeypatch.setattr(schedule, "WAKING", 300_000)
    assert threads("linear_head") == {1}
    assert threads("refine_seg") == {2}
    monkeypatch.setattr(schedule, "WAKING", 0)
    assert threads("linear_head") == {2}


@pytest.mark.parametrize("there", [True, False])
def test_inputs_that_are_read_where_they_lie_or_copied(monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    """Whatever their strides and order; other dtypes are converted or refused as NumPy does it."""
    if not there:
        monkeypatch.setattr(Stretch, "readers", lambda *_: [])
    graph = graph_of(MOBILENET)
    (shape,) = (graph.tensors[value].shape for value in graph.inputs)
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    assert x.nbytes >= READ_THERE_BYTES
    plans = [NativeExecutor(threads).session(graph) for threads in (1, 2, 3)]
    expected = plans[0].run([x])[0].tobytes()
    columns = np.asfortranarray(x)
    swapped = x.astype(">f4")
    for plan in plans:
        for given in (x, columns, x[:, :, ::-1][:, :, ::-1], x.astype(np.float64), swapped):
            assert plan.run([given])[0].tobytes() == expected
            assert plan.run([np.zeros_like(x)])[0].tobytes() != expected
        with pytest.raises(TypeError, match="same_kind"):
            plan.run([x.astype(complex)])
        # who observes has the same jobs read from the plan's own memory
        for other in (np.zeros_like(x), np.ones_like(x)):
            plan.run([other])
            assert plan.run([x], observe=Observer(lambda _: None, lambda *_: False))[0].tobytes() == expected


def conversions(columns: int) -> Graph:
    """An image of 31 channels and one row to bytes and back."""
    b = Builder()
    return b.graph(b.entered((1, 31, 1, columns), (0.02, 3)))


@pytest.mark.skipif(not hasattr(mmap, "PROT_READ"), reason="pages cannot be closed here")
def test_nothing_is_read_behind_an_input_that_is_read_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans_of, "READ_THERE_BYTES", 0)
    whole, page = cpu().isa.lanes, mmap.PAGESIZE
    x = Rng(1).uniform(-3.0, 3.0, (1, 31, 1, whole)).astype(np.float32)
    made = NativeExecutor().session(conversions(whole))
    assert len(made._parts[0].readers(0)) == 1  # type: ignore[union-attr]
    expected = made.run([x])[0].tobytes()
    memory = np.frombuffer(mmap.mmap(-1, 2 * page), np.uint8)
    last = memory[:page][-x.nbytes :].view(np.float32).reshape(x.shape)
    last[...] = x
    protect, behind = ctypes.CDLL(None).mprotect, ctypes.c_void_p(memory.ctypes.data + page)
    assert protect(behind, ctypes.c_size_t(page), 0) == 0
    try:
        found = made.run([last])[0].tobytes()
    finally:
        protect(behind, ctypes.c_size_t(page), mmap.PROT_READ | mmap.PROT_WRITE)
    assert found == expected
    # here a vector of the last row ends behind it
    made = NativeExecutor().session(conversions(whole + 1))
    assert not made._parts[0].readers(0)  # type: ignore[union-attr]


@pytest.mark.parametrize("large", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("there", [True, False])
def test_large_inputs_are_read_where_they_lie_or_copied_by_all(
    monkeypatch: pytest.MonkeyPatch, threads: int, large: bool, there: bool
) -> None:
    """No byte shows who copies: the caller copies what is smaller, and if there is no other thread."""
    if not there:
        monkeypatch.setattr(Stretch, "readers", lambda *_: [])
    graph = graph_of(MOBILENET)
    (nbytes,) = (4 * np.prod(graph.tensors[value].shape) for value in graph.inputs)
    monkeypatch.setattr(plans_of, "READ_THERE_BYTES", nbytes if large else nbytes + 1)
    made = NativeExecutor(threads).session(graph)
    assert made._quick is not None
    (given,) = made._quick[0]
    own = {id(r.block) for step in made.steps for job in step.jobs for r in job.relocations}
    by_step = {id(r.block) in own for r in given._readers}
    assert by_step == ({there} if large and (there or threads > 1) else set())


def test_wrong_inputs_are_refused() -> None:
    plan = NativeExecutor().session(graph_of("linear_head"))
    with pytest.raises(ShapeError, match="wrong number of inputs"):
        plan.run([])
    with pytest.raises(ShapeError, match="wrong shape"):
        plan.run([np.zeros((1, 2), np.float32)])


@pytest.mark.usefixtures("no_tiles")
def test_routes_are_asked_for_by_the_operator_that_is_shown() -> None:
    graph = graph_of("mixed_ops")

    def routes(force: dict[str, str]) -> dict[str, str]:
        rows = NativeExecutor(force=force).session(graph).rows()
        return {row.operator: row.route for row in rows}

    assert routes({})["q8ta_conv2d"] == "gemm"
    # the kernel that the composite becomes has the last word, any operator the first
    assert routes({"q8ta_conv2d": "emulated", "*": "gemm"})["q8ta_conv2d"] == "emulated"
    kernels = dict.fromkeys(("q8ta_conv2d_general", "q8ta_conv2d_im2col"), "gemm")
    assert routes(kernels | {"q8ta_conv2d": "emulated"})["q8ta_conv2d"] == "gemm"


@pytest.mark.parametrize(
    ("force", "problem"),
    [
        ({"q8ta_ad": "linear"}, "got q8ta_ad, need .*q8ta_add"),
        (
            {"q8ta_add": "gemm"},
            "route of q8ta_add: unknown; got gemm, need emulated, fma, linear, lut, via_nhwc",
        ),
        ({"*": "fast"}, "got fast, need amx, amx_emulated, contiguous, .* and . more"),
    ],
)
def test_routes_that_there_are_not_are_refused(force: dict[str, str], problem: str) -> None:
    graph = graph_of("mixed_ops")
    with pytest.raises(ParameterError, match=problem):
        NativeExecutor(force=force).session(graph)


def test_rows_tell_routes_and_reasons() -> None:
    graph = graph_of("mixed_ops")
    rows = NativeExecutor(force={UNARY.name: "emulated"}).session(graph).rows()
    by_operator = {row.operator: row for row in rows}
    assert by_operator[UNARY.name].route == "emulated" and not by_operator[UNARY.name].kernel
    assert by_operator[UNARY.name].rejected["linear"] == "emulated is forced"
    assert by_operator["q8ta_conv2d_dw"].kernel.startswith("depthwise_")
    assert "winograd4" in by_operator["q8ta_conv2d_pw"].rejected


def test_steps_that_are_all_native_are_one_call() -> None:
    """A run without an observer then copies, calls and copies: nothing is done for each step."""
    quick = {}
    for path in MODELS:
        for graph in load(path).graphs.values():
            plan = CpuPlan(graph, schedule.Options())
            single = len(plan._parts) == 1 and all(step.is_native for step in plan.steps)
            assert (plan._quick is not None) == single, path.stem
            quick[path.stem] = quick.get(path.stem, False) or single
    assert quick["linear_head"] and quick["linear_head_gemv"] and quick["refine_seg"], quick
