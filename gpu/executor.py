"""The Kompute executor: runs refsim's launches on a Vulkan device, with the same bytes as the emulated kernels.

Kompute 0.9 records no barrier between dispatches, so each step of a call is a sequence of its own here; whole
graphs (refsim_gpu.session) put a download between dependent dispatches, which has one.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np

from refsim.core.buffer import GUARD_WORDS, PackedBuffer
from refsim.core.errors import DeviceError
from refsim.core.launch import Launch
from refsim.core.push import MAX_PUSH_WORDS
from refsim.exec.executor import Executor
from refsim_gpu import spirv
from refsim_gpu.kompute import Device

if TYPE_CHECKING:
    from refsim.graph.graph import Graph
    from refsim_gpu.session import GraphSession


def guarded_words(words: np.ndarray) -> np.ndarray:
    """uint32: the words between guard words, padded to a multiple of four so that vectors never end beyond."""
    size = -(-words.size // 4) * 4
    memory = np.zeros(size + 2 * GUARD_WORDS, np.uint32)
    memory[GUARD_WORDS : GUARD_WORDS + words.size] = words.view(np.uint32)
    return memory


class KomputeExecutor(Executor):
    """Runs launches on one device. ``use_dot`` False takes the shaders without the packed dot product."""

    def __init__(self, index: int = 0, *, use_dot: bool | None = None) -> None:
        self.device = Device(index)
        self.name = f"gpu:{index}"
        has_dot = self.device.info.integer_dot_product
        if use_dot and not has_dot:
            raise DeviceError(self.name, "no packed dot product", got=self.device.info.name)
        self.use_dot = has_dot if use_dot is None else use_dot
        self._code: dict[str, bytes] = {}
        self._sessions: dict[int, GraphSession] = {}

    def close(self) -> None:
        self._sessions.clear()
        self.device.close()

    def __enter__(self) -> KomputeExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def supports(self, launch: Launch) -> str | None:
        """Refuses grids and buffers beyond the device's limits, and numerics other than canonical."""
        limits = self.device.info.limits
        most: Any = limits["maxComputeWorkGroupCount"]
        if any(size > limit for size, limit in zip(launch.grid, most, strict=True)):
            return f"a grid of {launch.grid} workgroups; the device takes {most}"
        largest: Any = limits["maxStorageBufferRange"]
        if launch.out.nbytes + 8 * GUARD_WORDS + 16 > largest:
            return f"a buffer of {launch.out.nbytes} bytes; the device takes {largest}"
        return None

    def code(self, launch: Launch) -> bytes:
        """The SPIR-V of a launch: its variant where that is built; the plain one; the one without dot product."""
        plain = launch.shader
        without_dot = not self.use_dot and spirv.exists(f"{plain}.nodot")
        names = (f"{plain}.nodot",) if without_dot else (f"{plain}.{launch.variant}", plain)
        for name in names:
            if name not in self._code and spirv.exists(name):
                self._code[name] = spirv.load(name)
            if name in self._code:
                return self._code[name]
        return spirv.load(plain)

    def algorithm(self, launch: Launch, tensors: Sequence[Any]) -> Any:
        """The pipeline of a launch over these tensors, the output's last."""
        refusal = self.supports(launch)
        if refusal is not None:
            raise DeviceError(f"{self.name}: {launch.shader}", f"the device cannot take {refusal}")
        push = (*launch.push, *([0] * (MAX_PUSH_WORDS - len(launch.push))))
        return self.device.algorithm(
            self.code(launch),
            tensors,
            launch.grid,
            (*launch.local, *launch.tile, *launch.spec),
            push,
            local=launch.local,
            where=launch.shader,
        )

    def session(self, graph: Graph, watched: Set[int] = frozenset()) -> GraphSession:
        """The graph with its weights uploaded and its dispatches recorded; the same one for the same graph.

        Every value is downloaded, whatever is ``watched``.
        """
        from refsim_gpu.session import GraphSession

        known = self._sessions.get(id(graph))
        if known is None or known.graph is not graph:
            known = self._sessions[id(graph)] = GraphSession(self, graph)
        return known

    def run(self, launch: Launch, inputs: Sequence[np.ndarray]) -> PackedBuffer:
        """Upload, dispatch, download; the output's guard words come back with it and are checked."""
        kp = self.device.kp
        out = PackedBuffer(launch.out)
        tensors = [self.device.tensor(guarded_words(words)) for words in inputs]
        tensors.append(self.device.tensor(output_memory(out)))
        sequence = self.device.recorded(
            kp.OpTensorSyncDevice(tensors),
            self.device.dispatch(self.algorithm(launch, tensors)),
            kp.OpTensorSyncLocal([tensors[-1]]),
        )
        self.device.run(sequence, where=launch.shader)
        take_output(out, tensors[-1].data())
        out.check_guards(f"{self.name}: {launch.shader}")
        return out


def output_memory(out: PackedBuffer) -> np.ndarray:
    """uint32: a fresh output between its guard words, as it is uploaded."""
    words = out.desc.words
    memory = np.zeros(-(-words // 4) * 4 + 2 * GUARD_WORDS, np.uint32)
    memory[: out.memory.size] = out.memory.view(np.uint32)
    return memory


def take_output(out: PackedBuffer, data: np.ndarray) -> None:
    """Copy what the device holds, guard words included."""
    out.memory[:] = np.asarray(data)[: out.memory.size].view(np.int32)


def open_executor(index: int = 0) -> KomputeExecutor:
    """The executor of device ``index``, after the self-test; DeviceError or MissingDependencyError otherwise."""
    from refsim_gpu import selftest

    selftest.run(index)
    return KomputeExecutor(index)
