"""A comparison that left something out, or was with another run, is never "the same"."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from device.simulated import Runtime

from refsim.core.errors import GraphError
from refsim.core.folder_write import writing
from refsim.exec.model import Model
from refsim.formats.run_identity import RunIdentity, inputs_digest


@pytest.fixture
def head(models: Path) -> tuple[str, ...]:
    return (str(models / "linear_head.pte"), "-i", str(models / "linear_head.io.npz"))


@pytest.fixture
def dump(head, tmp_path: Path, refsim) -> Path:
    assert refsim("run", *head, "--dump", ".", tmp_path / "dump").status == 0
    return tmp_path / "dump"


def _incomplete(done, match: str) -> None:
    assert done.status == 2 and done.err.count("\n") == 1 and match in done.err, done
    if done.out.startswith("{"):
        assert json.loads(done.out)["same"] is False
    else:
        assert "0 buffers" not in done.out


@pytest.mark.parametrize("verb", [("run", "--golden"), ("bisect", "--actual")])
def test_a_whole_dump_says_which_run_it_is_of(verb, head, dump: Path, refsim) -> None:
    done = refsim(verb[0], *head, verb[1], dump, "--json")
    assert done.status == 0 and done.json["same"] is True
    assert done.json["not_compared"] == [] and done.json["notes"] == []
    said = json.loads(next(dump.glob("*.json")).read_text())["run"]
    assert all(len(said[name]) == 64 for name in ("file", "inputs"))


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_wrong_names_compare_nothing(form, head, dump: Path, tmp_path: Path, refsim) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for path in dump.glob("*.json"):
        info = json.loads(path.read_text()) | {"value": path.stem.replace("_v", "_w")}
        (other / path.name.replace("_v", "_w")).write_text(json.dumps(info))
        shutil.copy(path.with_suffix(".bin"), other / path.name.replace("_v", "_w").replace(".json", ".bin"))
    for extra in ((), ("--partial",)):
        done = refsim("run", *head, "--golden", other, *form, *extra)
        _incomplete(done, "no buffer was compared")
        assert "0 bytes differ" not in done.out


@pytest.mark.parametrize("verb", [("run", "--golden"), ("bisect", "--actual")])
def test_a_part_needs_the_option(verb, head, dump: Path, refsim) -> None:
    name = sorted(dump.glob("*.bin"))[1].stem
    for suffix in (".bin", ".json"):
        (dump / f"{name}{suffix}").unlink()
    _incomplete(refsim(verb[0], *head, verb[1], dump, "--json"), "need all, or --partial")
    done = refsim(verb[0], *head, verb[1], dump)
    _incomplete(done, f"{name} not compared")
    assert f"1 of 4 int8 buffers was not compared: {name}" in done.out
    if verb[0] == "bisect":  # one count for all sentences, and the last says what was seen
        assert "3 of 4 int8 buffers dumped, and 1 float buffer" in done.out
        assert done.out.splitlines()[-1] == "4 compared buffers are the same"
    done = refsim(verb[0], *head, verb[1], dump, "--json", "--partial")
    assert done.status == 0 and done.json["same"] is True and done.json["not_compared"] == [name]
    if verb[0] == "bisect":
        whole = refsim(verb[0], *head, verb[1], dump, "--partial").out
        assert whole.splitlines()[-1] == "right: 4 compared buffers are the same"


def test_a_difference_in_a_part_is_a_difference(head, dump: Path, refsim) -> None:
    first, second, *_ = sorted(dump.glob("*_v2*.bin"))
    first.unlink()
    first.with_suffix(".json").unlink()
    raw = bytearray(second.read_bytes())
    raw[0] ^= 1
    second.write_bytes(raw)
    done = refsim("run", *head, "--golden", dump, "--json")
    assert done.status == 1 and done.json["same"] is False and done.json["not_compared"] == [first.stem]


def test_a_dump_cut_short_fails(head, models: Path, tmp_path: Path, refsim) -> None:
    with zipfile.ZipFile(models / "linear_head.dump.zip") as whole:
        rows = json.loads(whole.read("delegate0.json"))
        with zipfile.ZipFile(tmp_path / "cut.zip", "w") as cut:
            cut.writestr("delegate0.json", json.dumps(rows[:-2]))
            for row in rows[:-2]:
                if "raw" in row:
                    cut.writestr(row["raw"], whole.read(row["raw"]))
    _incomplete(refsim("run", *head, "--golden", tmp_path / "cut.zip", "--json"), "or --partial")
    _incomplete(refsim("bisect", *head, "--actual", tmp_path / "cut.zip"), "or --partial")


@pytest.mark.parametrize("verb", [("run", "--golden"), ("bisect", "--actual")])
def test_another_run_is_refused(verb, head, dump: Path, models: Path, tmp_path: Path, refsim) -> None:
    file = head[0]
    refsim(verb[0], file, "--random", 7, verb[1], dump).refused(
        "holds buffers of another run; got delegate0_v"
    )
    again = tmp_path / "copy.pte"  # the same graph, but another file
    again.write_bytes(Path(file).read_bytes() + bytes(8))
    other = refsim(verb[0], again, *head[1:], verb[1], dump)
    assert other.status == 2 and "is of another file" in other.err
    done = refsim(verb[0], again, *head[1:], verb[1], dump, "--partial", "--json")
    assert done.status == 0 and "holds buffers of another run" in done.json["notes"][0]


def test_runs_that_are_mixed_are_refused(head, dump: Path, refsim) -> None:
    sidecar = sorted(dump.glob("*.json"))[-1]
    info = json.loads(sidecar.read_text())
    info["run"]["inputs"] = inputs_digest([np.zeros(3)])
    sidecar.write_text(json.dumps(info))
    refsim("run", *head, "--golden", dump).refused(f"{sidecar.stem} is of other inputs")
    info["run"] = ["x"]
    sidecar.write_text(json.dumps(info))
    refsim("run", *head, "--golden", dump).refused("need an object")


def test_dumps_without_identity_still_work_and_say_so(head, dump: Path, models: Path, refsim) -> None:
    for sidecar in dump.glob("*.json"):
        info = json.loads(sidecar.read_text())
        del info["run"]
        sidecar.write_text(json.dumps(info))
    for actual in (dump, models / "linear_head.dump.zip"):
        said = f"not checked: {actual} does not say of which file and of which inputs it is"
        for verb in (("run", "--golden"), ("bisect", "--actual")):
            done = refsim(verb[0], *head, verb[1], actual)
            assert done.status == 0 and said in done.out.splitlines()


@pytest.mark.parametrize("verb", [("run", "--golden"), ("bisect", "--actual")])
def test_a_sidecar_that_is_missing_or_says_something_else_is_named(verb, head, dump: Path, refsim) -> None:
    """One file beside the raw bytes is not there; another does not say of which run it is; a third has a short name."""
    one, two, three = sorted(dump.glob("*_v2?.json"))
    given = (verb[0], *head, verb[1], dump)
    two.write_text(json.dumps({k: v for k, v in json.loads(two.read_text()).items() if k != "run"}))
    said = f"not checked: {two.stem} in {dump} does not say of which file and of which inputs it is"
    assert said in refsim(*given).out.splitlines()
    one.unlink()
    done = refsim(*given)
    _incomplete(
        done, f"{one.stem} not compared, need all, with {one.name} beside {one.stem}.bin, or --partial"
    )
    assert f"not read: {one.stem}.bin lies in {dump} without {one.name}, the sidecar" in done.out
    three.write_text(json.dumps(json.loads(three.read_text()) | {"value": three.stem.partition("_")[2]}))
    assert f"; did you mean {three.stem}?\n" in refsim(*given).out


def test_an_exposed_part_knows_its_file_and_is_no_whole(models: Path, tmp_path: Path, refsim) -> None:
    exposed, saved = tmp_path / "part.pte", tmp_path / "out.npz"
    io = models / "linear_head.io.npz"
    made = refsim("expose", models / "linear_head.pte", "-o", exposed, "--value", "v24")
    assert made.status == 0
    outputs = Runtime(exposed.read_bytes()).run([np.load(io)["in0"]])
    np.savez(saved, **{f"out{i}": array for i, array in enumerate(outputs)})
    assert refsim("collect", exposed, saved, "-o", tmp_path / "dump").status == 0
    (sidecar,) = (tmp_path / "dump").glob("*v24.json")
    assert len(json.loads(sidecar.read_text())["run"]["file"]) == 64
    refsim("bisect", models / "mixed_ops.pte", "--random", 0, "--actual", tmp_path / "dump").refused(
        "is of another file"
    )
    given = ("triage", exposed, "-i", io, "--outputs", saved)
    _incomplete(refsim(*given, "--json"), "does not hold all int8 buffers")
    assert refsim(*given, "--partial", "--json").json["same"] is True


def test_two_runs_without_buffers_are_not_the_same(head, monkeypatch: pytest.MonkeyPatch, refsim) -> None:
    monkeypatch.setattr(Model, "run", lambda *_: [])
    _incomplete(refsim("compare", *head, "-x", "cpu,cpu:emulated", "--json"), "no buffer was compared")
    _incomplete(refsim("repeat", *head, "-n", "2", "--json"), "no buffer was compared")


def test_an_empty_corpus_is_not_right(tmp_path: Path, refsim) -> None:
    (tmp_path / "SHA256SUMS").write_text("")
    refsim("golden", "verify", "--root", tmp_path).refused("no case to check")
    refsim("golden", "coverage", "--root", tmp_path).refused("no case to count")


def test_one_wrong_name_among_cases_is_refused(refsim) -> None:
    refsim("golden", "verify", "q8ta_add/0001", "q8ta_add/99999").refused("no such case; got q8ta_add/99999")


def test_an_unknown_side_is_no_difference() -> None:
    assert RunIdentity("a", None).differs(RunIdentity("a", "b")) is None
    assert RunIdentity("a", "c").differs(RunIdentity("a", "b")) == "inputs"
    assert RunIdentity("x", "c").differs(RunIdentity("a", "b")) == "file"
    wide, tall = np.zeros((1, 4), np.float32), np.zeros((4, 1), np.float32)
    assert inputs_digest([wide]) != inputs_digest([tall]) != inputs_digest([wide.astype(np.int32)])


def test_two_dumps_into_one_folder_do_not_mix(head, dump: Path, refsim) -> None:
    with writing(dump):
        refsim("run", *head, "--dump", ".", dump).refused("another process writes there")
    assert refsim("run", *head, "--golden", dump).status == 0
    assert refsim("run", *head, "--dump", "v24", dump).status == 0  # the same run
    before = {path.name: path.read_bytes() for path in dump.iterdir()}
    other = (head[0], "--random", 3, "--dump", "v24")
    refsim("run", *other, dump).refused(
        f"holds a dump of another run; got delegate0_v17 is of other inputs, need a folder of the same file "
        f"and inputs, or a new one, such as {dump}-2"
    )
    assert before == {path.name: path.read_bytes() for path in dump.iterdir()}
    # buffers of another run that came there otherwise are noticed too
    assert refsim("run", *other, f"{dump}-2").status == 0
    for path in Path(f"{dump}-2").iterdir():
        path.replace(dump / path.name)
    refsim("run", *head, "--golden", dump).refused("v24 is of other inputs")


def test_a_dump_is_added_to_no_folder_of_something_else(head, dump: Path, tmp_path: Path, refsim) -> None:
    sidecar = dump / "delegate0_v24.json"
    content = json.loads(sidecar.read_text())
    del content["run"]["inputs"]
    sidecar.write_text(json.dumps(content))
    refsim("run", *head, "--dump", ".", dump).refused("buffers that do not say of which inputs they are")
    (tmp_path / "settings.json").write_text("{}")
    refsim("run", *head, "--dump", ".", tmp_path).refused("holds something else than a dump; got ")
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".bin"] == []


def test_a_run_that_fails_leaves_the_dump_as_it_was(head, dump: Path, refsim, monkeypatch) -> None:
    before = {path.name: path.read_bytes() for path in dump.iterdir()}

    def fail(*_: object) -> None:
        raise GraphError("model", "fails")

    monkeypatch.setattr(Model, "run", fail)
    assert refsim("run", *head, "--dump", ".", dump).status == 2
    assert before == {path.name: path.read_bytes() for path in dump.iterdir()}
