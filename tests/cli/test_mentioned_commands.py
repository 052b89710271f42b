"""The commands that README, docs and help texts mention outside of consoles run, on this project's files."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import numpy as np
import pytest
from test_docs import console, mentioned
from verbs import commands

from refsim.cli.kit import program
from refsim.cli.kit.document import Document
from refsim.golden.store import Corpus, default_root
from refsim.ops.base.binding import bind

DATA = Path(__file__).parents[1] / "data"
WIDTH = 80

#: What a word of a command stands for, on the desk that `desk` lays out. Behind a verb's name, for this verb alone.
WORDS = {
    "FILE": "model.pte", "IN.npz": "in.npz", "LAYOUT": "4W4C", "SHAPE": "1,64,56,56", "DIR": "new",
    "A": "good.bin", "B": "bad.bin", "EXPECTED": "good.bin", "ACTUAL": "bad.bin", "CASE": "case",
    "OUTPUT": "dump.bin", "EXPOSED": "seg.exposed.pte", "OUTPUTS": "outputs.npz", "ETDUMP": "net.etdp",
    "BIN": "net.bin", "OP": "q8ta_add", "FILE.npy": "array.npy", "FILE.bin": "good.bin", "OUT.npy": "new.npy",
    "OUT.bin": "new.bin", "N": "0:7", "case": "case", "bisect DIR": "dumps", "replay DIR": "case",
    "extract case": "new", "extract alone": "new", "replay alone": "case",
    "extract conv": "new", "replay conv": "case",
    "(--byte": "--byte", "locate B": "7", "device_dumps/": "dumps", "expected/": "new",
    "dumps/": "dumps", "run dumps/": "dumps", "expected/delegate0_v38.bin": "dumps/delegate0_v38.bin",
    "ncnn.toml": "NC4HW4", "etdump FILE": "net.pte", "triage OUT": "seg.exposed.pte",
    "device_dumps/delegate0_v38.bin": "dumps/delegate0_v38.bin", "inspect OUT": "new.json",
    "expose OUT": "new.pte", "out/debugging/frame/delegate0_v38.bin": "dumps/delegate0_v38.bin",
    "replay FOLDER": "case", "EXECUTOR": "cpu", "NAME": "cpu", "tests/data/models/mixed_ops.pte": "model.pte",
    "tests/data/models/mixed_ops.io.npz": "in.npz", "spv:build/shaders": "cpu:emulated",
    "cpu,spv:build/shaders": "cpu,cpu:emulated", "gpu:0": "cpu:emulated", "gpu": "cpu:emulated",
    "'delegate0_v38'": "delegate0_v38", "1000000": "50", "100000": "50", "gpu:1,cpu": "cpu", "14": "1",
    "10": "1", "q8ta_linear/17": "q8ta_linear/0017", "demo NAME": "linear_head",
    "golden OPERATOR": "q8ta_relu", "FILTER": "q8ta_relu",
    "expected.bin": "good.bin", "actual.bin": "bad.bin", "etdump model.pte": "net.pte", "run.etdp": "net.etdp",
    "run.bin": "net.bin", "expose exposed.pte": "new.pte", "exposed.pte": "seg.exposed.pte", "found": "new",
    "pack buffer.bin": "new.bin", "buffer.bin": "good.bin", "unpack array.npy": "new.npy", "bisect dumps": "dumps",
    "triage found": "new", "1000": "20", "corpus": "new", "100": "3", "VERB": "run",
    "tests/data/dynamic/fcn_add.pte": "fcn_add.pte", "A.npz": "in.npz", "B.npz": "in.npz",
}  # fmt: skip

#: What is not run, by how it begins, and why.
LEFT_OUT = {
    "run tests/data/dynamic/split_glu.pte --sequence": "tests/cli/test_dynamic_verbs.py runs it at two shapes",
    "run model.pte --random 0 --runtime webgpu": "tests/cli/test_wgsl_verbs.py runs it on kernels of its own",
    "compare model.pte --random 0 --runtime webgpu": "tests/cli/test_wgsl_verbs.py runs it on kernels of its own",
    "bisect model.pte --random 0 --runtime webgpu": "tests/cli/test_wgsl_verbs.py runs it on kernels of its own",
    "lower": "needs torch; tests/lowering runs it",
    "golden regen": "writes the corpus of the checkout; tests/golden runs it on a copy",
    "golden new": "writes into the checkout; tests/golden runs it on a copy",
    "golden verify -x": "takes minutes; tests/golden and tests/gpu run it",
    "golden verify": "takes minutes; tests/golden runs it",
    "golden coverage": "takes minutes; tests/golden runs it",
    "golden check": "needs what a device wrote; tests/golden runs it",
    "golden export --size small --pte out/corpus": "takes a minute; tests/golden runs it",
    "golden export --pte out/corpus": "takes a minute; tests/golden runs it",
    "mutate": "takes minutes; tests/mutants runs it",
    "reduce": "needs a command that fails; tests/cli/test_reduce_verb.py runs it",
    "shaders": "needs a folder of modules; tests/cli/test_shader_folders.py runs it",
    "probe": "needs a device or what it wrote; tests/cli and tests/gpu run it",
    "triage seg.exposed.pte -i in.npz --outputs seg.exposed.runs": "tests/cli/test_device_runs.py makes such a folder",
    "collect": "needs an exposed program's own outputs; tests/cli/test_expose.py runs it",
}

#: Bare names of verbs, and commands with parts left out, are no whole commands; but some verbs need nothing more.
NO_COMMAND = re.compile(
    r"^(?!(demo|devices|doctor|schema)$)\S+( --?[a-z-]+)*$|(?<!\[OP) \.\.\.( |$)|^golden \w+( --?\w+)?$"
)


def _commands() -> Iterator[tuple[str, str]]:
    for page in console.PAGES:
        for words in mentioned(page.read_text()):
            text = " ".join(words)
            if not NO_COMMAND.search(text) and not any(text.startswith(name) for name in LEFT_OUT):
                yield page.name, text
    for name, command in commands():
        text = f"{name} {command.example}".rstrip()
        if not any(text.startswith(left) for left in LEFT_OUT):
            yield "--help", text


def test_help_ends_with_an_example() -> None:
    for name, command in commands():
        needs = any(parameter.required for parameter in command.params)
        assert command.example or not needs, name
        context = click.Context(command, info_name=f"refsim {name}")
        assert command.get_help(context).endswith(f"Example: {command.call(context)}")
        command.make_context(name, command.example.split(), obj=Document())


COMMANDS = sorted(set(_commands()))


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs, inputs, dumps, raw buffers, a case, an exposed program and an ETDump, named as `WORDS` says."""
    folder = tmp_path_factory.mktemp("desk")
    for name, source in {
        "model.pte": "models/mixed_ops.pte", "seg.pte": "models/mixed_ops.pte", "in.npz": "models/mixed_ops.io.npz",
        "seg.exposed.pte": "device/mixed_ops.raw.pte", "seg.exposed.pte.json": "device/mixed_ops.raw.pte.json",
        "outputs.npz": "device/mixed_ops.raw.npz", "net.pte": "devtools/net.pte", "net.etdp": "devtools/net.etdp",
        "net.bin": "devtools/net.bin", "phone.json": "../../refsim/core/profiles/nvidia.json",
        "fcn_add.pte": "dynamic/fcn_add.pte", "mine.json": "../../refsim/check/runtimes/main.json",
    }.items():  # fmt: skip
        shutil.copy(DATA / source, folder / name)
    good = np.random.default_rng(0).integers(0, 255, 64 * 56 * 56, np.uint8)
    good.tofile(folder / "good.bin")
    good[100:140] ^= 7
    good.tofile(folder / "bad.bin")
    np.savez(folder / "small.npz", np.zeros((1, 3, 23, 32), np.float32))
    np.save(folder / "array.npy", np.zeros((1, 64, 56, 56), np.int8))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line in (
            "run model.pte -i in.npz --dump . dumps",
            "extract model.pte -n delegate0_v38 -i in.npz -o case",
            "triage seg.exposed.pte -i in.npz --outputs outputs.npz -o found",
        ):
            assert program.main(line.split()) == 0
    shutil.copy(folder / "dumps" / "delegate0_v38.bin", folder / "dump.bin")
    bound = bind(Corpus(default_root()).entry("q8ta_add/0945").case)
    bound.call.expected(bound.inputs).raw.tofile(folder / "words.bin")
    return folder


def line(text: str) -> list[str]:
    """The command with the desk's files in it."""
    verb, *words = re.sub(r"[\[\]]|\.\.\.", "", text).split()
    return [verb, *(WORDS.get(f"{verb} {word}", WORDS.get(word, word)) for word in words)]


def test_a_hundred_commands_of_the_pages_are_run() -> None:
    """Here, and as the examples of consoles (tests/test_docs.py)."""
    shown = sum(len(list(console.examples(page))) for page in console.PAGES)
    assert len(COMMANDS) + shown >= 100


@pytest.mark.few(6)
@pytest.mark.parametrize(("page", "text"), COMMANDS)
def test_it_runs(page: str, text: str, desk: Path, tmp_path: Path, refsim: Callable, monkeypatch) -> None:
    folder = tmp_path / "desk"
    shutil.copytree(desk, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    done = refsim(*line(text))
    unavailable = {3} if text == "devices" else set()  # where there is no driver
    assert done.status in {0, 1} | unavailable, f"{page}: {text}\n{done.out}{done.err}"
    assert "Traceback" not in done.err
    long = [row for row in (done.out + done.err).splitlines() if len(row) > WIDTH and len(row.split()) > 1]
    assert not long or text.split()[0] == "schema"  # prints a file as it is
