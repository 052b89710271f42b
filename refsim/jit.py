"""How refsim meets Numba: scalar code that is also plain Python, and a cache that notices edits.

Numba's own cache looks at the file of the compiled function only, so an edit to a function that it calls
(index.py, qmath.py) would go unseen. The cache directory is therefore named after a digest of every source file
that compiles anything (it imports this one) and of the versions of Numba and NumPy: other code, other
directory. Numba itself keys the entries by CPU, writes them through a rename, and so tolerates several processes.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from numba.extending import overload, register_jitable

F = TypeVar("F", bound=Callable[..., Any])


def _source_digest() -> str:
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__}".encode())
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        source = path.read_bytes()
        if b"refsim.jit" in source or path.name == "jit.py":
            digest.update(str(path.relative_to(root)).encode() + source)
    return digest.hexdigest()[:16]


def _cache_dir() -> Path:
    """Directory for compiled kernels; a private temporary one where the user's cache is not writable."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = base / "refsim" / f"numba-{_source_digest()}"
    try:
        path.mkdir(parents=True, exist_ok=True)
        if os.access(path, os.W_OK):
            return path
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="refsim-numba-"))


if "NUMBA_CACHE_DIR" not in os.environ:
    numba.config.CACHE_DIR = str(_cache_dir())  # type: ignore[attr-defined]


def jitable(function: F) -> F:
    """Mark plain arithmetic as callable from kernels; from Python it stays the function it was."""
    return register_jitable(function)


def model_kernel(function: F) -> F:
    """Compile a model kernel on first use: cached, IEEE arithmetic (no fastmath), GIL released."""
    return numba.njit(cache=True, nogil=True, error_model="numpy")(function)  # type: ignore[return-value]


def select(condition: Any, if_true: Any, if_false: Any) -> Any:
    """``if_true`` where ``condition`` holds, else ``if_false``; arrays in NumPy, scalars in kernels."""
    return np.where(condition, if_true, if_false)


@overload(select)
def _select_scalar(condition, if_true, if_false):  # type: ignore[no-untyped-def]  # Numba compares names
    return lambda condition, if_true, if_false: if_true if condition else if_false


def widen(value: Any) -> Any:
    """binary64; arrays in NumPy (where np.float64 made a scalar of a single element before 2.4), scalars in kernels."""
    return np.asarray(value, np.float64)[()]


@overload(widen)
def _widen_scalar(value):  # type: ignore[no-untyped-def]
    return lambda value: np.float64(value)


def float64_bits(value: Any) -> Any:
    """The bits of a binary64 number as int64; arrays in NumPy, scalars in kernels."""
    return np.asarray(value, np.float64).view(np.int64)[()]


@overload(float64_bits)
def _float64_bits_scalar(value):  # type: ignore[no-untyped-def]
    return lambda value: np.float64(value).view(np.int64)
