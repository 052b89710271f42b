"""Runs refsim's launches on a real Vulkan device through Kompute.

Importing this package imports neither ``kp`` nor the Vulkan loader: both are looked for when a device is
opened, so that the absence of either is a typed error with the command that fixes it, never a failed import.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refsim.exec.executor import ExecutorInfo
    from refsim.exec.isolated import IsolatedExecutor


def open_executor(index: int = 0, coop: str = "auto") -> IsolatedExecutor:
    """The executor of Vulkan device ``index``, in a process of its own; DeviceError or MissingDependencyError.

    ``coop``: which calls run on cooperative matrices (refsim_gpu.coop).
    """
    from refsim.exec.isolated import IsolatedExecutor
    from refsim_gpu.executor import BATCH
    from refsim_gpu.executor import open_executor as opened

    return IsolatedExecutor(f"gpu:{index}", opened, index, coop, batch=BATCH).open()


def open_named(rest: str, threads: int) -> IsolatedExecutor | None:
    """``gpu``, ``gpu:N`` or ``gpu:N@coop=CHOICE``, by what stands behind the colon."""
    index, at, option = rest.partition("@")
    key, _, choice = option.partition("=")
    if (index and not index.isdecimal()) or (at and key != "coop"):
        return None
    return open_executor(int(index or 0), choice if at else "auto")


def executors() -> list[ExecutorInfo]:
    """One for each Vulkan device; opens none."""
    from refsim.core.extras import GPU_FIX, NO_KP
    from refsim.exec.executor import ExecutorInfo
    from refsim_gpu import vulkan

    devices = vulkan.devices()
    if not devices:
        return [ExecutorInfo("gpu", False, f"no driver offers a Vulkan device; fix: {GPU_FIX}")]
    built = find_spec("kp") is not None
    lack = "" if built else f"; {NO_KP}; fix: {GPU_FIX}"
    return [ExecutorInfo(f"gpu:{d.index}", built, f"{d.name}, {d.driver}{lack}") for d in devices]


def missing_packages() -> list[tuple[str, str, str]]:
    """(name, what for, command that installs it) of each Debian package of apt.txt that is not here."""
    from refsim_gpu import system

    return [(p.name, p.purpose, system.install_command([p])) for p in system.missing()]


def ask(question: str, *arguments: object) -> Any:
    """The answer of a driver that is asked in a process of its own (see `refsim_gpu.query`)."""
    from refsim_gpu import query

    return query.ask(question, *arguments)
