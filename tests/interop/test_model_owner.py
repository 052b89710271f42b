"""docs/model-owner.md: its Python makes the programs, and every command of it does what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from refsim.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "model-owner.md"


@pytest.mark.long
def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    exec(code, {"__name__": "model_owner"})
    commands = "".join(re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.S)).splitlines()
    assert len(commands) >= 5
    for line in commands:
        assert main(shlex.split(line)[1:]) == 0, line
    assert (tmp_path / "model.pte").is_file() and (tmp_path / "blocked.pte").is_file()
    assert main(["lower", "float.pt2"]) == 1
