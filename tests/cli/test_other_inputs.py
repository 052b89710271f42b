"""A dump of other inputs: bisect says so, and blames no operator whose inputs were not dumped."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from saved import flip


@pytest.fixture
def model(models: Path, tmp_path: Path, refsim, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model, and in this folder a dump of its run with --random 1."""
    monkeypatch.chdir(tmp_path)
    assert refsim(f"run {models}/linear_head.pte --random 1 --dump q8ta dump").status == 0
    return models / "linear_head.pte"


def unsaid() -> None:
    """Let the dump say no more of which run it is."""
    for beside in Path("dump").glob("*.json"):
        content = json.loads(beside.read_text())
        del content["run"]
        beside.write_text(json.dumps(content))


def unwritten(name: str) -> None:
    raw = next(Path("dump").glob(f"*_{name}.bin"))
    raw.write_bytes(b"\x5a" * raw.stat().st_size)


@pytest.mark.long
def test_bisect_blames_nobody_for_other_inputs(model: Path, refsim) -> None:
    line = f"bisect {model} --random 2 --actual dump"
    done = refsim(line)
    done.refused("and these inputs: the inputs of that run with --random 1\n")
    assert "--partial" not in done.err
    (hint,) = done.hints
    assert hint[0] == "bisect" and "--random 2" not in shlex.join(hint) and refsim(*hint).status == 0
    golden = refsim(f"run {model} --random=2 --golden dump")
    golden.refused("with --random 1\n")
    assert golden.err.splitlines()[1].endswith("--golden dump --random 1")
    done = refsim(f"{line} --partial")
    assert done.status == 1 and "wrong: node" not in done.out and "is of other inputs" in done.out
    flip("dump/delegate0_v24.bin")
    assert refsim(f"{line} --partial --json").json["wrong"][0] == "delegate0_v24"


def test_only_a_seed_that_draws_those_inputs_is_proposed(model: Path, refsim) -> None:
    def seeded(seed: int) -> None:
        for beside in Path("dump").glob("*.json"):
            said = json.loads(beside.read_text())
            beside.write_text(json.dumps(said | {"run": said["run"] | {"random": seed}}))

    line = f"bisect {model} --random 2 --actual dump"
    seeded(3)
    done = refsim(line)
    done.refused("and these inputs: the inputs of that run with -i\n")
    assert "try:" not in done.err
    seeded(-1)
    refsim(line).refused("random: does not fit; got -1")


@pytest.mark.long
def test_bisect_finds_the_inputs_of_the_run(model: Path, refsim) -> None:
    unsaid()
    line = f"bisect {model} --random 2 --actual dump"
    done = refsim(line)
    assert done.status == 1 and "those of --random 1" in done.out
    assert "\nwrong: node" not in done.out and "its dumped inputs" not in done.out
    assert done.out.splitlines()[-1].startswith("no operator is called wrong: node 0 q8ta_quantize")
    found = refsim(f"{line} --json").json
    assert found["wrong"] == [] and found["nodes"][0]["alone"] is None and not found["same"]
    flip("dump/delegate0_v24.bin")
    done = refsim(line)
    assert "wrong: node 2 q8ta_linear, delegate0_v24 (on its own dumped inputs)" in done.out
    assert "no operator is called wrong" not in done.out


@pytest.mark.long
def test_the_cause_behind_a_doubt_is_named(model: Path, refsim) -> None:
    """The first operator is not called wrong, so the one that is explained is the one behind it, with or without -n."""
    unsaid()
    unwritten("v20")
    line = f"bisect {model} --random 2 --actual dump --json"
    for more in ("", "--node 0:1"):
        found = refsim(f"{line} {more}").json["report"]
        assert "node 1 q8ta_linear" in found["title"] and found["causes"][0]["name"] == "nothing written"


