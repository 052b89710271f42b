"""Work in another process: results, errors, crashes and hangs come back as what they are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from refsim.core.errors import ShapeError
from refsim.exec import process
from refsim.exec.process import Ended, Raised, Silent, Worker
from refsim.exec.runner import Caller

FOLDER = Path(__file__).parent


class Thing:
    """What workers hold here."""

    def __init__(self, start: int = 0) -> None:
        if start < 0:
            raise ShapeError("thing", "negative", got=start)
        self.count = start

    def add(self, array: np.ndarray) -> np.ndarray:
        self.count += 1
        return np.asarray(array + self.count)

    def refuse(self) -> None:
        raise ShapeError("thing", "does not fit", got=self.count)

    def fail(self) -> float:
        return 1 / 0

    def say(self) -> str | None:
        print("to stdout", flush=True)
        os.write(1, b"from a driver\n")
        return os.environ.get("REFSIM_TEST")

    def die(self) -> None:
        print("last words", file=sys.stderr)
        os.abort()


def test_an_object_lives_there_and_keeps_its_state() -> None:
    with Worker(Thing, 4, where="thing") as worker:
        big = np.arange(1 << 20, dtype=np.int32)  # more than a pipe holds
        assert np.array_equal(worker.call("add", big), big + 5)
        assert worker.call("add", np.int32(1)) == 7 and worker.alive
    assert not worker.alive


def test_errors_keep_their_type_and_the_worker_lives() -> None:
    with Worker(Thing, where="thing", keep_stderr=True) as worker:
        with pytest.raises(ShapeError, match="thing: does not fit; got 0"):
            worker.call("refuse")
        with pytest.raises(Raised, match="thing: the work failed; got ZeroDivisionError: division by zero"):
            worker.call("fail")
        assert worker.call("add", np.int32(1)) == 2
    with pytest.raises(ShapeError, match="negative"):
        Worker(Thing, -1, where="thing")


class Slow(Thing):
    """It takes longer to make than anybody waits."""

    def __init__(self) -> None:
        time.sleep(60.0)


def test_an_object_is_made_while_the_caller_goes_on() -> None:
    with Worker(Thing, 4, where="thing", wait=False) as worker:
        assert worker.pending and worker.call("add", np.int32(1)) == 6 and not worker.pending
    refused = Worker(Thing, -1, where="thing", wait=False)
    with pytest.raises(ShapeError):
        refused.ready()
    assert not refused.alive and not refused.pending


def test_one_that_is_not_made_yet_is_ended_at_once() -> None:
    begin = time.monotonic()
    worker = Worker(Slow, where="thing", wait=False)
    worker.close()
    assert not worker.alive and time.monotonic() - begin < process.GRACE_S / 2


def test_what_is_printed_there_is_no_answer(capfd: pytest.CaptureFixture[str]) -> None:
    with Worker(Thing, where="thing", environment={"REFSIM_TEST": "x"}) as worker:
        assert worker.call("say") == "x"
    captured = capfd.readouterr()
    assert captured.out == "" and captured.err == "to stdout\nfrom a driver\n"


def test_a_crash_is_one_error_with_the_last_words() -> None:
    with Worker(Thing, where="thing", keep_stderr=True) as worker:
        with pytest.raises(Ended, match="thing: no answer; got signal 6") as caught:
            worker.call("die")
        assert "last words" in caught.value.last_lines and not worker.alive
        with pytest.raises(Ended):
            worker.call("add", 1)


def test_a_process_that_hangs_is_killed() -> None:
    with Worker(Thing, where="thing", keep_stderr=True) as worker:
        worker.signal(signal.SIGSTOP)
        with pytest.raises(Silent, match=r"silence for 0\.2 s"):
            worker.call("add", 1, seconds=0.2)
        assert not worker.alive


def test_an_answer_that_nobody_waited_for_is_not_taken_for_another() -> None:
    with Worker(Caller, where="thing") as worker:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            worker.call("call", time.sleep, 1.5)
        assert not worker.alive
        with pytest.raises(Ended):
            worker.call("call", abs, -3)


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
    assert caught.value.last_lines == ("b", "c", "d")
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
        "with process.Worker(runner.Caller, where='call') as worker:\n"
        "    try: print('ready', flush=True); worker.call('call', time.sleep, 60)\n"
        "    except KeyboardInterrupt: sys.exit(9)"
    )
    program = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=FOLDER.parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
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
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=FOLDER.parents[1], stdin=subprocess.DEVNULL, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_script_without_a_main_guard_is_run_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from refsim.exec import process\nprint(process.call(abs, -3, where='abs'))\n")
    root = str(FOLDER.parents[1])
    done = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True
    )
    assert done.stdout == "3\n" and done.stderr == ""
