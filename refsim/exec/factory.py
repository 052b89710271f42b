"""Executors by name, and which of them this machine has."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from refsim.core.errors import MissingDependencyError, ParameterError, RefsimError
from refsim.exec.executor import Executor, ExecutorInfo

#: What stands before the colon of an executor's name -> the module that opens it and lists what it offers. Such a
#: module has ``open_named(rest, threads)``, which gives None for a ``rest`` that it does not know, and ``executors()``.
BACKENDS = {"cpu": "refsim.exec.cpu", "gpu": "refsim_gpu"}

#: Names of before -> the names of today.
RENAMED = {"cpu:model": "cpu:emulated"}


def backend(kind: str) -> Any:
    """The module of a kind of executors; MissingDependencyError if it is not installed."""
    try:
        return import_module(BACKENDS[kind])
    except ImportError as error:
        raise MissingDependencyError(
            f"{kind} executor", f"{BACKENDS[kind]} is not installed", need="make gpu"
        ) from error


def executor_named(name: str, threads: int = 1) -> Executor:
    """``cpu``: native kernels, the emulated ones where there is none. ``cpu:emulated``: the emulated kernels in Numba.
    ``gpu`` or ``gpu:N``: Kompute on Vulkan device N.

    ``threads`` is for ``cpu``. ParameterError for another name; DeviceError or MissingDependencyError where there
    is no such device. The old name ``cpu:model`` works and says so on stderr.
    """
    if name in RENAMED:
        print(f"refsim: note: executor {name} is now called {RENAMED[name]}", file=sys.stderr)
        name = RENAMED[name]
    kind, _, rest = name.partition(":")
    found: Executor | None = backend(kind).open_named(rest, threads) if kind in BACKENDS else None
    if found is None:
        raise ParameterError("executor", "unknown", got=repr(name), need="cpu, cpu:emulated, gpu or gpu:N")
    return found


def executors() -> list[ExecutorInfo]:
    """Every executor: those of the CPU, then one per Vulkan device. Opens no device."""
    found: list[ExecutorInfo] = []
    for kind in BACKENDS:
        try:
            found += backend(kind).executors()
        except MissingDependencyError as error:
            found.append(ExecutorInfo(kind, False, f"{error.what}; fix: {error.need}"))
        except RefsimError as error:
            found.append(ExecutorInfo(kind, False, str(error)))
    return found
