"""Where compiled code is kept between processes: a directory named after everything that makes the code.

The code that compiles says what that is: the sources, and the versions of the compiler and the processor. If any of
this changes, the directory is a different one, so nothing stale is ever read. Several processes may share a
directory. The compiler must write each entry so that another process never reads half of it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def directory(
    kind: str, versions: str, root: Path, counts: Callable[[Path, bytes], bool] = lambda path, source: True
) -> Path:
    """The directory for one kind of compiled code; it exists and is writable.

    It lies under ``$XDG_CACHE_HOME``, else ``~/.cache``. The name has a digest of ``versions`` and of the Python
    files below ``root`` for which ``counts`` holds, by path and content. Where the user's cache cannot be written,
    the directory is a private temporary one, and the code is compiled again in every process.
    """
    digest = hashlib.sha256(versions.encode())
    for path in sorted(root.rglob("*.py")):
        source = path.read_bytes()
        if counts(path, source):
            digest.update(str(path.relative_to(root)).encode() + source)
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        path = base / "refsim" / f"{kind}-{digest.hexdigest()[:16]}"
        path.mkdir(parents=True, exist_ok=True)
        if os.access(path, os.W_OK):
            return path
    except (OSError, RuntimeError):  # RuntimeError: the user has no home
        pass
    return Path(tempfile.mkdtemp(prefix=f"refsim-{kind}-"))
