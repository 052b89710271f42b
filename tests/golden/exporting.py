"""What tests of exported programs share: a folder of them, and a verb's document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from refsim.cli.kit.program import main
from refsim.golden import programs
from refsim.golden.store import DigestEntry

FEW = 12


def written(folder: Path, cases: list[DigestEntry], most: int = programs.MAX_BYTES) -> Path:
    files = list(programs.programs(cases, most))
    folder.mkdir()
    for file in files:
        (folder / file.file).write_bytes(file.data)
    (folder / programs.MANIFEST).write_bytes(programs.manifest(files, "test"))
    return folder


def document(capsys: pytest.CaptureFixture[str], line: str) -> tuple[int, dict[str, Any]]:
    """The status and the JSON of a command line."""
    status = main([*line.split(), "--json"])
    return status, json.loads(capsys.readouterr().out)
