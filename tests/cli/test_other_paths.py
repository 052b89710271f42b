"""A path of the wrong kind, or of another run: what it is, and which whole command to type instead."""

from __future__ import annotations

import pickle
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from device.simulated import Runtime

from refsim.cli import main
from refsim.core.errors import MOST_IN_LINE, FormatError

DEVICE = Path(__file__).parents[1] / "data" / "device"
CORPUS = Path(__file__).parents[2] / "golden" / "cases"
VERBS = pytest.mark.parametrize("verb", [("bisect", "--actual"), ("run", "--golden")])


@pytest.fixture(scope="module")
def head(models: Path) -> tuple[object, ...]:
    return models / "linear_head.pte", "-i", models / "linear_head.io.npz"


@pytest.fixture(scope="module")
def phone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Outputs of a device with one wrong byte, in a folder of their own."""
    outputs = dict(np.load(DEVICE / "linear_head.raw.npz"))
    outputs["out4"] = outputs["out4"].copy()
    outputs["out4"].view(np.uint8)[0] ^= 0x7F
    file = tmp_path_factory.mktemp("triage") / "phone.npz"
    np.savez(file, **outputs)
    return file


@pytest.fixture(scope="module")
def found(head, phone: Path) -> Path:
    """The folder of a triage with one wrong operator; only read."""
    folder = phone.parent / "found"
    given = ("triage", DEVICE / "linear_head.raw.pte", *head[1:], "--outputs", phone, "-o", folder)
    assert main([str(word) for word in given]) == 1
    return folder


@pytest.fixture(scope="module")
def dump(head, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Only read."""
    folder = tmp_path_factory.mktemp("run") / "dump"
    assert main([str(word) for word in ("run", *head, "--dump", ".", folder)]) == 0
    return folder


def hints(done) -> list[list[str]]:
    """The words behind refsim of each command that an error proposes."""
    return [shlex.split(line)[2:] for line in done.err.splitlines() if line.startswith("try: refsim ")]


def filled(words: list[str], head) -> list[object]:
    """A proposed command with what only its reader knows."""
    file, _, inputs = head
    known = {"MODEL": file, "IN.npz": inputs, "EXPOSED": DEVICE / "linear_head.raw.pte"}
    return [known.get(word, word) for word in words]


# --- dumps of another model --------------------------------------------------------------------------------


@VERBS
def test_partial_is_offered_only_where_it_would_work(verb, refsim, models: Path, dump: Path) -> None:
    """Buffers of which none is a value of the file are refused with --partial too, and in the same words.

    Those of other inputs can be compared with it, but then everything differs.
    """
    other = (verb[0], models / "mixed_ops.pte", "--random", 0, verb[1], dump)
    why = "none of these has the name, shape and layout of a value of it"
    for more in ((), ("--partial",)):
        done = refsim(*other, *more)
        done.refused(why)
        assert "--partial" not in done.err
    mine = (verb[0], models / "linear_head.pte", "--random", 1, verb[1], dump)
    refsim(*mine).refused("of other inputs, need")
    assert "--partial" not in refsim(*mine).err and refsim(*mine, "--partial").status == 1


# --- folders of a triage, outputs of a device ---------------------------------------------------------------


@VERBS
def test_a_triage_s_folder_names_its_dump(verb, refsim, head, found: Path) -> None:
    for folder, note in ((found, "the dump in it"), (found / "cases", "the dump beside them")):
        refsim(verb[0], *head, verb[1], folder).refused(f"need {found / 'dump'}, {note}")
    assert refsim(verb[0], *head, verb[1], found / "dump").status == 1
    case = found / "cases" / "delegate0_v28"
    for folder in (found / "cases", case):
        (words,) = hints(refsim(verb[0], *head, verb[1], folder))
        assert words == ["replay", str(case), "--actual", str(case / "actual.bin")]
        assert refsim(*words).status == 1


