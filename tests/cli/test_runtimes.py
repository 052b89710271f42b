"""--runtime: verbs for a runtime that reads the same files in its own way, and what upstream gets wrong with groups."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from check.small_files import float_conv
from saved import arrays, flip

from refsim.check.runtime import runtime
from refsim.core.buffer import PackedBuffer
from refsim.core.folder_write import writing
from refsim.exec.model import load
from refsim.formats.dumps import sidecar, value_name, write
from refsim.ops.base.target import Target

DATA = Path(__file__).parents[1] / "data"
WEBGPU = "--runtime webgpu"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """`x_res`, whose alpha is an integer, with its input and the runtime's own output."""
    with zipfile.ZipFile(DATA / "webgpu" / "recordings.zip") as held:
        for name in ("x_res.pte", "in0.npy", "out0.npy"):
            (tmp_path / name).write_bytes(held.read(f"x_res/{name}"))
    for name in ("in", "out"):
        arrays(tmp_path / f"{name}0.npz", [np.load(tmp_path / f"{name}0.npy")], name)
    return tmp_path


@pytest.fixture
def given(files: Path) -> str:
    return f"{files}/x_res.pte -i {files}/in0.npz"


def test_run_gives_the_recorded_output(files: Path, given: str, refsim) -> None:
    line = f"run {given} --expect {files}/out0.npz"
    assert refsim(f"{line} {WEBGPU}").status == 0
    assert refsim(line).status == 1


def test_run_refuses_what_the_runtime_refuses(models: Path, refsim) -> None:
    done = refsim(f"run {models}/mixed_ops.pte --random 0 {WEBGPU}")
    done.refused("the runtime webgpu does not load it; got q8ta_conv2d: only activation='none' supported")


def test_compare_two_runtimes(given: str, refsim) -> None:
    line = f"compare {given} --runtime 2026-08 {WEBGPU}"
    done = refsim(f"{line} --json")
    assert done.status == 1
    found = done.json
    differing = {row["operator"]: row for row in found["values"] if row["different"]}
    assert list(differing) == ["q8ta_add", "q8ta_dequantize"] and not found["same"]
    assert [row["alone"] > 0 for row in differing.values()] == [True, False]
    assert found["outputs"] == [differing["q8ta_dequantize"]["value"]]
    assert "alpha is 1, stored as an integer" in differing["q8ta_add"]["why"][0]
    assert "why webgpu: alpha is 1" in refsim(line).out
    assert refsim(f"compare {given} {WEBGPU} -x cpu -x cpu:emulated").status == 0


def test_compare_shows_which_buffers_a_release_changes(refsim) -> None:
    line = f"compare {DATA}/dynamic/batch_conv.pte --random 0 --runtime 2026-08 --runtime main --json"
    (row,) = [row for row in refsim(line).json["values"] if row["different"]]
    assert row["operator"] == "q8ta_conv2d" and row["different"] == row["elements"] * 3 // 4
    assert row["why"][0].startswith("2026-08: upstream's kernel computes batch 0 only")


def test_mend_stores_an_alpha_as_a_double(files: Path, refsim) -> None:
    done = refsim(f"mend {files}/x_res.pte -o {files}/mended.pte")
    assert done.status == 0 and "et_vk.q8ta_add.default" in done.out and "1 scalar stored" in done.out
    (row,) = refsim(f"mend {files}/x_res.pte -o {files}/again.pte --json").json["mended"]
    assert (row["argument"], row["was"], row["now"]) == ("alpha", "1", "1.0")
    line = f"compare {files}/mended.pte -i {files}/in0.npz --runtime 2026-08 {WEBGPU}"
    assert refsim(line).status == 0


def test_bisect_names_the_operator_of_a_dump(files: Path, given: str, refsim) -> None:
    dumps = files / "dumps"
    refsim(f"run {given} {WEBGPU} --dump . {dumps}")
    line = f"bisect {given} {WEBGPU} --actual {dumps} --json"
    right = refsim(line)
    (node,) = (row for row in right.json["nodes"] if row["operator"] == "q8ta_add")
    assert right.status == 0
    flip(dumps / f"{node['value']}.bin", mask=3)
    wrong = refsim(line)
    assert wrong.status == 1 and wrong.json["wrong"] == [node["value"]]
    (place,) = wrong.json["report"]["differences"]
    assert place["invocation"] == [0, 0, 0]


