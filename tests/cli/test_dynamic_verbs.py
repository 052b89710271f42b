"""Programs with dynamic dims in every verb: the inputs alone say the shape."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from device.simulated import Runtime
from saved import arrays

from refsim.check.finding import Level
from refsim.check.run import check
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import ShapeError
from refsim.core.tensor import TensorDesc
from refsim.devtools.gaps import gaps_of
from refsim.exec.factory import executor_named
from refsim.formats.cases import read_folder
from refsim.graph.interpreter import Event

sys.path.insert(0, str(Path(__file__).parents[1] / "exec"))
from recorded_shapes import DEFECTS, FOLDER, NAMES, Shape, model, path

FCN, SLICE = path("fcn_add"), path("seq_slice")


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """The inputs of `fcn_add` at its second shape."""
    return saved(tmp_path, Shape("fcn_add", 1))


def saved(folder: Path, one: Shape) -> Path:
    return arrays(folder / f"{one.program}.s{one.number}.npz", one.inputs, "in")


def test_a_run_its_dump_and_its_comparison(refsim, tmp_path: Path, inputs: Path) -> None:
    need = Shape("fcn_add", 1).recorded(0)
    assert need is not None
    arrays(tmp_path / "need.npz", [need])
    given, dump = f"{FCN} -i {inputs}", f"{tmp_path}/dump"
    assert refsim(f"run {given} --expect {tmp_path}/need.npz --dump . {dump}").status == 0
    for line in (
        f"run {given} --golden {dump}", f"bisect {given} --actual {dump}", f"compare {given} -x cpu -x cpu:emulated",
        f"repeat {given} -n 2",
    ):  # fmt: skip
        assert refsim(line).status == 0, line
    other = saved(tmp_path, Shape("fcn_add", 2))
    assert refsim(f"bisect {FCN} -i {other} --actual {dump}").status == 2


def test_a_case_of_one_shape(refsim, tmp_path: Path) -> None:
    given, case = saved(tmp_path, Shape("general_bound", 3)), tmp_path / "case"
    assert refsim(f"extract {path('general_bound')} -n 1 -i {given} -o {case}").status == 0
    assert read_folder(case).bound.call.op.name == "q8ta_conv2d_general"
    assert refsim(f"replay {case}").status == 0


def test_inspect_shows_bounds_and_formulas(refsim) -> None:
    whole = refsim(f"inspect {SLICE} --json").json
    assert whole["bounds"] == [{"input": "in0", "dtype": "float32", "shape": [1, 20, 16]}]
    found = [
        one["delegates"][0] for one in (whole, refsim(f"inspect {SLICE} --shape in0=1,6,16 --json").json)
    ]
    rows = [[(n["formula"], n["number"]) for n in one["numbers"]] for one in found]
    assert rows == [[("size(v8, 1)", 20), ("v16 // 2", 10)], [("size(v8, 1)", 6), ("v16 // 2", 3)]]
    assert found[0]["memory"] == found[1]["memory"]
    grids = [one["operators"][0]["dispatches"][0]["grid"] for one in found]
    assert grids[0] != grids[1]


@pytest.mark.parametrize("given", ["in0=1,21,16", "in1=1,6,16", "in0=1,6", "in0", "in0=1,7,16"])
def test_shapes_that_no_run_has(refsim, given: str) -> None:
    assert refsim(f"inspect {SLICE} --shape {given}").status == 2


def test_expose_and_triage_at_one_shape(refsim, tmp_path: Path, inputs: Path) -> None:
    exposed, outs, dump = (tmp_path / name for name in ("exposed.pte", "outs.npz", "dump"))
    refsim(f"expose {FCN} -o {exposed}").refused("--shape in0=1,3,32,32")
    assert refsim(f"expose {FCN} -o {exposed} --shape in0=1,3,23,32").status == 0
    arrays(outs, Runtime(exposed.read_bytes()).run(Shape("fcn_add", 1).inputs))
    done = refsim(f"triage {exposed} -i {inputs} --outputs {outs} --json")
    assert done.status == 0 and done.json["same"]
    assert refsim(f"collect {exposed} {outs} -o {dump}").status == 0
    assert refsim(f"bisect {FCN} -i {inputs} --actual {dump} --partial").status == 0


@pytest.mark.parametrize(("name", "given"), [("fcn_add", "in0=1,3,32,32"), ("da4w_rows", "in0=1,16,64")])
def test_expose_at_the_bound(name: str, given: str, refsim, tmp_path: Path) -> None:
    file = tmp_path / "m.pte"
    assert refsim(f"expose {path(name)} -o {file} --shape {given}").status == 0
    outs = Runtime(file.read_bytes()).run(Shape(name, 0).inputs)
    (need,) = model(name).run(Shape(name, 0).inputs)
    assert outs[0].tobytes() == need.tobytes()


def test_recorded_calls_of_a_delegate_have_the_shapes_of_their_inputs() -> None:
    """What an ETDump has of a delegate that also reads a SymInt's tensor."""
    whole, one = model("sym_in"), Shape("sym_in", 1)
    seen: dict[tuple[int, int], np.ndarray] = {}

    def keep(event: Event) -> None:
        for value, held in event.outputs.items():
            seen[event.delegate, value] = held.unpack() if isinstance(held, PackedBuffer) else held

    outs = whole.run(one.inputs, observe=keep)
    middle = np.cumsum(seen[0, 1], axis=1, dtype=np.float32)
    arguments = [one.inputs[0], middle, *outs]
    rows = gaps_of(whole, 1, arguments, executor_named("cpu"), "here")
    assert [(gap.shape, gap.differing) for gap, _ in rows] == [((1, 9, 8), 0), ((1, 18, 4), 0)]
    with pytest.raises(ShapeError):
        gaps_of(whole, 1, [one.inputs[0][0], middle, *outs], executor_named("cpu"), "here")