@pytest.mark.long
def test_a_buffer_that_nobody_wrote_is_no_doubt_about_inputs(model: Path, refsim) -> None:
    unsaid()
    unwritten("v17")
    line = f"bisect {model} --random 1 --actual dump"
    for node in ("", "--node 0:0", "--node 0:1"):
        done = refsim(f"{line} {node}")
        assert "wrong: node 0 q8ta_quantize" in done.out and "other inputs" not in done.out, node
    assert "1. nothing written" in refsim(line).out


def test_inputs_that_were_not_dumped_are_said_to_be_given(model: Path, refsim) -> None:
    flip("dump/delegate0_v17.bin")
    done = refsim(f"bisect {model} --random 1 --actual dump")
    given = "inputs that were not all dumped, taken from your run"
    assert f"wrong: node 0 q8ta_quantize, delegate0_v17 (on {given})" in done.out
    assert f"computed from {given}: 1 byte differs" in " ".join(done.out.split())
    assert "computed from its dumped inputs" not in done.out


@pytest.mark.long
def test_replay_reads_what_the_sidecar_says(models: Path, tmp_path: Path, refsim, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = models / "refine_seg.pte"
    assert refsim(f"run {model} --random 1 --dump . dump").status == 0
    sides = {path.stem: json.loads(path.read_text()) for path in Path("dump").glob("*.json")}
    sizes = {name: Path(f"dump/{name}.bin").stat().st_size for name in sides}
    name, other = next(
        (one, two)
        for one in sides
        for two in sides
        if sides[one]["dtype"] == sides[two]["dtype"] == "int8" and "node" in sides[one]
        if sizes[one] == sizes[two] and sides[one]["shape"] != sides[two]["shape"]
    )
    assert refsim(f"extract {model} -n {name} --random 0 -o case").status == 0
    done = refsim(f"replay case --actual dump/{other}.bin")
    done.refused(f"{other}.json: says another ")
    assert "of the case case, need " in done.err
    line = f"replay case --actual dump/{name}.bin --json"
    (told,) = refsim(line).json["of_run"]
    assert refsim(line).status == 1 and f"{name}.bin is of other inputs than case" in told
    assert refsim(f"run {model} --random 0 --dump {name} same").status == 0
    for status in (0, 1):
        done = refsim(f"replay case --actual same/{name}.bin --json")
        assert done.status == status and done.json["of_run"] == []
        flip(f"same/{name}.bin")


def test_run_says_that_the_inputs_may_be_others(mixed: str, models: Path, refsim) -> None:
    golden = f"--golden {models}/mixed_ops.dump.zip"
    done = refsim(f"run {models}/mixed_ops.pte --random 0 {golden}")
    said = "node 0 q8ta_quantize differs: it is wrong, or had other inputs"
    assert done.status == 1 and said in " ".join(done.out.split())
    assert "other inputs" not in refsim(f"run {mixed} {golden}").out


@pytest.mark.long
def test_what_a_profile_allows_before_the_first_that_diverges_is_named(models, tmp_path, refsim) -> None:
    given = f"{models}/refine_seg.pte -i {models}/refine_seg.io.npz --profile nvidia"
    dump = tmp_path / "dump"
    assert refsim(f"run {given} --dump q8ta {dump}").status == 0
    line = f"bisect {given} --actual {dump}"
    rows = [row for row in refsim(f"{line} --json").json["nodes"] if row["run"]]
    last = next(row for row in reversed(rows) if row["operator"] != "q8ta_dequantize")
    flip(dump / f"{last['value']}.bin", mask=64)
    done = refsim(line)
    lines = done.out.splitlines()
    at = next(number for number, text in enumerate(lines) if text.startswith("first that diverges"))
    assert "first that diverges otherwise than profile nvidia allows: node" in lines[at]
    assert done.status == 1
    first = next((row for row in rows if not row["run"]["same"]), last)
    allowed = [row for row in rows[: rows.index(first)] if row["run"]["differing"]]
    assert allowed and first["value"] in lines[at]
    assert all(f"node {row['node']} {row['operator']}" in lines[at + 1] for row in allowed)
    assert "as profile nvidia allows" in lines[at + 1]
