"""A dump of other inputs: bisect says so, and blames no operator whose inputs were not dumped."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest


@pytest.mark.long
def test_bisect_blames_nobody_for_other_inputs(models: Path, tmp_path: Path, refsim) -> None:
    model, dump = models / "linear_head.pte", tmp_path / "dump"
    assert refsim("run", model, "--random", 1, "--dump", "q8ta", dump).status == 0
    given = ("bisect", model, "--random", 2, "--actual", dump)
    done = refsim(*given)
    done.refused("and these inputs: the inputs of that run with --random 1\n")
    assert "--partial" not in done.err
    (hint,) = [line.removeprefix("try: refsim ") for line in done.err.splitlines() if line.startswith("try")]
    right = refsim(*shlex.split(hint))
    assert right.status == 0 and "bisect" in hint and "--random 2" not in hint
    golden = refsim("run", model, "--random=2", "--golden", dump)
    golden.refused("with --random 1\n")
    assert golden.err.splitlines()[1].endswith(f"--golden {dump} --random 1")
    done = refsim(*given, "--partial")
    assert done.status == 1 and "wrong: node" not in done.out and "is of other inputs" in done.out
    assert refsim(*given, "--partial", "--json").json["wrong"] == []
    other = next(dump.glob("*_v24.bin"))
    raw = bytearray(other.read_bytes())
    raw[0] ^= 1
    other.write_bytes(raw)
    assert refsim(*given, "--partial", "--json").json["wrong"][0] == "delegate0_v24"


def test_only_a_seed_that_draws_those_inputs_is_proposed(models: Path, tmp_path: Path, refsim) -> None:
    model, dump = models / "linear_head.pte", tmp_path / "dump"
    assert refsim("run", model, "--random", 1, "--dump", "q8ta", dump).status == 0
    given = ("bisect", model, "--random", 2, "--actual", dump)
    for beside in dump.glob("*.json"):
        said = json.loads(beside.read_text())
        assert said["run"]["random"] == 1
        beside.write_text(json.dumps({**said, "run": {**said["run"], "random": 3}}))
    done = refsim(*given)
    done.refused("and these inputs: the inputs of that run with -i\n")
    assert "try:" not in done.err
    beside.write_text(json.dumps({**said, "run": {**said["run"], "random": -1}}))
    refsim(*given).refused("random: does not fit; got -1")


@pytest.mark.long
def test_bisect_finds_the_inputs_of_the_run(models: Path, tmp_path: Path, refsim) -> None:
    """Buffers that do not say of which inputs they are, and the float input is none of them."""
    model, dump = models / "linear_head.pte", tmp_path / "dump"
    assert refsim("run", model, "--random", 1, "--dump", "q8ta", dump).status == 0
    unsaid(dump)
    done = refsim("bisect", model, "--random", 2, "--actual", dump)
    assert done.status == 1 and "those of --random 1" in done.out
    assert "\nwrong: node" not in done.out and "its dumped inputs" not in done.out
    assert done.out.splitlines()[-1].startswith("no operator is called wrong: node 0 q8ta_quantize")
    first = next(line for line in done.out.splitlines() if "delegate0_v17 " in line)
    assert first.endswith("-")
    found = refsim("bisect", model, "--random", 2, "--actual", dump, "--json").json
    assert found["wrong"] == [] and found["nodes"][0]["alone"] is None and not found["same"]
    other = next(dump.glob("*_v24.bin"))
    raw = bytearray(other.read_bytes())
    raw[0] ^= 1
    other.write_bytes(raw)
    done = refsim("bisect", model, "--random", 2, "--actual", dump)
    assert "wrong: node 2 q8ta_linear, delegate0_v24 (on its own dumped inputs)" in done.out
    assert "no operator is called wrong" not in done.out


def unsaid(dump: Path) -> Path:
    """A dump whose buffers say no more of which run they are."""
    for beside in dump.glob("*.json"):
        beside.write_text(json.dumps({k: v for k, v in json.loads(beside.read_text()).items() if k != "run"}))
    return dump


@pytest.mark.long
def test_the_cause_behind_a_doubt_is_named(models: Path, tmp_path: Path, refsim) -> None:
    """The first operator is not called wrong, so the one that is explained is the one behind it, with or without -n."""
    model, dump = models / "linear_head.pte", tmp_path / "dump"
    assert refsim("run", model, "--random", 1, "--dump", "q8ta", dump).status == 0
    raw = next(unsaid(dump).glob("*_v20.bin"))
    raw.write_bytes(b"\x5a" * raw.stat().st_size)
    given = ("bisect", model, "--random", 2, "--actual", dump, "--json")
    found, named = refsim(*given).json["report"], refsim(*given, "--node", "0:1").json["report"]
    assert found["title"] == named["title"] and "node 1 q8ta_linear" in found["title"]
    assert [cause["name"] for cause in found["causes"]] == [cause["name"] for cause in named["causes"]]
    assert found["causes"][0]["name"] == "nothing written"


@pytest.mark.long
def test_a_buffer_that_nobody_wrote_is_no_doubt_about_inputs(models: Path, tmp_path: Path, refsim) -> None:
    model, dump = models / "linear_head.pte", tmp_path / "dump"
    assert refsim("run", model, "--random", 1, "--dump", "q8ta", dump).status == 0
    raw = next(unsaid(dump).glob("*_v17.bin"))
    raw.write_bytes(b"\x5a" * raw.stat().st_size)
    for node in ((), ("--node", "0:0"), ("--node", "0:1")):
        done = refsim("bisect", model, "--random", 1, "--actual", dump, *node)
        assert "wrong: node 0 q8ta_quantize" in done.out and "other inputs" not in done.out, node
    assert "1. nothing written" in refsim("bisect", model, "--random", 1, "--actual", dump).out


def test_inputs_that_were_not_dumped_are_said_to_be_given(models: Path, tmp_path: Path, refsim) -> None:
    """One wrong element does not look like other inputs; the report says on what the operator was computed."""
    model, dump = models / "linear_head.pte", tmp_path / "dump"
    assert refsim("run", model, "--random", 1, "--dump", "q8ta", dump).status == 0
    other = next(dump.glob("*_v17.bin"))
    raw = bytearray(other.read_bytes())
    raw[0] ^= 1
    other.write_bytes(raw)
    done = refsim("bisect", model, "--random", 1, "--actual", dump)
    given = "inputs that were not all dumped, taken from your run"
    assert f"wrong: node 0 q8ta_quantize, delegate0_v17 (on {given})" in done.out
    assert f"computed from {given}: 1 byte differs" in " ".join(done.out.split())
    assert "computed from its dumped inputs" not in done.out


@pytest.mark.long
def test_replay_reads_what_the_sidecar_says(
    models: Path, tmp_path: Path, refsim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another value of the same size it compares nothing; of another run it says so, if bytes differ."""
    monkeypatch.chdir(tmp_path)
    model, dump, case = models / "refine_seg.pte", Path("dump"), "case"
    assert refsim("run", model, "--random", 1, "--dump", ".", dump).status == 0
    sides = {path.stem: json.loads(path.read_text()) for path in dump.glob("*.json")}
    sizes = {name: (dump / f"{name}.bin").stat().st_size for name in sides}
    name, other = next(
        (one, two)
        for one in sides
        for two in sides
        if sides[one]["dtype"] == sides[two]["dtype"] == "int8" and "node" in sides[one]
        if sizes[one] == sizes[two] and sides[one]["shape"] != sides[two]["shape"]
    )
    assert refsim("extract", model, "-n", name, "--random", 0, "-o", case).status == 0
    done = refsim("replay", case, "--actual", dump / f"{other}.bin")
    done.refused(f"{other}.json: says another ")
    assert "of the case case, need " in done.err
    given = ("replay", case, "--actual", dump / f"{name}.bin")
    done = refsim(*given)
    assert done.status == 1 and f"{name}.bin is of other inputs than {case}" in " ".join(done.out.split())
    assert len(refsim(*given, "--json").json["of_run"]) == 1
    assert refsim("run", model, "--random", 0, "--dump", name, Path("same")).status == 0
    done = refsim("replay", case, "--actual", Path("same") / f"{name}.bin", "--json")
    assert done.status == 0 and done.json["of_run"] == []
    raw = bytearray((Path("same") / f"{name}.bin").read_bytes())
    raw[0] ^= 1
    (Path("same") / f"{name}.bin").write_bytes(raw)
    done = refsim("replay", case, "--actual", Path("same") / f"{name}.bin", "--json")
    assert done.status == 1 and done.json["of_run"] == []


