"""One way to run a command line in this process, and the bundled files that several verbs read."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import json_schema
import numpy as np
import pytest
from examples import SMALL_CORPUS
from saved import with_a_wrong_byte

from refsim.cli import main
from refsim.cli.kit import program, progress
from refsim.cli.kit.document import Document
from refsim.core.buffer import PackedBuffer
from refsim.exec.emulated import EmulatedExecutor
from refsim.golden import regen, rules
from refsim.golden.named import open_case

#: The line of a command that can be repeated; on a narrow terminal it stands below, in lines that end in a backslash.
RERUN = re.compile(r"^rerun:\s+refsim ((?:.*\\\n)*.*)$", re.MULTILINE)
MODELS = Path(__file__).parents[1] / "data" / "models"


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The object on stdout, which is JSON in the strict sense and as the schema says."""
        return json_schema.read(self.out)

    def refused(self, match: str, status: int = 2) -> None:
        """One line on stderr that holds ``match``, then hints; nothing on stdout but the error, with --json."""
        assert self.status == status
        assert self.out == "" or set(self.json) == {"verb", "schema", "status", "error"}
        first, *hints = self.err.splitlines()
        assert all(line.startswith("try: refsim ") for line in hints) and "Traceback" not in self.err
        assert match in f"{first}\n"

    @property
    def hints(self) -> list[list[str]]:
        """The words behind refsim of each command that an error proposes."""
        return [shlex.split(line)[2:] for line in self.err.splitlines() if line.startswith("try: refsim ")]


Run = Callable[..., Done]


@pytest.fixture(autouse=True)
def full_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output as in a pipe, whatever the shell of whoever runs the tests says, and however slow the machine is."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(progress, "FIRST_LINE", 1e6)


def accepted(words: list[str]) -> None:
    """The command that a line `rerun:` has is one that its verb takes; what it makes is not there."""
    command: click.Command | None = program.root
    while isinstance(command, click.Group):
        command = command.get_command(click.Context(command), words.pop(0))
    assert command is not None
    command.make_context("rerun", words, obj=Document()).close()


@pytest.fixture
def refsim(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run ``refsim`` with these arguments, of which the first may be a whole command line."""

    def run(line: object = "", *more: object) -> Done:
        capsys.readouterr()
        status = main([*shlex.split(str(line)), *map(str, more)])
        captured = capsys.readouterr()
        if (line := RERUN.search(captured.err)) is not None:
            accepted(shlex.split(line[1].replace("\\\n", "")))
        return Done(status, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def models() -> Path:
    return MODELS


@pytest.fixture(scope="session")
def head(models: Path) -> str:
    """A small model with its inputs, as words of a command line."""
    return f"{models}/linear_head.pte -i {models}/linear_head.io.npz"


@pytest.fixture(scope="session")
def mixed(models: Path) -> str:
    return f"{models}/mixed_ops.pte -i {models}/mixed_ops.io.npz"


@pytest.fixture(scope="session")
def _dump(head: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "dump"
    assert main(f"run {head} --dump . {folder}".split()) == 0
    return folder


@pytest.fixture
def dump(_dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A right dump of that model in this folder: v17 -> v20 -> v24 -> v28 -> v31; v20 and v24 have one shape."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(_dump, "dump"))


Change = Callable[[PackedBuffer], object]


@pytest.fixture
def miscomputed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Change], None]:
    """Lets the executor cpu:emulated change what a kernel has written."""

    def change(shader: str, spoil: Change) -> None:
        honest = EmulatedExecutor.run

        def run(self: EmulatedExecutor, launch: Any, inputs: Any) -> PackedBuffer:
            out = honest(self, launch, inputs)
            if launch.shader == shader:
                spoil(out)
            return out

        monkeypatch.setattr(EmulatedExecutor, "run", run)

    return change


@pytest.fixture(params=["run --golden", "bisect --actual"])
def judge(request: pytest.FixtureRequest, head: str, refsim: Run) -> Run:
    """Either verb that compares a dump with a run: `dump` with the run that it is of, unless others are named."""
    verb, option = request.param.split()

    def judged(more: str = "", dump: object = "dump", run: str = head) -> Done:
        return refsim(f"{verb} {run} {option} {dump} {more}")

    return judged


@pytest.fixture(scope="session")
def _desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("desk")
    for name, source in {
        "model.pte": "models/mixed_ops.pte", "seg.pte": "models/mixed_ops.pte", "in.npz": "models/mixed_ops.io.npz",
        "head.pte": "models/linear_head.pte", "head.npz": "models/linear_head.io.npz",
        "seg.exposed.pte": "device/mixed_ops.raw.pte", "seg.exposed.pte.json": "device/mixed_ops.raw.pte.json",
        "outputs.npz": "device/mixed_ops.raw.npz", "net.pte": "devtools/net.pte", "net.etdp": "devtools/net.etdp",
        "net.bin": "devtools/net.bin", "phone.json": "../../refsim/core/profiles/nvidia.json",
        "fcn_add.pte": "dynamic/fcn_add.pte", "mine.json": "../../refsim/check/runtimes/main.json",
        "refused.pte": "heads/int8_head.pte",
    }.items():  # fmt: skip
        shutil.copy(MODELS.parent / source, folder / name)
    with_a_wrong_byte(folder / "outputs.npz", "out4", folder / "wrong.npz")
    good = np.random.default_rng(0).integers(0, 255, 64 * 56 * 56, np.uint8)
    good.tofile(folder / "good.bin")
    good[100:140] ^= 7
    good.tofile(folder / "bad.bin")
    np.save(folder / "array.npy", np.zeros((1, 64, 56, 56), np.int8))
    np.savez(folder / "small.npz", np.zeros((1, 3, 23, 32), np.float32))
    open_case("q8ta_add/0945").expected.raw.tofile(folder / "words.bin")
    (folder / "empty").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line in (
            "run model.pte -i in.npz --dump . dumps", "extract model.pte -n delegate0_v38 -i in.npz -o case",
            "triage seg.exposed.pte -i in.npz --outputs outputs.npz -o found",
        ):  # fmt: skip
            assert main(line.split()) == 0
    shutil.copytree(folder / "dumps", folder / "wrong")
    shutil.copy(folder / "dumps" / "delegate0_v38.bin", folder / "dump.bin")
    wrong = np.fromfile(folder / "dump.bin", np.uint8)
    wrong[5:400:7] = 0x7F
    for name in ("wrong/delegate0_v38.bin", "actual.bin"):
        wrong.tofile(folder / name)
    return folder


@pytest.fixture
def desk(_desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In this folder: a model and its inputs, an exposed program and its outputs, a case, right and wrong dumps."""
    shutil.copytree(_desk, tmp_path / "desk")
    monkeypatch.chdir(tmp_path / "desk")
    return tmp_path / "desk"


@pytest.fixture(scope="session")
def _small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("corpus")
    patch = pytest.MonkeyPatch()
    for name in SMALL_CORPUS:
        patch.setitem(rules.RULES, name, replace(rules.RULES[name], spread=26, hard=()))
    regen.write(root, [regen.plan(name, None) for name in SMALL_CORPUS], "For tests")
    patch.undo()
    return root


@pytest.fixture
def small(_small: Path, tmp_path: Path) -> Path:
    """A corpus of 26 cases of each of two operators, to be changed at will."""
    return Path(shutil.copytree(_small, tmp_path / "golden"))
