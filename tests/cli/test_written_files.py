"""Every verb names the files and folders that it wrote: in its text, and in the key `wrote` of its JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest
from mutants.generated import verb as mutations

from refsim.cli import _main
from refsim.exec.emulated import EmulatedExecutor
from refsim.exec.factory import executors
from refsim.formats.pte.read import read_pte

PTE = "{models}/linear_head.pte"
NPZ = "{models}/linear_head.io.npz"
DUMP = "{models}/linear_head.dump.zip"
TRIAGE = f"triage {{device}}/linear_head.raw.pte -i {NPZ} --outputs {{device}}/linear_head.raw.npz"
RUN = f"{PTE} -i {NPZ}"
DATA = Path(__file__).parents[1] / "data"
WRONG = Path(__file__).parents[1] / "modules" / "own" / "wrong"
DEVICE = any(one.name == "spv:DIR" and one.available for one in executors())
#: (verb, option) -> a command line that writes NEW, whatever its status is.
ROWS = {
    ("bisect", "--html"): f"bisect {RUN} --actual wrong --partial --html NEW.html",
    ("bisect", "--node-data"): f"bisect {RUN} --actual {DUMP} --node-data NEW.json",
    ("collect", "--output"): "collect {device}/linear_head.raw.pte {device}/linear_head.raw.npz -o NEW",
    ("compare", "--html"): f"compare {RUN} -x cpu -x cpu:emulated --html NEW.html",
    ("diff", "--html"): "diff a.bin b.bin -l 4W4C -s 1,6,2,6 --html NEW.html",
    ("expose", "--output"): f"expose {PTE} -o NEW.pte",
    ("extract", "--output"): f"extract {PTE} -n 1 --random 0 -o NEW",
    ("golden check", "--certificate"): "golden check --pte corpus --outputs . --certificate NEW.json",
    ("golden export", "--pte"): "golden export q8ta_relu --size small --pte NEW",
    ("golden verify", "--results"): "golden verify q8ta_relu/1 --results NEW.jsonl",
    ("inspect", "--html"): f"inspect {PTE} --html NEW.html",
    ("inspect", "--model-explorer"): f"inspect {PTE} --model-explorer NEW.json",
    ("lower", "--output"): "lower {models}/linear_head.pt2 -o NEW",
    ("mutate", "--results"): "mutate --random 1 --area emulated --results NEW",
    ("pack", "--output"): "pack a.npy -l 4W4C -o NEW.bin",
    ("probe", "--output"): "probe 0 -o NEW.json",
    ("probe", "--pte"): "probe --pte NEW",
    ("repeat", "--html"): f"repeat {RUN} -n 8 -x cpu:emulated --html NEW.html",
    ("replay", "--html"): "replay q8ta_relu/1 --html NEW.html",
    ("run", "--dump"): f"run {RUN} --dump q8ta NEW",
    ("run", "--output"): f"run {RUN} -o NEW.npz",
    ("shaders", "--html"): "shaders {wrong} q8ta_conv2d_pw --count 8 --html NEW.html",
    ("sweep", "--db"): "sweep q8ta_relu -n 2 --workers 0 -x cpu --db NEW.db",
    ("sweep", "--failures"): "sweep q8ta_relu -n 2 --workers 0 -x cpu:emulated --failures NEW",
    ("triage", "--output"): f"{TRIAGE} -o NEW",
    ("triage", "--html"): f"{TRIAGE} --html NEW.html",
    ("triage", "--node-data"): f"{TRIAGE} --node-data NEW.json",
    ("unpack", "--output"): "unpack a.bin -l 4W4C -s 1,6,2,6 -o NEW.npy",
}  # fmt: skip
#: Options of these names are paths that are written, except where the verb reads them.
WRITTEN = {"--html", "--output", "--node-data", "--model-explorer", "--db", "--failures", "--results", "--certificate",
           "--dump", "--pte"}  # fmt: skip
READ = {("golden check", "--pte"), ("extract", "--pte")}


def options(command: click.Command, name: str = "") -> Iterator[tuple[str, str]]:
    """(verb, option) of all verbs."""
    if isinstance(command, click.Group):
        for one in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), one)
            assert found is not None
            yield from options(found, f"{name} {one}".strip())
    else:
        yield from ((name, word) for one in command.params for word in one.opts if word.startswith("--"))


def test_every_option_that_writes_has_a_row() -> None:
    assert {row for row in options(_main.root) if row[1] in WRITTEN} - READ == set(ROWS)


@pytest.fixture
def scratch(tmp_path: Path, models: Path, refsim, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the rows read; the emulated kernels of q8ta_relu and q8ta_linear are wrong, each run anew."""
    monkeypatch.chdir(tmp_path)
    array = np.arange(72).astype(np.int8).reshape(1, 6, 2, 6)
    np.save("a.npy", array)
    np.save("b.npy", array + 1)
    for name in ("a", "b"):
        assert refsim("pack", f"{name}.npy", "-l", "4W4C", "-o", f"{name}.bin").status == 0
    model, given = models / "linear_head.pte", models / "linear_head.io.npz"
    assert refsim("run", model, "-i", given, "--dump", "v24", "wrong").status == 0
    raw = bytearray(Path("wrong/delegate0_v24.bin").read_bytes())
    raw[0] ^= 1
    Path("wrong/delegate0_v24.bin").write_bytes(raw)
    honest, calls = EmulatedExecutor.run_prepared, [0]

    def run_prepared(self, prepared, inputs):
        out = honest(self, prepared, inputs)
        if prepared.call.op.name in ("q8ta_relu", "q8ta_linear"):
            calls[0] += 1
            out.raw[0] ^= calls[0] & 0xFF
        return out

    monkeypatch.setattr(EmulatedExecutor, "run_prepared", run_prepared)
    return tmp_path


