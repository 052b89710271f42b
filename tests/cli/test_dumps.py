"""Dumps: of which run and value a buffer is, what a comparison left out, and what a folder of them must not hold."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from device.simulated import Runtime
from saved import arrays, contents, flip

from refsim.core.errors import GraphError
from refsim.core.folder_write import writing
from refsim.exec.model import Model
from refsim.formats.run_identity import RunIdentity, inputs_digest

EXCHANGED = "delegate0_v20 where delegate0_v24 should be, and the other way round"


def buffer(name: str, dump: str = "dump") -> Path:
    return Path(dump) / f"delegate0_{name}.bin"


def sidecar(name: str) -> Path:
    return buffer(name).with_suffix(".json")


def said(name: str) -> dict:
    return json.loads(sidecar(name).read_text())


def says(name: str, **keys: object) -> None:
    """Let a sidecar say something else; keys that are None are taken out."""
    content = said(name) | keys
    sidecar(name).write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def swap() -> None:
    one, other = buffer("v20"), buffer("v24")
    held = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(held)


def _incomplete(done, match: str) -> None:
    assert done.status == 2 and done.err.count("\n") == 1 and match in done.err, done
    if done.out.startswith("{"):
        assert json.loads(done.out)["same"] is False
    else:
        assert "0 buffers" not in done.out


# --- what is missing -------------------------------------------------------------------------------------


def test_a_whole_dump_says_which_run_it_is_of(dump: Path, judge) -> None:
    done = judge("--json")
    assert done.status == 0 and done.json["same"] is True
    assert done.json["not_compared"] == [] and done.json["notes"] == []
    assert all(len(said("v20")["run"][name]) == 64 for name in ("file", "inputs"))


@pytest.mark.parametrize("more", ["", "--json", "--partial", "--json --partial"])
def test_wrong_names_compare_nothing(more: str, head: str, dump: Path, refsim) -> None:
    for path in sorted(dump.iterdir()):
        if path.suffix == ".json":
            says(path.stem.partition("_")[2], value=path.stem.replace("_v", "_w"))
        path.rename(dump / path.name.replace("_v", "_w"))
    done = refsim(f"run {head} --golden dump {more}")
    _incomplete(done, "no buffer was compared")
    assert "0 bytes differ" not in done.out


def test_a_part_needs_the_option(dump: Path, judge) -> None:
    buffer("v20").unlink()
    sidecar("v20").unlink()
    _incomplete(judge("--json"), "need all, or --partial")
    done = judge()
    _incomplete(done, "delegate0_v20 not compared")
    assert "1 of 4 int8 buffers was not compared: delegate0_v20" in done.out
    done = judge("--json --partial")
    assert done.status == 0 and done.json["same"] is True and done.json["not_compared"] == ["delegate0_v20"]
    flip(buffer("v24"))
    done = judge("--json --partial")
    assert done.status == 1 and done.json["same"] is False and done.json["not_compared"] == ["delegate0_v20"]


def test_bisect_has_one_count_for_all_sentences(head: str, dump: Path, refsim) -> None:
    buffer("v20").unlink()
    sidecar("v20").unlink()
    line = f"bisect {head} --actual dump"
    out = refsim(line).out
    assert "3 of 4 int8 buffers dumped, and 1 float buffer" in out
    assert out.splitlines()[-1] == "4 compared buffers are the same"
    assert refsim(f"{line} --partial").out.splitlines()[-1] == "right: 4 compared buffers are the same"


def test_a_dump_cut_short_fails(models: Path, tmp_path: Path, judge) -> None:
    with zipfile.ZipFile(models / "linear_head.dump.zip") as whole:
        rows = json.loads(whole.read("delegate0.json"))[:-2]
        with zipfile.ZipFile(tmp_path / "cut.zip", "w") as cut:
            cut.writestr("delegate0.json", json.dumps(rows))
            for row in rows:
                if "raw" in row:
                    cut.writestr(row["raw"], whole.read(row["raw"]))
    _incomplete(judge(dump=tmp_path / "cut.zip"), "or --partial")


def test_a_sidecar_that_is_missing_or_says_something_else_is_named(dump: Path, judge) -> None:
    says("v24", run=None)
    line = "not checked: delegate0_v24 in dump does not say of which file and of which inputs it is"
    assert line in judge().out.splitlines()
    sidecar("v20").unlink()
    done = judge()
    need = "need all, with delegate0_v20.json beside delegate0_v20.bin, or --part"
    _incomplete(done, f"delegate0_v20 not compared, {need}")
    assert "not read: delegate0_v20.bin lies in dump without delegate0_v20.json, the sidecar" in done.out
    says("v28", value="v28")
    assert "; did you mean delegate0_v28?\n" in judge().out


def test_an_exposed_part_knows_its_file_and_is_no_whole(head: str, models: Path, dump: Path, refsim) -> None:
    file, _, io = head.split()
    assert refsim(f"expose {file} -o part.pte --value v24").status == 0
    arrays("out.npz", Runtime(Path("part.pte").read_bytes()).run([np.load(io)["in0"]]))
    assert refsim("collect part.pte out.npz -o part").status == 0
    (beside,) = Path("part").glob("*v24.json")
    assert len(json.loads(beside.read_text())["run"]["file"]) == 64
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


# --- another run -----------------------------------------------------------------------------------------


def test_another_run_is_refused(head: str, dump: Path, judge) -> None:
    file, _, inputs = head.split()
    judge(run=f"{file} --random 7").refused("holds buffers of another run; got delegate0_v")
    Path("copy.pte").write_bytes(Path(file).read_bytes() + bytes(8))  # the same graph, but another file
    copy = f"copy.pte -i {inputs}"
    judge(run=copy).refused("is of another file")
    done = judge("--partial --json", run=copy)
    assert done.status == 0 and "holds buffers of another run" in done.json["notes"][0]


def test_dumps_without_identity_still_work_and_say_so(dump: Path, models: Path, judge) -> None:
    for path in dump.glob("*.json"):
        says(path.stem.partition("_")[2], run=None)
    for actual in (dump, models / "linear_head.dump.zip"):
        done = judge(dump=actual)
        line = f"not checked: {actual} does not say of which file and of which inputs it is"
        assert done.status == 0 and line in done.out.splitlines()


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
    says("v24", run={"file": said("v24")["run"]["file"]})
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


# --- what a folder must not hold -------------------------------------------------------------------------


def mixed_runs() -> None:
    says("v31", run=said("v31")["run"] | {"inputs": inputs_digest([np.zeros(3)])})


def alone(**keys: object) -> None:
    """Leave one buffer, whose sidecar says something else."""
    says("v20", **keys)
    for path in Path("dump").iterdir():
        if path.stem != "delegate0_v20":
            path.unlink()


def pipe() -> None:
    """Opening it would never end."""
    buffer("v20").unlink()
    os.mkfifo(buffer("v20"))


#: What somebody did to a dump, and what both verbs say of it.
DAMAGE: dict[str, tuple[Callable[[], object], str]] = {
    "two sidecars of a value": (
        lambda: says("v24", value="delegate0_v20"),
        "dump: delegate0_v20: two sidecars name it; got delegate0_v20.json, delegate0_v24.json",
    ),
    "two runs": (mixed_runs, "delegate0_v31 is of other inputs"),
    "a run that is none": (lambda: says("v31", run=["x"]), "need an object"),
    "another layout": (lambda: alone(layout="PACKED_INT8_4C"), "recorded with another shape or layout"),
    "another shape": (lambda: alone(shape=[1, 1]), "recorded with another shape or layout"),
    "no such layout": (lambda: says("v20", layout="4Q"), "not a sidecar"),
    "no layout": (lambda: says("v20", layout=None), "not a sidecar; got no 'layout'"),
    "no shape": (lambda: says("v20", shape="x"), "not a shape"),
    "no JSON": (lambda: sidecar("v20").write_text("{"), "not a sidecar"),
    "a short buffer": (
        lambda: buffer("v20").write_bytes(bytes(100)),
        "refsim: dump/delegate0_v20.bin: raw buffer for 6x128 4H4W: wrong size; got 100 bytes",
    ),
    "a long buffer": (lambda: buffer("v20").write_bytes(bytes(9000)), "too large; got 9000 bytes"),
    "no buffer": (lambda: buffer("v20").unlink(), "delegate0_v20.bin: is missing"),
    "a pipe": (pipe, "delegate0_v20.bin: is missing"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_dump_that_lies_is_refused(damage: str, dump: Path, judge) -> None:
    make, match = DAMAGE[damage]
    make()
    judge().refused(match)


def test_what_is_no_dump_of_the_model_is_refused(tmp_path: Path, monkeypatch, head: str, refsim) -> None:
    monkeypatch.chdir(tmp_path)
    Path("other").mkdir()
    Path("other/a.bin").write_bytes(b"1234")
    Path("other/a.json").write_text('{"value": "a", "shape": [1, 4], "layout": "PACKED_INT8_4C"}')
    refsim(f"bisect {head} --actual other").refused("holds none of the model's buffers")
    os.mkfifo("pipe")
    refsim(f"run {head} --golden pipe").refused("no regular file")


# --- which value -----------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("wrong", [(), ("v28",), ("v28", "v31")])
def test_bisect_recognises_two_exchanged_buffers(wrong, dump: Path, refsim, head: str) -> None:
    """v24's operator reads v20, and other operators may be wrong as well."""
    swap()
    for name in wrong:
        flip(buffer(name))
    refsim(f"bisect {head} --actual dump").refused(f"dump: two buffers are exchanged; got {EXCHANGED}")


