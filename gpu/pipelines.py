"""Pipelines of launches on a device, and buffers between guard words as a device gets them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refsim.core import doing
from refsim.core.buffer import GUARD, GUARD_WORDS, PackedBuffer
from refsim.core.counted import counted
from refsim.core.errors import DeviceError
from refsim.core.launch import Launch
from refsim.core.push import MAX_PUSH_WORDS
from refsim.core.tensor import TensorDesc
from refsim_gpu import spirv
from refsim_gpu.coop import AUTO, Chosen, policy
from refsim_gpu.kompute import MOST_PIPELINES, Device
from refsim_gpu.vulkan import FLOAT_MODES

GUARD_WORD = np.uint32(GUARD)
#: Where the kernels of float operators lie.
FLOATS = "float/"


class Pipelines:
    """Makes the pipelines of launches. ``use_dot`` False takes the shaders without the packed dot product.

    ``spelled_out`` takes the float kernels that are right for denormals even on a device that flushes them; without it
    the device decides. ``coop`` says which calls run on cooperative matrices; `chosen` makes them so.
    """

    def __init__(
        self, device: Device, name: str, use_dot: bool, coop: str = AUTO, spelled_out: bool | None = None
    ) -> None:
        self.device, self.name, self.use_dot = device, name, use_dot
        self.spelled_out = not device.info.keeps_denormals if spelled_out is None else spelled_out
        self.chosen = Chosen(policy(device.info, coop))
        self._code: dict[str, bytes] = {}
        self._pipelines: dict[tuple[str, tuple[int, ...], int], Any] = {}

    def supports(self, launch: Launch) -> str | None:
        """Refuses grids and buffers beyond the device's limits."""
        limits = self.device.info.limits
        most: Any = limits["maxComputeWorkGroupCount"]
        if any(size > limit for size, limit in zip(launch.grid, most, strict=True)):
            return f"a grid of {launch.grid} workgroups; the device takes {most}"
        largest: Any = limits["maxStorageBufferRange"]
        if launch.out.nbytes + 8 * GUARD_WORDS + 16 > largest:
            return f"a buffer of {counted(launch.out.nbytes, 'byte')}; the device takes {largest}"
        return None

    def code(self, launch: Launch) -> bytes:
        """The SPIR-V of a launch: its variant where that is built; the plain one; the one without dot product."""
        return self._named(launch)[1]

    def _named(self, launch: Launch) -> tuple[str, bytes]:
        plain = launch.shader
        without_dot = not self.use_dot and spirv.exists(f"{plain}.nodot")
        names = (f"{plain}.nodot",) if without_dot else (f"{plain}.{launch.variant}", plain)
        if self.spelled_out:
            names = (f"{plain}.{spirv.EXACT}", *names)
        modes = (
            [FLOAT_MODES[mode][1:] for mode in self.device.info.float_modes]
            if plain.startswith(FLOATS)
            else []
        )
        for name in names:
            if name not in self._code and spirv.exists(name):
                self._code[name] = spirv.with_modes(spirv.load(name), modes)
            if name in self._code:
                return name, self._code[name]
        return plain, spirv.load(plain)

    def pipeline(self, launch: Launch, tensors: int) -> Any:
        """What the driver compiles of a launch over so many tensors: one for all that differ in push words and grid."""
        self._accept(launch)
        self.device.check(launch.grid, launch.local, MAX_PUSH_WORDS, launch.shader)
        name, code = self._named(launch)
        spec = (*launch.local, *launch.tile, *launch.spec)
        key = (name, spec, tensors)
        if key not in self._pipelines:
            while len(self._pipelines) >= MOST_PIPELINES:
                del self._pipelines[next(iter(self._pipelines))]
            spirv.check(code, launch.shader)
            words = [word & 0xFFFFFFFF for word in spec]
            with doing.compiling(launch.shader):
                self._pipelines[key] = self.device.pipeline(
                    code, tensors, words, MAX_PUSH_WORDS, launch.shader
                )
        return self._pipelines[key]

    def _accept(self, launch: Launch) -> None:
        refusal = self.supports(launch)
        if refusal is not None:
            raise DeviceError(f"{self.name}: {launch.shader}", f"the device cannot take {refusal}")

    def algorithm(self, launch: Launch, tensors: Sequence[Any]) -> Any:
        """The pipeline of a launch over these tensors, the output's last."""
        self._accept(launch)
        push = padded_push(launch)
        with doing.compiling(launch.shader):
            return self.device.algorithm(
                self.code(launch),
                tensors,
                launch.grid,
                (*launch.local, *launch.tile, *launch.spec),
                push,
                local=launch.local,
                where=launch.shader,
            )


def padded_push(launch: Launch) -> tuple[int, ...]:
    """The push words of a launch, unsigned, as many as shaders declare."""
    push = (*launch.push, *([0] * (MAX_PUSH_WORDS - len(launch.push))))
    return tuple(word & 0xFFFFFFFF for word in push)


def guarded_words(words: np.ndarray) -> np.ndarray:
    """uint32: the words between guard words, padded to a multiple of four so that vectors never end beyond.

    Who reads beyond them finds no zeros.
    """
    size = -(-words.size // 4) * 4
    memory = np.full(size + 2 * GUARD_WORDS, GUARD_WORD, np.uint32)
    memory[GUARD_WORDS : GUARD_WORDS + words.size] = words.view(np.uint32)
    return memory


def output_memory(out: PackedBuffer) -> np.ndarray:
    """uint32: a fresh output between its guard words, as it is uploaded."""
    words = out.desc.words
    memory = np.zeros(-(-words // 4) * 4 + 2 * GUARD_WORDS, np.uint32)
    memory[: out.memory.size] = out.memory.view(np.uint32)
    return memory


def take_output(out: PackedBuffer, data: np.ndarray) -> None:
    """Copy what the device holds, guard words included."""
    out.memory[:] = np.asarray(data)[: out.memory.size].view(np.int32)


def check_guards(desc: TensorDesc, data: np.ndarray, where: str) -> None:
    """GuardError, which holds the buffer, unless the guard words around what the device holds are as they were."""
    end = GUARD_WORDS + desc.words
    if (data[:GUARD_WORDS] != GUARD_WORD).any() or (data[end : end + GUARD_WORDS] != GUARD_WORD).any():
        out = PackedBuffer(desc)
        take_output(out, data)
        out.check_guards(where)
