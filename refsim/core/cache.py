"""Where compiled code is kept between processes: a directory named after everything that makes the code.

The code that compiles says what that is: the sources, and the versions of the compiler and the processor. If any of
this changes, the directory is a different one, so nothing stale is ever read. Several processes may share a
directory: `write` makes each entry appear whole, with a digest, and `read` gives nothing for an entry that is damaged.

What is read here is executed. So a directory counts only if it belongs to this user and nobody else may write there.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

#: Where processes find the temporary directory that their parent made in place of the user's cache.
SCRATCH = "REFSIM_SCRATCH_CACHE"
_DIGEST_BYTES = 32


def directory(
    kind: str, versions: str, root: Path, counts: Callable[[Path, bytes], bool] = lambda path, source: True
) -> Path:
    """The directory for one kind of compiled code; it exists, is writable and is this user's alone.

    It lies under ``$XDG_CACHE_HOME``, else ``~/.cache``. The name has a digest of ``versions`` and of the Python
    files below ``root`` for which ``counts`` holds, by path and content. Where the user's cache cannot be used, a line
    on stderr says why, once, and the directory is a temporary one that this process and those that it starts share.
    """
    digest = hashlib.sha256(versions.encode())
    for path in sorted(root.rglob("*.py")):
        source = path.read_bytes()
        if counts(path, source):
            digest.update(str(path.relative_to(root)).encode() + source)
    name = f"{kind}-{digest.hexdigest()[:16]}"
    return _usable(base() / name) or _made(_scratch() / name)


def base() -> Path:
    """Where all of them lie. A process that starts others asks first, so that the line is said once and by it."""
    inherited = os.environ.get(SCRATCH)
    if inherited is not None and why_not(Path(inherited)) is None:
        return Path(inherited)
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        say("there is no cache: the user has no home; kernels are compiled again by every command")
        return _scratch()
    return _usable(home / "refsim") or _scratch()


def _usable(path: Path) -> Path | None:
    """The directory, which is made if there is none; None, and a line, if it is not to be used."""
    try:
        _made(path)
        reason = why_not(path)
    except OSError as error:
        reason = error.strerror or str(error)
    if reason is None:
        return path
    say(f"{path} is not used as a cache: {reason}; kernels are compiled again by every command")
    return None


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def why_not(path: Path) -> str | None:
    """Why a directory is not to be used; None if it is."""
    try:
        link, found = os.lstat(path), os.stat(path)
    except OSError as error:
        return error.strerror or str(error)
    if not stat.S_ISDIR(found.st_mode):
        return "no directory"
    for owner in (link.st_uid, found.st_uid):
        if owner != os.geteuid():
            return f"it belongs to user {owner}, not to user {os.geteuid()}"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write there (mode {stat.S_IMODE(found.st_mode):o}; chmod go-w)"
    return None if os.access(path, os.W_OK) else "it cannot be written"


def _scratch() -> Path:
    """A temporary directory, which goes away with this process."""
    import atexit
    import shutil
    import tempfile

    made, maker = tempfile.mkdtemp(prefix="refsim-cache-"), os.getpid()
    os.environ[SCRATCH] = made

    def remove() -> None:
        if os.getpid() == maker:
            shutil.rmtree(made, ignore_errors=True)

    atexit.register(remove)
    return Path(made)


def say(text: str) -> None:
    """One line for people, on stderr."""
    print(f"refsim: {text}", file=sys.stderr)


# --- entries ---------------------------------------------------------------------------------------------


def read(path: Path) -> bytes | None:
    """What `write` put there; None if there is nothing, or something else."""
    try:
        if not path.is_file():  # opening a pipe may never end
            return None
        data = path.read_bytes()
    except OSError:
        return None
    body = data[_DIGEST_BYTES:]
    return body if _digest(path, body) == data[:_DIGEST_BYTES] else None


def write(path: Path, body: bytes) -> None:
    """Keep an entry. Best effort: without it the code is compiled again next time, and a line says why, once."""
    import tempfile

    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_digest(path, body) + body)
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        unkept(path.parent, error.strerror or str(error))


_told: set[Path] = set()


def unkept(folder: Path, reason: str) -> None:
    """Say once that a directory takes no entries."""
    if folder not in _told:
        _told.add(folder)
        say(f"{folder}: compiled kernels cannot be kept: {reason}")


def _digest(path: Path, body: bytes) -> bytes:
    """Over the name too: an entry under another's name is damaged."""
    return hashlib.sha256(path.name.encode() + b"\0" + body).digest()
