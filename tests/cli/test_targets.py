"""--target and --profile: a family of devices chooses layouts, kernels and numerics, by a name or by a file."""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from device.simulated import Runtime
from saved import arrays

from refsim.core.layout import PACKED_4C, PACKED_4C1W, PACKED_CONV2D
from refsim.core.qmath import NVIDIA, PROFILES
from refsim.exec.model import load
from refsim.formats import profiles
from refsim.formats.cases import contents, read_folder, write_folder
from refsim.formats.pte.edit import single_delegate
from refsim.formats.targets import distinct, named, targets
from refsim.formats.vkgraph.edit import GraphEditor
from refsim.golden.named import open_case
from refsim.ops.base.target import Target

CONV, QUANTIZE, DEQUANTIZE = (
    f"{name}.default"
    for name in (
        "et_vk.q8ta_conv2d", "quantized_decomposed.quantize_per_tensor", "quantized_decomposed.dequantize_per_tensor",
    )
)  # fmt: skip
SHAPE = (1, 8, 5, 5)


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """quantize, a convolution in two groups, dequantize: a Mali takes im2col in 4C, any other the general kernel."""
    graph, rng = GraphEditor(), np.random.default_rng(3)
    weight = rng.integers(-127, 128, (8, 3 * 3 * 4), np.int8)
    x, q = graph.tensor("float32", SHAPE), graph.tensor("int8", SHAPE, PACKED_CONV2D)
    y, out = graph.tensor("int8", SHAPE, PACKED_CONV2D), graph.tensor("float32", SHAPE)
    scale, end = (graph.literal(0.05), graph.literal(3)), [graph.literal(v) for v in (-128, 127, 1)]
    graph.input(x)
    graph.call(QUANTIZE, x, *scale, *end, q)
    constants = (weight, weight.sum(axis=1, dtype=np.int32), np.linspace(0.01, 0.02, 8, dtype=np.float32))
    pairs = [graph.literal(pair) for pair in ((3, 3), (1, 1), (1, 1), (1, 1))]
    graph.call(
        CONV, q, *scale, *map(graph.constant, constants), *scale, graph.constant(np.ones(8, np.float32)), *pairs,
        graph.literal(2), graph.literal("none"), y,
    )  # fmt: skip
    graph.call(DEQUANTIZE, y, *scale, *end, graph.literal(6), out)
    graph.output(out)
    path = tmp_path_factory.mktemp("grouped") / "grouped.pte"
    path.write_bytes(single_delegate(graph.blob(), [("float32", SHAPE)], [("float32", SHAPE)]))
    return path


def dump(refsim, file: Path, target: str, folder: Path) -> Path:
    assert refsim(f"run {file} --random 1 --target {target} --dump . {folder}").status == 0
    return folder


def test_the_table() -> None:
    rows = targets()
    assert {"desktop", "adreno", "mali"} <= rows.keys() and next(iter(rows)) == "desktop"
    assert {name for name, row in rows.items() if row.mali} == {"mali"}
    assert {row.profile.name for row in rows.values() if row.profile} == PROFILES.keys() - {"canonical"}
    assert [row.name for row in distinct()] == ["desktop", "mali"]
    assert named("nvidia").target().profile == NVIDIA


def test_layouts_and_kernels_follow_the_target(grouped: Path, refsim) -> None:
    for target, kernel, row in (
        ("mali", "q8ta_im2col", PACKED_4C), ("adreno", "q8ta_conv2d_general", PACKED_4C1W),
    ):  # fmt: skip
        done = refsim(f"inspect {grouped} --target {target} --json").json
        quantize, conv, _ = done["delegates"][0]["operators"]
        assert done["target"] == target and conv["dispatches"][0]["shader"] == kernel
        assert quantize["outputs"][0]["layout"] == row.name
        given = f"{grouped} --random 1 --target {target} --json"
        assert refsim(f"run {given}").json["target"] == target
        assert refsim(f"compare {given} -x cpu,cpu:emulated").status == 0


def test_a_case_keeps_the_target(grouped: Path, tmp_path: Path, refsim) -> None:
    case = f"extract {grouped} -n 1 --random 1 --target mali -o {tmp_path}/case"
    assert refsim(case).status == 0
    call = read_folder(tmp_path / "case").bound.call
    assert call.target.mali and call.descs["x"].layout is PACKED_4C
    assert refsim(f"replay {tmp_path}/case").status == 0


