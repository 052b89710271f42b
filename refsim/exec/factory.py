"""Executors by name, and which of them this machine has."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from refsim.core import choices
from refsim.core.errors import MissingDependencyError, ParameterError, RefsimError
from refsim.core.extras import GPU_FIX
from refsim.exec.executor import Executor, ExecutorInfo

#: The part of an executor's name before the colon -> the module that opens such executors. The module has
#: ``open_named(rest, threads)``, which returns None for an unknown ``rest``, and ``executors()``.
BACKENDS = {
    "cpu": "refsim.exec.cpu",
    "gpu": "refsim_gpu",
    "spv": "refsim_gpu.modules",
    "wgsl": "refsim_gpu.wgsl",
}

#: What every machine has.
ALWAYS = ("cpu", "cpu:emulated")
#: What can be asked for, as errors list it.
NAMES = (*ALWAYS, "gpu", "gpu:N", "spv:DIR", "wgsl:DIR")


def backend(kind: str) -> Any:
    """The module of a kind of executors; MissingDependencyError if it is not installed."""
    try:
        return import_module(BACKENDS[kind])
    except ImportError as error:
        raise MissingDependencyError(
            f"{kind} executor", f"{BACKENDS[kind]} is not installed", need=GPU_FIX
        ) from error


def others() -> Any:
    """The module that finds executors of other packages: it is slow to load, so it is not for refsim's own names."""
    return import_module("refsim.exec.entry_points")


def executor_named(name: str, threads: int = 1) -> Executor:
    """The executor of this name, opened.

    ``cpu`` runs native kernels, and emulated kernels where there is no native one. ``cpu:emulated`` runs only
    emulated kernels. ``gpu`` and ``gpu:N`` run on Vulkan device N through Kompute; ``gpu:N@coop=off`` without
    cooperative matrices. ``spv:DIR`` runs there the SPIR-V modules that another build left in the folder DIR;
    ``spv:DIR@OPTIONS`` says which device and which modules. ``wgsl:DIR`` and ``wgsl:DIR@DEVICE`` run WGSL kernels on
    flat tensors, through the package wgpu. ``threads`` is used by ``cpu`` only. Any other
    name, ``NAME`` or ``NAME:ARGUMENTS``, is that of an executor of an installed package (`refsim.exec.plugin`).

    Raises ParameterError for an unknown name, DeviceError or MissingDependencyError if the device cannot be used,
    PluginError if the executor of another package cannot be opened.
    """
    kind, colon, rest = name.partition(":")
    if (
        not colon and kind.partition("@")[0] == "gpu"
    ):  # gpu@coop=off, as spv:DIR@OPTIONS needs no number either
        kind, rest = "gpu", kind.removeprefix("gpu")
    found: Executor | None
    if kind in BACKENDS:
        found = backend(kind).open_named(rest, threads)
    else:
        found = others().open_named(kind, rest)
    if found is None:
        need = choices.need(name, (*NAMES, *others().names()))
        raise ParameterError("executor", "unknown", got=repr(name), need=need)
    return found


def executors() -> list[ExecutorInfo]:
    """All executors: those of the CPU, one per Vulkan device, those of other packages. No device is opened."""
    found: list[ExecutorInfo] = []
    for kind in BACKENDS:
        try:
            found += backend(kind).executors()
        except MissingDependencyError as error:
            found.append(ExecutorInfo(kind, False, f"{error.what}; fix: {error.need}"))
        except RefsimError as error:
            found.append(ExecutorInfo(kind, False, str(error)))
    return found + others().executors(BACKENDS)
