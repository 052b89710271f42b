"""The interface of an executor, and how any of them runs a call or a list of steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from refsim.buffer import PackedBuffer
from refsim.errors import MissingDependencyError, ParameterError, RefsimError
from refsim.launch import Launch
from refsim.op import Call

if TYPE_CHECKING:
    from refsim.graph import Graph


class Prepared:
    """A call with its dispatches and its constants' words, computed once."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.steps = call.steps()
        self.consts = call.const_words()


class Session(Protocol):
    """A graph made ready on an executor: what a run needs is computed, uploaded and recorded once."""

    def run(
        self, inputs: Sequence[np.ndarray], number: int = 0, observe: Callable[[Any], None] | None = None
    ) -> list[np.ndarray]:
        """The graph's outputs as logical arrays; `observe` gets a `refsim.model.Event` of delegate `number`."""
        ...


class Executor(ABC):
    """Runs launches. Two executors given the same launch and the same input words write the same words."""

    name: str

    def supports(self, launch: Launch) -> str | None:
        """None, or why this executor refuses the launch."""
        return None

    def session(self, graph: Graph) -> Session | None:
        """The graph made ready, or None: then its nodes are run one by one."""
        return None

    @abstractmethod
    def run(self, launch: Launch, inputs: Sequence[np.ndarray]) -> PackedBuffer:
        """Dispatch once. ``inputs`` are the words (int32) of each buffer that the kernel reads, in order.

        Returns a fresh buffer, zeroed before the dispatch; raises RawBufferError if a guard word around it
        was overwritten.
        """

    def run_call(self, call: Call, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        """All dispatches of one operator call; each sees what those before it wrote."""
        return self.run_prepared(Prepared(call), inputs)

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        """The same, for a call whose steps and constants were made before."""
        buffers = {name: buffer.words for name, buffer in inputs.items()} | prepared.consts
        for step in prepared.steps:
            result = self.run(step.launch, [buffers[name] for name in step.inputs])
            buffers[step.output] = result.words
        return result


def executor_named(name: str, threads: int = 1) -> Executor:
    """``cpu``: fast kernels, the model's where there is none. ``cpu:model``: the Numba model. ``gpu`` or ``gpu:N``:
    Kompute on Vulkan device N.

    ``threads`` is for ``cpu``. ParameterError for another name; DeviceError or MissingDependencyError where there
    is no such device.
    """
    kind, _, rest = name.partition(":")
    if kind == "cpu" and rest == "":
        from refsim.cpu.fast import FastExecutor

        return FastExecutor(threads)
    if kind == "cpu" and rest == "model":
        from refsim.cpu.model import ModelExecutor

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
