"""Exposed files on the simulated runtime: every buffer comes out, in every mode; the program's own outputs stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from device.simulated import Refused, Runtime
from refsim.core.buffer import ByteKind, PackedBuffer, byte_kinds
from refsim.core.errors import FormatError, GraphError, ParameterError, RefsimError
from refsim.core.layout import PACKED_4W4C
from refsim.core.rng import Rng
from refsim.device import manifest as m
from refsim.device.choose import candidates
from refsim.device.expose import ExposeOptions, expose, write
from refsim.device.strip import source
from refsim.exec.model import Model, load
from refsim.formats.dumps import value_name
from refsim.formats.pte import schema as pp
from refsim.formats.pte.edit import ProgramEditor, single_delegate
from refsim.formats.pte.read import read_pte
from refsim.formats.pte.write import write_pte
from refsim.formats.vkgraph.edit import GraphEditor
from refsim.graph.interpreter import Kept
from refsim.ops.base.target import Target

DATA = Path(__file__).parents[1] / "data"
#: Every bundled program with a delegate.
PROGRAMS = {path.stem: path for path in sorted(DATA.glob("[mn]*/*.pte")) if load(path).graphs}
MODES = {
    "words at the end": ExposeOptions(),
    "not filled": ExposeOptions(fill=None),
    "filled with ones": ExposeOptions(fill=0xFF),
    "words at once": ExposeOptions(share=True, fill=None),
    "values": ExposeOptions(m.VALUES, fill=None),
}


def drawn(model: Model, seed: int = 0) -> list[np.ndarray]:
    rng = Rng(seed)
    return [rng.uniform(-1.0, 1.0, shape).astype(dtype) for shape, dtype in model.input_shapes()]


def buffers(model: Model, inputs: list[np.ndarray]) -> dict[str, Any]:
    """Every value that an operator writes, as refsim has it."""
    found = Kept()
    model.run(inputs, observe=found)
    return {value_name(*key): held for key, held in found.items()}


@pytest.fixture(scope="module")
def runs() -> Callable[[str], tuple[list[np.ndarray], list[np.ndarray], dict[str, Any]]]:
    """Inputs, outputs and buffers of a program, computed once."""
    kept: dict[str, Any] = {}

    def run(name: str) -> Any:
        if name not in kept:
            model = load(PROGRAMS[name])
            x = drawn(model)
            kept[name] = x, model.run(x), buffers(model, x)
        return kept[name]

    return run


@pytest.mark.few(5)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_value_of_every_program(name: str, mode: str, runs) -> None:
    inputs, own, known = runs(name)
    (exposed,) = expose(PROGRAMS[name], MODES[mode])
    runtime = Runtime(exposed.data)
    outputs = runtime.run(inputs)
    rows = exposed.manifest.outputs
    assert len(outputs) == len(rows)
    for array, need in zip(outputs[: len(own)], own, strict=True):
        assert array.tobytes() == need.tobytes()  # the program's own outputs keep their places and their bits
    held = {row.value for row in rows} | set(exposed.manifest.left_out)
    assert set(known) <= held
    written = dict(runtime.written())
    for row, array in zip(rows, outputs, strict=True):
        if row.held is None or row.held.node is None:
            continue
        need = known[str(row.value)]
        if row.way == m.WORDS:
            raw = array.view(np.uint8)[: row.held.nbytes]
            assert raw.tobytes() == written[str(row.value)]  # padding and bytes that nobody wrote, too
            elements = byte_kinds(need.desc) == ByteKind.VALUE
            assert np.array_equal(raw[elements], need.raw[elements])
        else:
            unpacked = need.unpack() if isinstance(need, PackedBuffer) else need
            assert np.array_equal(array, unpacked.reshape(array.shape), equal_nan=True)
    assert runtime.hazards() == []


def test_what_no_kernel_writes_keeps_the_fill() -> None:
    """4W pads ten columns to twelve; the two lanes are in words that the kernel writes. Behind them lies nothing."""
    (exposed,) = expose(PROGRAMS["mixed_ops"], ExposeOptions(fill=0x5A))
    model = load(PROGRAMS["mixed_ops"])
    small = {row.value: row for row in exposed.manifest.outputs if row.held and len(row.held.layouts) > 1}
    assert small  # values whose layout the runtime chooses: the words reach as far as the largest layout
    for mali in (False, True):
        runtime = Runtime(exposed.data, Target(mali=mali))
        outputs = runtime.run(drawn(model))
        for row, array in zip(exposed.manifest.outputs, outputs, strict=True):
            if row.value in small:
                assert row.nbytes >= len(dict(runtime.written())[row.value])
                rest = array.view(np.uint8)[len(dict(runtime.written())[row.value]) :]
                assert not rest.size or set(rest.tolist()) == {0x5A}


@pytest.mark.parametrize("name", ["mixed_ops", "int8_attention"])
def test_chunks_hold_all_values_between_them(name: str, runs) -> None:
    inputs, own, _ = runs(name)
    (whole,) = expose(PROGRAMS[name], ExposeOptions())
    parts = expose(PROGRAMS[name], ExposeOptions(), chunk=4, name="x/y.pte")
    assert [one.manifest.file for one in parts] == [f"y.{n + 1}.pte" for n in range(len(parts))]
    all_of = [row.value for one in parts for row in one.manifest.outputs[one.manifest.own :]]
    assert all_of == [row.value for row in whole.manifest.outputs[whole.manifest.own :]]
    assert max(len(one.manifest.outputs) - one.manifest.own for one in parts) == 4
    for one in parts:
        outputs = Runtime(one.data).run(inputs)
        assert [a.tobytes() for a in outputs[: len(own)]] == [a.tobytes() for a in own]


@pytest.mark.few(5)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_source_is_in_the_file(name: str, mode: str, tmp_path: Path) -> None:
    path = tmp_path / "exposed.pte"
    write(path, expose(PROGRAMS[name], MODES[mode], name=str(path)))
    pte, manifest = m.read(path)
    again, first = source(pte, manifest), load(PROGRAMS[name])
    assert set(again.graphs) == set(first.graphs)
    for number, graph in first.graphs.items():
        other = again.graphs[number]
        assert [str(n) for n in other.nodes] == [str(n) for n in graph.nodes]
        assert other.outputs == graph.outputs
        assert [n.outputs for n in other.nodes] == [n.outputs for n in graph.nodes]
        used = {v for node in graph.nodes for v in node.outputs}
        assert [other.tensors[v].layout for v in used] == [graph.tensors[v].layout for v in used]
    x = drawn(first)
    assert [a.tobytes() for a in again.run(x)] == [a.tobytes() for a in first.run(x)]


def test_values_by_name() -> None:
    (exposed,) = expose(PROGRAMS["mixed_ops"], ExposeOptions(), ("v38$", "relu"))
    assert [row.value for row in exposed.manifest.outputs[1:]] == ["delegate0_v38", "delegate0_v55"]
    with pytest.raises(
        GraphError, match=r"--value: no such value; got 'conv7d', need a name such as delegate0_v30"
    ):
        expose(PROGRAMS["mixed_ops"], ExposeOptions(), ("relu", "conv7d"))
    with pytest.raises(ParameterError, match="not a regular expression"):
        expose(PROGRAMS["mixed_ops"], ExposeOptions(), ("(",))
    with pytest.raises(
        GraphError, match="delegate1_v10: cannot be handed out; got bool: a delegate hands out"
    ):
        expose(PROGRAMS["int8_attention"], ExposeOptions(), ("delegate1_v10",))


def test_what_is_left_out_has_a_reason() -> None:
    (exposed,) = expose(PROGRAMS["int8_mixer"], ExposeOptions())
    assert list(exposed.manifest.left_out) == ["delegate0_v10"]
    assert "int8 in the layout TENSOR_WIDTH_PACKED" in exposed.manifest.left_out["delegate0_v10"]


def test_a_prepacked_value_has_no_words() -> None:
    """The runtime aborts where its memory has a second name; without a way it goes out as values, of words it is left
    out."""
    prepacked = "delegate0_v9"
    for options in (ExposeOptions(), ExposeOptions(share=True, fill=None)):
        (exposed,) = expose(PROGRAMS["int8_scaled"], options)
        ways = {row.value: row.way for row in exposed.manifest.outputs}
        assert ways.pop(prepacked) == m.VALUES and m.WORDS in ways.values() and m.VALUES not in ways.values()
    words = ExposeOptions(m.WORDS)
    (exposed,) = expose(PROGRAMS["int8_scaled"], words)
    assert list(exposed.manifest.left_out) == [prepacked]
    with pytest.raises(GraphError, match=f"{prepacked}: cannot be handed out"):
        expose(PROGRAMS["int8_scaled"], words, (f"{prepacked}$",))


# --- what is refused before anything is written ------------------------------------------------------------


def plan_of(**change: Any) -> Callable[[bytes], bytes]:
    """A program with another plan: each change is a function of it."""

    def edit(data: bytes) -> bytes:
        pte = read_pte(data)
        plan = replace(pte.plan(), **{key: value(pte.plan()) for key, value in change.items()})
        return write_pte(replace(pte.program, plans=(plan,)), pte.segments)

    return edit


def chain(edit: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Callable[[pp.Plan], tuple[pp.Chain, ...]]:
    return lambda plan: (replace(plan.chains[0], instructions=edit(plan.chains[0].instructions)),)


def dynamic(plan: pp.Plan) -> tuple[Any, ...]:
    return tuple(replace(v, shape_dynamism=1) if isinstance(v, pp.Tensor) else v for v in plan.values)


def packed_border(data: bytes) -> bytes:
    graph = GraphEditor()
    packed = graph.tensor("int8", (1, 4, 2, 4), PACKED_4W4C)
    graph.input(packed)
    graph.output(graph.clone(packed, graph.tensor("int8", (1, 4, 2, 4), PACKED_4W4C)))
    return single_delegate(graph.blob(), [("int8", (1, 4, 2, 4))], [("int8", (1, 4, 2, 4))])


REFUSALS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "control flow": (
        plan_of(chains=chain(lambda steps: (pp.JumpFalseCall(0, 1), *steps))),
        "instruction 0: control flow: a delegate may not run at all",
    ),
    "called twice": (plan_of(chains=chain(lambda steps: steps * 2)), "delegate 0: is not called once; got 2"),
    "never called": (plan_of(chains=chain(lambda steps: ())), "delegate 0: is not called once; got 0"),
    "two chains": (plan_of(chains=lambda plan: plan.chains * 2), "more than one chain; got 2"),
    "dynamic tensors": (plan_of(values=dynamic), "dynamic shapes"),
    "a packed border": (packed_border, "a packed int8 input: the runtime stages a quarter"),
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_files_that_cannot_be_exposed(reason: str, tmp_path: Path) -> None:
    edit, match = REFUSALS[reason]
    path = tmp_path / "changed.pte"
    path.write_bytes(edit(PROGRAMS["linear_head"].read_bytes()))
    with pytest.raises(GraphError, match=match):
        expose(path, ExposeOptions())


def test_a_delegate_that_is_never_called_has_no_values_to_hand_out(tmp_path: Path) -> None:
    path = tmp_path / "m.pte"
    path.write_bytes(REFUSALS["never called"][0](PROGRAMS["linear_head"].read_bytes()))
    with pytest.raises(GraphError, match="is never called"):
        candidates(load(path))


def test_files_without_a_delegate(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="has no Vulkan delegate"):
        expose(DATA / "networks" / "portable_pool.pte", ExposeOptions())
    pte = load(PROGRAMS["linear_head"]).container
    assert pte is not None
    blob = tmp_path / "blob"
    blob.write_bytes(pte.delegate_data(pte.plan().delegates[0]))
    with pytest.raises(RefsimError, match=r"missing constant|bare delegate"):
        expose(blob, ExposeOptions())


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"way": "bytes"}, "unknown way; got bytes"),
        ({"fill": 256}, "not a byte to fill with; got 256"),
        ({"share": True}, "a fill writes memory that other values share"),
        ({"way": m.VALUES}, "a fill writes memory that other values share"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ParameterError, match=match):
        ExposeOptions(**options)


def test_all_files_are_written_or_none(tmp_path: Path) -> None:
    files = expose(PROGRAMS["mixed_ops"], ExposeOptions(), chunk=5, name="m.pte")
    (tmp_path / "m.2.pte").mkdir()  # a file of this name cannot be made
    with pytest.raises(FormatError, match="cannot be written"):
        write(tmp_path / "m.pte", files)
    assert not [path for path in tmp_path.iterdir() if path.is_file() and path.suffix == ".tmp"]
    with pytest.raises(FormatError, match="cannot be written"):
        write(tmp_path / "nowhere" / "m.pte", files)
    assert not (tmp_path / "nowhere").exists()


# --- the simulated runtime refuses what the runtime refuses --------------------------------------------------


def exposed_program() -> bytes:
    (found,) = expose(PROGRAMS["linear_head"], ExposeOptions())
    return found.data


def without_constants(data: bytes) -> bytes:
    pte = read_pte(data)
    return write_pte(replace(pte.program, constant_segment=None), pte.segments)


def appended(
    edit: Callable[[GraphEditor], int], dtype: str, shape: tuple[int, ...]
) -> Callable[[bytes], bytes]:
    """One more output, given by an edit of the delegate's graph."""

    def apply(data: bytes) -> bytes:
        pte = read_pte(data)
        ((_, blob),) = pte.blobs(pte.plan())
        graph = GraphEditor(blob)
        graph.output(edit(graph))
        editor = ProgramEditor(pte)
        editor.output(0, dtype, shape)
        editor.set_blob(0, graph.blob())
        return editor.write()

    return apply