def test_bisect_recognises_buffers_of_a_run_that_was_wrong_before(dump: Path, refsim, head: str) -> None:
    """Each is what its operator gives for the inputs that it had, which were not right."""
    assert refsim(f"run {head.split()[0]} --random 3 --dump v other").status == 0
    for path in Path("other").glob("*.bin"):
        (dump / path.name).write_bytes(path.read_bytes())
    assert refsim(f"bisect {head} --actual dump --json").json["wrong"] == ["delegate0_v17"]
    swap()
    refsim(f"bisect {head} --actual dump --json").refused(EXCHANGED)


def test_run_says_that_two_recorded_buffers_are_exchanged(dump: Path, refsim, head: str) -> None:
    line, note = f"run {head} --golden dump --json", f"two buffers are exchanged in dump: {EXCHANGED}"
    flip(buffer("v20"))
    assert note not in refsim(line).json["notes"]
    flip(buffer("v20"))
    swap()
    done = refsim(line)
    assert done.status == 1 and note in done.json["notes"]


@pytest.mark.long
def test_bisect_explains_an_operator_that_is_right_but_not_for_its_dumped_inputs(dump, refsim, head) -> None:
    flip(buffer("v24"))
    done = refsim(f"bisect {head} --actual dump --json")
    assert done.status == 1 and done.json["notes"] == [
        "node 3 q8ta_linear is right, since it gave what the right run gives: it read another delegate0_v24 than was "
        "dumped, which was changed later, or on the way to the file"
    ]


