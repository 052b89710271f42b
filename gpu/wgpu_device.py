"""A device for WGSL, through the `wgpu` package: adapters by number or name, buffers, pipelines, one command buffer.

Every output lies in front of guard words, which a kernel without a check of its place writes to; WebGPU itself lets no
write leave the buffer. A source that asks for the length of an array gets none, because it may rely on it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refsim.core import choices
from refsim.core.buffer import FILL, GUARD
from refsim.core.errors import DeviceError, FormatError, MissingDependencyError
from refsim.core.extras import WEBGPU_FIX
from refsim.core.launch import Triple
from refsim.exec.device_info import DeviceInfo
from refsim.formats.wgsl import SUFFIX, Source

#: Guard words behind an output.
GUARDS = 64
LAST_LINES = 3


def adapters() -> list[Any]:
    """The adapters of this machine, Vulkan's first; MissingDependencyError without `wgpu`."""
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())  # or Mesa complains on stderr
    try:
        import wgpu
        from wgpu.backends.wgpu_native.extras import set_instance_extras
    except ImportError as error:
        raise MissingDependencyError(
            "wgsl executor", "the package wgpu is not installed", need=WEBGPU_FIX
        ) from error
    with contextlib.suppress(RuntimeError):  # it was asked before
        set_instance_extras(backends=["Vulkan", "Metal", "DX12"])
    found = wgpu.gpu.enumerate_adapters_sync()
    return sorted(found, key=lambda one: one.info["backend_type"] != "Vulkan")


def described(adapter: Any, index: int) -> DeviceInfo:
    """What an adapter says of itself, as Vulkan's own list has it."""
    info = adapter.info
    driver = f"{info['vendor']}, {info['description']}"
    limits: dict[str, int | float | tuple[int, ...]] = {"maxImageDimension2D": 0}
    return DeviceInfo(
        index, info["device"], info["adapter_type"], info["vendor"], info["backend_type"], driver, limits, 0, 0,
        False, False,
    )  # fmt: skip


def chosen(which: str) -> tuple[Any, DeviceInfo]:
    """The adapter of a number, or the first whose name has these letters; DeviceError if there is none."""
    found = adapters()
    rows = [described(adapter, index) for index, adapter in enumerate(found)]
    if which.isdecimal():
        fit = [row for row in rows if row.index == int(which)]
    else:
        fit = [row for row in rows if which.lower() in f"{row.name} {row.driver}".lower()]
    if not fit:
        need = choices.listed(f"{row.index} ({row.name})" for row in rows) or "a driver for Vulkan"
        raise DeviceError("wgsl", "no such device", got=which, need=need)
    return found[fit[0].index], fit[0]


@dataclass(frozen=True)
class Bound:
    """What stands at a binding: a buffer, and how many of its bytes the kernel sees."""

    buffer: Any
    nbytes: int
    uniform: bool = False


@dataclass(frozen=True)
class Step:
    """A kernel to be dispatched: its pipeline, the buffers in order, and the workgroups."""

    pipeline: Any
    group: Any
    grid: Triple


