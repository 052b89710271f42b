"""Progress: a bar on a terminal's stderr once something takes long, lines in a pipe, nothing left at the end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import terminal

from refsim.cli.kit import progress
from refsim.core import doing

ROOT = __file__.rpartition("/tests/")[0]
MODEL = f"{ROOT}/tests/data/models/linear_head.pte"
ERASE = "\x1b[2K"


def code(settings: str) -> list[str]:
    """The command of a process in which progress is shown otherwise."""
    begin = "import sys; from refsim.cli import main; from refsim.cli.kit import progress\n"
    return [sys.executable, "-c", f"{begin}{settings}sys.exit(main(sys.argv[1:]))"]


AT_ONCE = (
    "progress.DELAY = 0.0\n"
    "begin = progress._Bar.begin\n"
    "def at_once(bar, *work):\n"  # a bar that a thread shows when it gets to it would make the test depend on load
    "    begin(bar, *work); bar._timer.join()\n"
    "progress._Bar.begin = at_once\n"
)


def on_a_terminal(*arguments: str) -> tuple[str, str]:
    """(what the terminal of stderr gets, what a pipe at stdout gets) of a command whose bar appears at once."""
    controller, written = terminal.opened(80)
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"} | {"TERM": "xterm"}
    pipes = dict(stdout=subprocess.PIPE, stderr=written, env=environment, text=True)
    command = [*code(AT_ONCE), *arguments]
    with ThreadPoolExecutor() as pool, subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload]
        os.close(written)
        seen = pool.submit(terminal.shown, controller)
        printed, _ = process.communicate()
    assert process.returncode == 0
    return seen.result(), printed


@pytest.mark.long
def test_a_bar_is_shown_on_a_terminal_and_taken_away() -> None:
    seen, printed = on_a_terminal("repeat", MODEL, "--random", "0", "-n", "5000")
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    assert re.search(r"run .* \d+/5000 ", plain)
    assert seen.rstrip().endswith(ERASE) or ERASE in seen[seen.rindex("/5000 ") :]
    assert "\x1b" not in printed and printed.endswith("5000 runs on cpu: the same bytes in all of them\n")


def test_json_has_none() -> None:
    seen, printed = on_a_terminal("repeat", MODEL, "--random", "0", "-n", "2", "--json")
    assert seen == "" and printed.startswith("{")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """What a bar shows, each time that it changes: what, how much of it, a note. No thread shows anything."""
    rows: list[tuple[str, str, str]] = []

    class Rich:
        task_ids = (0,)

        def reset(self, task: int, description: str, total: int | None) -> None:
            self.what = description

        def update(self, task: int, completed: int, count: str, note: str) -> None:
            rows.append((self.what, count, note))

        def stop(self) -> None:
            rows.append(("", "", ""))

    def wait(bar: progress._Bar, seconds: float) -> None:
        bar._timer, bar._rich = SimpleNamespace(cancel=lambda: None), Rich()  # type: ignore[assignment]

    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setattr(progress._Bar, "_wait", wait)
    return rows


def test_the_work_that_began_last_is_shown(shown: list[tuple[str, str, str]]) -> None:
    with progress.verb(["run", "x"]):
        with doing.progress("operators", 3) as tell:
            tell()
            tell(2, "1 failed")
        with doing.compiling("q8ta_add"):
            pass
        with doing.progress("operators") as tell:
            tell()
    assert shown == [
        ("run", "", ""),
        ("operators", "0/3", ""), ("operators", "1/3", ""), ("operators", "3/3", "1 failed"),
        ("run", "", ""), ("run", "", "compiling q8ta_add"), ("run", "", ""),
        ("operators", "", ""), ("operators", "1", ""),
        ("run", "", ""),
        ("", "", ""),
    ]  # fmt: skip


def test_output_makes_the_bar_go(shown: list[tuple[str, str, str]]) -> None:
    with progress.verb(["run"]):
        progress.make_way()
        progress.make_way()
        assert shown == [("run", "", ""), ("", "", "")]
        with doing.progress("cases", 2):
            assert shown[-1] == ("cases", "0/2", "")
    assert shown[-1] == ("", "", "")


def test_in_a_pipe_there_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.verb(["golden", "verify"]), doing.progress("cases", 2) as tell:
        lines = progress._shown
        assert isinstance(lines, progress._Lines)
        lines._due()
        tell(1, "1 failed")
        lines._began -= 75
        lines._due()
        progress.make_way()
        lines._due()  # something was printed, and nothing has begun since
    lines._due()  # the verb has ended
    assert capsys.readouterr() == ("", "refsim: cases 0/2, 0 s\nrefsim: cases 1/2, 75 s, 1 failed\n")
    with progress.verb(["run"], quiet=True):
        assert progress._shown is None


@pytest.mark.long
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_pipe_gets_its_first_line_from_a_thread(more: list[str]) -> None:
    command = code("progress.FIRST_LINE = progress.NEXT_LINE = 0.01\n")
    words = ("repeat", MODEL, "--random", "0", "-n", "200", *more)
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=True)
    assert re.match("$" if more else r"refsim: (repeat|run)( \d+/200)?, \d+ s", done.stderr)
