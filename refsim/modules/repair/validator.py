"""What spirv-val says of a module, where it is installed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

TOOL = "spirv-val"


@cache
def tool() -> str | None:
    """Where spirv-val is; None if it is not installed."""
    return shutil.which(TOOL)


def refused(code: bytes) -> str | None:
    """What spirv-val says against a module; None if it says nothing, or is not there."""
    path = tool()
    if path is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "module.spv"
        file.write_bytes(code)
        done = subprocess.run(
            [path, "--target-env", "vulkan1.1", str(file)], capture_output=True, text=True, check=False
        )
    return (done.stderr + done.stdout).strip() if done.returncode else None
