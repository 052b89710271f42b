"""Compiling and caching: variants, damaged entries, several processes, processors, threads that fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from refsim.core.errors import ParameterError
from refsim.exec.cpu import NativeExecutor, compiled, thread_pool
from refsim.exec.cpu import isa as target
from refsim.exec.cpu.ir import ModuleText

ROOT = Path(__file__).parents[3]
RUN = (
    "import sys; sys.path.insert(0, 'tests/exec/cpu')\n"
    "from wide import *; print(check(OPS['q8ta_conv2d_pw'].cases.example, NativeExecutor(2)))"
)


def fresh(cache: Path, *, code: str = RUN, **env: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, with its own cache."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(ROOT), **env}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def entries(cache: Path) -> list[Path]:
    return sorted(cache.glob("refsim/native-*/*.o"))


@pytest.mark.long
def test_another_processor_has_another_cache(tmp_path: Path) -> None:
    assert fresh(tmp_path).returncode == 0
    assert fresh(tmp_path, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="").returncode == 0
    assert len({path.parent for path in entries(tmp_path)}) == 2


@pytest.mark.long
def test_several_processes_may_compile_at_once(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", RUN], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    assert [process.communicate()[0] for process in running] == ["gemm\n"] * 3
    assert not [path for path in tmp_path.glob("refsim/native-*/*") if path.suffix != ".o"]


@pytest.mark.parametrize(
    ("name", "features", "isa"),
    [
        ("sapphirerapids", "", "amx"),
        ("sapphirerapids", "-amx-int8", "avx512vbmi"),
        ("icelake-server", "", "avx512vbmi"),
        ("znver4", "-avx512vbmi", "avx512vnni"),
        ("cascadelake", "", "avx512vnni"),
        ("skylake-avx512", "", "avx512"),
        ("znver3", "", "avx2"),
        ("haswell", "", "avx2"),
        ("generic", "", "portable"),
        ("generic", "+avx2,+fma,+avxvnni", "avxvnni"),
        ("haswell", "-avx2", "portable"),
        ("haswell", "-fma", "portable"),
    ],
)
def test_instructions_follow_the_processor(name: str, features: str, isa: str) -> None:
    assert target._cpu(name, features).isa.name == isa


def test_threads_are_checked() -> None:
    for threads in (0, -1, 5000):
        with pytest.raises(ParameterError, match="threads is out of range"):
            NativeExecutor(threads)


def nothing(module: ModuleText, name: str) -> None:
    with module.function(name, ()):
        pass


def test_kernels_from_elsewhere_are_compiled_in_every_process() -> None:
    """The cache is named by the package's sources alone: another version of this kernel would be found there."""
    compiled.address(nothing)
    assert not (compiled.directory() / "nothing.o").exists()


def test_helpers_keep_off_the_callers_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = thread_pool.ThreadPool(2)
    nothing = thread_pool.JobList([], 1)
    scratch = np.zeros(3, np.int64)
    run = (nothing._table_at, 0, nothing._shared_at, scratch.ctypes.data)
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else set()
    if len(allowed) > 1 and thread_pool._processor() is not None:
        pool.run(*run)
        assert pool._avoided in allowed
        for thread in pool._threads:
            assert os.sched_getaffinity(thread.native_id) == allowed - {pool._avoided}
    before = pool._avoided
    monkeypatch.setattr(thread_pool, "_find_processor", lambda: None)  # as where nobody can tell
    pool.run(*run)
    assert pool._avoided == before


# --- copies of windows without the padding of their channels ---------------------------------------------


#: More than a compiler needs for all of them, by far: one that never ends is what is looked for.
SECONDS_AT_MOST = 500
#: Every width of a row of windows that fills more than half of its vector, as LLVM 22 met without end before.
GATHERS = """
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
@pytest.mark.parametrize("name", ["generic", "haswell", "cascadelake", "sapphirerapids"])
def test_the_compiler_ends(name: str) -> None:
    env = {**os.environ, "NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", GATHERS],
        env=env,
        capture_output=True,
        text=True,
        timeout=SECONDS_AT_MOST,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
