"""Executors by name, and which of them there are on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from refsim.core.errors import MissingDependencyError, ParameterError, RefsimError
from refsim.exec.executor import Executor


def executor_named(name: str, threads: int = 1) -> Executor:
    """``cpu``: fast kernels, the model's where there is none. ``cpu:model``: the Numba model. ``gpu`` or ``gpu:N``:
    Kompute on Vulkan device N.

    ``threads`` is for ``cpu``. ParameterError for another name; DeviceError or MissingDependencyError where there
    is no such device.
    """
    kind, _, rest = name.partition(":")
    if kind == "cpu" and rest == "":
        from refsim.exec.cpu.executor import FastExecutor

        return FastExecutor(threads)
    if kind == "cpu" and rest == "model":
        from refsim.exec.emulated import ModelExecutor

        return ModelExecutor()
    if kind == "gpu" and (not rest or rest.isdecimal()):
        try:
            from refsim_gpu import open_executor
        except ImportError as error:
            raise MissingDependencyError(
                "gpu executor", "refsim_gpu is not installed", need="make gpu"
            ) from error
        return open_executor(int(rest or 0))
    raise ParameterError("executor", "unknown", got=repr(name), need="cpu, cpu:model, gpu or gpu:N")


@dataclass(frozen=True)
class ExecutorInfo:
    """An executor's name for `executor_named`, and what runs it; or why it is not available and what mends that."""

    name: str
    available: bool
    detail: str


def executors() -> list[ExecutorInfo]:
    """Every executor: those of the CPU, then one per Vulkan device. Opens no device."""
    found = [
        ExecutorInfo("cpu", True, "native kernels, the model's where there is none"),
        ExecutorInfo("cpu:model", True, "Numba model kernels, one invocation at a time"),
    ]
    try:
        from refsim_gpu import vulkan

        devices = vulkan.devices()
    except ImportError:
        return [*found, ExecutorInfo("gpu", False, "refsim_gpu is not installed; mend: make gpu")]
    except RefsimError as error:
        return [*found, ExecutorInfo("gpu", False, str(error))]
    if not devices:
        return [*found, ExecutorInfo("gpu", False, "no driver offers a Vulkan device; mend: make gpu")]
    built = find_spec("kp") is not None
    lack = "" if built else "; the module kp is not built; mend: make gpu"
    return found + [ExecutorInfo(f"gpu:{d.index}", built, f"{d.name}, {d.driver}{lack}") for d in devices]