def dumped(folder: Path, one: Shape, at_the_run: bool = False) -> Path:
    """What the runtime wrote at a shape, as a dump folder: each buffer with the sizes that its tensor had, or with
    those that it should have had."""
    folder.mkdir()
    graph = model(one.program).graphs[0]
    with zipfile.ZipFile(FOLDER / f"{one.program}.shapes.zip") as archive:
        rows = json.loads(archive.read(f"s{one.number}/delegate0.json"))
        for row in rows:
            if "raw" not in row:
                continue
            if at_the_run:
                row["sizes"] = model(one.program).at(one.inputs).graphs[0].tensors[row["value"]].shape
            name, layout = f"delegate0_v{row['value']}", graph.tensors[row["value"]].layout
            assert layout is not None
            nbytes = TensorDesc(tuple(row["sizes"]), layout).nbytes
            raw = archive.read(f"s{one.number}/{row['raw']}")[:nbytes]
            (folder / f"{name}.bin").write_bytes(raw)
            about = {"value": name, "shape": row["sizes"], "layout": layout.name, "dtype": "int8"}
            (folder / f"{name}.json").write_text(json.dumps(about))
    return folder


def bisected(refsim, folder: Path, one: Shape, at_the_run: bool = False):
    """What bisect says of the runtime's dump at a shape."""
    dump = dumped(folder / f"dump{one.number}", one, at_the_run)
    return refsim(f"bisect {path(one.program)} -i {saved(folder, one)} --actual {dump} --json")