def test_replay_of_a_triage_s_folder_names_the_cases(refsim, head, found: Path) -> None:
    for folder in (found, found / "cases"):
        done = refsim("replay", folder)
        done.refused("a folder of cases; need one of the cases in it")
        held = hints(done)
        assert {words[1] for words in held} == {str(path) for path in (found / "cases").iterdir()}
        assert all(refsim(*words).status == 1 for words in held)
    done = refsim("replay", found / "dump")
    done.refused("a dump, and no case")
    (words,) = hints(done)
    assert refsim(*filled(words, head)).status == 1
    done = refsim("replay", found / "dump" / "delegate0_v28.bin")
    done.refused("not a case; got a file")
    assert hints(done) == [words]
    refsim("replay", found / "pages").refused("not a case; got a folder without case.json")
    refsim("replay", found / "cases" / "delegate0_v28", "--actual", found / "dump").refused(
        f"a folder; need one raw buffer, such as {found / 'dump'}"
    )


@VERBS
def test_outputs_of_a_device_are_no_dump(
    verb, refsim, head, phone: Path, tmp_path: Path, monkeypatch
) -> None:
    """triage and collect are named; what they print can be run."""
    monkeypatch.chdir(tmp_path)
    done = refsim(verb[0], *head, verb[1], phone)
    done.refused("outputs of a run, and no dump")
    judged, collected = (filled(words, head) for words in hints(done))
    assert (judged[0], collected[0]) == ("triage", "collect")
    assert refsim(*judged).status == 1 and refsim(*collected).status == 0
    assert refsim(verb[0], *head, verb[1], "DIR").status == 1


def test_outputs_of_a_device_that_hold_no_such_buffer(refsim, head, found: Path, phone: Path) -> None:
    """The one array that fits is judged; without one, triage and collect are named, which read all of them."""
    case = found / "cases" / "delegate0_v28"
    for given in (("replay", case, "--actual"), ("diff", case / "out.bin")):
        done = refsim(*given, phone)
        assert done.status == 1 and "was compared, the only one in it" in done.out
    done = refsim("replay", "q8ta_relu/1", "--actual", phone)
    done.refused("no array of this buffer; got ")
    judged, collected = (filled(words, head) for words in hints(done))
    assert refsim(*judged).status == 1 and collected[0] == "collect"


def test_a_dump_is_no_output(refsim, head, dump: Path, models: Path) -> None:
    for held in (dump, models / "linear_head.dump.zip"):
        done = refsim("triage", DEVICE / "linear_head.raw.pte", *head[1:], "--outputs", held)
        done.refused("a dump, and no outputs")
        (words,) = hints(done)
        assert refsim(*filled(words, head)).status == 0