@pytest.mark.parametrize("target", ["desktop", "mali"])
def test_dumps_say_of_which_target_they_are(
    target: str, grouped: Path, tmp_path: Path, refsim, judge
) -> None:
    folder = dump(refsim, grouped, target, tmp_path / "dump")
    done = judge(dump=folder, run=f"{grouped} --random 1")
    assert done.status == 0, done.err
    assert f"target {target}, from the layouts of 3 of 3 buffers in {folder}\n" in done.out
    assert judge("--json", dump=folder, run=f"{grouped} --random 1").json["target"] == target


def test_a_buffer_of_another_target_does_not_stop_the_others(grouped: Path, tmp_path, refsim, judge) -> None:
    given = dict(
        dump=dump(refsim, grouped, "mali", tmp_path / "dump"), run=f"{grouped} --random 1 --target desktop"
    )
    done = judge("--partial", **given)
    assert done.status == 0, done.err
    assert "recorded as 1x8x5x5 in 4C, not 1x8x5x5 in 4C1W" in done.out
    assert "2 of 3 buffers do not fit target desktop; 3 of 3 fit --target mali" in done.out
    rows = judge("--partial --json", **given).json["nodes"]
    verdicts = [row.get("verdict") for row in rows]
    assert len(rows) == 3 and verdicts in ([None] * 3, ["does not fit", "does not fit", "same"])
    assert judge(**given).status == 2


def test_dumps_that_fit_no_value_name_the_target_that_they_fit(grouped: Path, tmp_path: Path, refsim) -> None:
    whole = dump(refsim, grouped, "mali", tmp_path / "dump")
    folder = tmp_path / "one"
    folder.mkdir()
    quantized = f"delegate0_v{load(grouped).graphs[0].nodes[0].outputs[0]}"
    for suffix in (".bin", ".json"):
        shutil.copy(whole / f"{quantized}{suffix}", folder)
    given = f"bisect {grouped} --random 1 --actual {folder} --partial"
    refsim(f"{given} --target adreno").refused(
        "no buffer fits target adreno: recorded with another shape or layout; "
        "got delegate0_v1 is 1x8x5x5 in 4C there and 1x8x5x5 in 4C1W here, "
        "need --target mali, which 1 of 1 buffers fit"
    )
    assert refsim(given).status == 0
    path = folder / f"{quantized}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"layout": "PACKED_INT8_4H4W"}))
    refsim(given).refused("no buffer fits target desktop")


def test_the_target_brings_its_profile(grouped: Path, tmp_path: Path, refsim) -> None:
    x = arrays(tmp_path / "in.npz", [np.full(SHAPE, np.nan, np.float32)], "in")
    given = f"{grouped} -i {x} --target lavapipe"
    assert refsim(f"run {given} --dump . {tmp_path}/dump").status == 0
    dumped = f"bisect {given} --actual {tmp_path}/dump --json"
    assert refsim(dumped).json["wrong"] == []
    assert refsim(f"{dumped} --profile nvidia").json["wrong"] != []
    assert load(grouped, named("adreno").target()).graphs[0].target.profile.name == "canonical"


@pytest.mark.long
def test_an_exposed_file_says_for_which_target_it_is(grouped: Path, tmp_path: Path, refsim) -> None:
    (x,) = load(grouped).random_inputs(1)
    for options in ((), ("--target", "mali")):
        exposed = tmp_path / f"{len(options)}.pte"
        assert refsim(f"expose {grouped} -o {exposed}", *options).status == 0
        outputs = Runtime(exposed.read_bytes(), named("mali").target()).run([x])
        arrays(tmp_path / "out.npz", outputs)
        triage = ("triage", exposed, "--random", 1, "--outputs", tmp_path / "out.npz")
        done = refsim(*triage)
        assert done.status == 0 and "layouts as on mali)\n" in done.out
        why = "for which the file was exposed" if options else "with its layouts fewer bytes differ"
        assert f"target mali, {why}" in done.out
        other = refsim(*triage, "--target", "desktop")
        better = "target desktop, as was given; with the layouts of mali fewer bytes differ"
        assert other.status == 1 and better in " ".join(other.out.split())
        collected = refsim(f"collect {exposed} {tmp_path}/out.npz -o {tmp_path}/dump{len(options)} --json")
        assert collected.json["target"] == ("mali" if options else "desktop")
    path = tmp_path / "2.pte.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"target": "amd"}))
    refsim(*triage).refused("target: unknown; got 'amd'")


# --- profiles as files -----------------------------------------------------------------------------------

OWN = replace(NVIDIA, name="a phone, driver 7", convert="int_min")
CASE = "q8ta_add/0105"  # two of its bytes are others on a device that fuses


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "phone.json"
    profiles.write(path, OWN, measured={"fma": "fused"})
    return path


