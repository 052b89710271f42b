"""A path of the wrong kind, or of another run: what it is, and which whole command to type instead."""

from __future__ import annotations

import pickle
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from device.simulated import Runtime
from saved import arrays, flip, with_a_wrong_byte

from refsim.cli import main
from refsim.core.errors import MOST_IN_LINE, FormatError

RAW = Path(__file__).parents[1] / "data" / "device" / "linear_head.raw"


@pytest.fixture(scope="module")
def phone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Outputs of a device with one wrong byte, in a folder of their own."""
    return with_a_wrong_byte(Path(f"{RAW}.npz"), "out4", tmp_path_factory.mktemp("triage") / "phone.npz")


@pytest.fixture(scope="module")
def found(head: str, phone: Path) -> Path:
    """The folder of a triage with one wrong operator; only read."""
    folder = phone.parent / "found"
    line = f"triage {RAW}.pte {head.partition(' ')[2]} --outputs {phone} -o {folder}"
    assert main(line.split()) == 1
    return folder


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def filled(words: list[str], head: str, **known: object) -> str:
    """A proposed command with what only its reader knows."""
    file, _, inputs = head.split()
    known = {"MODEL": file, "IN.npz": inputs, "EXPOSED": f"{RAW}.pte"} | known
    return " ".join(str(known.get(word, word)) for word in words)


# --- dumps of another model, folders of a triage, outputs of a device ---------------------------------------


def test_partial_is_offered_only_where_it_would_work(judge, models: Path, dump: Path) -> None:
    """Buffers of which none is a value of the file are refused with --partial too, and in the same words.

    Those of other inputs can be compared with it, but then everything differs.
    """
    for more in ("", "--partial"):
        done = judge(more, run=f"{models}/mixed_ops.pte --random 0")
        done.refused("none of these has the name, shape and layout of a value of it")
        assert "--partial" not in done.err
    mine = f"{models}/linear_head.pte --random 1"
    done = judge(run=mine)
    done.refused("of other inputs, need")
    assert "--partial" not in done.err and judge("--partial", run=mine).status == 1


def test_a_triage_s_folder_names_its_dump(judge, refsim, found: Path) -> None:
    case = found / "cases" / "delegate0_v28"
    for folder, note in ((found, "the dump in it"), (found / "cases", "the dump beside them")):
        judge(dump=folder).refused(f"need {found / 'dump'}, {note}")
    assert judge(dump=found / "dump").status == 1
    for folder in (found / "cases", case):
        (words,) = judge(dump=folder).hints
        assert words == ["replay", str(case), "--actual", str(case / "actual.bin")]
        assert refsim(*words).status == 1


def test_replay_of_a_triage_s_folder_names_the_cases(refsim, head: str, found: Path) -> None:
    for folder in (found, found / "cases"):
        done = refsim(f"replay {folder}")
        done.refused("a folder of cases; need one of the cases in it")
        assert {words[1] for words in done.hints} == {str(path) for path in (found / "cases").iterdir()}
        assert all(refsim(*words).status == 1 for words in done.hints)
    done = refsim(f"replay {found}/dump")
    done.refused("a dump, and no case")
    (words,) = done.hints
    assert refsim(filled(words, head)).status == 1
    done = refsim(f"replay {found}/dump/delegate0_v28.bin")
    done.refused("not a case; got a file")
    assert done.hints == [words]
    refsim(f"replay {found}/pages").refused("not a case; got a folder without case.json")
    several = refsim(f"replay {found}/cases/delegate0_v28 --actual {found}/dump")
    several.refused(f"a folder; need one raw buffer, such as {found / 'dump'}")


def test_outputs_of_a_device_are_no_dump(judge, refsim, head: str, phone: Path) -> None:
    done = judge(dump=phone)
    done.refused("outputs of a run, and no dump")
    judged, collected = (filled(words, head) for words in done.hints)
    assert judged.startswith("triage ") and collected.startswith("collect ")
    assert refsim(judged).status == 1 and refsim(collected).status == 0
    assert judge(dump="DIR").status == 1


def test_outputs_of_a_device_that_hold_no_such_buffer(refsim, head: str, found: Path, phone: Path) -> None:
    case = found / "cases" / "delegate0_v28"
    for line in (f"replay {case} --actual {phone}", f"diff {case}/out.bin {phone}"):
        done = refsim(line)
        assert done.status == 1 and "was compared, the only one in it" in done.out
    done = refsim(f"replay q8ta_relu/1 --actual {phone}")
    done.refused("no array of this buffer; got ")
    judged, collected = (filled(words, head) for words in done.hints)
    assert refsim(judged).status == 1 and collected.startswith("collect ")


def test_a_dump_is_no_output(refsim, head: str, dump: Path, models: Path) -> None:
    for held in (dump, models / "linear_head.dump.zip"):
        done = refsim(f"triage {RAW}.pte {head.partition(' ')[2]} --outputs {held}")
        done.refused("a dump, and no outputs")
        (words,) = done.hints
        assert refsim(filled(words, head)).status == 0


def test_a_file_that_is_not_exposed_and_one_that_is(refsim, head: str, models: Path) -> None:
    file, given = head.split(maxsplit=1)
    done = refsim(f"triage {head} --outputs {RAW}.npz")
    done.refused("not an exposed file")
    assert done.hints == [["expose", file, "-o", "exposed.pte"]] and refsim(*done.hints[0]).status == 0
    done = refsim(f"bisect {RAW}.pte {given} --actual {models}/linear_head.dump.zip")
    done.refused("judges its outputs; need linear_head.pte, of which it was made")
    (words,) = done.hints
    assert words[0] == "triage" and refsim(filled(words, head, OUTPUTS=f"{RAW}.npz")).status == 0
    for exposed, named in ((f"{RAW}.pte", f"{RAW}.pte"), (file, "EXPOSED")):
        done = refsim(f"bisect {exposed} {given} --actual {RAW}.npz")
        done.refused("outputs of a run, and no dump")
        assert {words[1] for words in done.hints} == {named}


# --- diff and replay of what is no buffer and no case --------------------------------------------------------


@pytest.mark.long
def test_diff_of_dumps_names_one_buffer_and_the_verbs_for_all(refsim, head: str, dump: Path) -> None:
    shutil.copytree(dump, "other")
    bad = flip("other/delegate0_v24.bin")
    done = refsim("diff dump other")
    done.refused("a folder; need one raw buffer; bisect and run compare all buffers")
    one, *whole = done.hints
    assert one == ["diff", str(dump / "delegate0_v24.bin"), str(bad)] and refsim(*one).status == 1
    assert [words[0] for words in whole] == ["bisect", "run"]
    assert all(refsim(filled(words, head)).status == 1 for words in whole)


def test_diff_of_zip_files(refsim, head: str, models: Path) -> None:
    done = refsim(f"diff {models}/linear_head.dump.zip {models}/linear_head.dump.zip")
    done.refused("a zip file; need one raw buffer")
    assert [refsim(filled(words, head)).status for words in done.hints] == [0, 0]


def test_hints_are_whole_however_long_and_in_json(refsim, dump: Path) -> None:
    deep = Path("long" * 50) / ("name" * 50)
    shutil.copytree(dump, deep)
    done = refsim(f"replay {deep} --json")
    first, line = done.err.splitlines()
    assert len(first) <= MOST_IN_LINE < len(line) and str(deep) in line
    assert [f"try: {hint}" for hint in done.json["error"]["hints"]] == [line]
    error = FormatError("a", "b", hints=["refsim run c"])
    assert pickle.loads(pickle.dumps(error)).hints == ("refsim run c",) and str(error) == "a: b"


def test_outputs_of_a_file_that_exposes_another_value_are_found_out(refsim, head: str) -> None:
    """Both outputs have one shape, and nothing in them says of which file they are."""
    file, _, inputs = head.split()
    for value in (20, 24):
        assert refsim(f"expose {file} -o e{value}.pte --value delegate0_v{value}").status == 0
    arrays("of24.npz", Runtime(Path("e24.pte").read_bytes()).run([np.load(inputs)["in0"]]))
    line = f"-i {inputs} --outputs of24.npz --partial"
    done = refsim(f"triage e20.pte {line}")
    said = "delegate0_v20 holds exactly the right bytes of delegate0_v24: the outputs may be those of a file that"
    assert done.status == 1 and said in done.out
    assert re.search(r"which file and of which inputs it is; taken as outputs of e20.pte\n", done.out)
    right = refsim(f"triage e24.pte {line}")
    assert right.status == 0 and "holds exactly" not in right.out


def test_what_lies_one_step_away_is_named(judge, refsim, head: str, dump: Path) -> None:
    assert refsim(f"extract {head} -n delegate0_v20 -o case").status == 0
    shutil.copytree(dump, "runs/frame")
    shutil.copytree(dump, "mine/dump")  # as triage names its own, and nothing else of a triage
    for folder, held in ((".", "dump"), ("runs", "runs/frame"), ("mine", "mine/dump")):
        done = judge(dump=folder)
        done.refused(f"a folder of dumps, and no dump; need one of those in it: {held}")
    for slip in ("min/dump", "mine/dunp", "min/dunp"):
        judge(dump=slip).refused("did you mean mine/dump?\n")
    assert "did you mean" not in judge(dump="elsewhere/dump").err


def test_replay_of_a_model_names_extract(refsim, models: Path) -> None:
    done = refsim(f"replay {models}/linear_head.pte")
    done.refused("not a case; got a file")
    (words,) = done.hints
    assert words[0] == "extract" and refsim(*words).status == 0 and refsim("replay case").status == 0


def test_inputs_are_no_outputs_and_the_dump_beside_them_is_named(refsim, models: Path) -> None:
    done = refsim(f"run {models}/linear_head.pte --random 0 --golden {models}/linear_head.io.npz")
    done.refused("the inputs of a run, and no dump; need ")
    assert "linear_head.dump.zip, the dump beside it" in done.err
