"""Digests of what results depend on: all sources of refsim, and what an executor runs that is no part of refsim.

Results that are kept in a file are only continued by what has the same digests.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import refsim
from refsim.exec.digest import files
from refsim.exec.factory import BACKENDS, backend, others


def sources() -> str:
    """SHA-256 of all code and shaders of refsim."""
    package = Path(refsim.__file__).parent
    kept = [*package.rglob("*.py"), *(package.parent / "gpu").rglob("*.py")]
    return files([*kept, *(package.parent / "shaders").rglob("*.spv")])


def foreign(executors: Iterable[str]) -> dict[str, str]:
    """Executor -> SHA-256 of its modules or of its package; executors of refsim's own have none.

    Unknown names have none either: it is an error to open them. Raises what opening a folder of modules raises.
    """
    found = {}
    for name in dict.fromkeys(executors):
        kind, _, rest = name.partition(":")
        if kind not in BACKENDS:
            if kind in others().names():
                found[name] = others().fingerprint(kind, rest)
        elif rest and (of := getattr(backend(kind), "fingerprint", None)) is not None:
            found[name] = of(rest)
    return found
