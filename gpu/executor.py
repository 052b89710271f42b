"""The Kompute executor: runs refsim's launches on a Vulkan device, with the same bytes as the emulated kernels.

All steps of a call are one submission (refsim_gpu.calls), and so is a whole graph (refsim_gpu.session).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import numpy as np

from refsim.core.buffer import PackedBuffer
from refsim.core.errors import DeviceError, GuardError, ParameterError, RefsimError
from refsim.core.launch import Launch
from refsim.core.qmath import CANONICAL
from refsim.exec.device_info import DeviceInfo
from refsim.exec.executor import MOST_SHAPES, OURS, Executor, Source, canonical_only
from refsim.graph.graph import Graph
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.spec import Call
from refsim_gpu.calls import KEPT, Calls, Steps, nbytes
from refsim_gpu.coop import AUTO
from refsim_gpu.kompute import Device
from refsim_gpu.pipelines import Pipelines
from refsim_gpu.session import Constants, GraphSession, Shared

#: Sessions of one graph that are kept, each for other watched values.
MOST_SESSIONS = 3
#: Calls that a device takes in one submission.
BATCH = 25


class KomputeExecutor(Executor):
    """Runs launches on one device. ``use_dot`` False takes the shaders without the packed dot product.

    ``coop``: which calls run on cooperative matrices
    (refsim_gpu.coop). ``spelled_out``: float kernels that need no denormals of the device's (refsim_gpu.pipelines).
    """

    batch = BATCH

    def __init__(
        self,
        index: int = 0,
        *,
        use_dot: bool | None = None,
        coop: str = AUTO,
        spelled_out: bool | None = None,
    ) -> None:
        self.device = Device(index)
        self.name = f"gpu:{index}"
        has_dot = self.device.info.integer_dot_product
        if use_dot and not has_dot:
            raise DeviceError(self.name, "no packed dot product", got=self.device.info.name)
        dot = has_dot if use_dot is None else use_dot
        self.pipelines = Pipelines(self.device, self.name, dot, coop, spelled_out)
        self._calls = Calls(self.pipelines)
        #: By the ids of graphs: each graph, its constants on the device, its sessions by what they watch.
        self._graphs: dict[int, tuple[Graph, Constants, dict[frozenset[int], GraphSession]]] = {}
        #: By the ids of graphs at their bounds: what their sessions share.
        self._shared: dict[int, tuple[Graph, Shared]] = {}

    def close(self) -> None:
        self._graphs.clear()
        self._shared.clear()
        self.device.close()

    def device_info(self) -> DeviceInfo:
        return self.device.info

    def supports(self, launch: Launch) -> str | None:
        """Refuses grids and buffers beyond the device's limits."""
        return self.pipelines.supports(launch)

    def refusal(self, call: Call) -> str | None:
        """Refuses other numerics than the canonical ones of refsim's shaders."""
        profile = call.target.profile
        if profile.flags != CANONICAL.flags:
            return canonical_only(profile)
        return super().refusal(call)

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        self._accept(prepared.call)
        return one(self._calls.run([steps_of(self.pipelines.chosen(prepared), inputs)]))

    def source(self, call: Call) -> Source:
        prepared = Prepared(call)
        chosen = self.pipelines.chosen(prepared)
        if chosen is prepared:
            return super().source(call)
        return Source(OURS, tuple(f"{s.launch.shader}.{s.launch.variant}" for s in chosen.dispatches))

    def run_batch(
        self, work: Sequence[tuple[Call, Mapping[str, PackedBuffer]]]
    ) -> list[PackedBuffer | RefsimError]:
        """One submission; each call by itself if not all of them can be recorded, or if together they are large."""
        if any(self.refusal(call) for call, _ in work):
            return super().run_batch(work)
        steps = [steps_of(self.pipelines.chosen(Prepared(call)), inputs) for call, inputs in work]
        if sum(map(nbytes, steps)) > KEPT:
            return super().run_batch(work)
        return list(self._calls.run(steps))

    def _accept(self, call: Call) -> None:
        """ParameterError for a call of other numerics: its bytes would be right or wrong by chance."""
        profile = call.target.profile
        if profile.flags != CANONICAL.flags:
            need = "canonical, or -x cpu, which computes every profile"
            raise ParameterError(
                f"{self.name}: {call.op.name}", "another profile", got=profile.name, need=need
            )

    def session(self, graph: Graph, watched: Set[int] = frozenset()) -> GraphSession:
        """The graph with its weights uploaded and its dispatches recorded; the same one for the same arguments.

        The weights of a graph are uploaded once. Of its sessions, the latest few are kept.
        """
        if (held := self._graphs.get(id(graph))) is None or held[0] is not graph:
            for node in graph.nodes:
                if node.prepared is not None:
                    self._accept(node.prepared.call)
            self._make_room(graph)
            held = self._graphs[id(graph)] = graph, {}, {}
        _, constants, sessions = held
        key = frozenset(watched)
        if key not in sessions:
            while len(sessions) >= MOST_SESSIONS:
                del sessions[next(iter(sessions))]
            root = graph.root
            _, shared = self._shared.setdefault(id(root), (root, Shared(self.device)))
            sessions[key] = GraphSession(self.pipelines, graph, self, key, constants, shared)
        return sessions[key]

    def _make_room(self, graph: Graph) -> None:
        """Give up the oldest sessions of a program that runs at many shapes."""
        if graph.bound is None:
            return
        copies = [key for key, (one, *_) in self._graphs.items() if one.bound is graph.bound]
        for key in copies[: max(0, len(copies) - MOST_SHAPES + 1)]:
            del self._graphs[key]

    def forget(self, graph: Graph) -> None:
        for key in [key for key, (one, *_) in self._graphs.items() if one.stems_from(graph)]:
            del self._graphs[key]
        self._shared.pop(id(graph), None)

    def run(self, launch: Launch, inputs: Sequence[np.ndarray]) -> PackedBuffer:
        """Upload, dispatch, download; the output's guard words come back with it and are checked."""
        words = {str(number): given for number, given in enumerate(inputs)}
        return one(self._calls.run([Steps(launch.shader, words, [(launch, tuple(words), "out")])]))


def steps_of(prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> Steps:
    """A call's dispatches with all that they read."""
    words = {name: buffer.words for name, buffer in inputs.items()}
    words |= {name: prepared.words(name) for name in prepared.constants}
    launches = [(step.launch, step.inputs, step.output) for step in prepared.dispatches]
    return Steps(prepared.call.op.name, words, launches)


def one(results: Sequence[PackedBuffer | GuardError]) -> PackedBuffer:
    """The only result; raises it if it is an error."""
    (result,) = results
    if isinstance(result, GuardError):
        raise result
    return result


def open_executor(index: int = 0, coop: str = AUTO) -> KomputeExecutor:
    """The executor of device ``index``, after the self-test; DeviceError or MissingDependencyError otherwise."""
    from refsim_gpu import selftest

    executor = KomputeExecutor(index, coop=coop)
    selftest.check(executor.device)
    return executor