def test_run_says_that_the_inputs_may_be_others(models: Path, refsim) -> None:
    """The dump does not say of which inputs it is; with the inputs that it is of there is nothing to say."""
    given = ("run", models / "mixed_ops.pte", "--golden", models / "mixed_ops.dump.zip")
    said = "node 0 q8ta_quantize differs: it is wrong, or had other inputs"
    done = refsim(*given, "--random", 0)
    assert done.status == 1 and said in " ".join(done.out.split())
    right = refsim(*given, "-i", models / "mixed_ops.io.npz")
    assert right.status == 0 and "other inputs" not in right.out


@pytest.mark.long
def test_what_a_profile_allows_before_the_first_that_diverges_is_named(
    models, tmp_path: Path, refsim
) -> None:
    model, dump = models / "refine_seg.pte", tmp_path / "dump"
    given = (model, "-i", models / "refine_seg.io.npz", "--profile", "nvidia")
    assert refsim("run", *given, "--dump", "q8ta", dump).status == 0
    rows = refsim("bisect", *given, "--actual", dump, "--json").json["nodes"]
    last = next(row for row in reversed(rows) if row["run"] and row["operator"] != "q8ta_dequantize")
    file = dump / f"{last['value']}.bin"
    raw = bytearray(file.read_bytes())
    raw[0] ^= 64
    file.write_bytes(raw)
    done = refsim("bisect", *given, "--actual", dump)
    lines = done.out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("first that diverges"))
    assert "first that diverges otherwise than profile nvidia allows: node" in lines[at]
    assert done.status == 1
    compared = [row for row in rows if row["run"]]
    first = next((row for row in compared if not row["run"]["same"]), last)
    allowed = [row for row in compared[: compared.index(first)] if row["run"]["differing"]]
    assert allowed and first["value"] in lines[at]
    assert all(f"node {row['node']} {row['operator']}" in lines[at + 1] for row in allowed)
    assert "as profile nvidia allows" in lines[at + 1]
