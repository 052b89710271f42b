"""A folder that is being built: only other bytes are a change, and only once they are a whole module."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from refsim.core.errors import FormatError
from refsim.modules.folder import PATIENCE_S, Folder, whole

SPIRV = Path(__file__).parents[2] / "shaders" / "spirv"
ONE, OTHER = (SPIRV / f"{name}.spv" for name in ("q8ta_relu", "q8ta_add"))


class Clock:
    """Time that passes only in sleep, and what happens then."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events: list[tuple[float, object]] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        while self.events and self.events[0][0] <= self.now:
            self.events.pop(0)[1]()  # type: ignore[operator]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folder(tmp_path: Path, clock: Clock) -> Folder:
    (tmp_path / "a.spv").write_bytes(ONE.read_bytes())
    (tmp_path / "other.spv").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("no module")
    return Folder(tmp_path, {"a", "b"}, clock=clock, sleep=clock.sleep)


def replace(path: Path, data: bytes) -> None:
    """As a compiler does it: under another name first."""
    path.with_suffix(".new").write_bytes(data)
    os.replace(path.with_suffix(".new"), path)


def test_names(folder: Folder) -> None:
    assert folder.names() == ["a", "other"] and not folder.changed()


def test_other_bytes_are_a_change_once(folder: Folder) -> None:
    replace(folder.path / "a.spv", OTHER.read_bytes())
    assert folder.changed() == {"a"} and not folder.changed()


def test_the_same_bytes_are_none(folder: Folder) -> None:
    replace(folder.path / "a.spv", ONE.read_bytes())
    os.utime(folder.path / "a.spv")
    assert not folder.changed()


def test_a_new_module(folder: Folder) -> None:
    (folder.path / "b.spv").write_bytes(OTHER.read_bytes())
    assert folder.wait(0.0) == {"b"} and folder.names() == ["a", "b", "other"]


def test_only_watched_modules_count(folder: Folder) -> None:
    (folder.path / "other.spv").write_bytes(OTHER.read_bytes())
    assert not folder.changed()


def test_when_a_module_was_compiled(folder: Folder) -> None:
    """Upstream's build copies what has not changed from its cache, where it has the time at which it was compiled."""
    kept = folder.path / "shader_cache" / "a.spv"
    kept.parent.mkdir()
    here, there = (folder.path / "a.spv").stat().st_mtime_ns, 10**18
    assert folder.compiled("a") == here
    for data, expected in ((ONE, there), (OTHER, here)):
        kept.write_bytes(data.read_bytes())
        os.utime(kept, ns=(there, there))
        assert folder.compiled("a") == expected


@pytest.mark.parametrize("cut", [0, 1, 4, 19, 20, 24, -4])
def test_a_half_written_module_is_waited_for(folder: Folder, clock: Clock, cut: int) -> None:
    data = OTHER.read_bytes()
    (folder.path / "a.spv").write_bytes(data[:cut])
    assert not folder.changed()
    clock.events = [(0.4, lambda: (folder.path / "a.spv").write_bytes(data))]
    assert folder.wait() == {"a"} and 0.4 <= clock.now < 0.5


def test_a_module_that_stays_broken_is_reported(folder: Folder, clock: Clock) -> None:
    (folder.path / "a.spv").write_bytes(OTHER.read_bytes()[:-4])
    assert folder.wait() == {"a"} and PATIENCE_S <= clock.now < PATIENCE_S + 0.2
    assert folder.wait(PATIENCE_S * 2) == frozenset()


def test_a_module_that_goes_away(folder: Folder, clock: Clock) -> None:
    (folder.path / "a.spv").unlink()
    assert not folder.changed()
    assert folder.wait() == {"a"} and clock.now >= PATIENCE_S and folder.names() == ["other"]


def test_away_for_a_moment(folder: Folder, clock: Clock) -> None:
    (folder.path / "a.spv").unlink()
    clock.events = [(0.3, lambda: (folder.path / "a.spv").write_bytes(ONE.read_bytes()))]
    assert folder.wait(3.0) == frozenset()


def test_what_is_no_file_is_not_read(folder: Folder) -> None:
    os.mkfifo(folder.path / "b.spv")
    (folder.path / "c.spv").symlink_to("nowhere")
    (folder.path / "d.spv").mkdir()
    assert not folder.changed() and folder.names() == ["a", "other"]


@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_no_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FormatError, match="not a folder of modules"):
        Folder(tmp_path / name, ())


@pytest.mark.long
def test_whole_modules() -> None:
    for path in SPIRV.rglob("*.spv"):
        data = path.read_bytes()
        assert whole(data) and not whole(data[:-4]) and not whole(data + data[:4])
    assert not whole(b"\0" * 64)
