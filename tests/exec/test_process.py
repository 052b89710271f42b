"""Work in another process: results, errors, crashes and hangs come back as what they are, and say what was done."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples import UNARY

from refsim.core import doing
from refsim.core.errors import DeviceError, ShapeError
from refsim.exec import process
from refsim.exec.cpu.thread_pool import JobList
from refsim.exec.factory import executor_named
from refsim.exec.model import Model, load
from refsim.exec.process import Ended, Raised, Silent, Worker
from refsim.exec.repeat import repeat
from refsim.exec.runner import Caller
from refsim.ops.base.binding import bind

ROOT = Path(__file__).parents[2]


class Work:
    """What workers hold here."""

    def __init__(self, start: int = 0, seconds: float = 0.0) -> None:
        time.sleep(seconds)
        if start < 0:
            raise ShapeError("work", "negative", got=start)
        self.count = start

    def add(self, array: np.ndarray) -> np.ndarray:
        self.count += 1
        return np.asarray(array + self.count)

    def refuse(self) -> None:
        raise ShapeError("work", "does not fit", got=self.count)

    def fail(self) -> float:
        return 1 / 0

    def say(self) -> str | None:
        print("to stdout", flush=True)
        os.write(1, b"from a driver\n")
        return os.environ.get("REFSIM_TEST")

    def die(self) -> None:
        print("last words", file=sys.stderr)
        os.abort()

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
        bound = bind(UNARY.cases.example)
        runner = executor_named(executor)
        runner.run_call(bound.call, bound.inputs)
        if executor == "cpu":
            JobList.run = _crash  # type: ignore[method-assign]
        else:
            UNARY.kernel.run._compiled = _crash  # type: ignore[union-attr]
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


def worker(*arguments: Any, **options: Any) -> Worker:
    return Worker(Work, *arguments, where="work", **options)


def python(code: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, **options)


def test_an_object_lives_there_and_keeps_its_state() -> None:
    with worker(4) as held:
        big = np.arange(1 << 20, dtype=np.int32)  # more than a pipe holds
        assert np.array_equal(held.call("add", big), big + 5)
        assert held.call("add", np.int32(1)) == 7 and held.alive
    assert not held.alive


def test_errors_keep_their_type_and_the_worker_lives() -> None:
    with worker(keep_stderr=True) as held:
        with pytest.raises(ShapeError, match="work: does not fit; got 0") as refused:
            held.call("refuse")
        assert " | raised in refuse (test_process.py:" in doing.told(refused.value)
        failed = r"work: the work failed; got ZeroDivisionError: division by zero \| raised in fail \(test_"
        with pytest.raises(Raised, match=failed):
            held.call("fail")
        assert held.call("add", np.int32(1)) == 2
    with pytest.raises(ShapeError, match="negative"):
        worker(-1)


def test_an_object_is_made_while_the_caller_goes_on() -> None:
    with worker(4, wait=False) as held:
        assert held.pending and held.call("add", np.int32(1)) == 6 and not held.pending
    refused = worker(-1, wait=False)
    with pytest.raises(ShapeError):
        refused.ready()
    assert not refused.alive and not refused.pending


def test_one_that_is_not_made_yet_is_ended_at_once() -> None:
    begin = time.monotonic()
    held = worker(0, 60.0, wait=False)  # it takes longer to make than anybody waits
    held.close()
    assert not held.alive and time.monotonic() - begin < process.GRACE_S / 2


def test_what_is_printed_there_is_no_answer(capfd: pytest.CaptureFixture[str]) -> None:
    with worker(environment={"REFSIM_TEST": "x"}) as held:
        assert held.call("say") == "x"
    captured = capfd.readouterr()
    assert captured.out == "" and captured.err == "to stdout\nfrom a driver\n"


def test_a_crash_is_one_error_with_the_last_words() -> None:
    with worker(keep_stderr=True) as held:
        with pytest.raises(Ended, match="work: no answer; got signal 6") as caught:
            held.call("die")
        assert "last words" in caught.value.last_lines and not held.alive
        with pytest.raises(Ended):
            held.call("add", 1)


def test_a_process_that_hangs_is_killed() -> None:
    with worker(keep_stderr=True) as held:
        held.signal(signal.SIGSTOP)
        with pytest.raises(Silent, match=r"silence for 0\.2 s"):
            held.call("add", 1, seconds=0.2)
        assert not held.alive


def test_an_answer_that_nobody_waited_for_is_not_taken_for_another() -> None:
    with Worker(Caller, where="thing") as held:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            held.call("call", time.sleep, 1.5)
        assert not held.alive
        with pytest.raises(Ended):
            held.call("call", abs, -3)


def test_one_call() -> None:
    assert process.call(abs, -3, where="abs") == 3
    for function, argument, status in ((os._exit, 3, "exit status 3"), (os._exit, 0, "exit status 0")):
        with pytest.raises(Ended, match=f"got {status}"):
            process.call(function, argument, where="call")
    with pytest.raises(Silent):
        process.call(time.sleep, 60, where="call", seconds=1)


def test_a_command() -> None:
    assert process.run([sys.executable, "-c", "print(1)"], where="command") == "1\n"
    code = "import sys; print('a\\n\\nb\\nc\\nd', file=sys.stderr); sys.exit(7)"
    with pytest.raises(Ended, match="exit status 7") as caught:
        process.run([sys.executable, "-c", code], where="command")
    assert caught.value.last_lines == ("b", "c", "d") and caught.value.status == 7
    with pytest.raises(Silent):
        process.run(["sleep", "60"], where="command", seconds=0.1)


def test_a_command_leaves_nobody_behind(tmp_path: Path) -> None:
    """A driver that hangs in a process of its own would hold on to what it was given to print to."""
    left = tmp_path / "left"
    code = f"import subprocess; print(subprocess.Popen(['sleep', '60']).pid, file=open({str(left)!r}, 'w'))"
    begin = time.monotonic()
    assert process.run([sys.executable, "-c", code], where="command") == ""
    assert time.monotonic() - begin < 30
    stat = Path("/proc", left.read_text().strip(), "stat")
    while stat.exists() and stat.read_text().rpartition(") ")[2][0] != "Z":  # the signal takes a moment
        assert time.monotonic() - begin < 30
        time.sleep(0.01)


def test_ctrl_c_ends_both_without_a_traceback() -> None:
    """A terminal sends the signal to all processes of a program."""
    code = (
        "import time, sys; from refsim.exec import process, runner\n"
        "with process.Worker(runner.Caller, where='call') as held:\n"
        "    try: print('ready', flush=True); held.call('call', time.sleep, 60)\n"
        "    except KeyboardInterrupt: sys.exit(9)"
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    program = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, start_new_session=True, **pipes)
    assert program.stdout is not None and program.stdout.readline() == b"ready\n"
    time.sleep(1)
    os.killpg(program.pid, signal.SIGINT)
    assert program.communicate(timeout=30)[1] == b"" and program.returncode == 9


def test_ctrl_c_while_a_process_ends_says_nothing() -> None:
    """The signal comes while the end of the input is taken note of, twice."""
    code = (
        "import contextlib, os, signal\n"
        "from refsim.exec import runner\n"
        "class Late(contextlib.suppress):\n"
        "    def __exit__(self, *error):\n"
        "        try: os.kill(os.getpid(), signal.SIGINT)\n"
        "        finally: os.kill(os.getpid(), signal.SIGINT)\n"
        "        return super().__exit__(*error)\n"
        "contextlib.suppress = Late\n"
        "runner.serve()"
    )
    done = python(code, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_script_without_a_main_guard_is_run_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from refsim.exec import process\nprint(process.call(abs, -3, where='abs'))\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True)
    assert done.stdout == "3\n" and done.stderr == ""


# --- limits of time, and what was being done -------------------------------------------------------------


@pytest.mark.long
def test_compilation_does_not_count() -> None:
    with worker() as held:
        assert held.call("compile", 1.5, seconds=1) == "done"
        assert held.call("compile_twice", 0.8, seconds=1) == "done"
        assert len(held.call("large", seconds=5)) == 5_000_000
        with pytest.raises(Silent, match=r"work: no answer in time, during case 7; got silence for 1 s"):
            held.call("compile", 0.1, 30.0, seconds=1)


@pytest.mark.long
def test_compilation_of_another_process_does_not_count_either() -> None:
    """An executor on a GPU has a process of its own, and a run may have one around that."""
    with worker() as held:
        held.call("start_another")
        assert held.call("ask_another", 3.0, seconds=2) == "done"


def test_compilation_has_a_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "PAUSE_S", 0.3)
    with worker() as held, pytest.raises(Silent, match=r"silence for 0\.3 s"):
        held.call("compile", 30.0, seconds=5)


def test_half_an_answer_is_none() -> None:
    with worker() as held, pytest.raises(Silent):
        held.call("stop_halfway", seconds=0.4)


def test_a_crash_says_what_was_done_and_where() -> None:
    with worker(keep_stderr=True) as held, pytest.raises(Ended) as caught:
        held.call("crash")
    error = caught.value
    place = "node 5 of delegate 0"
    assert str(error) == f"work: no answer, during {place}: read or write out of bounds; got signal 11"
    assert error.working == place
    fatal, inner, *_ = error.last_lines
    assert fatal == "Fatal Python error: Segmentation fault" and "string_at" in inner


@pytest.mark.few(1)
@pytest.mark.parametrize("executor", ["cpu", "cpu:emulated"])
def test_a_crash_says_which_kernel_ran(executor: str) -> None:
    with worker() as held, pytest.raises(Ended) as caught:
        held.call("crash_in_a_kernel", executor)
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


def test_a_command_that_crashes_names_the_node() -> None:
    """The emulated kernel of one operator crashes."""
    arguments = ["run", "tests/data/models/mixed_ops.pte", "--random", "0", "-x", "cpu:emulated"]
    done = python(CRASH.format(name=UNARY.name, arguments=arguments))
    assert done.returncode == -11
    assert "Fatal Python error: Segmentation fault" in done.stderr
    assert re.search(rf"in .*mixed_ops\.pte: delegate 0: .*{UNARY.name}", done.stderr)


VERIFY = "import sys; from refsim.cli import main; sys.exit(main(sys.argv[1:]))"
CASE = ("golden", "verify", f"{UNARY.name}/0003", "-x", "cpu:emulated")


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
    done = python(VERIFY, *CASE, env=environment)
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
    done = python(VERIFY, *CASE, "--seconds", "3", env=environment | {"XDG_CACHE_HOME": str(tmp_path)})
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