def test_a_file_that_is_not_exposed_and_one_that_is(
    refsim, head, models: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outputs = ("--outputs", DEVICE / "linear_head.raw.npz")
    done = refsim("triage", *head, *outputs)
    done.refused("not an exposed file")
    (words,) = hints(done)
    assert words == ["expose", str(head[0]), "-o", "exposed.pte"] and refsim(*words).status == 0
    done = refsim(
        "bisect", DEVICE / "linear_head.raw.pte", *head[1:], "--actual", models / "linear_head.dump.zip"
    )
    done.refused("judges its outputs; need linear_head.pte, of which it was made")
    (words,) = hints(done)
    given = [outputs[1] if word == "OUTPUTS" else word for word in filled(words, head)]
    assert given[0] == "triage" and refsim(*given).status == 0


# --- diff of folders ---------------------------------------------------------------------------------------


@pytest.mark.long
def test_diff_of_dumps_names_one_buffer_and_the_verbs_for_all(
    refsim, head, dump: Path, tmp_path: Path
) -> None:
    assert refsim("run", *head, "--dump", ".", tmp_path / "other").status == 0
    bad = tmp_path / "other" / "delegate0_v24.bin"
    bad.write_bytes(bytes([bad.read_bytes()[0] ^ 1]) + bad.read_bytes()[1:])
    done = refsim("diff", dump, tmp_path / "other")
    done.refused("a folder; need one raw buffer; bisect and run compare all buffers")
    one, *whole = hints(done)
    assert one == ["diff", str(dump / "delegate0_v24.bin"), str(bad)] and refsim(*one).status == 1
    assert [words[0] for words in whole] == ["bisect", "run"]
    assert all(refsim(*filled(words, head)).status == 1 for words in whole)


def test_diff_of_zip_files(refsim, head, models: Path) -> None:
    recorded = models / "linear_head.dump.zip"
    done = refsim("diff", recorded, recorded)
    done.refused("a zip file; need one raw buffer")
    whole = hints(done)
    assert len(whole) == 2 and all(refsim(*filled(words, head)).status == 0 for words in whole)


# --- hints -------------------------------------------------------------------------------------------------


def test_a_case_that_is_not_stored_whole_is_named_as_a_command(refsim) -> None:
    path = CORPUS / "q8ta_add.zip"
    done = refsim("replay", f"{path}!0003")
    done.refused("no such case in it")
    assert hints(done) == [["replay", "q8ta_add/0003"]] and refsim(*hints(done)[0]).status == 0
    (words,) = hints(refsim("replay", f"{path}!x"))
    assert words == ["replay", f"{path}!0175"] and refsim(*words).status == 0


def test_hints_are_whole_however_long_and_in_json(refsim, head, dump: Path, tmp_path: Path) -> None:
    deep = tmp_path / ("long" * 50) / ("name" * 50)
    shutil.copytree(dump, deep)
    done = refsim("replay", deep, "--json")
    first, line = done.err.splitlines()
    assert len(first) <= MOST_IN_LINE < len(line) and str(deep) in line
    assert [f"try: {hint}" for hint in done.json["error"]["hints"]] == [line]
    error = FormatError("a", "b", hints=["refsim run c"])
    assert pickle.loads(pickle.dumps(error)).hints == ("refsim run c",) and str(error) == "a: b"


# --- other files -------------------------------------------------------------------------------------------


def test_outputs_of_a_file_that_exposes_another_value_are_found_out(refsim, head, tmp_path: Path) -> None:
    """Both outputs have one shape, and nothing in them says of which file they are."""
    file, *given = head
    for value in (20, 24):
        name = tmp_path / f"e{value}.pte"
        assert refsim("expose", file, "-o", name, "--value", f"delegate0_v{value}").status == 0
    arrays = Runtime((tmp_path / "e24.pte").read_bytes()).run([np.load(given[1])["in0"]])
    np.savez(tmp_path / "of24.npz", **{f"out{n}": array for n, array in enumerate(arrays)})
    triage = ("triage", tmp_path / "e20.pte", *given, "--outputs", tmp_path / "of24.npz", "--partial")
    done = refsim(*triage)
    said = "delegate0_v20 holds exactly the right bytes of delegate0_v24: the outputs may be those of a file that"
    assert done.status == 1 and said in done.out
    assert re.search(r"which file and of which inputs it is; taken as outputs of \S+/e20.pte\n", done.out)
    right = refsim("triage", tmp_path / "e24.pte", *triage[2:])
    assert right.status == 0 and "holds exactly" not in right.out


# --- what lies one step away -------------------------------------------------------------------------------


def test_a_folder_of_dumps_names_them(refsim, head, dump: Path, tmp_path: Path) -> None:
    shutil.copytree(dump, tmp_path / "runs" / "frame")
    for verb in (("bisect", *head, "--actual"), ("run", *head, "--golden")):
        refsim(*verb, tmp_path / "runs").refused(
            f"a folder of dumps, and no dump; need one of those in it: {tmp_path / 'runs' / 'frame'}"
        )
    shutil.copytree(dump, tmp_path / "mine" / "dump")  # as triage names its own, and nothing else of a triage
    for verb in (("bisect", *head, "--actual"), ("run", *head, "--golden")):
        refsim(*verb, tmp_path / "mine").refused(f"need one of those in it: {tmp_path / 'mine' / 'dump'}")


def test_outputs_given_to_bisect_name_the_exposed_file(refsim, head) -> None:
    exposed, outputs = DEVICE / "linear_head.raw.pte", DEVICE / "linear_head.raw.npz"
    done = refsim("bisect", exposed, *head[1:], "--actual", outputs)
    done.refused("outputs of a run, and no dump")
    assert [words[1] for words in hints(done)] == [str(exposed), str(exposed)]
    assert hints(refsim("bisect", *head, "--actual", outputs))[0][1] == "EXPOSED"


def test_replay_of_a_model_names_extract(refsim, models: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = refsim("replay", models / "linear_head.pte")
    done.refused("not a case; got a file")
    (words,) = hints(done)
    assert words[0] == "extract" and refsim(*words).status == 0 and refsim("replay", "case").status == 0
