"""Write several files of a folder so that all of them appear, or none, also if the process is killed.

The files are first written into a hidden folder inside. Renaming that to `COMMIT` is the moment at which they count;
then they are moved to their places. If the process is killed on the way, `current` finds them where they are, and the
next writer moves the rest. A second process that writes into the same folder is refused: the lock is the system's, so
that it ends with the process, and the file of the lock only says which process that is.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from refsim.core import atomic_write
from refsim.core.errors import FormatError

LOCK, STAGE, COMMIT = ".refsim-lock", ".refsim-stage-", ".refsim-commit"


class FolderWriter:
    """What `writing` gives: takes the files."""

    def __init__(self, stage: Path) -> None:
        self._stage = stage

    def write(self, name: str, data: bytes) -> None:
        """A file; its name may have folders in it."""
        path = self._stage / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        except OSError as error:
            raise _unwritable(path, error) from error


@contextlib.contextmanager
def writing(folder: str | os.PathLike[str], wait: bool = False) -> Iterator[FolderWriter]:
    """Files of a folder, which is made if there is none. They appear when the block ends without an error.

    FormatError if they cannot be written, or if another process writes there, unless this shall ``wait`` for it.
    """
    import shutil  # imported here: most commands write no folder
    import tempfile

    target = Path(folder)
    fresh = not target.exists()
    atomic_write.make_folder(target)
    try:
        with locked(target, wait):
            finish(target)
            for left in target.glob(f"{STAGE}*"):  # of a process that was killed: nobody else holds the lock
                shutil.rmtree(left, ignore_errors=True)
            try:
                stage = Path(tempfile.mkdtemp(prefix=STAGE, dir=target))
            except OSError as error:
                raise _unwritable(target, error) from error
            try:
                yield FolderWriter(stage)
                if any(stage.iterdir()):
                    os.rename(stage, target / COMMIT)
                    finish(target)
            except OSError as error:
                raise _unwritable(target, error) from error
            finally:
                shutil.rmtree(stage, ignore_errors=True)
    except BaseException:
        if fresh:
            with contextlib.suppress(OSError):
                target.rmdir()
        raise


def finish(folder: Path) -> bool:
    """Move what an earlier writer left behind to its place; whether there was something."""
    import shutil

    commit = folder / COMMIT
    if not commit.is_dir():
        return False
    try:
        for path in sorted(commit.rglob("*")):
            if path.is_file():
                target = folder / path.relative_to(commit)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, target)
        shutil.rmtree(commit)
    except OSError as error:
        raise _unwritable(folder, error) from error
    return True


def current(folder: str | os.PathLike[str], name: str) -> Path:
    """Where a file of a folder is now: in its place, unless a writer was killed before it was moved there."""
    pending = Path(folder, COMMIT, name)
    return pending if pending.is_file() else Path(folder, name)


def names(folder: str | os.PathLike[str]) -> list[str]:
    """The files and folders in a folder, with those that are on their way there, without what writing needs."""
    found = set(os.listdir(folder))
    if COMMIT in found:
        with contextlib.suppress(FileNotFoundError):  # a writer moves them just now
            found |= set(os.listdir(Path(folder, COMMIT)))
    return sorted(name for name in found if name not in (LOCK, COMMIT) and not name.startswith(STAGE))


@contextlib.contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Keep other writers out of a folder. FormatError, with the process that is in there, unless this shall wait."""
    path = folder / LOCK
    handle = _lock(path, wait)
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(handle)


def _lock(path: Path, wait: bool) -> int:
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise _unwritable(path.parent, error) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if path.exists() and os.stat(path).st_ino == os.fstat(handle).st_ino:
                return handle
        except BlockingIOError:
            who = os.pread(handle, 32, 0).decode(errors="replace").strip()
            os.close(handle)
            raise FormatError(
                str(path.parent), "another process writes there", need="one writer at a time",
                got=f"process {who}" if who.isdecimal() else "a process that has just begun",
            ) from None  # fmt: skip
        except OSError as error:
            os.close(handle)
            raise _unwritable(path.parent, error) from error
        os.close(handle)  # the writer before removed the file meanwhile


def _unwritable(path: Path, error: OSError) -> FormatError:
    return FormatError(str(path), "cannot be written", got=error.strerror or error, need="a writable folder")
