"""Directories for compiled code: named after what makes it, private where the user's cannot be written."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import cycle, pairwise
from pathlib import Path

import pytest

from refsim.core import cache
from refsim.core.cache import SCRATCH, directory

ROOT = Path(__file__).parents[2]


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


def test_no_writable_cache_gives_a_private_directory_that_processes_share(
    sources: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(sources / "a.py"))  # a file where the folder should be
    one, other = directory("kind", "1", sources), directory("kind", "1", sources)
    assert one == other and one.is_dir() and os.access(one, os.W_OK) and one.stat().st_mode & 0o77 == 0o0
    asked = f"cache.directory('kind', '1', Path({str(sources)!r}))"
    child = f"from refsim.core import cache; from pathlib import Path; print({asked})"
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == str(one) and done.stderr == "" and one.is_dir()
    assert capsys.readouterr().err.count("\n") == 1
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv(SCRATCH)

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert directory("kind", "1", sources).is_dir()


# --- caches that are damaged, planted or unwritable ---


#: Runs one emulated and one native kernel, and prints the digest of what they gave.
WORK = """
import hashlib, numpy as np, sys
import refsim
model = refsim.load("tests/data/models/linear_head_gemv.pte")
given = [np.load("tests/data/models/linear_head_gemv.io.npz")["in0"]]
for name in ("cpu:emulated", "cpu"):
    print(hashlib.sha256(model.run(given, name)[0].tobytes()).hexdigest())
"""


def work(home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    plain = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", cache.SCRATCH)}
    return subprocess.run(
        [sys.executable, "-c", WORK], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
        env=plain | {"XDG_CACHE_HOME": str(home)} | environment,
    )  # fmt: skip


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A cache in which everything is, and what the work prints."""
    home = tmp_path_factory.mktemp("cache")
    done = work(home)
    assert done.returncode == 0 and done.stderr == ""
    return home, done.stdout


def entries(home: Path) -> list[Path]:
    return sorted(path for path in home.rglob("*") if path.is_file())


class Planted:
    """A pickle that leaves a file where it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.mark,))


#: What becomes of an entry; None: a folder in its stead.
DAMAGE: tuple[Callable[[Path, bytes], bytes | None], ...] = (
    lambda path, raw: raw[: len(raw) // 3] + bytes([raw[len(raw) // 3] ^ 0x40]) + raw[len(raw) // 3 + 1 :],
    lambda path, raw: raw[: len(raw) // 2],
    lambda path, raw: pickle.dumps(Planted(path.parent / "ran")),
    lambda path, raw: b"",
    lambda path, raw: None,
)


def damage_each(paths: list[Path]) -> None:
    for path, damaged in zip(sorted(paths, key=lambda path: path.suffix), cycle(DAMAGE), strict=False):
        raw = damaged(path, path.read_bytes())
        path.unlink()
        path.mkdir() if raw is None else path.write_bytes(raw)


def swap(paths: list[Path]) -> None:
    for one, other in pairwise(paths):
        if one.suffix == other.suffix:
            first, second = one.read_bytes(), other.read_bytes()
            one.write_bytes(second)
            other.write_bytes(first)


@pytest.mark.long
@pytest.mark.parametrize("damage", [damage_each, swap])
def test_damaged_entries_are_made_again(damage, warm: tuple[Path, str], tmp_path: Path) -> None:
    home = tmp_path / "cache"
    shutil.copytree(warm[0], home)
    before = entries(home)
    assert all([path.suffix for path in before].count(suffix) > 2 for suffix in (".o", ".kernel"))
    damage(before)
    done = work(home)
    assert (done.returncode, done.stdout, done.stderr) == (0, warm[1], "")
    assert not list(home.rglob("ran"))
    assert entries(home) == before and all(cache.read(path) is not None for path in before)
    stamps = {path: path.stat().st_mtime_ns for path in before}
    assert work(home).stdout == warm[1]
    assert {path: path.stat().st_mtime_ns for path in before} == stamps  # and are believed again


@pytest.mark.long
@pytest.mark.parametrize("level", ["refsim", "leaf"])
@pytest.mark.parametrize("how", ["writable", "foreign"])
def test_a_folder_that_others_may_write_is_not_used(
    how, level, warm: tuple[Path, str], tmp_path: Path
) -> None:
    if how == "foreign" and os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    home = tmp_path / "cache"
    shutil.copytree(warm[0], home)
    for path in entries(home):
        path.write_bytes(pickle.dumps(Planted(home / "ran")))
    folders = [home / "refsim"] if level == "refsim" else list((home / "refsim").iterdir())
    for folder in folders:
        if how == "writable":
            folder.chmod(0o777)
        else:
            os.chown(folder, 12345, 12345)
    before = {path: path.read_bytes() for path in entries(home)}
    done = work(home, TMPDIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, warm[1])
    (line,) = done.stderr.splitlines()
    reason = "others may write there" if how == "writable" else "belongs to user 12345"
    assert (
        line.startswith(f"refsim: {folders[0].parent if level == 'leaf' else folders[0]}") and reason in line
    )
    assert {path: path.read_bytes() for path in entries(home)} == before and not (home / "ran").exists()
    assert not list(tmp_path.glob("refsim-cache-*"))


@pytest.mark.long
def test_numbas_own_variable_is_checked_too(warm: tuple[Path, str], tmp_path: Path) -> None:
    folder = tmp_path / "numba"
    folder.mkdir()
    folder.chmod(0o777)
    done = work(warm[0], NUMBA_CACHE_DIR=str(folder))
    assert (done.returncode, done.stdout) == (0, warm[1])
    assert done.stderr.count("\n") == 1 and f"{folder} is not used as a cache" in done.stderr
    assert not list(folder.iterdir())
    folder.chmod(0o700)
    assert work(warm[0], NUMBA_CACHE_DIR=str(folder)).stderr == "" and list(folder.rglob("*.kernel"))


def test_an_entry_belongs_to_its_name(tmp_path: Path) -> None:
    cache.write(tmp_path / "a", b"code")
    assert cache.read(tmp_path / "a") == b"code" and cache.read(tmp_path / "none") is None
    shutil.copy(tmp_path / "a", tmp_path / "b")
    os.mkfifo(tmp_path / "pipe")
    assert cache.read(tmp_path / "b") is None and cache.read(tmp_path / "pipe") is None


def test_what_cannot_be_kept_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        cache.write(tmp_path / "gone" / name, b"code")
    said = f"refsim: {tmp_path}/gone: compiled kernels cannot be kept: No such file or directory\n"
    assert capsys.readouterr().err == said