@pytest.mark.long
def test_diff_and_replay_allow_what_the_file_allows(saved: Path, tmp_path: Path, refsim) -> None:
    bound = open_case(CASE).bound
    right, other = tmp_path / "a.bin", tmp_path / "b.bin"
    right.write_bytes(bound.call.expected(bound.inputs).raw.tobytes())
    other.write_bytes(bound.call.under(OWN).expected(bound.inputs).raw.tobytes())
    for pair in (("diff", right, other, "--case", CASE), ("replay", CASE, "--actual", other)):
        assert refsim(*pair).status == 1
        done = refsim(*pair, "--profile", saved, "--json")
        report = done.json["report"]
        assert done.status == 0 and report["profile"] == OWN.name
        assert report["legal"][OWN.name] == {"explains": 2, "contradicts": 0}


@pytest.mark.long
def test_bisect_and_triage_allow_what_the_file_allows(saved: Path, models, tmp_path: Path, refsim) -> None:
    """A device that converts NaN as this phone does: its quantize is legal under the file, and wrong without."""
    exposed = models.parent / "device" / "linear_head.raw.pte"
    x = np.load(models / "linear_head.io.npz")["in0"].copy()
    x.reshape(-1)[:2] = np.nan
    given, found = arrays(tmp_path / "in.npz", [x], "in"), tmp_path / "found"
    outputs = arrays(tmp_path / "out.npz", Runtime(exposed.read_bytes(), Target(OWN)).run([x]))
    device = f"triage {exposed} -i {given} --outputs {outputs} --profile"
    done = refsim(f"{device} {saved} --json -o {found}")
    assert done.status == 0 and done.json["profile"] == OWN.name
    (legal,) = [node for node in done.json["nodes"] if node["verdict"].startswith("legal")]
    assert shlex.split(legal["reproduce"])[-2:] == ["--profile", f"{found}/profile.json"]
    assert refsim(*shlex.split(legal["reproduce"])[1:]).status == 0
    assert refsim(f"{device} nvidia").status == 1
    dump = f"bisect {models}/linear_head.pte -i {given} --actual {found}/dump"
    allowed = refsim(f"{dump} --profile {saved} --json")
    assert allowed.json["wrong"] == [] and allowed.json["legal"][0] == legal["value"]
    assert allowed.status == 0 and allowed.json["same"] and allowed.json["report"] is None
    assert len(allowed.json["legal"]) > 1, "what the quantize did reaches those that read it"
    said = refsim(f"{dump} --profile {saved}").out
    assert any(line.startswith("right: ") for line in said.splitlines())
    assert f"profile {OWN.name} allows that in each operator" in said
    without = refsim(f"{dump} --json")
    assert without.json["wrong"] == [legal["value"]] and without.status == 1 and without.json["legal"] == []


@pytest.mark.long
def test_sweep_and_verify_follow_a_file(saved: Path, refsim) -> None:
    swept = refsim(f"sweep q8ta_add -n 3 --workers 0 --scheduler none --profile {saved} --json")
    assert swept.status == 0 and swept.json["profiles"] == [OWN.name]
    verified = refsim(f"golden verify {CASE} --profile {saved} --json")
    assert verified.status == 0 and verified.json["executors"]["cpu"]["same"]
    refsim(f"sweep q8ta_add --profile {saved} --profile {saved}").refused("two of one name")


def test_a_case_keeps_a_profile_that_has_no_name_here(tmp_path: Path) -> None:
    bound = open_case(CASE).bound
    bound = replace(bound, call=bound.call.under(OWN))
    expected = bound.call.expected(bound.inputs)
    stored = read_folder(write_folder(tmp_path / "case", contents(bound, expected)))
    assert stored.bound.call.target.profile == OWN and stored.expected == expected
    named = json.loads(contents(replace(bound, call=bound.call.under(NVIDIA)), expected)["case.json"])
    assert named["profile"] == "nvidia"


def test_families_say_what_measured_them() -> None:
    found = profiles.families()
    assert [name for name, row in found.items() if row.profile] == list(PROFILES)
    for row in found.values():
        wanted = {"contract", "tie", "flush_denormals", "convert"} if row.profile else set()
        assert set(row.sources) == wanted and bool(row.missing) == (row.profile is None)


def test_a_file_runs_a_model(saved: Path, models: Path, refsim) -> None:
    line = f"run {models}/linear_head.pte --random 0 --profile"
    assert refsim(f"{line} {saved}").status == 0
    saved.write_text("{}")
    refsim(f"{line} {saved}").refused("not a profile of this schema")
