"""How refsim uses Numba: scalar code that is also plain Python, and a cache that notices edits.

Numba's own cache checks only the file of the compiled function. It would not notice an edit to a function that is
called from there (index.py, qmath.py). So the name of the cache directory (refsim.core.cache) depends on every source
file that compiles anything, that is, every file that imports this one, and on the versions of Numba and NumPy. Numba
itself keys the entries by CPU. Each entry is checked before it is believed (refsim.core.jit_cache), and several
processes may share the directory.

Importing Numba takes longer than most runs, and most runs need no emulated kernel. So Numba is imported only when the
first emulated kernel is called, or by `ready`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from refsim.core import doing
from refsim.core.cache import directory, say, why_not

F = TypeVar("F", bound=Callable[..., Any])

#: What Numba is told about when it is imported: functions that kernels may call, and what stands for them there.
_jitable: list[Callable[..., Any]] = []
_overloads: list[tuple[Callable[..., Any], Callable[..., Any]]] = []


@cache
def ready() -> Any:
    """Import Numba, register everything that kernels call, and return the module.

    Call this before you compile functions of refsim with Numba yourself.
    """
    with doing.compiling("(Numba is loaded)"):
        import numba
        from numba.extending import overload, register_jitable
    _tell_of_compiling()

    if not _usable(os.environ.get("NUMBA_CACHE_DIR")):
        numba.config.CACHE_DIR = str(_cache_dir(numba.__version__))  # type: ignore[attr-defined]
    for function in _jitable:
        register_jitable(function)
    for function, scalar in _overloads:
        overload(function)(scalar)
    return numba


def _tell_of_compiling() -> None:
    """Let whoever waits know when Numba compiles; what it loads from its cache takes no time worth telling."""
    from numba.core import event

    begun: list[Any] = []  # they may be nested

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            begun.append(doing.compiling(event.data["dispatcher"].__name__))
            begun[-1].__enter__()

        def on_end(self, event: Any) -> None:
            if begun:
                begun.pop().__exit__(None, None, None)

    event.register("numba:compile", Listener())


def _usable(named: str | None) -> bool:
    """Whether the user named a directory for Numba's cache, and it is his alone; a line says if it is not."""
    if not named or not os.path.exists(named):
        return bool(named)
    reason = why_not(Path(named))
    if reason is not None:
        say(f"{named} is not used as a cache: {reason}")
    return reason is None


def _cache_dir(numba_version: str) -> Path:
    """Directory for compiled kernels."""

    def counts(path: Path, source: bytes) -> bool:
        # and what kernels are compiled with as constants: where their push words are, and which epilogue they have
        compiled_with = (b"refsim.core.jit", b"refsim.core.push")
        return any(name in source for name in compiled_with) or path.name in (
            "jit.py",
            "push.py",
            "traits.py",
        )

    return directory("numba", f"{numba_version} {np.__version__}", Path(__file__).parents[1], counts)


def jitable(function: F) -> F:
    """Mark plain arithmetic as callable from kernels; from Python it stays the function it was."""
    if ready.cache_info().currsize:
        ready()
        from numba.extending import register_jitable

        return register_jitable(function)
    _jitable.append(function)
    return function


def _overload(function: Callable[..., Any]) -> Callable[[F], F]:
    """Mark what stands for a function in kernels."""

    def mark(scalar: F) -> F:
        _overloads.append((function, scalar))
        return scalar

    return mark


class EmulatedKernel:
    """An emulated kernel, compiled at its first call: cached, IEEE arithmetic (no fastmath), GIL released.

    ``py_func`` is the plain Python function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.py_func = function
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        if self._compiled is None:
            compiled = ready().njit(nogil=True, error_model="numpy")(self.py_func)
            if hasattr(compiled, "enable_caching"):  # a plain function under NUMBA_DISABLE_JIT
                from refsim.core.jit_cache import CheckedCache

                compiled._cache = CheckedCache(self.py_func)
            self._compiled = compiled
        return self._compiled(*args)


def emulated_kernel(function: Callable[..., Any]) -> EmulatedKernel:
    """Make an emulated kernel of a function."""
    return EmulatedKernel(function)


def select(condition: Any, if_true: Any, if_false: Any) -> Any:
    """``if_true`` where ``condition`` holds, else ``if_false``; arrays in NumPy, scalars in kernels."""
    return np.where(condition, if_true, if_false)


@_overload(select)
def _select_scalar(condition, if_true, if_false):  # type: ignore[no-untyped-def]  # Numba compares names
    return lambda condition, if_true, if_false: if_true if condition else if_false


def widen(value: Any) -> Any:
    """binary64; arrays in NumPy (where np.float64 made a scalar of a single element before 2.4), scalars in kernels."""
    return np.asarray(value, np.float64)[()]


@_overload(widen)
def _widen_scalar(value):  # type: ignore[no-untyped-def]
    return lambda value: np.float64(value)


def float64_bits(value: Any) -> Any:
    """The bits of a binary64 number as int64; arrays in NumPy, scalars in kernels."""
    return np.asarray(value, np.float64).view(np.int64)[()]


@_overload(float64_bits)
def _float64_bits_scalar(value):  # type: ignore[no-untyped-def]
    return lambda value: np.float64(value).view(np.int64)
