"""A mutant's limits of time: what compiles does not count, nor does waiting for a processor; the rest ends it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mutants import limits, tree
from mutants.generated import trial
from refsim.exec import process

_WORK = """
import sys, time
from mutants.limits import Watch
from refsim.core import doing

def busy(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

watch = Watch(1.0)
doing.name_frames()
"""


def ended(code: str, waiting: float = 100.0) -> tuple[str, tuple[str, ...]]:
    """How a process ended that does this, and what it said last."""
    patched = _WORK.replace(
        "watch =", f"import mutants.limits as limits; limits.WAITING = {waiting}\nwatch ="
    )
    command = [sys.executable, "-c", patched + code]
    try:
        process.run(command, where="work", environment=tree.environment(tree.CHECKOUT))
    except process.Ended as error:
        return str(error.got), error.last_lines
    return "", ()


@pytest.mark.long
def test_what_compiles_does_not_count() -> None:
    code = "\nbusy(0.4)\nwith doing.compiling('kernel'): busy(1.2)\nbusy(0.3)"
    assert ended(code) == ("", ())


def test_what_follows_compilation_does() -> None:
    code = "\nwith doing.compiling('kernel'): busy(0.3)\ndoing.during('case 7', busy, 60)"
    status, said = ended(code)
    assert limits.ended_by_limit(status) and any("in case 7" in line for line in said), (status, said)


def test_each_piece_has_a_limit_of_its_own() -> None:
    assert ended("\nwatch.begin(0.5); busy(0.3); watch.begin(0.5); busy(0.3)") == ("", ())
    assert limits.ended_by_limit(ended("\nwatch.begin(0.5); busy(60)")[0])


def test_waiting_counts_less_but_ends() -> None:
    assert ended("\ntime.sleep(1.3)") == ("", ())
    assert limits.ended_by_limit(ended("\ntime.sleep(60)", waiting=0.5)[0])


@pytest.mark.long
def test_a_test_that_hangs_is_ended(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_one(): pass\n\ndef test_two():\n    while True: pass\n")
    failed, said = tree.pytest(tmp_path, "test_it.py", each=1.0, most=60.0)
    assert failed == "test_it.py::test_two" and said.startswith("no end: ") and "test_two" in said
    (tmp_path / "test_it.py").write_text("def test_one(): assert 1 == 2\n")
    assert tree.pytest(tmp_path, "test_it.py", 1.0, 60.0) == ("test_it.py::test_one", "assert 1 == 2")


@pytest.mark.long
def test_a_test_that_fails_anyway_notices_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout, copy = tmp_path / "checkout", tmp_path / "copy"
    text = "def test_one(): assert 1 == 2\n\ndef test_two(): assert {two}\n"
    for folder, two in ((checkout, True), (copy, False)):
        folder.mkdir()
        (folder / "test_it.py").write_text(text.format(two=two))
    monkeypatch.setattr(trial, "CHECKOUT", checkout)
    trial._fails_anyway.cache_clear()
    assert trial._noticed_by(copy, "test_it.py")[0] == "test_it.py::test_two"
    assert trial._noticed_by(checkout, "test_it.py") == tree.Failed()


_SLOW = """
import time
from hypothesis import given, settings, strategies

@settings(max_examples=3)
@given(strategies.integers())
def test_slow(number):
    time.sleep(0.25)
"""


@pytest.mark.long
def test_a_slow_machine_fails_no_test_of_properties(tmp_path: Path) -> None:
    """Where nobody says otherwise, an example may take 0.2 s, and a machine with many workers is slow."""
    (tmp_path / "test_it.py").write_text(_SLOW)
    assert tree.pytest(tmp_path, "test_it.py", 60.0, 60.0) == tree.Failed()


def test_a_copy_keeps_what_it_compiles_in_one_place(tmp_path: Path) -> None:
    around = tree.environment(tmp_path)
    assert around["XDG_CACHE_HOME"] == str(tmp_path / tree.CACHE)
    assert around["OPENBLAS_NUM_THREADS"] == "1"
    assert tree.environment(tree.CHECKOUT)["XDG_CACHE_HOME"] != around["XDG_CACHE_HOME"]
    code = "import os; print(os.environ['MESA_SHADER_CACHE_DIR'])"
    held = subprocess.run(
        [sys.executable, "-c", code], env=around, capture_output=True, text=True, check=True
    )
    assert not held.stdout.startswith(str(tmp_path))


_DIES = """
import os

def test_before():
    pass

def test_it():
    os.abort()
"""


def test_a_test_that_dies_is_named(tmp_path: Path) -> None:
    root = tmp_path / "copy"
    root.mkdir()
    (root / "test_it.py").write_text(_DIES)
    failed, said = tree.pytest(root, "test_it.py", 60, 60)
    assert failed == "test_it.py::test_it" and said.startswith("signal ")
