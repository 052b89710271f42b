"""The executor ``wgsl:DIR``: runs the WGSL kernels of a folder on flat tensors, through `wgpu`.

Its name is ``wgsl:DIR`` or ``wgsl:DIR@DEVICE``, where DEVICE is a number or a part of the device's name. A graph of a
runtime with flat storage runs as a whole, in one command buffer between two operators that the host computes. Tensors
in packed layouts are unpacked before a kernel and packed after it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from refsim.core.buffer import PackedBuffer
from refsim.core.errors import FormatError, GuardError, UnknownOperatorError
from refsim.core.extras import WEBGPU_FIX
from refsim.core.launch import Launch
from refsim.exec.cpu import NativeExecutor
from refsim.exec.device_info import DeviceInfo
from refsim.exec.digest import files
from refsim.exec.executor import OURS, YOURS, Executor, ExecutorInfo, NodeByNode, OwnSource, Session, Source
from refsim.exec.isolated import IsolatedExecutor
from refsim.formats import kernels, wgsl
from refsim.graph.graph import Graph
from refsim.ops.base.module_call import (
    UNIFORM,
    Host,
    HostFeatures,
    ModuleDispatch,
    WrittenOutput,
    dispatches,
    written,
)
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.spec import Call
from refsim.ops.flat.call import flat_array, flat_desc, is_laid_flat
from refsim_gpu.wgpu_device import Bound, Step, WgpuDevice, adapters, described, overwritten
from refsim_gpu.wgsl_session import FlatSession

KIND = "wgsl"


class WgslFolder(Mapping[str, wgsl.Source]):
    """The sources of a folder by name; what was saved again is read again."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._read: dict[str, tuple[int, int, wgsl.Source]] = {}
        self.files = wgsl.sources(path)
        if not self.files:
            raise FormatError(
                path, "no WGSL", got="no file of that kind", need=f"a folder with *{wgsl.SUFFIX}"
            )

    def refresh(self) -> None:
        """See which files there are."""
        self.files = wgsl.sources(self.path)

    def version(self) -> tuple[tuple[str, int, int], ...]:
        """Something else once a file was saved."""
        stats = {name: path.stat() for name, path in self.files.items() if path.is_file()}
        return tuple((name, at.st_mtime_ns, at.st_size) for name, at in sorted(stats.items()))

    def __getitem__(self, name: str) -> wgsl.Source:
        path = self.files[name]
        at = path.stat()
        known = self._read.get(name)
        if known is None or known[:2] != (at.st_mtime_ns, at.st_size):
            known = self._read[name] = (at.st_mtime_ns, at.st_size, wgsl.read(path))
        return known[2]

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)


