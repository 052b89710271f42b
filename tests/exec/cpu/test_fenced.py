"""No native kernel reads or writes further beyond its buffers than a plan has memory behind its last value."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path

import fenced
import pytest

from refsim.core.errors import DeviceError
from refsim.core.lifetimes import ALIGN
from refsim.exec.cpu import isa

#: Cases of each operator, on every route.
EACH = 6
#: What a route must have run at least once, on any processor.
ROUTES = {"gemm", "depthwise", "transpose", "repack", "contiguous", "strided", "via_nhwc", "linear", "groups"}

pytestmark = pytest.mark.skipif(not hasattr(mmap, "PROT_READ"), reason="pages cannot be closed here")


@pytest.mark.few(1)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", ["", "avx2", "portable"])
def test_nothing_is_read_beyond_the_memory_behind_a_buffer(name: str, threads: int) -> None:
    try:
        around = {**os.environ, **(isa.environment(name) if name else {})}
    except DeviceError as error:
        pytest.skip(str(error))
    command = [sys.executable, "-X", "faulthandler", fenced.__file__, str(threads), str(EACH)]
    done = subprocess.run(
        command, env=around, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False
    )
    said = done.stdout.splitlines()
    assert done.returncode == 0, f"read out of bounds: {'; '.join(said[-2:])}; {done.stderr[:400]}"
    assert {line.partition(" by ")[2] for line in said} > ROUTES


def test_a_plan_has_so_much_memory_behind_its_last_value() -> None:
    assert fenced.SLACK == ALIGN


@pytest.mark.parametrize(("kind", "inside", "outside"), [("Fenced", 63, 64), ("Front", 0, -1)])
def test_what_lies_beyond_is_closed(kind: str, inside: int, outside: int) -> None:
    """One byte more, or one before, ends the process. Places are bytes from the end, or from the beginning."""
    code = f"""
import ctypes, fenced
from refsim.core.tensor import TensorDesc
buffer = fenced.{kind}(TensorDesc((1, 4, 4, 4), "4C"))
at = buffer.words.ctypes.data + (0 if buffer.front else buffer.words.nbytes)
buffer.protect(0)
for place in ({inside}, {outside}):
    print(ctypes.c_int8.from_address(at + place).value, flush=True)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    assert len(done.stdout.split()) == 1 and done.returncode < 0, done.stderr
