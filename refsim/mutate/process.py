"""Processes in a mutated copy: they may crash or hang, and take nothing else with them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SECONDS = 300.0

_BUILD = """
import sys, tempfile
from pathlib import Path
from refsim_gpu import build_shaders as b
variants, names = sys.argv[1] == 'variants', set(sys.argv[2:])
with tempfile.TemporaryDirectory(dir=".") as scratch:
    for source, binary, options in b.variants():
        if source.parent == b.SHADERS and source.stem in names:
            binary.unlink(missing_ok=True)
            if variants or not options:
                binary.write_bytes(b.compile_one(source, options, Path(scratch)))
"""


def environment(root: Path, scratch: Path) -> dict[str, str]:
    """The sources at ``root`` come first among the modules; compiled kernels go to ``scratch``, bytecode nowhere."""
    kept = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**kept, "PYTHONPATH": path, "XDG_CACHE_HOME": str(scratch), "PYTHONDONTWRITEBYTECODE": "1"}


def execute(root: Path, folder: Path, stage: str, *arguments: str, seconds: float = SECONDS) -> str:
    """Run a stage of the child of the sources at ``root`` in ``folder``; what it said if it did not end well."""
    command = [sys.executable, "-m", "refsim.mutate.child", stage, str(folder), *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment(root, folder.parent),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"did not end within {seconds:g} s"
    return "" if done.returncode == 0 else f"exit status {done.returncode}: {done.stderr.strip()[-400:]}"


def build(root: Path, shaders: Sequence[str], variants: bool) -> str:
    """Compile shaders of the copy anew, with their variants or without any; what stopped it, if anything did."""
    done = subprocess.run(
        [sys.executable, "-c", _BUILD, "variants" if variants else "plain", *shaders],
        cwd=root, env=environment(root, root), capture_output=True, text=True, check=False,
    )  # fmt: skip
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]
