"""SHA-256 of files and of packages."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from importlib.machinery import PathFinder
from pathlib import Path


def files(paths: Iterable[Path]) -> str:
    """SHA-256 of the files, in the order of their paths."""
    found = hashlib.sha256()
    for path in sorted(set(paths)):
        if path.is_file():
            found.update(path.name.encode() + b"\0")
            found.update(path.read_bytes())
    return found.hexdigest()


def package(module: str) -> str:
    """SHA-256 of the files of a module's outermost package, which is looked for and not imported."""
    spec = PathFinder.find_spec(module.partition(".")[0])
    if spec is None:
        return files(())
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    inside = (path for folder in folders for path in folder.rglob("*") if path.suffix != ".pyc")
    return files([*inside, *([Path(spec.origin)] if spec.origin and not folders else [])])
