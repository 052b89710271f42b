"""The copy of windows without the padding of their channels compiles on every processor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
#: More than a compiler needs for all of them, by far: one that never ends is what is looked for.
SECONDS_AT_MOST = 500
#: Every width of a row of windows that fills more than half of its vector, as LLVM 22 met without end before.
CODE = """
from refsim.exec.cpu import compiled
from refsim.exec.cpu.gemm.prepack import gather
shapes = {(taps, words) for taps in range(1, 17) for words in range(1, 17) if 8 < taps * words <= 16}
for taps, words in sorted(shapes):
    for channels in {4 * words - 3, 4 * words}:
        for element in ("u8", "s8", "s16"):
            assert compiled.assembly(
                gather, element=element, lines=1, taps=taps, words=words, channels=channels
            )
"""


@pytest.mark.few(1)
@pytest.mark.parametrize("processor", ["generic", "haswell", "cascadelake", "sapphirerapids"])
def test_the_compiler_ends(processor: str) -> None:
    env = {**os.environ, "NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env=env,
        capture_output=True,
        text=True,
        timeout=SECONDS_AT_MOST,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
