"""The line `rerun:` can be pasted as it stands, also where the command made a folder or a file that must be new."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from saved import contents
from verbs import commands

from refsim.cli.kit import program
from refsim.cli.kit.document import Document
from refsim.cli.kit.options import New
from refsim.core.no_clobber import free

DATA = Path(__file__).parents[1] / "data"
DEVICE, MODELS = DATA / "device", DATA / "models"

#: Of each verb that makes something new: a command with OUT where that is named.
RAW, HEAD = DEVICE / "linear_head.raw", MODELS / "linear_head.io.npz"
MAKING = {
    "collect": f"collect {RAW}.pte {RAW}.npz -o OUT",
    "extract": f"extract {MODELS}/mixed_ops.pte -n 0:7 --random 0 --output=OUT",
    "golden export": "golden export q8ta_relu --size small --pte OUT",
    "probe": "probe --pte OUT",
    "sweep": "sweep q8ta_relu -n 2 -x cpu:emulated --workers 0 --scheduler none --db OUT.sqlite",
    "triage": f"triage {RAW}.pte -i {HEAD} --outputs {RAW}.npz -oOUT",
}


def test_the_table_has_every_verb_that_makes_something_new() -> None:
    made = {name for name, verb in commands() if any(isinstance(one.type, New) for one in verb.params)}
    assert made == set(MAKING)


@pytest.mark.parametrize("verb", MAKING)
def test_what_a_verb_made_gets_a_free_name(verb: str, tmp_path: Path, monkeypatch, refsim: Callable) -> None:
    monkeypatch.chdir(tmp_path)
    words = MAKING[verb].replace("OUT", "made").split()
    first = "made.sqlite" if verb == "sweep" else "made"
    names = [first.replace("made", name) for name in ("made", "made-2", "made-3")]
    for number, name in enumerate(names):
        assert not (tmp_path / name).exists()
        before = contents(tmp_path)
        document = Document()
        assert program._run(words, document) == 0
        assert (tmp_path / name).exists() and len(list(tmp_path.iterdir())) == number + 1
        assert before.items() <= contents(tmp_path).items()
        refsim(*words).refused("already exists")
        _, *words = shlex.split(program.rerun(words, document.made).removeprefix("rerun: "))
    assert names[-1].replace("-3", "-4") in " ".join(words)


def test_a_sweep_that_goes_on_is_repeated_as_it_was() -> None:
    document = Document()
    words = ["sweep", "q8ta_relu", "--db", __file__, "--resume", "--executor", "nonesuch"]
    program._run(words, document)
    assert __file__ in document.made
    assert program.rerun(words, document.made) == f"rerun: refsim {shlex.join(words)}"


#: Of each verb that may say that something differs: such a command.
DIFFERENT = {
    "bisect": "bisect model.pte -i in.npz --actual wrong",
    "bisect --html": "bisect model.pte -i in.npz --actual wrong --html page.html --node-data colours.json",
    "check": "check refused.pte",
    "diff": "diff good.bin bad.bin -l 4W4C -s 1,64,56,56",
    "golden regen": "golden regen q8ta_relu --root empty --new --dry-run",
    "replay": "replay case --actual actual.bin --html page.html",
    "run": "run model.pte -i in.npz --golden wrong --dump delegate0_v38 dumped -o out.npz",
    "triage": "triage seg.exposed.pte -i in.npz --outputs wrong.npz -o judged",
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", DIFFERENT)
def test_the_printed_line_runs(name: str, desk: Path, refsim: Callable) -> None:
    done = refsim(*DIFFERENT[name].split())
    for _ in range(2):
        assert done.status == 1, done.err
        line = done.err.splitlines()[-1]
        assert line.startswith("rerun: refsim ")
        done = refsim(*shlex.split(line)[2:])


def test_free_names(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert free("case") == "case" and free("a/case") == "a/case"
    Path("case").mkdir()
    assert free("case") == free("case/") == "case-2"
    Path("case-2").symlink_to("nowhere")
    assert free("case") == "case-3" and free("case-2") == "case-3"
    Path("a.b").mkdir()
    Path("a.sqlite").touch()
    assert free("a.b") == "a.b-2" and free("a.sqlite", folder=False) == "a-2.sqlite"
    assert free(".") == f"{tmp_path}-2"
