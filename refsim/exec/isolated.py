"""An executor in a process of its own: if a driver crashes, one piece of work is lost, but not the program.

`IsolatedExecutor` stands for an executor in a child process. A child that ends, or is silent for too long, is a
DeviceError; the next piece of work gets a new child.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from refsim.core.buffer import PackedBuffer
from refsim.core.errors import DeviceError, RefsimError
from refsim.core.launch import Launch
from refsim.exec.executor import (
    MOST_SHAPES,
    Executor,
    Finished,
    Pending,
    Source,
    Tries,
    run_graph,
    session_of,
    started,
)
from refsim.exec.finding import KernelFinding
from refsim.exec.process import Ended, ProcessError, Raised, Silent, Worker
from refsim.graph.graph import Graph
from refsim.graph.interpreter import Event, Observer
from refsim.ops.base.module_call import WrittenOutput
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.spec import Call

TIMEOUT_S = 300.0


class IsolatedExecutor(Executor):
    """What ``make(*arguments)`` opens, in a child process that is started with the first piece of work.

    ``environment`` is added to that of this process.
    """

    def __init__(
        self,
        name: str,
        make: Callable[..., Executor],
        *arguments: object,
        timeout_s: float = TIMEOUT_S,
        foreign: bool = False,
        batch: int = 1,
        flat: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.environment = environment
        self.name, self.foreign, self.batch, self.flat = name, foreign, batch, flat
        self.make, self.arguments = make, arguments
        self.timeout_s = timeout_s
        self._worker: Worker | None = None
        #: Graphs that the child knows, by id; held so that ids stay theirs.
        self._graphs: dict[int, Graph] = {}
        self._tickets = count()
        #: Runs that began and whose outputs nobody wants any more; the child hears of them with the next one.
        self._dropped: list[int] = []

    def anew(self, threads: int) -> Executor:
        return IsolatedExecutor(
            self.name, self.make, *self.arguments,
            timeout_s=self.timeout_s, foreign=self.foreign, batch=self.batch, flat=self.flat,
            environment=self.environment,
        )  # fmt: skip

    def begin_opening(self) -> IsolatedExecutor:
        """Start the child, unless it lives, and do not wait until the device is open. Returns this executor."""
        if self._worker is None or not (self._worker.pending or self._worker.alive):
            self.close()
            with _as_device_errors(self.name, "opening"):
                self._worker = Worker(
                    _Child, self.make, *self.arguments,
                    where=self.name, environment=self.environment, wait=False,
                )  # fmt: skip
        return self

    def open(self) -> IsolatedExecutor:
        """Start the child and test the device. Returns this executor.

        Raises DeviceError or MissingDependencyError if that fails.
        """
        self.begin_opening()
        assert self._worker is not None
        with _as_device_errors(self.name, "opening"):
            self._worker.ready(self.timeout_s)
        return self

    def close(self) -> None:
        """End the child."""
        worker, self._worker = self._worker, None
        self._graphs.clear()
        self._dropped = []
        if worker is not None:
            worker.close()

    def __del__(self) -> None:
        self.close()

    def device_info(self) -> Any:
        return self._work("device_info")

    def supports(self, launch: Launch) -> str | None:
        return self._work("supports", launch)

    def source(self, call: Call) -> Source:
        return self._work("source", call)

    def written(self, call: Call) -> WrittenOutput | None:
        return self._work("written", call)

    def stores(self, call: Call) -> list[tuple[str, str]]:
        return self._work("stores", call)

    def refusal(self, call: Call) -> str | None:
        return self._work("refusal", call)

    def run(self, launch: Launch, inputs: Sequence[np.ndarray]) -> PackedBuffer:
        return self._work("run", launch, [np.asarray(words) for words in inputs])

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        return self._work("run_prepared", prepared, dict(inputs))

    def run_batch(
        self, work: Sequence[tuple[Call, Mapping[str, PackedBuffer]]]
    ) -> list[PackedBuffer | RefsimError]:
        """One request; if the child does not survive it, one for each call, so that an error is that call's own."""
        try:
            return self._work("run_batch", [(call, dict(inputs)) for call, inputs in work])
        except DeviceError:
            return super().run_batch(work)

    def sanitize(
        self, call: Call, inputs: Mapping[str, PackedBuffer], repeats: int = 0
    ) -> list[KernelFinding]:
        return self._work("sanitize", call, dict(inputs), repeats)

    def try_edits(self, call: Call, inputs: Mapping[str, PackedBuffer], tries: Tries) -> list[int]:
        return self._work("try_edits", call, dict(inputs), tries)

    def session(self, graph: Graph, watched: Set[int] = frozenset()) -> IsolatedSession:
        return IsolatedSession(self, graph)

    def forget(self, graph: Graph) -> None:
        for one in [held for held in self._graphs.values() if held.stems_from(graph)]:
            self._forget_one(one)

    def _forget_one(self, graph: Graph) -> None:
        if self._graphs.pop(id(graph), None) is not None:
            self._work("forget", id(graph))

    def run_graph(
        self, graph: Graph, inputs: Sequence[np.ndarray], watched: Set[int] | None
    ) -> tuple[list[Any], list[Any]]:
        """Outputs, and (node numbers, watched outputs, seconds, why the host) of each step; None: nobody observes."""
        return self._work("run_graph", self._sent(graph), list(inputs), watched)

    def begin(self, graph: Graph, inputs: Sequence[np.ndarray]) -> RemoteRun:
        """A run that has begun in the child, which may keep several in flight."""
        key, ticket = self._sent(graph), next(self._tickets)
        dropped, self._dropped = self._dropped, []
        self._work("begin", ticket, key, list(inputs), dropped)
        return RemoteRun(self, ticket, self._worker)

    def end(self, ticket: int, worker: Worker | None) -> list[np.ndarray]:
        """The outputs of a run. DeviceError if the child that began it is gone."""
        if worker is None or worker is not self._worker or not worker.alive:
            raise DeviceError(self.name, "the worker process that began this run has ended")
        return self._ask("end", ticket)

    def drop(self, ticket: int, worker: Worker | None) -> None:
        if worker is self._worker:
            self._dropped.append(ticket)

    def _sent(self, graph: Graph) -> int:
        self.open()
        key = id(graph)
        if key not in self._graphs:
            root = None if graph.bound is None else self._sent(graph.bound)
            copies = [
                held for held in self._graphs.values() if root is not None and held.bound is graph.bound
            ]
            for old in copies[: max(0, len(copies) - MOST_SHAPES + 1)]:
                self._forget_one(old)
            self._work("graph", key, replace(graph, bound=None), root)
            self._graphs[key] = graph
        return key

    def _work(self, verb: str, *arguments: Any) -> Any:
        self.open()
        return self._ask(verb, *arguments)

    def _ask(self, verb: str, *arguments: Any) -> Any:
        assert self._worker is not None
        with _as_device_errors(self.name, verb):
            return self._worker.call(verb, *arguments, seconds=self.timeout_s)


