"""Directories for compiled code: named after what makes it, private where the user's cannot be written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from refsim.core.cache import SCRATCH, directory


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(SCRATCH, "")  # so that it is undone after the test
    monkeypatch.delenv(SCRATCH)
    root = tmp_path / "sources"
    (root / "inner").mkdir(parents=True)
    (root / "a.py").write_text("one")
    (root / "inner" / "b.py").write_text("two")
    return root


def test_the_name_follows_sources_and_versions(sources: Path) -> None:
    first = directory("kind", "1", sources)
    assert first == directory("kind", "1", sources) and first.is_dir() and first.parent.name == "refsim"
    seen = {first, directory("other", "1", sources), directory("kind", "2", sources)}
    (sources / "inner" / "b.py").write_text("three")
    seen.add(directory("kind", "1", sources))
    (sources / "inner" / "b.py").rename(sources / "inner" / "c.py")
    seen.add(directory("kind", "1", sources))
    assert len(seen) == 5


def test_only_sources_that_count_do(sources: Path) -> None:
    def named() -> Path:
        return directory("kind", "1", sources, lambda path, source: path.name == "a.py")

    first = named()
    (sources / "inner" / "b.py").write_text("three")
    assert named() == first
    (sources / "a.py").write_text("four")
    assert named() != first


def test_no_writable_cache_gives_a_private_directory(
    sources: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    one, other = directory("kind", "1", sources), directory("kind", "1", sources)
    assert one == other and one.is_dir() and os.access(one, os.W_OK) and one.stat().st_mode & 0o77 == 0o0
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv(SCRATCH)

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert directory("kind", "1", sources).is_dir()
