"""Limits of time leave compilation out, and a crash in native code says what was being done."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from examples import UNARY

from refsim.core import doing
from refsim.core.errors import DeviceError
from refsim.exec import process
from refsim.exec.cpu.thread_pool import JobList
from refsim.exec.factory import executor_named
from refsim.exec.process import Ended, Silent, Worker
from refsim.ops.base.binding import bind
from refsim.ops.base.registry import OPS

ROOT = Path(__file__).parents[2]


class Work:
    """What workers hold here."""

    def compile(self, seconds: float, then: float = 0.0) -> str:
        doing.working("case 7")
        with doing.compiling("kernel"), doing.compiling("what it calls"):
            time.sleep(seconds)
        time.sleep(then)
        return "done"

    def compile_twice(self, seconds: float) -> str:
        threads = [threading.Thread(target=self.compile, args=(seconds,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.compile(seconds)

    def start_another(self) -> None:
        self.another = Worker(Work, where="another")
        self.another.ready()

    def ask_another(self, seconds: float) -> str:
        with self.another as worker:
            return str(worker.call("compile", seconds))

    def crash(self) -> None:
        doing.during("node 5 of delegate 0", ctypes.string_at, 0)

    def crash_in_a_kernel(self, executor: str) -> None:
        bound = bind(OPS["q8ta_relu"].cases.example)
        runner = executor_named(executor)
        runner.run_call(bound.call, bound.inputs)
        if executor == "cpu":
            JobList.run = _crash  # type: ignore[method-assign]
        else:
            OPS["q8ta_relu"].kernel.run._compiled = _crash  # type: ignore[union-attr]
        doing.during("case 8", runner.run_call, bound.call, bound.inputs)

    def large(self) -> bytes:
        return bytes(5_000_000)

    def stop_halfway(self) -> None:
        os.write(self.answers, b"\xff\x00")
        time.sleep(60)

    @property
    def answers(self) -> int:
        """The pipe on which this process answers."""
        return next(n for n in range(3, 64) if _is_pipe(n))


def _crash(*given: object) -> None:
    ctypes.string_at(0)


def _is_pipe(number: int) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{number}").startswith("pipe:")
    except OSError:
        return False


@pytest.mark.long
def test_compilation_does_not_count() -> None:
    with Worker(Work, where="work") as worker:
        assert worker.call("compile", 1.5, seconds=1) == "done"
        assert worker.call("compile_twice", 0.8, seconds=1) == "done"
        assert len(worker.call("large", seconds=5)) == 5_000_000
        with pytest.raises(Silent, match=r"work: no answer in time, during case 7; got silence for 1 s"):
            worker.call("compile", 0.1, 30.0, seconds=1)


@pytest.mark.long
def test_compilation_of_another_process_does_not_count_either() -> None:
    """An executor on a GPU has a process of its own, and a run may have one around that."""
    with Worker(Work, where="work") as worker:
        worker.call("start_another")
        assert worker.call("ask_another", 3.0, seconds=2) == "done"


def test_compilation_has_a_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "PAUSE_S", 0.3)
    with Worker(Work, where="work") as worker, pytest.raises(Silent, match=r"silence for 0\.3 s"):
        worker.call("compile", 30.0, seconds=5)


def test_half_an_answer_is_none() -> None:
    with Worker(Work, where="work") as worker, pytest.raises(Silent):
        worker.call("stop_halfway", seconds=0.4)


def test_a_crash_says_what_was_done_and_where() -> None:
    with Worker(Work, where="work", keep_stderr=True) as worker, pytest.raises(Ended) as caught:
        worker.call("crash")
    error = caught.value
    assert (
        str(error)
        == "work: no answer, during node 5 of delegate 0: read or write out of bounds; got signal 11"
    )
    assert error.working == "node 5 of delegate 0"
    fatal, inner, *_ = error.last_lines
    assert fatal == "Fatal Python error: Segmentation fault" and "string_at" in inner


@pytest.mark.few(1)
@pytest.mark.parametrize("executor", ["cpu", "cpu:emulated"])
def test_a_crash_says_which_kernel_ran(executor: str) -> None:
    with Worker(Work, where="work") as worker, pytest.raises(Ended) as caught:
        worker.call("crash_in_a_kernel", executor)
    assert caught.value.working.startswith("case 8, kernel of refsim/")


def test_nobody_listens_and_nothing_is_told() -> None:
    asked: list[int] = []

    class Place:
        def __str__(self) -> str:
            asked.append(1)
            return "place"

    assert doing.during(Place(), max, 1, 2) == 2 and asked == []


CRASH = """
import ctypes, sys
from refsim.cli import main
from refsim.exec.emulated import EmulatedExecutor
honest = EmulatedExecutor.run
def run(self, launch, inputs):
    if launch.shader == {name!r}:
        ctypes.string_at(0)
    return honest(self, launch, inputs)
