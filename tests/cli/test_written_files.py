"""What verbs write: each names it, none replaces what it reads, and `rerun:` names the next free one."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import numpy as np
import pytest
from mutants import verb as mutations
from saved import arrays, contents, flip
from verbs import commands

from refsim.cli.kit import program
from refsim.cli.kit.document import Document
from refsim.cli.kit.options import New
from refsim.cli.kit.written import Written
from refsim.core import strict_json
from refsim.core.no_clobber import free
from refsim.core.qmath import PROFILES
from refsim.exec.factory import executors
from refsim.formats import profiles
from refsim.formats.pte.read import read_pte
from refsim.golden import named, store
from refsim.golden.store import default_root

PTE = "{models}/linear_head.pte"
NPZ = "{models}/linear_head.io.npz"
DUMP = "{models}/linear_head.dump.zip"
TRIAGE = f"triage {{device}}/linear_head.raw.pte -i {NPZ} --outputs {{device}}/linear_head.raw.npz"
RUN = f"{PTE} -i {NPZ}"
DATA = Path(__file__).parents[1] / "data"
WRONG = Path(__file__).parents[1] / "modules" / "own" / "wrong"
REPAIRABLE = Path(__file__).parents[1] / "modules" / "repairable"
DEVICE = any(one.name == "spv:DIR" and one.available for one in executors())
#: It judges every case of an operator.
CERTIFICATE = ("golden check", "--certificate")
#: Rows of seconds: what is wrong is searched for its cause, or a certificate has all cases.
SLOW = (CERTIFICATE, ("bisect", "--html"), ("replay", "--html"))
#: (verb, option) -> a command line that writes NEW, whatever its status is.
ROWS = {
    ("bisect", "--html"): f"bisect {RUN} --actual wrong --partial --html NEW.html",
    ("bisect", "--node-data"): f"bisect {RUN} --actual {DUMP} --node-data NEW.json",
    ("collect", "--output"): "collect {device}/linear_head.raw.pte {device}/linear_head.raw.npz -o NEW",
    ("compare", "--html"): f"compare {RUN} -x cpu -x cpu:emulated --html NEW.html",
    ("diff", "--html"): "diff a.bin b.bin -l 4W4C -s 1,6,2,6 --html NEW.html",
    ("expose", "--output"): f"expose {PTE} -o NEW.pte",
    ("extract", "--output"): f"extract {PTE} -n 1 --random 0 -o NEW",
    CERTIFICATE: "golden check --pte corpus --outputs . --certificate NEW.json",
    ("golden export", "--pte"): "golden export q8ta_relu --size small --pte NEW",
    ("golden verify", "--results"): "golden verify q8ta_relu/1 --results NEW.jsonl",
    ("inspect", "--html"): f"inspect {PTE} --html NEW.html",
    ("inspect", "--model-explorer"): f"inspect {PTE} --model-explorer NEW.json",
    ("lower", "--output"): "lower {models}/linear_head.pt2 -o NEW",
    ("mend", "--output"): f"mend {PTE} -o NEW.pte",
    ("mutate", "--results"): "mutate --random 1 --area emulated --results NEW",
    ("pack", "--output"): "pack a.npy -l 4W4C -o NEW.bin",
    ("probe", "--output"): "probe 0 -o NEW.json",
    ("probe", "--pte"): "probe --pte NEW",
    ("reduce", "--output"): f"reduce {PTE} false -o NEW.pte",
    ("repeat", "--html"): f"repeat {RUN} -n 8 -x cpu:emulated --html NEW.html",
    ("replay", "--html"): "replay q8ta_relu/1 --actual a.bin --html NEW.html",
    ("run", "--dump"): f"run {RUN} --dump q8ta NEW",
    ("run", "--output"): f"run {RUN} -o NEW.npz",
    ("run", "--html"): f"run {RUN} --float {{models}}/linear_head.pt2 --html NEW.html",
    ("run", "--node-data"): f"run {RUN} --float {{models}}/linear_head.pt2 --node-data NEW.json",
    ("shaders", "--html"): "shaders {wrong} q8ta_conv2d_pw --count 8 --html NEW.html",
    ("shaders", "--patch"): "shaders {repairable} --count 8 --repair --patch NEW.spv",
    ("sweep", "--db"): "sweep q8ta_relu -n 2 --workers 0 -x cpu --db NEW.db",
    ("sweep", "--failures"): "sweep q8ta_relu -n 2 --workers 0 -x cpu:emulated --failures NEW",
    ("triage", "--output"): f"{TRIAGE} -o NEW",
    ("triage", "--html"): f"{TRIAGE} --html NEW.html",
    ("triage", "--node-data"): f"{TRIAGE} --node-data NEW.json",
    ("unpack", "--output"): "unpack a.bin -l 4W4C -s 1,6,2,6 -o NEW.npy",
}  # fmt: skip
#: Options of these names are paths that are written, except where the verb reads them.
WRITTEN = {"--html", "--output", "--node-data", "--model-explorer", "--db", "--failures", "--results", "--certificate",
           "--dump", "--patch", "--pte"}  # fmt: skip
READ = {("golden check", "--pte"), ("extract", "--pte")}
PROFILE = "--profile profile.json"
#: Rows that read nothing which stands as a path in their words: command lines that do.
CLASH = {
    CERTIFICATE: "golden check --pte corpus --outputs . --certificate corpus/corpus.json",
    ("golden export", "--pte"): "golden export q8ta_relu --size small --pte b.bin",
    ("golden verify", "--results"): f"golden verify q8ta_relu/1 {PROFILE} --results profile.json",
    ("mutate", "--results"): "mutate --random 1 --area emulated --results {golden}/chains.jsonl",
    ("probe", "--output"): "probe --outputs outs -o outs/out0.npy",
    ("probe", "--pte"): "probe --outputs outs --pte outs",
    ("replay", "--html"): "replay case --html case/case.json",
    ("shaders", "--patch"): "shaders {repairable} --repair --patch {repairable}/q8ta_conv2d_pw_float.spv",
    ("sweep", "--db"): f"sweep q8ta_relu -n 2 --workers 0 -x cpu {PROFILE} --resume --db profile.json",
    ("sweep", "--failures"): f"sweep q8ta_relu -n 2 --workers 0 -x cpu {PROFILE} --failures profile.json",
}
TRIED = f"triage {{device}}/linear_head.raw.pte -i {NPZ} --outputs base --html"
#: Paths that are read and stand in no word as they are: sidecars, entries, folders of shaders, links.
MORE = (
    "diff a.bin b.bin -l 4W4C -s 1,6,2,6 --html ./b.bin",
    "diff wrong/delegate0_v24.bin a.bin --html wrong/delegate0_v24.json",
    "diff wrong/delegate0_v24.bin a.bin --html linked.bin",
    "diff wrong/delegate0_v24.bin a.bin --html hard.bin",
    "diff case/out.bin a.bin --html case/case.json",
    "unpack wrong/delegate0_v24.bin -o wrong/delegate0_v24.json",
    "replay cases.zip!case --html cases.zip",
    "replay q8ta_relu/1 --html {golden}/cases/q8ta_relu.zip",
    f"run {RUN} -x cpu,spv:built -o built/one.spv",
    f"run {RUN} --golden wrong --dump q8ta wrong",
    f"run {RUN} --golden wrong -o wrong/delegate0_v24.bin",
    f"bisect {RUN} --actual wrong --partial --html wrong/delegate0_v24.json",
    f"run {RUN} -o both --dump q8ta both",
    f"run {RUN} {PROFILE} -o profile.json",
    f"{TRIED} base-0.bin",
    f"{TRIED} {{device}}/linear_head.raw.pte.json",
)


def options(which: Callable[[click.Parameter], bool] = lambda one: True) -> set[tuple[str, str]]:
    """(verb, option) of all verbs, of those parameters."""
    rows = ((name, one) for name, verb in commands() for one in verb.params if which(one))
    return {(name, word) for name, one in rows for word in one.opts if word.startswith("--")}


def test_every_option_that_writes_has_a_row() -> None:
    """The rule that nothing read is written over knows them by their type."""

    def writes(one: click.Parameter) -> bool:
        kinds = one.type.types if isinstance(one.type, click.Tuple) else [one.type]
        return any(isinstance(kind, Written) for kind in kinds)

    assert {row for row in options() if row[1] in WRITTEN} - READ == set(ROWS)
    assert options(writes) == set(ROWS)


@pytest.fixture
def scratch(tmp_path: Path, head: str, refsim, miscomputed, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the rows read; the emulated kernels of q8ta_relu and q8ta_linear are wrong, each run anew."""
    monkeypatch.chdir(tmp_path)
    for name, first in (("a", 0), ("b", 1)):
        np.save(f"{name}.npy", np.arange(first, 72 + first).astype(np.int8).reshape(1, 6, 2, 6))
        assert refsim(f"pack {name}.npy -l 4W4C -o {name}.bin").status == 0
    assert refsim(f"run {head} --dump v24 wrong").status == 0
    flip("wrong/delegate0_v24.bin")
    calls = itertools.count(1)
    for name in ("q8ta_relu", "q8ta_linear"):
        miscomputed(name, lambda out: np.bitwise_xor.at(out.raw, 0, next(calls) & 0xFF))
    return tmp_path