@pytest.mark.parametrize(("number", "elements"), [(1, 1408), (2, 1152), (3, 240)])
def test_a_clone_that_was_not_resized(number: int, elements: int, refsim, tmp_path: Path) -> None:
    """Its elements lie at the bound's places, all that follows has the bound's shape, and the file is warned of."""
    one = Shape("clone_branch", number)
    done = bisected(refsim, tmp_path, one)
    assert done.status == 1 and done.json["wrong"] == ["delegate0_v40"]
    assert done.json["causes"] == {
        "delegate0_v40": f"not resized: it has the bound's shape 1x8x16x16; all {elements} elements lie right, where "
        f"the bound has them, and {2048 - elements} other elements are stale rows"
    }
    given = f"-i {saved(tmp_path, one)} --actual {tmp_path}/dump{number}"
    text = refsim(f"bisect {path('clone_branch')} {given}").out
    assert "the bound's shape: it follows from node 3 aten.clone.default, which is not resized" in text


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "value", "cause"),
    [
        (1, "delegate0_v48", "stale rows: it may have read those of node 3 aten.clone.default, which is not resized"),
        (2, "delegate0_v40", "not resized: 648 elements lie right, where the bound's shape 1x8x16x16 has them"),
        (3, "delegate0_v40", "not resized: 96 elements lie right, where the bound's shape 1x8x16x16 has them"),
    ],
)  # fmt: skip
def test_a_clone_that_was_dumped_with_the_sizes_of_the_run(
    number: int, value: str, cause: str, refsim, tmp_path
) -> None:
    """As many bytes as it should have had, of which the elements are at the bound's places. With all of its width these
    are its own places, and the convolution behind it is the first that shows the stale rows."""
    done = bisected(refsim, tmp_path, Shape("clone_branch", number), at_the_run=True)
    assert done.status == 1 and done.json["wrong"][0] == value
    assert done.json["causes"][value].startswith(cause)


@pytest.mark.parametrize("number", [1, 2])
def test_what_follows_a_split_has_the_bounds_shape(refsim, tmp_path: Path, number: int) -> None:
    one = Shape("split_glu", number)
    dump = dumped(tmp_path / "dump", one)
    text = refsim(f"bisect {path('split_glu')} -i {saved(tmp_path, one)} --actual {dump}").out
    cause = "it follows from node 3 aten.split_with_sizes_copy.default, which is not resized"
    assert text.count(f"the bound's shape: {cause}") == 2


def test_a_linear_for_one_row_that_was_not_resized(refsim, tmp_path: Path) -> None:
    done = bisected(refsim, tmp_path, Shape("gemv_lead", 1))
    assert done.status == 1 and "the bound's shape 4x1x" in str(done.json["causes"])


def test_a_sequence_of_shapes(refsim, tmp_path: Path) -> None:
    files = [saved(tmp_path, Shape("split_glu", number)) for number in (0, 2, 1)]
    done = refsim("run", path("split_glu"), "--sequence", *files, "--json")
    assert done.status == 1 and not done.json["same"]
    rows = [(step["right"], step["as_alone"], step["outputs"][0]["stale"]) for step in done.json["sequence"]]
    assert rows == [(True, True, 0), (False, False, 104), (False, False, 56)]
    images = [saved(tmp_path, Shape("fcn_add", number)) for number in (0, 3, 1)]
    assert refsim(f"run {FCN} --sequence", *images).status == 0
    stops = [saved(tmp_path, Shape("perm_neg", number)) for number in (1, 0)]
    found = refsim("run", path("perm_neg"), "--sequence", *stops, "--json")
    assert found.status == 1 and all(step["stopped"] for step in found.json["sequence"])


@pytest.mark.parametrize(
    ("name", "number", "wrong"),
    [("clone_branch", 1, ["q8ta_clone"]), ("clone_branch", 0, []), ("fcn_add", 1, []), ("attn_da4w", 1, [])],
)
def test_a_run_says_what_the_runtime_gets_wrong(name: str, number: int, wrong, refsim, tmp_path) -> None:
    given = saved(tmp_path, Shape(name, number))
    found = refsim(f"run {path(name)} -i {given} --json").json["upstream"]
    assert [row["operator"].replace("aten.clone", "q8ta_clone") for row in found] == wrong


@pytest.mark.parametrize("name", NAMES)
def test_files_are_warned_of_where_the_runtime_is_wrong(name: str) -> None:
    warned = {f.rule for f in check(path(name)) if f.level is Level.WARNING} - {"known-defect"}
    stops = {"perm_neg", "w4_4d"}
    wanted = {"resize-stops"} if name in stops else {"unresized-output"} if name in DEFECTS else set()
    assert warned == wanted