class WgslExecutor(Executor):
    """Runs calls on the kernels of a folder, and on the CPU what they do not take."""

    foreign = flat = True

    def __init__(self, folder: str, device: str = "0", name: str = "") -> None:
        path, self.rows = kernels.rows_of(folder)
        if not kernels.is_wgsl(self.rows):
            raise FormatError(
                folder, "no WGSL kernel", need=f"*{wgsl.SUFFIX}, or {kernels.NAME} that names some"
            )
        self.folder = WgslFolder(path)
        self.name = name or f"{KIND}:{folder}"
        self.device = WgpuDevice(device)
        self.features = HostFeatures.of(self.device.info)
        self.ours = NativeExecutor()
        self._sessions: dict[int, tuple[Graph, object, FlatSession]] = {}

    def device_info(self) -> DeviceInfo:
        return self.device.info

    @property
    def _host(self) -> Host:
        return Host(self.features, set(self.folder), self.rows)

    def dispatches(self, call: Call) -> list[ModuleDispatch]:
        """What a host dispatches; UnknownOperatorError if no kernel takes the call."""
        self.folder.refresh()
        if self.rows.get(call.op.name) is None:
            raise UnknownOperatorError(call.op.name, "the folder has no kernel for it")
        return dispatches(call, self._host)

    def source(self, call: Call) -> Source:
        try:
            return OwnSource(YOURS, tuple(step.shader for step in self.dispatches(call)))
        except UnknownOperatorError as error:
            why = f"{error.what}: {error.need}" if error.need else error.what
            return Source(OURS, self.ours.source(call).kernels, why)

    def written(self, call: Call) -> WrittenOutput | None:
        if not is_laid_flat(call):  # whose words are others than the kernel's
            return None
        try:
            return written(call, self._host)
        except UnknownOperatorError:
            return None

    def stores(self, call: Call) -> list[tuple[str, str]]:
        try:
            last = self.dispatches(call)[-1]
        except UnknownOperatorError:
            return []
        binding = next(number for number, bind in enumerate(last.binds) if bind.writes)
        return self.folder[last.shader].stores(binding)

    def refusal(self, call: Call) -> str | None:
        return None

    def supports(self, launch: Launch) -> str | None:
        return None

    def run(self, launch: Launch, inputs: Sequence[np.ndarray]) -> PackedBuffer:
        return self.ours.run(launch, inputs)

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        call = prepared.call
        try:
            steps = self.dispatches(call)
        except UnknownOperatorError:
            if not prepared.dispatches:  # refsim has no kernels on flat tensors
                return call.expected(inputs)
            return self.ours.run_prepared(prepared, inputs)
        buffers = {
            name: self.device.upload(flat_array(call, buffer.unpack())) for name, buffer in inputs.items()
        }
        out = flat_desc(call.out)
        made = buffers["out"] = self.device.output(out.words)
        work = [self.step(one, buffers) for one in steps]
        nbytes = out.nbytes
        (memory,) = self.device.run(work, [(made, made.size)])
        array = memory[:nbytes].view(out.dtype).reshape(call.out.shape)
        result = call.stored(array, inputs)
        beyond = overwritten(memory)
        if beyond is not None:
            where = f"{self.name}: {steps[-1].shader}"
            error = GuardError(where, f"wrote behind the buffer of {out}", got=f"a write to word {beyond}")
            error.buffer = result
            raise error
        return result

    def step(self, one: ModuleDispatch, buffers: Mapping[str, Any]) -> Step:
        """A dispatch with its buffers by name; constants and uniform blocks are uploaded."""
        source = self.folder[one.shader]
        bound = []
        for bind in one.binds:
            if bind.words is not None:
                uniform = bind.storage == UNIFORM
                bound.append(Bound(self.device.upload(bind.words, uniform), bind.words.nbytes, uniform))
            else:
                buffer = buffers[bind.buffer]
                assert bind.desc is not None
                exact = source.measures or not bind.writes
                bound.append(Bound(buffer, bind.desc.nbytes if exact else buffer.size))
        assert one.own is not None
        unknown = [name for name in one.own.overrides if name not in source.overrides]
        if unknown:
            need = ", ".join(source.overrides) or "no override constant"
            raise FormatError(f"{one.shader}{wgsl.SUFFIX}", f"has no override {unknown[0]}", need=need)
        return self.device.step(source, dict(zip(one.own.overrides, one.spec, strict=True)), bound, one.grid)

    def session(self, graph: Graph, watched: Set[int] = frozenset()) -> Session:
        if not graph.target.runtime.flat:
            return NodeByNode(graph, self)
        self.folder.refresh()
        version = self.folder.version()
        held = self._sessions.get(id(graph))
        if held is None or held[1] != version:
            held = self._sessions[id(graph)] = (graph, version, FlatSession(self, graph))
        return held[2]

    def forget(self, graph: Graph) -> None:
        for key in [key for key, held in self._sessions.items() if held[0].stems_from(graph)]:
            del self._sessions[key]


# --- the factory's side ----------------------------------------------------------------------------------


def parse(rest: str) -> tuple[str, str]:
    """The folder and the device of ``DIR@DEVICE``. A folder of that whole name goes first."""
    folder, at, device = rest.rpartition("@")
    return (folder, device) if at and not os.path.isdir(rest) else (rest, "0")


def begun(folder: str, device: str = "0", name: str = "") -> IsolatedExecutor:
    """The executor in a process of its own, where the device opens while this process goes on."""
    name = name or f"{KIND}:{folder}{'' if device == '0' else f'@{device}'}"
    return IsolatedExecutor(
        name, WgslExecutor, os.path.abspath(folder), device, name, foreign=True, flat=True
    ).begin_opening()


def open_named(rest: str, threads: int) -> IsolatedExecutor | None:
    """``wgsl:DIR`` or ``wgsl:DIR@DEVICE``, in a process of its own, by what stands behind the colon."""
    if not rest:
        return None
    folder, device = parse(rest)
    WgslFolder(kernels.rows_of(folder)[0])  # what cannot be read is known before a process is started
    return begun(folder, device, f"{KIND}:{rest}").open()


def fingerprint(rest: str) -> str:
    """SHA-256 of the sources in the folder, and of the file that says how they are called."""
    folder, file = kernels.find(parse(rest)[0])
    return files([*wgsl.sources(folder).values(), *([] if file is None else [Path(file)])])


def names() -> list[str]:
    """The devices of this machine; asked in a process of its own."""
    return [described(adapter, index).name for index, adapter in enumerate(adapters())]


def executors() -> list[ExecutorInfo]:
    """One row that stands for all folders."""
    from importlib.util import find_spec

    able = find_spec("wgpu") is not None
    detail = (
        "the WGSL kernels in DIR, on flat tensors" if able else f"needs the package wgpu; fix: {WEBGPU_FIX}"
    )
    return [ExecutorInfo(f"{KIND}:DIR", able, detail)]