@pytest.mark.long
def test_triage_of_values_from_the_runtime(files: Path, given: str, refsim) -> None:
    exposed, outputs, dump = files / "exposed.pte", files / "outputs.npz", files / "dump"
    assert refsim(f"expose {files}/x_res.pte -o {exposed} --as values").status == 0
    assert refsim(f"check {exposed} {WEBGPU}").out.count("error ") == 0
    device = load(exposed, Target(runtime=runtime("webgpu").behaviour), runs=False)
    arrays(outputs, device.run([np.load(files / "in0.npy")]))
    line = f"triage {exposed} -i {files}/in0.npz --outputs {outputs} --json"
    assert refsim(f"{line} {WEBGPU}").json["same"]
    collected = refsim(f"collect {exposed} {outputs} -o {dump} {WEBGPU} --json").json
    assert collected["runtime"] == "webgpu"
    assert {row["layout"] for row in collected["values"] if row["dtype"] == "int8"} == {"NCHW"}
    assert refsim(f"bisect {given} --actual {dump} {WEBGPU}").status == 0
    assert not refsim(line).json["same"]


def test_a_smaller_shape_gives_what_the_runtime_leaves(tmp_path: Path, refsim) -> None:
    file, rng = DATA / "dynamic" / "batch_conv.pte", np.random.default_rng(0)
    for count in (4, 2):
        np.savez(tmp_path / f"{count}.npz", in0=rng.uniform(-1, 1, (count, 8, 8, 8)).astype(np.float32))
    four, two = (tmp_path / f"{count}.npz" for count in (4, 2))
    refsim(f"run {file} -i {two} -o {tmp_path}/out.npz {WEBGPU}")
    with np.load(tmp_path / "out.npz") as held:
        assert held["out0"].shape == (4, 8, 8, 8)
    runs = refsim(f"run {file} --sequence {four} {two} {WEBGPU} --json").json["sequence"]
    assert [run["outputs"][0]["stale"] for run in runs] == [0, 2 * 8 * 8 * 8]
    assert not runs[1]["as_alone"]
    found = refsim(f"compare {file} -i {two} --runtime 2026-08 {WEBGPU} --json").json
    last = found["values"][-1]
    assert last["elements"] == 4 * 8 * 8 * 8 and last["different"] == 2 * 8 * 8 * 8
    assert any(why.startswith("webgpu: the runtime does not resize it") for why in last["why"])


# --- groups, which upstream's kernels get wrong -----------------------------------------------------------

GROUPS = DATA / "groups"
#: File -> the operator, and what upstream gets wrong.
DEFECTS = {
    "group256": "node 2 linear_dq8ca_q4gsw: upstream doubles the sums of a group",
    "twelve_outputs": "node 2 linear_dq8ca_q4gsw: upstream reads the weight sums of other outputs",
    "two_planes": "node 0 choose_qparams_affine: upstream's runtime refuses",
    "rows6": "",
}


@pytest.mark.parametrize("name", ["group256", "twelve_outputs"])
def test_bisect_names_the_defect(name: str, tmp_path: Path, refsim) -> None:
    """The dump is what ET-VK's own runtime gave for the file."""
    with np.load(GROUPS / f"{name}.npz") as archive:
        given, out = archive["in0"], archive["out0"]
    (graph,) = load(GROUPS / f"{name}.pte").graphs.values()
    held = PackedBuffer.pack(out, graph.nodes[-1].call.out.layout)
    with writing(tmp_path) as writer:
        write(writer, sidecar(value_name(0, graph.outputs[0]), held), held)
    inputs = arrays(tmp_path / "in.npz", [given], "in")
    done = refsim(f"bisect {GROUPS}/{name}.pte -i {inputs} --actual {tmp_path}")
    assert done.status == 1 and "predicts every byte" in done.out
    assert f"1. known defect of upstream: {DEFECTS[name].partition(': ')[2]}" in done.out


@pytest.mark.parametrize("name", DEFECTS)
def test_inspect_says_what_upstream_gets_wrong(name: str, refsim) -> None:
    done = refsim(f"inspect {GROUPS}/{name}.pte")
    assert done.status == 0 and ("note: " in done.out) == bool(DEFECTS[name])
    assert not DEFECTS[name] or f"note: {DEFECTS[name]}" in done.out


@pytest.mark.parametrize(("weight", "groups"), [((8, 4, 1, 1), 2), ((8, 8, 1, 1), 1)])
def test_inspect_says_what_a_float_convolution_gets_wrong(weight, groups, tmp_path: Path, refsim) -> None:
    (tmp_path / "conv.bin").write_bytes(float_conv(weight, groups=groups))
    said = refsim(f"inspect {tmp_path}/conv.bin").out
    assert ("note: node 0 aten.convolution: upstream ignores" in said) == ("note:" in said) == (groups > 1)