@dataclass
class WgpuDevice:
    """An opened adapter. Pipelines are kept by source and constants."""

    which: str = "0"
    info: DeviceInfo = field(init=False)
    _pipelines: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        adapter, self.info = chosen(self.which)
        import wgpu

        self.wgpu = wgpu
        self.device = adapter.request_device_sync(required_limits=_limits(adapter))
        self.most_groups: int = self.device.limits["max-compute-workgroups-per-dimension"]
        self.fill = self._buffer(np.zeros(0, np.uint8), 4)

    # --- buffers -----------------------------------------------------------------------------------------

    def upload(self, data: np.ndarray, uniform: bool = False) -> Any:
        """A buffer with these bytes, rounded up to whole words."""
        usage = self.wgpu.BufferUsage
        kind = usage.UNIFORM if uniform else usage.STORAGE | usage.COPY_SRC
        return self._buffer(data, max(4, -(-data.nbytes // 4) * 4), kind | usage.COPY_DST)

    def output(self, words: int) -> Any:
        """A buffer for so many words that a kernel writes, with its guard words behind them."""
        usage = self.wgpu.BufferUsage
        return self._buffer(
            filled(words), 4 * (words + GUARDS), usage.STORAGE | usage.COPY_SRC | usage.COPY_DST
        )

    def write(self, buffer: Any, data: np.ndarray) -> None:
        self.device.queue.write_buffer(buffer, 0, _whole(data))

    def _buffer(self, data: np.ndarray, nbytes: int, usage: int | None = None) -> Any:
        made = self.device.create_buffer(size=nbytes, usage=usage or self.wgpu.BufferUsage.COPY_SRC)
        if data.nbytes:
            self.device.queue.write_buffer(made, 0, _whole(data))
        return made

    # --- kernels -----------------------------------------------------------------------------------------

    def step(
        self, source: Source, constants: Mapping[str, int], bound: Sequence[Bound], grid: Triple
    ) -> Step:
        """A dispatch of a source. FormatError, with the compiler's words, for one that it does not take."""
        accesses = tuple(_access(source, number, one) for number, one in enumerate(bound))
        key = (source.name, source.text, tuple(sorted(constants.items())), accesses)
        try:
            if key not in self._pipelines:
                self._pipelines[key] = self._pipeline(source, constants, accesses)
            pipeline, layout = self._pipelines[key]
            entries = [
                {"binding": number, "resource": {"buffer": one.buffer, "offset": 0, "size": one.nbytes}}
                for number, one in enumerate(bound)
            ]
            group = self.device.create_bind_group(layout=layout, entries=entries)
        except self.wgpu.GPUError as error:
            raise FormatError(
                f"{source.name}{SUFFIX}", "the device does not take it", got=_said(error)
            ) from error
        return Step(pipeline, group, self._folded(grid))

    def _pipeline(
        self, source: Source, constants: Mapping[str, int], accesses: Sequence[str]
    ) -> tuple[Any, Any]:
        module = self.device.create_shader_module(code=source.text)
        entries = [
            {"binding": number, "visibility": self.wgpu.ShaderStage.COMPUTE, "buffer": {"type": access}}
            for number, access in enumerate(accesses)
        ]
        layout = self.device.create_bind_group_layout(entries=entries)
        pipeline = self.device.create_compute_pipeline(
            layout=self.device.create_pipeline_layout(bind_group_layouts=[layout]),
            compute={"module": module, "entry_point": source.entry, "constants": dict(constants)},
        )
        return pipeline, layout

    def _folded(self, grid: Triple) -> Triple:
        """A row of workgroups that is too long for the device, as upstream's host folds it: into a square."""
        x, y, z = grid
        if x <= self.most_groups or (y, z) != (1, 1):
            return grid
        side = int(np.ceil(np.sqrt(x)))
        return (side, -(-x // side), 1)

    # --- running -----------------------------------------------------------------------------------------

    def run(
        self, work: Iterable[Step | tuple[Any, Any, int]], wanted: Sequence[tuple[Any, int]]
    ) -> list[np.ndarray]:
        """Steps, and copies (from, to, bytes), in one command buffer; the bytes of each wanted (buffer, bytes)."""
        encoder = self.device.create_command_encoder()
        for one in work:
            if isinstance(one, Step):
                compute = encoder.begin_compute_pass()
                compute.set_pipeline(one.pipeline)
                compute.set_bind_group(0, one.group)
                compute.dispatch_workgroups(*one.grid)
                compute.end()
            else:
                source, target, nbytes = one
                encoder.copy_buffer_to_buffer(source, 0, target, 0, nbytes)
        usage = self.wgpu.BufferUsage
        staging = self.device.create_buffer(
            size=max(4, sum(nbytes for _, nbytes in wanted)), usage=usage.MAP_READ | usage.COPY_DST
        )
        at = 0
        for buffer, nbytes in wanted:
            encoder.copy_buffer_to_buffer(buffer, 0, staging, at, nbytes)
            at += nbytes
        try:
            self.device.queue.submit([encoder.finish()])
            staging.map_sync(self.wgpu.MapMode.READ)
            data = np.frombuffer(staging.read_mapped(copy=True), np.uint8)
        except (self.wgpu.GPUError, RuntimeError) as error:
            raise DeviceError(self.info.name, "the work failed", got=str(error).strip()[:200]) from error
        finally:
            if staging.map_state == "mapped":
                staging.unmap()
            staging.destroy()
        ends = np.cumsum([nbytes for _, nbytes in wanted])
        return [data[end - nbytes : end] for end, (_, nbytes) in zip(ends, wanted, strict=True)]


def filled(words: int) -> np.ndarray:
    """What an output is before a kernel writes it, with its guard words."""
    found = np.full(words + GUARDS, GUARD, np.int32)
    found[:words].view(np.uint8)[:] = FILL
    return found


def overwritten(memory: np.ndarray) -> int | None:
    """The first word behind an output that was written; None if its guard words are whole."""
    words = memory.view(np.int32)
    broken = np.flatnonzero(words[-GUARDS:] != GUARD)
    return len(words) - GUARDS + int(broken[0]) if broken.size else None


def _access(source: Source, number: int, bound: Bound) -> str:
    declared = source.declared.get(number)
    if bound.uniform:
        return "uniform"
    return "storage" if declared is not None and declared.writes else "read-only-storage"


def _said(error: Exception) -> str:
    """The compiler's words, without the frames that it draws and the names of its own functions."""
    lines = [line.strip(" \u2502\u2500\u250c=") for line in str(error).splitlines()]
    said = [
        line for line in lines if line and not line.startswith(("Validation Error", "Caused by", "In wgpu"))
    ]
    return "; ".join(said[:LAST_LINES])


def _whole(data: np.ndarray) -> np.ndarray:
    """The bytes, up to whole words."""
    raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return raw if raw.size % 4 == 0 else np.concatenate([raw, np.zeros(-raw.size % 4, np.uint8)])


def _limits(adapter: Any) -> dict[str, Any]:
    """The adapter's own limits of what tensors and workgroups need."""
    names = (
        "max-buffer-size", "max-storage-buffer-binding-size", "max-compute-invocations-per-workgroup",
        "max-compute-workgroup-size-x", "max-compute-workgroup-storage-size", "max-compute-workgroups-per-dimension",
        "max-storage-buffers-per-shader-stage",
    )  # fmt: skip
    return {name: adapter.limits[name] for name in names if name in adapter.limits}
