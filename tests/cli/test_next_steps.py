"""Commands that a verb proposes, as the next step or for a path of the wrong kind: as they stand, they do it."""

from __future__ import annotations

import pickle
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from device.simulated import Runtime
from examples import UNARY
from saved import arrays, flip, with_a_wrong_byte

from refsim.cli import main
from refsim.core.errors import MOST_IN_LINE, FormatError
from refsim.device.outputs import FORM
from refsim.exec.executor import YOURS, Executor, Source
from refsim.exec.factory import executors
from refsim.exec.plugin import PluginExecutor
from refsim.golden.named import open_case

OWN = Path(__file__).parents[1] / "modules" / "own"
needs_modules = pytest.mark.skipif(
    not any(e.name == "spv:DIR" and e.available for e in executors()), reason="no Vulkan device, or no kp"
)


# --- a case that tells two causes apart --------------------------------------------------------------------


@pytest.mark.long
@needs_modules
@pytest.mark.xfail(reason="edits of two classes with equal bytes are told as one cause", strict=True)
def test_the_telling_case_runs_on_the_kernel_and_tells(refsim) -> None:
    done = refsim(f"shaders {OWN}/wrong q8ta_conv2d_pw --limit 3")
    (command,) = re.findall("to tell them apart: refsim (.*)", done.out)
    told = refsim(command)
    assert told.status == 1 and f"spv:{OWN / 'wrong'}: yours: pointwise" in told.out
    causes = re.search("likely cause:\n  1. (.*)\n  2. (.*)\n", told.out)
    assert causes is not None and causes[1].endswith("(predicts every byte)")
    assert "contradicts" in causes[2], "the other cause is refuted"


@pytest.mark.few(1)
@needs_modules
@pytest.mark.parametrize("executors", ["{}", "cpu,{}"])
def test_a_case_that_the_kernel_refuses_is_no_success(executors: str, refsim) -> None:
    name = f"spv:{OWN / 'right'}"
    line = f"replay q8ta_conv2d_pw/0617 -x {executors.format(name)}"
    done = refsim(line)
    assert done.status == 2 and "ours: q8ta_conv2d_pw (" in done.out
    assert done.err.startswith(f"refsim: executor {name}: not one of its own kernels ran; got ")
    found = refsim(f"{line} --json").json
    assert found["same"] is False and found["status"] == 2 and found["error"]["type"] == "IncompleteError"


class Picky:
    """Kernels of another package that take no call."""

    def refusal(self, call):
        return "never heard of it"

    def run(self, call, inputs):
        raise AssertionError("it refuses everything")


class Theirs(PluginExecutor):
    def source(self, call) -> Source:
        return Source(YOURS, ("k",))


class Limited(Executor):
    def __init__(self, why: str | None) -> None:
        self.why = why

    def refusal(self, call) -> str | None:
        return self.why

    def run(self, launch, inputs):
        raise AssertionError


def test_so_it_is_for_kernels_of_another_package(monkeypatch: pytest.MonkeyPatch, refsim) -> None:
    from refsim.cli import replay

    monkeypatch.setattr(replay, "executor_named", lambda name: PluginExecutor(Picky(), name))
    refused = refsim(f"replay {UNARY.name}/0003 -x picky")
    assert refused.status == 2 and "got never heard of it, need a call that it takes" in refused.err


@pytest.mark.parametrize(
    ("executor", "runs"),
    [(PluginExecutor(Picky(), "picky"), False), (Theirs(Picky(), "theirs"), True), (Limited(None), True),
     (Limited("too large"), False)],
)  # fmt: skip
def test_what_an_executor_runs(executor: Executor, runs: bool) -> None:
    assert executor.runs(open_case(f"{UNARY.name}/0003").bound.call) is runs


# --- the operator behind a difference ----------------------------------------------------------------------


