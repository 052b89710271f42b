"""--profile takes a name, or a file that a probe saved, wherever it exists; and what nobody measured is said so."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from device.simulated import Runtime
from saved import arrays

from refsim.core.qmath import NVIDIA, PROFILES
from refsim.formats import profiles
from refsim.formats.cases import contents, read_folder, write_folder
from refsim.golden.judge import under
from refsim.golden.named import open_case
from refsim.ops.base.target import Target

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
    other.write_bytes(under(bound, OWN).call.expected(bound.inputs).raw.tobytes())
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
    bound = under(open_case(CASE).bound, OWN)
    expected = bound.call.expected(bound.inputs)
    stored = read_folder(write_folder(tmp_path / "case", contents(bound, expected)))
    assert stored.bound.call.target.profile == OWN and stored.expected == expected
    named = json.loads(contents(under(bound, NVIDIA), expected)["case.json"])
    assert named["profile"] == "nvidia"


def test_families_say_what_measured_them() -> None:
    found = profiles.families()
    assert [name for name, row in found.items() if row.profile] == list(PROFILES)
    for row in found.values():
        wanted = {"contract", "tie", "flush_denormals", "convert"} if row.profile else set()
        assert set(row.sources) == wanted and bool(row.missing) == (row.profile is None)


@pytest.mark.parametrize("verb", ["run", "bisect --actual x", "triage --outputs x"])
def test_a_family_that_nobody_measured_says_so(verb: str, models: Path, refsim) -> None:
    refused = refsim(f"{verb} {models}/linear_head.pte --random 0 --profile mali")
    refused.refused("not measured: no recording and no probe of such a device is at hand; got 'mali'")


def test_a_file_runs_a_model(saved: Path, models: Path, refsim) -> None:
    line = f"run {models}/linear_head.pte --random 0 --profile"
    assert refsim(f"{line} {saved}").status == 0
    saved.write_text("{}")
    refsim(f"{line} {saved}").refused("not a profile of this schema")
