"""The executor ``spv:DIR``: runs the SPIR-V modules of another build, named as ExecuTorch's build names them.

Its name is ``spv:DIR`` or ``spv:DIR@OPTION+OPTION...``; docs/gpu.md says what each `Options` word does. A call
for which DIR lacks a module runs on refsim's own shaders, on the same device; `ModuleExecutor.source` says which.

Weights are packed as the folder's own modules do it, if it has them; where they give other words than refsim, a call
ends in PackingError, which holds the output.

Upstream's kernels leave some padding to chance. In what this executor returns, such bytes hold what the operator
declares, as if refsim's own kernels had written them; all other bytes are as the module left them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from refsim.core.buffer import ByteKind, PackedBuffer, byte_kinds
from refsim.core.errors import ParameterError, UnknownOperatorError
from refsim.core.extras import GPU_FIX
from refsim.core.launch import Launch
from refsim.exec.device_info import DeviceInfo
from refsim.exec.digest import files
from refsim.exec.emulated import EmulatedExecutor
from refsim.exec.executor import YOURS, Executor, ExecutorInfo, OwnSource, Source, Tries
from refsim.exec.finding import KernelFinding
from refsim.exec.isolated import IsolatedExecutor
from refsim.formats import kernels
from refsim.formats.module_folder import SUFFIX
from refsim.graph.graph import Graph
from refsim.graph.interpreter import Observer, run_nodes
from refsim.ops.base.host import tensor
from refsim.ops.base.host.choice import VARIANTS
from refsim.ops.base.module_call import (
    Bind,
    Host,
    HostFeatures,
    ModuleDispatch,
    WrittenOutput,
    dispatches,
    output_binding,
    packing_dispatches,
    written,
)
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.spec import Call
from refsim.spirv.lines import stored
from refsim_gpu import edited, packing
from refsim_gpu.executor import KomputeExecutor
from refsim_gpu.module_folder import ModuleFolder
from refsim_gpu.module_pipelines import ModulePipelines, given
from refsim_gpu.packing import Plan
from refsim_gpu.sanitizer import Sanitizer

KIND = "spv"
IMAGES = "images"


@dataclass(frozen=True)
class Options:
    """What stands behind the @ of the executor's name.

    ``index``: the Vulkan device. ``variant``: ``base``, ``fallback`` or ``unsigned`` modules, where there are several.
    ``images``: float tensors lie in images.
    """

    index: int = 0
    variant: str = ""
    images: bool = False

    def __str__(self) -> str:
        words = {str(self.index): self.index, self.variant: self.variant, IMAGES: self.images}
        return "+".join(word for word, given in words.items() if given)

    @classmethod
    def parse(cls, text: str) -> Options | None:
        """The options of ``WORD+WORD...``; None if one of the words is unknown."""
        found = cls()
        for word in text.split("+"):
            if word.isdecimal() and len(word) < 4:
                found = replace(found, index=int(word))
            elif word in VARIANTS:
                found = replace(found, variant=word)
            elif word == IMAGES:
                found = replace(found, images=True)
            else:
                return None
        return found


def parse(rest: str) -> tuple[str, Options]:
    """The folder and the options of ``DIR@OPTIONS``. A folder of that whole name goes first."""
    folder, at, words = rest.rpartition("@")
    if not at or os.path.isdir(rest):
        return rest, Options()
    options = Options.parse(words)
    if options is None:
        allowed = f"a device number, {', '.join(VARIANTS)} or {IMAGES}, joined by +"
        raise ParameterError(f"executor {KIND}:{rest}", "unknown option", got=repr(words), need=allowed)
    return folder, options


class ModuleExecutor(Executor):
    """Runs calls on the modules of a folder, and on refsim's own shaders where the folder has none.

    ``folder`` may also be a file that says how its kernels are called (`refsim.formats.kernels`).
    """

    foreign = True

    def __init__(
        self,
        folder: str,
        options: Options | None = None,
        name: str = "",
    ) -> None:
        path, self.rows = kernels.rows_of(folder)
        self.options = options or Options()
        self.name = name or f"{KIND}:{folder}"
        self.folder = ModuleFolder(path)
        self.ours = KomputeExecutor(self.options.index)
        self.features = HostFeatures.of(self.ours.device.info, self.options.variant, self.options.images)
        self.host = Host(self.features, self.folder, self.rows)
        self.pipelines = ModulePipelines(self.ours.device, self.folder)
        self._plans: dict[int, tuple[Prepared, Plan | str]] = {}
        self._version: object = None

    @cached_property
    def emulated(self) -> EmulatedExecutor:
        """For numerics that refsim's shaders do not have."""
        return EmulatedExecutor()

    def close(self) -> None:
        self._plans.clear()
        self.pipelines.close()
        self.ours.close()

    def device_info(self) -> DeviceInfo:
        return self.ours.device_info()

    # --- which kernels -----------------------------------------------------------------------------------

    def dispatches(self, call: Call) -> list[ModuleDispatch]:
        """What a host would dispatch, each checked against its module.

        UnknownOperatorError if the folder has no module for a step of the call. FormatError or UnsupportedError, with
        the file's name, for a module that is damaged, or that asks for something else than a host gives.
        """
        found = self._steps(call)
        for step in found:
            self.pipelines.check(step)
        return found

    def _steps(self, call: Call) -> list[ModuleDispatch]:
        found = dispatches(call, self.host)
        last = _output(found)
        if last is not None and last.desc is not None and last.desc.sizes_whcn != call.out.sizes_whcn:
            what = f"a host runs it within another operator only, and then writes {last.desc}"
            raise UnknownOperatorError(call.op.name, what)
        return found

    def source(self, call: Call) -> Source:
        try:
            steps = self._steps(call)
        except UnknownOperatorError as error:
            runner = self._fallback(call)
            ours = runner.source(call)
            return replace(ours, why=f"{error.what}: {error.need}" if error.need else error.what)
        names = tuple(step.shader for step in steps)
        own = any(step.own is not None for step in steps)
        return OwnSource(YOURS, names) if own else Source(YOURS, names)

    def written(self, call: Call) -> WrittenOutput | None:
        try:
            return written(call, self.host)
        except UnknownOperatorError:
            return None

    def stores(self, call: Call) -> list[tuple[str, str]]:
        last = self.written(call)
        if last is None:
            return []
        return stored(self.folder.load(last.shader).module, output_binding(last.shader, self.rows))

    def _fallback(self, call: Call) -> Executor:
        """Who runs a call that the folder cannot: the shaders here are canonical and have limits."""
        return self.ours if self.ours.refusal(call) is None else self.emulated

    def refusal(self, call: Call) -> str | None:
        return None

    def supports(self, launch: Launch) -> str | None:
        return self.ours.supports(launch)

    # --- running -----------------------------------------------------------------------------------------

    def run(self, launch: Launch, inputs: Sequence[np.ndarray]) -> PackedBuffer:
        return self.ours.run(launch, inputs)

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        plan = self._plans.get(id(prepared), (None, None))[1]
        plan = self._plan(prepared.call) if plan is None else plan
        if isinstance(plan, str):
            return self._fallback(prepared.call).run_prepared(prepared, inputs)
        return self._run(prepared.call, plan, inputs)

    def sanitize(
        self, call: Call, inputs: Mapping[str, PackedBuffer], repeats: int = 0
    ) -> list[KernelFinding]:
        plan = self._plan(call)
        return [] if isinstance(plan, str) else self.sanitizer.run(call, plan.steps, inputs, repeats)

    def try_edits(self, call: Call, inputs: Mapping[str, PackedBuffer], tries: Tries) -> list[int]:
        try:
            steps = self.dispatches(call)
        except UnknownOperatorError:
            return []
        for packer in packing_dispatches(call, self.host):
            if packer.shader == tries.shader:
                return packing.right_edits(self.pipelines, packer, steps, tries)
        plan, last = packing.planned(self.pipelines, call, self.host, steps), _output(steps)
        if plan.wrong or last is None:
            return []
        out = PackedBuffer(call.out)

        def taken(words: np.ndarray) -> np.ndarray:
            _take(out, last, words)
            return out.raw

        return edited.right(self.pipelines, plan.steps, inputs, tries, taken)

    @cached_property
    def sanitizer(self) -> Sanitizer:
        return Sanitizer(self.pipelines)

    def session(self, graph: Graph, watched: Set[int] = frozenset()) -> ModuleSession:
        return ModuleSession(self, graph)

    def _plan(self, call: Call) -> Plan | str:
        """The dispatches of a call, or why there are none."""
        try:
            return packing.planned(self.pipelines, call, self.host, self.dispatches(call))
        except UnknownOperatorError as error:
            return str(error)

    def keep(self, graph: Graph) -> None:
        """Plan all calls of a graph, once: what is wrong with a module is raised before anything runs."""
        if self._version != self.folder.version():
            self._plans.clear()
        for node in graph.nodes:
            if node.prepared is not None and id(node.prepared) not in self._plans:
                self._plans[id(node.prepared)] = (node.prepared, self._plan(node.prepared.call))
        self._version = self.folder.version()

    def _run(self, call: Call, plan: Plan, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        steps = plan.steps
        buffers: dict[str, np.ndarray] = {}
        for step in steps:
            buffers |= self.pipelines.run(step, given(step, inputs, buffers))
        out = PackedBuffer(call.out)
        last = _output(steps)
        if last is not None:
            _take(out, last, buffers["out"])
        own = steps[-1].own if steps else None
        defined = own is None or (own.defines_padding and "out" not in own.relaid)
        call.settle(out, inputs, None if defined else byte_kinds(call.out) != ByteKind.VALUE)
        if plan.wrong is not None:
            wrong = copy(plan.wrong)
            wrong.buffer = out
            raise wrong
        return out


class ModuleSession:
    """A graph on an executor of modules: planned before it runs, and again if the modules change; run node by node."""

    def __init__(self, executor: ModuleExecutor, graph: Graph) -> None:
        self.executor, self.graph = executor, graph

    def run(
        self, inputs: Sequence[np.ndarray], number: int = 0, observe: Observer | None = None
    ) -> list[np.ndarray]:
        self.executor.keep(self.graph)
        return run_nodes(self.graph, inputs, self.executor, number, observe)


def _output(steps: Sequence[ModuleDispatch]) -> Bind | None:
    """Where the output of a call is bound; None if nothing is dispatched."""
    return next((bind for step in steps for bind in step.binds if bind.writes and bind.buffer == "out"), None)


def _take(out: PackedBuffer, bind: Bind, words: np.ndarray) -> None:
    """Put what a module wrote into a buffer of the operator's own."""
    assert bind.desc is not None
    if bind.storage == "buffer" and bind.desc.layout == out.desc.layout:
        out.words[:] = words[: out.desc.words].view(np.int32)
        return
    if bind.storage == "buffer":
        raw = words[: bind.desc.words].view(np.uint8)[: bind.desc.nbytes]
        array = PackedBuffer.from_raw(raw, bind.desc.shape, bind.desc.layout).unpack()
    else:
        array = tensor.from_texels(words.view(np.float32), bind.desc)
    out.words[:] = PackedBuffer.pack(array.reshape(out.desc.shape), out.desc.layout).words


# --- the factory's side ----------------------------------------------------------------------------------


def open_executor(folder: str, options: Options, name: str) -> ModuleExecutor:
    """The executor, after the device's self-test; DeviceError or MissingDependencyError if there is no device."""
    from refsim_gpu import selftest

    executor = ModuleExecutor(folder, options, name)
    selftest.check(executor.ours.device)
    return executor


def begun(
    folder: str, options: Options, name: str = "", environment: Mapping[str, str] | None = None
) -> IsolatedExecutor:
    """The executor in a process of its own, where the device opens while this process goes on.

    Its first piece of work waits for that, and raises what is wrong with the folder or the device.
    """
    name = name or f"{KIND}:{folder}{'@' if str(options) else ''}{options}"
    return IsolatedExecutor(
        name, open_executor, os.path.abspath(folder), options, name, foreign=True, environment=environment
    ).begin_opening()


def open_named(rest: str, threads: int) -> IsolatedExecutor | None:
    """``spv:DIR`` or ``spv:DIR@OPTIONS``, in a process of its own, by what stands behind the colon."""
    if not rest:
        return None
    folder, options = parse(rest)
    path, _ = kernels.rows_of(folder)
    ModuleFolder(path)  # a folder that cannot be read is known before a process is started
    return begun(folder, options, f"{KIND}:{rest}").open()


def fingerprint(rest: str) -> str:
    """SHA-256 of the modules of ``DIR`` or ``DIR@OPTIONS``, and of the file that says how they are called."""
    folder, file = kernels.find(parse(rest)[0])
    ModuleFolder(folder)  # raises for a folder that has none
    return files([*Path(folder).glob(f"*{SUFFIX}"), *([] if file is None else [Path(file)])])


def executors() -> list[ExecutorInfo]:
    """One row that stands for all folders."""
    from refsim_gpu import executors as devices

    able = [info.name for info in devices() if info.available]
    detail = (
        f"the SPIR-V modules in DIR, on {', '.join(able)}"
        if able
        else f"needs a Vulkan device and kp; fix: {GPU_FIX}"
    )
    return [ExecutorInfo(f"{KIND}:DIR", bool(able), detail)]
