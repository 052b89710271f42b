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
import pytest
from examples import SMALL_CORPUS

from refsim.cli import main
from refsim.cli.kit import program, progress
from refsim.cli.kit.document import Document
from refsim.golden import regen, rules

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