@pytest.mark.few(6)
@pytest.mark.parametrize(
    ("verb", "option"),
    [pytest.param(*row, marks=[pytest.mark.long] * (row in SLOW), id=" ".join(row)) for row in ROWS],
)
def test_what_is_written_is_named(
    verb: str, option: str, scratch: Path, models: Path, refsim, monkeypatch: pytest.MonkeyPatch
) -> None:
    if ".pt2" in ROWS[verb, option]:
        pytest.importorskip("torch", reason="programs of torch.export need torch")
    if (verb == "shaders" or (verb, option) == ("probe", "--output")) and not DEVICE:
        pytest.skip("no Vulkan device, or no kp")
    if verb == "golden check":
        assert refsim("golden export q8ta_relu --size small --pte corpus").status == 0
        plan = read_pte(Path("corpus/q8ta_relu.pte").read_bytes(), "corpus").plan()
        arrays("q8ta_relu.npz", [np.zeros(plan.values[number].sizes, np.int32) for number in plan.outputs])
    if verb == "mutate":
        monkeypatch.setattr(
            mutations, "_verdicts", lambda *given: [Path(given[2]).write_text("") and None][:0]
        )
    for name in ("text", "json"):
        words = shlex.split(
            ROWS[verb, option]
            .format(models=models, device=DATA / "device", wrong=WRONG, repairable=REPAIRABLE)
            .replace("NEW", name)
        )
        new = next(word for word in words if word.partition(".")[0] == name)
        done = refsim(*words, *(["--json"] if name == "json" else []))
        assert done.status in (0, 1), done.err
        assert Path(new).exists(), done
        if name == "json":
            assert new in done.json["wrote"]
        else:
            assert sum(new in line for line in done.out.splitlines()) >= 1, done.out
            assert len(re.findall(f"wrote {re.escape(new)}(?!/)", done.out)) <= 1