EmulatedExecutor.run = run
sys.argv[1:] = {arguments!r}
main()
"""


def crashing(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command whose emulated kernel of one operator crashes."""
    code = CRASH.format(name=UNARY.name, arguments=list(arguments))
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_command_that_crashes_names_the_node() -> None:
    done = crashing("run", "tests/data/models/mixed_ops.pte", "--random", "0", "-x", "cpu:emulated")
    assert done.returncode == -11
    assert "Fatal Python error: Segmentation fault" in done.stderr
    assert re.search(rf"in .*mixed_ops\.pte: delegate 0: .*{UNARY.name}", done.stderr)


VERIFY = [sys.executable, "-m", "refsim.cli", "golden", "verify", f"{UNARY.name}/0003", "-x", "cpu:emulated"]


@pytest.mark.long
def test_verify_names_the_case_and_how_to_repeat_it(tmp_path: Path) -> None:
    """The library of a kernel is cut off on its way, as a driver may crash: only that case is lost."""
    hook = tmp_path / "sitecustomize.py"
    hook.write_text(
        "import ctypes, sys\n"
        "if '-c' in sys.orig_argv and 'serve()' in ''.join(sys.orig_argv):\n"
        "    from refsim.exec.emulated import EmulatedExecutor\n"
        "    EmulatedExecutor.run = lambda self, launch, inputs: ctypes.string_at(0)\n"
    )
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run(VERIFY, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    line = next(line for line in done.stdout.splitlines() if " crashed " in line)
    assert line.startswith(f"{UNARY.name}/0003") and "signal 11, during" in line
    assert UNARY.name in line.partition("during")[2] and "on cpu:emulated" in line
    assert "Fatal Python error: Segmentation fault | File" in line
    assert f"  refsim golden verify {UNARY.name}/0003 -x cpu:emulated" in done.stdout.splitlines()


@pytest.mark.long
def test_a_case_that_compiles_longer_than_its_limit_is_in_time(tmp_path: Path) -> None:
    """With an empty cache, Numba alone takes longer to load than this case may take."""
    environment = {
        k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "REFSIM_SCRATCH_CACHE")
    }
    done = subprocess.run(
        [*VERIFY, "--seconds", "3"], cwd=ROOT, capture_output=True, text=True, check=False,
        env=environment | {"XDG_CACHE_HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_a_long_report_keeps_the_frame_that_names_the_work() -> None:
    frames = [f'  File "x.py", line {n} in f{n}' for n in range(9)]
    frames[6] = f'  File "{doing.__file__}", line 9 in case q8ta_x/0003'
    text = [
        "last words",
        "Fatal Python error: Aborted",
        "",
        "Current thread 0x01 (most recent call first):",
        *frames,
    ]
    found = process.last_lines("\n".join([*text, "", "Extension modules: numpy, more"]))
    assert found == (
        "last words", "Fatal Python error: Aborted", 'File "x.py", line 0 in f0', 'File "x.py", line 1 in f1',
        f'File "{doing.__file__}", line 9 in case q8ta_x/0003',
    )  # fmt: skip
    assert process.last_lines("a\n\nb\nc\nd\n") == ("b", "c", "d")


def test_a_device_that_is_lost_says_in_which_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from refsim.exec.model import Model, load
    from refsim.exec.repeat import repeat

    model = load(ROOT / "tests/data/models/linear_head.pte")
    given = [np.zeros(shape, dtype) for shape, dtype in model.input_shapes()]
    honest, count = Model.run, [0]

    def run(self, *arguments):
        count[0] += 1
        if count[0] == 3:
            raise DeviceError("gpu:0", "the driver ended the worker process", got="signal 11")
        return honest(self, *arguments)

    monkeypatch.setattr(Model, "run", run)
    with pytest.raises(DeviceError, match=r"run 3 of 5: gpu:0: the driver ended .*; got signal 11"):
        repeat(model, given, executor_named("cpu"), 5)
