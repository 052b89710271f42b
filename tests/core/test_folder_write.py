"""Files of a folder appear together: writers are killed at random, and what is read then is old or new, never both."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from refsim.core import atomic_write
from refsim.core.errors import FormatError
from refsim.core.folder_write import LOCK, STAGE, current, finish, names, writing
from refsim.formats.cases import write_folder

ROOT = Path(__file__).parents[2]
FILES = ("a.bin", "b.json", "inner/c.bin", "inner/d.bin", "e.bin")


def put(folder: Path, content: bytes) -> None:
    with writing(folder) as writer:
        for name in FILES:
            writer.write(name, content)


def held(folder: Path) -> set[bytes]:
    return {current(folder, name).read_bytes() for name in FILES}


def killed(work: Callable[[int], None], seconds: float) -> None:
    """Work again and again in a process of its own, and kill that at some point."""
    child = os.fork()
    if child == 0:
        number = 0
        while True:
            number += 1
            work(number)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.long
def test_a_killed_writer_leaves_the_old_files_or_the_new(tmp_path: Path) -> None:
    rng, folder, seen = random.Random(1), tmp_path / "folder", set()
    put(folder, b"first")
    for _ in range(60):
        killed(lambda number: put(folder, b"%d" % number * 3000), rng.uniform(0.002, 0.02))
        (content,) = held(folder)
        seen.add(content)
        assert set(names(folder)) == {"a.bin", "b.json", "inner", "e.bin"}
        if rng.random() < 0.3:
            put(folder, b"again")
            assert held(folder) == {b"again"} == {(folder / name).read_bytes() for name in FILES}
            assert sorted(os.listdir(folder)) == ["a.bin", "b.json", "e.bin", "inner"]
    assert seen - {b"first", b"again"}  # some of them came as far as to count


@pytest.mark.parametrize("at", range(1, 8))
def test_a_kill_at_each_step(at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends at the at-th rename, with nothing cleaned up."""
    put(tmp_path, b"old")
    child = os.fork()
    if child == 0:
        done, honest = [0], (os.rename, os.replace)

        def ends(real: Callable[..., None]) -> Callable[..., None]:
            def call(*arguments: object) -> None:
                done[0] += 1
                if done[0] == at:
                    os._exit(0)
                real(*arguments)

            return call

        os.rename, os.replace = map(ends, honest)
        put(tmp_path, b"new")
        os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == (0 if at <= 1 + len(FILES) else 1)
    assert held(tmp_path) == {b"old" if at == 1 else b"new"}
    assert finish(tmp_path) == (1 < at <= 1 + len(FILES)) and not finish(tmp_path)
    put(tmp_path, b"last")
    assert held(tmp_path) == {b"last"} and not list(tmp_path.glob(".*"))


def test_an_error_leaves_nothing_of_the_new(tmp_path: Path) -> None:
    put(tmp_path / "old", b"old")
    for folder in ("old", "fresh"):
        with pytest.raises(ZeroDivisionError), writing(tmp_path / folder) as writer:
            writer.write("a.bin", b"new")
            raise ZeroDivisionError
    assert held(tmp_path / "old") == {b"old"} and os.listdir(tmp_path) == ["old"]


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    code = (
        "import sys; from refsim.core.folder_write import writing\n"
        f"with writing({str(tmp_path)!r}): print('in', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "in\n"
        refused = f"another process writes there; got process {other.pid}, need one writer at a time"
        with pytest.raises(FormatError, match=refused):
            put(tmp_path, b"mine")
        assert names(tmp_path) == []
        other.kill()  # its lock ends with it, though the file stays
    assert (tmp_path / LOCK).read_text() == f"{other.pid}\n"
    put(tmp_path, b"mine")
    assert held(tmp_path) == {b"mine"} and not list(tmp_path.glob(".*"))


def test_a_lock_file_that_nobody_holds_is_stale(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text(f"{os.getpid()}\n")  # a process that lives, and has another business
    (tmp_path / f"{STAGE}left").mkdir()
    put(tmp_path, b"mine")
    assert held(tmp_path) == {b"mine"} and not list(tmp_path.glob(".*"))


def test_who_waits_comes_next(tmp_path: Path) -> None:
    children = []
    for number in range(6):
        child = os.fork()
        if child == 0:
            with writing(tmp_path, wait=True) as writer:
                for name in FILES:
                    writer.write(name, b"%d" % number)
                    time.sleep(0.002)
            os._exit(0)
        children.append(child)
    assert {os.waitpid(child, 0)[1] for child in children} == {0}
    assert len(held(tmp_path)) == 1 and not list(tmp_path.glob(".*"))


def test_places_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FormatError, match="cannot be written"), writing(tmp_path / "file"):
        pass
    (tmp_path / LOCK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FormatError, match="cannot be written"), writing(tmp_path):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_killed_writer_of_one_file_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    rng, path = random.Random(2), tmp_path / "file"
    path.write_bytes(b"0" * 200_000)
    for _ in range(25):
        killed(
            lambda number: atomic_write.write(path, b"%d" % (number % 10) * 200_000), rng.uniform(0.001, 0.01)
        )
        assert len(path.read_bytes()) == 200_000 and len(set(path.read_bytes())) == 1


def test_a_killed_writer_of_a_new_folder_leaves_all_or_nothing(tmp_path: Path) -> None:
    rng, files = random.Random(3), dict.fromkeys(FILES, b"x" * 20_000)
    for turn in range(25):
        place = tmp_path / str(turn)
        killed(lambda number, place=place: write_folder(place / str(number), files), rng.uniform(0.001, 0.01))
        for folder in place.glob("[0-9]*"):
            assert all((folder / name).read_bytes() == data for name, data in files.items())


# --- one file ---


def test_a_file_appears_whole_with_usual_rights(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        atomic_write.write(tmp_path / "a", b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "a").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o644


def test_a_failure_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), atomic_write.replacing(tmp_path / "a") as file:
        file.write(b"half of the new")
        raise ZeroDivisionError
    assert (tmp_path / "a").read_bytes() == b"old" and list(tmp_path.iterdir()) == [tmp_path / "a"]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    atomic_write.write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"new"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    atomic_write.write(pipe, b"bytes")
    reader.join(10)
    assert got == [b"bytes"] and stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("path", ["absent/a", "file/a", "."])
def test_unwritable_places_are_named(path: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FormatError, match="cannot be written"):
        atomic_write.write(tmp_path / path, b"x")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    with pytest.raises(FormatError, match="cannot be written"):
        atomic_write.make_folder(tmp_path / "file" / "b")