@contextmanager
def _as_device_errors(name: str, verb: str) -> Iterator[None]:
    try:
        yield
    except Silent as error:
        raise DeviceError(name, f"{verb} did not end{_during(error)}", got=error.got) from error
    except Ended as error:
        raise DeviceError(
            name, f"the worker process ended during {verb}{_during(error)}", got=error.got
        ) from error
    except Raised as error:  # a defect; it must not look like a lost device's silence
        raise DeviceError(name, f"{verb} failed", got=error.got) from error


def _during(error: ProcessError) -> str:
    return f", at {error.working}" if error.working else ""


class IsolatedSession:
    """A graph in the child process."""

    def __init__(self, executor: IsolatedExecutor, graph: Graph) -> None:
        self.executor = executor
        self.graph = graph

    def run(
        self, inputs: Sequence[np.ndarray], number: int = 0, observe: Observer | None = None
    ) -> list[np.ndarray]:
        watched = None if observe is None else observe.watched(number, self.graph)
        outputs, events = self.executor.run_graph(self.graph, inputs, watched)
        for numbers, *told in events:
            assert observe is not None
            observe.report(number, self.graph, tuple(self.graph.nodes[n] for n in numbers), *told)
        return outputs

    def start(
        self, inputs: Sequence[np.ndarray], number: int = 0, observe: Observer | None = None
    ) -> Pending:
        """A run that has begun; one that is observed has ended, too."""
        if observe is not None:
            return Finished(self.run(inputs, number, observe))
        return self.executor.begin(self.graph, inputs)


class RemoteRun:
    """A run in flight in the child process."""

    def __init__(self, executor: IsolatedExecutor, ticket: int, worker: Worker | None) -> None:
        self._executor, self._ticket, self._worker = executor, ticket, worker
        self._ended = False

    def finish(self) -> list[np.ndarray]:
        self._ended = True
        return self._executor.end(self._ticket, self._worker)

    def __del__(self) -> None:
        if not self._ended:
            self._executor.drop(self._ticket, self._worker)


class _Child:
    """The child's side: an executor, the graphs that it was given and the runs that it keeps.

    A verb that is none of its methods is one of the executor's.
    """

    def __init__(self, make: Callable[..., Executor], *arguments: object) -> None:
        self.executor = make(*arguments)
        self.graphs: dict[int, Graph] = {}
        self.begun: dict[int, Pending] = {}

    def __getattr__(self, verb: str) -> Any:
        return getattr(self.executor, verb)

    def graph(self, key: int, graph: Graph, root: int | None = None) -> None:
        """``root``: the key of the graph at the bound, of which this is a copy."""
        self.graphs[key] = graph if root is None else replace(graph, bound=self.graphs[root])

    def forget(self, key: int) -> None:
        if (graph := self.graphs.pop(key, None)) is not None:
            self.executor.forget(graph)

    def begin(self, ticket: int, key: int, inputs: Sequence[np.ndarray], dropped: Sequence[int]) -> None:
        for old in dropped:
            self.begun.pop(old, None)
        graph = self.graphs[key]
        self.begun[ticket] = started(session_of(graph, self.executor), graph, inputs, 0, None)

    def end(self, ticket: int) -> list[np.ndarray]:
        return self.begun.pop(ticket).finish()

    def run_graph(
        self, key: int, inputs: Sequence[np.ndarray], watched: Set[int] | None
    ) -> tuple[list[Any], list[Any]]:
        events: list[Any] = []

        def tell(event: Event) -> None:
            numbers = [node.number for node in event.nodes]
            events.append((numbers, dict(event.outputs), event.seconds, event.on_host, event.by))

        graph = self.graphs[key]
        if watched is None:
            return run_graph(graph, inputs, self.executor), events
        observe = Observer(tell, lambda delegate, value: value in watched)
        return run_graph(graph, inputs, self.executor, 0, observe), events