@pytest.fixture
def copies(scratch: Path, models: Path, refsim, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The folders that rows name, as copies: what a defect would write over."""
    places = dict(
        models=models, device=DATA / "device", wrong=WRONG, repairable=REPAIRABLE, golden=default_root()
    )
    kept = {"wrong": "*.spv", "repairable": "*.spv", "golden": "**/*"}
    for name, place in places.items():
        places[name] = scratch / "copies" / name
        for file in filter(Path.is_file, place.glob(kept.get(name, "linear_head.*"))):
            target = places[name] / file.relative_to(place)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
    monkeypatch.setattr(store, "default_root", lambda: places["golden"])
    monkeypatch.setattr(named, "default_root", lambda: places["golden"])
    assert refsim("extract q8ta_relu/1 -o case").status == 0
    assert refsim("golden export q8ta_relu --size small --pte corpus").status == 0
    shutil.make_archive("cases", "zip", ".", "case")
    Path("outs").mkdir()
    np.save("outs/out0.npy", np.zeros(3))
    Path("built").mkdir()
    Path("built/one.spv").write_bytes(b"no module")
    Path("base-0.bin").write_bytes(bytes(16))
    os.symlink("wrong/delegate0_v24.bin", "linked.bin")
    os.link("wrong/delegate0_v24.bin", "hard.bin")
    Path("profile.json").write_text(strict_json.dumps(profiles.as_json(PROFILES["nvidia"])))
    return places


REFUSED = (
    "would replace it",
    "already exists",
    "is a file, and a folder is made",
    "is a folder, and a file is written",
    "too; need a name for each",
)


def clashes(places: dict[str, Path]) -> Iterator[list[str]]:
    """Every row with the name of each file that it reads in place of that which it writes, then MORE."""
    for row, line in ROWS.items():
        words = shlex.split(line.format(**places))
        read = [] if row in CLASH else [word for word in words if os.path.exists(word)]
        assert read or row in CLASH, row
        new = next(number for number, word in enumerate(words) if word.partition(".")[0] == "NEW")
        yield from ([*words[:new], word, *words[new + 1 :]] for word in read)
    for line in (*CLASH.values(), *MORE):
        yield shlex.split(line.format(**places))


def test_no_verb_writes_over_what_it_reads(copies: dict[str, Path], refsim) -> None:
    held = contents(Path())
    for words in clashes(copies):
        done = refsim(*words)
        assert done.status == 2 and not done.out, words
        assert any(what in done.err for what in REFUSED), done.err
        assert contents(Path()) == held, words


@pytest.mark.long
def test_what_is_only_near_is_replaced(copies: dict[str, Path], refsim) -> None:
    """Pages and graphs in a folder that is read, and files of the same stem, are what the verb wrote before."""
    model = copies["models"] / "linear_head.pte"
    for line in (
        "replay case --html case/page.html",
        f"inspect {model} --model-explorer linear_head.json --html linear_head.html",
        f"inspect {model} --model-explorer {model}.json",
        f"run {model} -i {copies['models'] / 'linear_head.io.npz'} --golden wrong --partial -o wrong/mine.npz",
        "pack a.npy -l 4W4C -o packed.bin --sidecar",
    ):
        assert [refsim(*shlex.split(line)).status in (0, 1) for _ in range(2)] == [True, True], line


@pytest.mark.parametrize("line", ["replay q8ta_relu/1", "diff a.bin a.bin -l 4W4C -s 1,6,2,6",
                                  "repeat {}/linear_head.pte --random 0 -n 2 -x cpu"])  # fmt: skip
def test_a_page_that_was_not_written_is_named_too(line: str, scratch: Path, models: Path, refsim) -> None:
    done = refsim(f"{line.format(models)} --html page.html")
    assert done.status == 0 and not Path("page.html").exists()
    assert "did not write page.html: there is no difference to show" in done.out.splitlines()


# --- the line `rerun:` -----------------------------------------------------------------------------------

#: Other ways to give the option of these verbs.
FORMS = {"extract": ("-o ", "--output="), "triage": ("-o ", "-o")}


@pytest.mark.parametrize("row", sorted(options(lambda one: isinstance(one.type, New))), ids=" ".join)
def test_what_a_verb_made_gets_a_free_name(row, tmp_path: Path, models: Path, monkeypatch, refsim) -> None:
    monkeypatch.chdir(tmp_path)
    line = ROWS[row].format(models=models, device=DATA / "device").replace(*FORMS.get(row[0], ("", "")))
    words = line.replace("NEW", "made").split()
    first = str(re.search(r"made[.\w]*", line.replace("NEW", "made"))[0])  # type: ignore[index]
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