@pytest.mark.parametrize(("verb", "option"), ROWS, ids=[" ".join(row) for row in ROWS])
def test_what_is_written_is_named(
    verb: str, option: str, scratch: Path, models: Path, refsim, monkeypatch: pytest.MonkeyPatch
) -> None:
    if verb == "lower":
        pytest.importorskip("torch", reason="lower needs torch")
    if (verb, option) in (("probe", "--output"), ("shaders", "--html")) and not DEVICE:
        pytest.skip("no Vulkan device, or no kp")
    if verb == "golden check":
        assert refsim("golden", "export", "q8ta_relu", "--size", "small", "--pte", "corpus").status == 0
        plan = read_pte(Path("corpus/q8ta_relu.pte").read_bytes(), "corpus").plan()
        zeros = [np.zeros(plan.values[number].sizes, np.int32) for number in plan.outputs]
        np.savez("q8ta_relu.npz", **{f"out{number}": array for number, array in enumerate(zeros)})
    if verb == "mutate":
        monkeypatch.setattr(
            mutations, "_verdicts", lambda *given: [Path(given[2]).write_text("") and None][:0]
        )
    for name in ("text", "json"):
        words = shlex.split(
            ROWS[verb, option].format(models=models, device=DATA / "device", wrong=WRONG).replace("NEW", name)
        )
        new = next(word for word in words if word.partition(".")[0] == name)
        done = refsim(*words, *(["--json"] if name == "json" else []))
        assert done.status in (0, 1), done.err
        assert Path(new).exists(), done
        if name == "json":
            assert new in done.json["wrote"]
        else:
            assert sum(new in line for line in done.out.splitlines()) >= 1, done.out
            assert done.out.count(f"wrote {new}") <= 1


def test_a_page_that_was_not_written_is_named_too(refsim, models: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = refsim("repeat", models / "linear_head.pte", "--random", 0, "-n", 2, "-x", "cpu", "--html", page)
    assert done.status == 0 and not page.exists()
    assert done.out.splitlines()[-1] == f"did not write {page}: there is no difference to show"