@pytest.fixture
def two_wrong(miscomputed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The emulated executor gives a wrong byte in a relu, and writes nothing in a sum."""
    miscomputed("q8ta_relu", lambda out: np.bitwise_xor.at(out.words, 0, 1))
    miscomputed("q8ta_add", lambda out: out.words.fill(0))
    monkeypatch.chdir(tmp_path)


@pytest.mark.long
def test_each_wrong_operator_has_a_command_that_explains_it(two_wrong: None, refsim, mixed: str) -> None:
    line = f"bisect {mixed} -x cpu:emulated"
    done = refsim(f"{line} --html page.html")
    assert "wrong: node 4 q8ta_relu" in done.out and "wrong: node 6 q8ta_add" in done.out
    ((node, command),) = re.findall(r"^explain node (\d+ \S+): refsim (.*)$", done.out, re.M)
    assert node == "6 q8ta_add" and command.endswith(" --node 0:6") and "--html" not in command
    again = refsim(command)
    assert again.status == 1 and "node 6 q8ta_add, computed from its dumped inputs: " in again.out
    assert "1. nothing written: " in again.out and "nothing written" not in done.out
    assert re.findall(r"^explain node (\d+)", again.out, re.M) == ["4"]
    report = refsim(f"{line} --node delegate0_v66 --json").json["report"]
    assert "node 6 q8ta_add" in report["title"] and report["causes"][0]["name"] == "nothing written"
    assert "node 3" in refsim(f"{line} -n 0:3").out, "one that is right has a report too"
    refsim(f"{line} -n 0:99").refused("0:99")


@pytest.mark.long
def test_a_run_that_differs_names_the_command_that_finds_the_operator(two_wrong: None, refsim, mixed) -> None:
    def step(line: str) -> str:
        done = refsim(f"run {line}")
        assert done.status == 1
        (command,) = re.findall(r"^which operator.*: refsim (.*)$", done.out, re.M)
        return command

    model, _, io = mixed.split()
    command = step(f"{mixed} -x cpu,cpu:emulated")
    found = refsim(command)
    assert command.startswith("compare ") and found.status == 1 and "node 4 q8ta_relu" in found.out
    refsim(f"run {mixed} --dump . dump -x cpu:emulated")
    command = step(f"{mixed} --golden dump")
    found = refsim(command)
    assert command.endswith(" --actual dump") and found.status == 1
    assert "wrong: node 6 q8ta_add" in found.out
    command = step(f"{model} --random 3 --target mali --expect {io}")
    assert command == f"bisect {model} --random 3 --target mali --actual DIR"
    done = refsim(f"run {model} --random 3 --expect {io}")
    assert "\nDIR: refsim run --dump writes one; of a run on a device, refsim expose and then" in done.out
    same = refsim(f"run {mixed} -x cpu --expect {io}")
    assert same.status == 0 and "which operator" not in same.out


# --- outputs of exposed files ------------------------------------------------------------------------------


def judging(done, io: str) -> list[str]:
    """The words of the command that `expose` printed, with the outputs of a simulated device."""
    (command,) = re.findall(r"^then: refsim (.*)$", done.out, re.M)
    assert done.out.splitlines()[-1].startswith("OUTPUTS: ") and done.out.endswith(f"{FORM}\n")
    words = command.replace("IN.npz", io).split()
    inputs = [np.load(io)["in0"]]
    for at, word in enumerate(words):
        if word.startswith("OUTPUTS"):
            exposed = words[1] if words[at - 1] == "--outputs" else words[at - 1]
            words[at] = f"{exposed}.npz"
            arrays(words[at], Runtime(Path(exposed).read_bytes()).run(inputs))
    return words


@pytest.mark.parametrize("options", ["", "--chunk 5", "--value delegate0_v66", "--value ."])
def test_what_expose_says_next_judges_the_run(options: str, refsim, mixed: str, tmp_path: Path) -> None:
    model, _, io = mixed.split()
    words = judging(refsim(f"expose {model} -o {tmp_path}/m.pte {options}"), io)
    found = refsim(*words)
    assert found.status == 0, found.err
    said = " ".join(found.out.split())
    # the inputs of an operator whose value alone is exposed are not there: it is compared with the exact run
    alone = "v66" in options
    assert ("compared with the exact run" if alone else "operators are right") in said, found.out
    assert ("--partial" in words) == alone
    assert words.count("--more") == (2 if "--chunk" in options else 0)
    assert FORM in " ".join(refsim("triage --help").out.split())


def test_triage_says_which_parts_are_missing(refsim, mixed: str, tmp_path: Path) -> None:
    model, _, io = mixed.split()
    words = judging(refsim(f"expose {model} -o {tmp_path}/m.pte --chunk 5"), io)
    at = words.index("--more")
    one, two = refsim(*words[:at]), refsim(*words[:at], *words[at + 3 :])
    for done, parts in ((one, "parts 2, 3 of 3"), (two, "part 2 of 3")):
        assert done.status == 2
        assert f"need {parts}, each with --more EXPOSED OUTPUTS, or --partial" in done.err
    for name in (words[at - 1], words[at + 5]):  # the outputs of each part that was given
        assert f"not checked: {name} does not say" in two.out
    outputs = dict(np.load(words[at - 1]))
    held = max(outputs, key=lambda name: (outputs[name].dtype == np.int32, name))
    outputs[held].view(np.uint8).reshape(-1)[0] ^= 0x7F
    np.savez(words[at - 1], **outputs)
    wrong = refsim(*words[:at])
    assert wrong.status == 1
    assert "\nnot given: parts 2, 3 of 3, each with --more EXPOSED OUTPUTS\n" in wrong.out


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
