"""A comparison that left something out, or was with another run, is never "the same"; a dump is of one run."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from device.simulated import Runtime
from saved import arrays, contents, flip

from refsim.core.errors import GraphError
from refsim.core.folder_write import writing
from refsim.exec.model import Model
from refsim.formats.run_identity import RunIdentity, inputs_digest

VERBS = pytest.mark.parametrize(("verb", "option"), [("run", "--golden"), ("bisect", "--actual")])


def _incomplete(done, match: str) -> None:
    assert done.status == 2 and done.err.count("\n") == 1 and match in done.err, done
    if done.out.startswith("{"):
        assert json.loads(done.out)["same"] is False
    else:
        assert "0 buffers" not in done.out


def changed(sidecar: Path, **keys: object) -> Path:
    """A sidecar with other keys; those that are None are taken out."""
    content = json.loads(sidecar.read_text()) | keys
    sidecar.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
    return sidecar


@VERBS
def test_a_whole_dump_says_which_run_it_is_of(verb, option, head: str, dump: Path, refsim) -> None:
    done = refsim(f"{verb} {head} {option} dump --json")
    assert done.status == 0 and done.json["same"] is True
    assert done.json["not_compared"] == [] and done.json["notes"] == []
    said = json.loads(next(dump.glob("*.json")).read_text())["run"]
    assert all(len(said[name]) == 64 for name in ("file", "inputs"))


@pytest.mark.parametrize("more", ["", "--json", "--partial", "--json --partial"])
def test_wrong_names_compare_nothing(more: str, head: str, dump: Path, refsim) -> None:
    for path in sorted(dump.iterdir()):
        if path.suffix == ".json":
            changed(path, value=path.stem.replace("_v", "_w"))
        path.rename(dump / path.name.replace("_v", "_w"))
    done = refsim(f"run {head} --golden dump {more}")
    _incomplete(done, "no buffer was compared")
    assert "0 bytes differ" not in done.out


@VERBS
def test_a_part_needs_the_option(verb, option, head: str, dump: Path, refsim) -> None:
    name = sorted(dump.glob("*.bin"))[1].stem
    for suffix in (".bin", ".json"):
        (dump / f"{name}{suffix}").unlink()
    line = f"{verb} {head} {option} dump"
    _incomplete(refsim(f"{line} --json"), "need all, or --partial")
    done, whole = refsim(line), refsim(f"{line} --partial")
    _incomplete(done, f"{name} not compared")
    assert f"1 of 4 int8 buffers was not compared: {name}" in done.out
    if verb == "bisect":  # one count for all sentences, and the last says what was seen
        assert "3 of 4 int8 buffers dumped, and 1 float buffer" in done.out
        assert done.out.splitlines()[-1] == "4 compared buffers are the same"
        assert whole.out.splitlines()[-1] == "right: 4 compared buffers are the same"
    done = refsim(f"{line} --json --partial")
    assert done.status == 0 and done.json["same"] is True and done.json["not_compared"] == [name]


def test_a_difference_in_a_part_is_a_difference(head: str, dump: Path, refsim) -> None:
    first, second, *_ = sorted(dump.glob("*_v2*.bin"))
    first.unlink()
    first.with_suffix(".json").unlink()
    flip(second)
    done = refsim(f"run {head} --golden dump --json")
    assert done.status == 1 and done.json["same"] is False and done.json["not_compared"] == [first.stem]


@VERBS
def test_a_dump_cut_short_fails(verb, option, head: str, models: Path, tmp_path: Path, refsim) -> None:
    with zipfile.ZipFile(models / "linear_head.dump.zip") as whole:
        rows = json.loads(whole.read("delegate0.json"))[:-2]
        with zipfile.ZipFile(tmp_path / "cut.zip", "w") as cut:
            cut.writestr("delegate0.json", json.dumps(rows))
            for row in rows:
                if "raw" in row:
                    cut.writestr(row["raw"], whole.read(row["raw"]))
    _incomplete(refsim(f"{verb} {head} {option} {tmp_path}/cut.zip"), "or --partial")


@VERBS
def test_another_run_is_refused(verb, option, head: str, dump: Path, refsim) -> None:
    file, _, inputs = head.split()
    refused = refsim(f"{verb} {file} --random 7 {option} dump")
    refused.refused("holds buffers of another run; got delegate0_v")
    Path("copy.pte").write_bytes(Path(file).read_bytes() + bytes(8))  # the same graph, but another file
    line = f"{verb} copy.pte -i {inputs} {option} dump"
    refsim(line).refused("is of another file")
    done = refsim(f"{line} --partial --json")
    assert done.status == 0 and "holds buffers of another run" in done.json["notes"][0]


def test_runs_that_are_mixed_are_refused(head: str, dump: Path, refsim) -> None:
    sidecar = sorted(dump.glob("*.json"))[-1]
    run = json.loads(sidecar.read_text())["run"]
    changed(sidecar, run=run | {"inputs": inputs_digest([np.zeros(3)])})
    refsim(f"run {head} --golden dump").refused(f"{sidecar.stem} is of other inputs")
    changed(sidecar, run=["x"])
    refsim(f"run {head} --golden dump").refused("need an object")


@VERBS
def test_dumps_without_identity_still_work_and_say_so(verb, option, head: str, dump, models, refsim) -> None:
    for sidecar in dump.glob("*.json"):
        changed(sidecar, run=None)
    for actual in (dump, models / "linear_head.dump.zip"):
        done = refsim(f"{verb} {head} {option} {actual}")
        said = f"not checked: {actual} does not say of which file and of which inputs it is"
        assert done.status == 0 and said in done.out.splitlines()


@VERBS
def test_a_sidecar_that_is_missing_or_says_something_else_is_named(
    verb, option, head: str, dump, refsim
) -> None:
    one, two, three = sorted(dump.glob("*_v2?.json"))
    line = f"{verb} {head} {option} dump"
    changed(two, run=None)
    said = f"not checked: {two.stem} in dump does not say of which file and of which inputs it is"
    assert said in refsim(line).out.splitlines()
    one.unlink()
    done = refsim(line)
    _incomplete(done, f"{one.stem} not compared, need all, with {one.name} beside {one.stem}.bin, or --part")
    assert f"not read: {one.stem}.bin lies in dump without {one.name}, the sidecar" in done.out
    changed(three, value=three.stem.partition("_")[2])
    assert f"; did you mean {three.stem}?\n" in refsim(line).out


def test_an_exposed_part_knows_its_file_and_is_no_whole(head: str, models: Path, dump: Path, refsim) -> None:
    file, _, io = head.split()
    assert refsim(f"expose {file} -o part.pte --value v24").status == 0
    arrays("out.npz", Runtime(Path("part.pte").read_bytes()).run([np.load(io)["in0"]]))
    assert refsim("collect part.pte out.npz -o part").status == 0
    (sidecar,) = Path("part").glob("*v24.json")
    assert len(json.loads(sidecar.read_text())["run"]["file"]) == 64
    other = refsim(f"bisect {models}/mixed_ops.pte --random 0 --actual part")
    other.refused("is of another file")
    line = f"triage part.pte -i {io} --outputs out.npz --json"
    _incomplete(refsim(line), "does not hold all int8 buffers")
    assert refsim(f"{line} --partial").json["same"] is True


@pytest.mark.parametrize("line", ["compare {} -x cpu,cpu:emulated --json", "repeat {} -n 2 --json"])
def test_two_runs_without_buffers_are_not_the_same(line: str, head: str, monkeypatch, refsim) -> None:
    monkeypatch.setattr(Model, "run", lambda *_: [])
    _incomplete(refsim(line.format(head)), "no buffer was compared")


def test_an_empty_corpus_is_not_right(tmp_path: Path, refsim) -> None:
    refsim("golden verify --root", tmp_path).refused("holds no corpus")
    (tmp_path / "SHA256SUMS").write_text("")
    refsim("golden verify --root", tmp_path).refused("no case to check")
    refsim("golden coverage --root", tmp_path).refused("no case to count")


def test_an_unknown_side_is_no_difference() -> None:
    assert RunIdentity("a", None).differs(RunIdentity("a", "b")) is None
    assert RunIdentity("a", "c").differs(RunIdentity("a", "b")) == "inputs"
    assert RunIdentity("x", "c").differs(RunIdentity("a", "b")) == "file"
    wide, tall = np.zeros((1, 4), np.float32), np.zeros((4, 1), np.float32)
    assert inputs_digest([wide]) != inputs_digest([tall]) != inputs_digest([wide.astype(np.int32)])


def test_two_dumps_into_one_folder_do_not_mix(head: str, dump: Path, refsim) -> None:
    with writing(dump):
        refsim(f"run {head} --dump . dump").refused("another process writes there")
    assert refsim(f"run {head} --golden dump").status == 0
    assert refsim(f"run {head} --dump v24 dump").status == 0  # the same run
    before = contents(dump)
    other = f"run {head.split()[0]} --random 3 --dump v24"
    refsim(f"{other} dump").refused(
        "holds a dump of another run; got delegate0_v17 is of other inputs, need a folder of the same file "
        "and inputs, or a new one, such as dump-2"
    )
    assert before == contents(dump)
    # buffers of another run that came there otherwise are noticed too
    assert refsim(f"{other} dump-2").status == 0
    for path in Path("dump-2").iterdir():
        path.replace(dump / path.name)
    refsim(f"run {head} --golden dump").refused("v24 is of other inputs")


def test_a_dump_is_added_to_no_folder_of_something_else(head: str, dump: Path, refsim) -> None:
    sidecar = dump / "delegate0_v24.json"
    changed(sidecar, run={"file": json.loads(sidecar.read_text())["run"]["file"]})
    refused = refsim(f"run {head} --dump . dump")
    refused.refused("buffers that do not say of which inputs they are")
    Path("new").mkdir()
    Path("new/settings.json").write_text("{}")
    refsim(f"run {head} --dump . new").refused("holds something else than a dump; got ")
    assert [path.name for path in Path("new").iterdir()] == ["settings.json"]


def test_a_run_that_fails_leaves_the_dump_as_it_was(head: str, dump: Path, refsim, monkeypatch) -> None:
    before = contents(dump)

    def fail(*_: object) -> None:
        raise GraphError("model", "fails")

    monkeypatch.setattr(Model, "run", fail)
    assert refsim(f"run {head} --dump . dump").status == 2
    assert before == contents(dump)
