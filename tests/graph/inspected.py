"""What `refsim inspect` says of a delegate."""

from __future__ import annotations

from pathlib import Path

import pytest

from refsim.cli import main


def notes(delegate: bytes, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines about what upstream's kernels do with it; ``folder`` gets the file."""
    path = folder / "delegate.bin"
    path.write_bytes(delegate)
    assert main(["inspect", str(path)]) == 0
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
