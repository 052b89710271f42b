"""The native executor: native kernels where a rule of routes.py applies, the emulated kernels elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from weakref import WeakKeyDictionary

import numpy as np

from refsim.core import doing
from refsim.core.buffer import FAR_WORDS, GUARD, PackedBuffer
from refsim.core.errors import GuardError, ParameterError
from refsim.core.launch import Launch
from refsim.exec.cpu import compiled
from refsim.exec.cpu.plan import CpuPlan, SharedBlock
from refsim.exec.cpu.pool.plain import PlainMean
from refsim.exec.cpu.routes import ANY, RouteChoice, choose, others
from refsim.exec.cpu.schedule import Options
from refsim.exec.cpu.thread_pool import JobList
from refsim.exec.emulated import EmulatedExecutor
from refsim.exec.executor import MOST_SHAPES, Executor
from refsim.exec.isolated import IsolatedExecutor
from refsim.graph.graph import Graph
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.spec import Call


class NativeExecutor(Executor):
    """Runs whole calls natively, prepacked at the first use; bytes equal to the emulated kernels', padding included.

    ``threads`` may be any number from 1 and changes no byte; of a whole graph, short runs of steps take one. ``force``
    names routes by operator, see `routes.choose`. ``own_layouts``: whole graphs may hold what nobody watches in
    layouts that suit the kernels. ``memory_limit``: a whole graph holds at most so many times its weights and largest
    live set, if giving up routes with larger constants can do that. ``wake_always``: a whole graph takes all threads,
    however short it is. Single launches go to the emulated kernel.
    """

    name = "cpu"
    keeps_sessions = True

    def __init__(
        self,
        threads: int = 1,
        force: Mapping[str, str] | None = None,
        own_layouts: bool = True,
        memory_limit: float = 1.5,
        wake_always: bool = False,
    ) -> None:
        if not 1 <= threads <= 1024:
            raise ParameterError("cpu executor", "threads is out of range", got=threads, need="1 to 1024")
        self.options = Options(threads, dict(force or {}), own_layouts, memory_limit, wake_always)
        self._emulated = EmulatedExecutor()
        self._others: dict[str, IsolatedExecutor] = {}
        self._plain = {"aten::mean.out": PlainMean()}
        self._plans: dict[tuple[int, frozenset[int]], CpuPlan] = {}
        #: By the ids of graphs at their bounds.
        self._shared: dict[int, tuple[Graph, SharedBlock]] = {}
        self._calls: WeakKeyDictionary[Prepared, JobList | None] = WeakKeyDictionary()
        self._lock = threading.Lock()

    @property
    def threads(self) -> int:  # type: ignore[override]
        return self.options.threads

    def anew(self, threads: int) -> Executor | None:
        return IsolatedExecutor(self.name, NativeExecutor, threads) if type(self) is NativeExecutor else None

    def alternatives(self, call: Call) -> Iterator[tuple[str, Executor]]:
        """The route that a call takes here with its kernels, the emulated kernel, other routes in a process each."""
        own = choose(call, self.options.threads, self.options.force)
        if (jobs := own.jobs()) is None:
            return
        yield (
            f"the route {own.route}, {compiled.told(kernel for job in jobs for kernel in job.kernels)}",
            self,
        )
        yield "the emulated kernel", self._emulated
        for route in others(call, own.route):
            if route not in self._others:  # what is wrong in one route may end the process in another one
                more = self.options.threads, {ANY: route}
                self._others[route] = IsolatedExecutor(f"{self.name}, route {route}", NativeExecutor, *more)
            yield f"the route {route}", self._others[route]

    def close(self) -> None:
        for other in self._others.values():
            other.close()
        self._others.clear()

    def choose(self, prepared: Prepared) -> RouteChoice:
        """The route that a call takes here."""
        return choose(prepared.call, self.options.threads, self.options.force)

    def session(self, graph: Graph, watched: Set[int] = frozenset()) -> CpuPlan:
        """The graph prepacked; the same plan for the same graph and the same watched values."""
        key = (id(graph), frozenset(watched))
        with self._lock:
            known = self._plans.get(key)
            if known is None or known.graph is not graph:
                root = graph.root
                _, shared = self._shared.setdefault(id(root), (root, SharedBlock()))
                known = CpuPlan(graph, self.options, watched, shared)
                self._make_room(graph)
            else:
                del self._plans[key]
            self._plans[key] = known  # the latest stand last
            return known

    def _make_room(self, graph: Graph) -> None:
        """Give up the oldest plans of a program that runs at many shapes."""
        if graph.bound is None:
            return
        copies = [key for key, plan in self._plans.items() if plan.graph.bound is graph.bound]
        for key in copies[: max(0, len(copies) - MOST_SHAPES + 1)]:
            del self._plans[key]

    def forget(self, graph: Graph) -> None:
        with self._lock:
            for key in [key for key, plan in self._plans.items() if plan.graph.stems_from(graph)]:
                del self._plans[key]
            self._shared.pop(id(graph), None)

    def plain(self, name: str) -> Callable[..., np.ndarray | None] | None:
        return self._plain.get(name)

    def run(self, launch: Launch, inputs: Sequence[np.ndarray]) -> PackedBuffer:
        return self._emulated.run(launch, inputs)

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        with self._lock:
            if prepared not in self._calls:
                jobs = self.choose(prepared).jobs()
                self._calls[prepared] = JobList(jobs, self.options.threads) if jobs else None
            ready = self._calls[prepared]
            if ready is None:
                return self._emulated.run_prepared(prepared, inputs)
            out = PackedBuffer(prepared.call.out)
            buffers = {name: buffer.words for name, buffer in {**inputs, "out": out}.items()}
            between = {name: _between(size) for job in ready.jobs for name, size in job.temps}
            buffers |= {name: block[FAR_WORDS:] for name, block in between.items()}
            ready.bind({name: words.ctypes.data for name, words in buffers.items()})
            doing.during(ready, ready.run)
            try:
                ready.check_scratch(prepared.call.op.name)
                _check_guards(prepared.call.op.name, between, out)
            except GuardError as error:
                doing.note(error, f"after {ready} ran")
                raise
        return out


def _check_guards(where: str, between: Mapping[str, np.ndarray], out: PackedBuffer) -> None:
    """GuardError if a word beside a buffer between two jobs, or beside the output, was overwritten."""
    for name, block in between.items():
        if (block[:FAR_WORDS] != GUARD).any() or (block[-FAR_WORDS:] != GUARD).any():
            raise GuardError(where, f"wrote beside buffer {name} between its jobs")
    out.check_guards(where)


def _between(nbytes: int) -> np.ndarray:
    """Words for a buffer between two jobs of a call, with guard words around it."""
    return np.full(-(-nbytes // 4) + 2 * FAR_WORDS, GUARD, np.int32)
