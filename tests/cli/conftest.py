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
    """Run ``refsim`` with these arguments."""

    def run(*arguments: object) -> Done:
        capsys.readouterr()
        status = main([str(a) for a in arguments])
        captured = capsys.readouterr()
        if (line := RERUN.search(captured.err)) is not None:
            accepted(shlex.split(line[1].replace("\\\n", "")))
        return Done(status, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def models() -> Path:
    return MODELS


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
