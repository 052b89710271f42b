"""Writing replaces files whole or not at all, and devices never."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from refsim.core import atomic_write
from refsim.core.errors import FormatError


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