def with_words_of_a_constant(data: bytes) -> bytes:
    """A constant that is prepacked, and its words as one more output."""

    def edit(graph: GraphEditor) -> int:
        packed = graph.tensor("int8", (1, 4, 2, 4), PACKED_4W4C)
        graph.prepack(graph.constant(np.zeros((1, 4, 2, 4), np.int8)), packed)
        graph.own_memory(packed)
        return graph.alias(packed, 32)

    return appended(edit, "int32", (8,))(data)


def last_tensor(**change: Any) -> Callable[[bytes], bytes]:
    return plan_of(values=lambda plan: (*plan.values[:-1], replace(plan.values[-1], **change)))


RULES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "no constant segment": (without_constants, "no constant segment"),
    "an arena that did not grow": (
        plan_of(arena_sizes=lambda plan: (0, plan.arena_sizes[1] - 16)), "value 5 leaves arena 1",
    ),
    "an arena that there is not": (last_tensor(allocation=pp.Allocation(2)), "value 5 leaves arena 2"),
    "an argument too few": (
        plan_of(chains=chain(lambda steps: (replace(steps[0], args=steps[0].args[:-1]),))),
        "takes 6 arguments, not 5",
    ),
    "another size": (last_tensor(sizes=(23,)), r"has sizes \(23,\), the delegate \(24,\)"),
    "another dtype": (last_tensor(scalar_type=6), "is float32, the delegate's tensor is int32"),
    "a packed output": (appended(lambda graph: 17, "int8", (6, 64)), "output value 17: a packed tensor"),
    "words of what is prepacked": (with_words_of_a_constant, "already bound"),
    "an unknown operator": (
        appended(lambda g: g.call("aten.nonsense.default", 20, g.tensor("int32", (1,))), "int32", (1,)),
        "Missing operator: aten.nonsense",
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_the_double_refuses(rule: str) -> None:
    edit, match = RULES[rule]
    with pytest.raises(Refused, match=match):
        Runtime(edit(exposed_program()))


def test_the_double_takes_what_converts() -> None:
    """int64 outside is staged as int32, and float16 as float32."""
    wide = plan_of(arena_sizes=lambda plan: (0, plan.arena_sizes[1] + 96))
    Runtime(last_tensor(scalar_type=4, sizes=(24,), allocation=pp.Allocation(1, 0))(wide(exposed_program())))


def handing_out(alias: tuple[int, int], before: int | None = None) -> tuple[Runtime, list[np.ndarray]]:
    """A run of a program that also hands out the memory of a value, at its end or before a call."""
    model = load(PROGRAMS["linear_head"])
    assert model.container is not None and model.plan is not None
    ((_, blob),) = model.container.blobs(model.plan)
    graph, editor = GraphEditor(blob), ProgramEditor(model.container)
    words, shape = graph.alias(*alias), (alias[1] // 4,)
    graph.output(words if before is None else graph.clone(words, graph.tensor("int32", shape), before=before))
    editor.output(0, "int32", shape)
    editor.set_blob(0, graph.blob())
    runtime = Runtime(editor.write())
    return runtime, runtime.run(drawn(model))


def test_memory_that_is_used_again_is_read_too_late() -> None:
    """A value that keeps its shared memory object and goes out at the end holds what was written there last."""
    runtime, outputs = handing_out((20, 1024))  # shares its object with the output of the last linear
    written = dict(runtime.written())
    assert outputs[1].tobytes() != written["delegate0_v20"]
    assert outputs[1].tobytes()[:96] == written["delegate0_v28"]


def test_an_alias_that_nothing_waits_for_is_a_hazard() -> None:
    """Fills that follow each other, and a copy in front of the value's first reader, have no barrier between them."""
    assert [len(handing_out((17, 512), at)[0].hazards()) for at in (1, 2)] == [1, 0]