def test_diff_says_what_the_sidecars_of_two_buffers_tell(dump: Path, refsim, head: str) -> None:
    assert refsim(f"run {head.split()[0]} --random 3 --dump . other").status == 0
    one, other, next_one = buffer("v20"), buffer("v20", "other"), buffer("v24")
    line = (
        "dump/delegate0_v20.json and other/delegate0_v20.json tell of two runs, the second of other inputs than the "
        "first: bytes may differ for that alone"
    )
    done = refsim(f"diff {one} {other} --html page.html")
    assert done.status == 1 and line in done.out.splitlines() and line in Path("page.html").read_text()
    other.write_bytes(one.read_bytes())
    assert refsim(f"diff {one} {other} --json").json["of_run"] == []
    names = "delegate0_v20 and delegate0_v24"
    line = f"dump/delegate0_v20.json and dump/delegate0_v24.json name two values, {names}"
    for status in (1, 0):
        done = refsim(f"diff {one} {next_one} --json")
        assert done.status == status and done.json["of_run"] == [line]
        next_one.write_bytes(one.read_bytes())


@pytest.mark.long
def test_a_case_of_a_model_knows_its_value(dump: Path, refsim, head: str) -> None:
    assert refsim(f"extract {head} -n delegate0_v20 -o case").status == 0
    assert json.loads(Path("case/case.json").read_text())["value"] == "delegate0_v20"
    beside = "dump/delegate0_v24.json says that dump/delegate0_v24.bin is delegate0_v24"
    line = f"{beside}, and case writes delegate0_v20"
    for given, status, told in (
        (f"replay case --actual {buffer('v24')}", 1, [line]),
        (f"diff case/out.bin {buffer('v24')} --case case", 1, [line]),
        (f"replay case --actual {buffer('v20')}", 0, []),
    ):
        done = refsim(f"{given} --json")
        assert (done.status, done.json["of_run"]) == (status, told)


@pytest.mark.long
def test_a_file_that_is_named_like_another_value_is_told(dump: Path, refsim, head: str) -> None:
    sidecar("v20").unlink()
    says("v24", value="delegate0_v20")
    done = refsim(f"bisect {head} --actual dump")
    assert "dump: the sidecar says that delegate0_v24.bin is delegate0_v20" in done.out.splitlines()
    told = refsim(f"diff {buffer('v24')} {buffer('v24')} --json").json["of_run"]
    assert told == ["dump/delegate0_v24.json says that dump/delegate0_v24.bin is delegate0_v20"]


def test_a_value_with_a_slip_is_asked_back(dump: Path, judge) -> None:
    """The one that the dump lacks is meant, not one that it has."""
    says("v20", value="delegate0-v20")
    done = judge("--json")
    (note,) = (note for note in done.json["notes"] if "delegate0-v20 " in note)
    assert done.status == 2 and note.endswith("; did you mean delegate0_v20?")
