"""GPU work in a process of its own: a driver that crashes ends one piece of work, not the program.

`IsolatedExecutor` stands for a `KomputeExecutor` in a child process (``python -m refsim_gpu.worker N``). They exchange
pickled frames, a length before each. A child that ends, or is silent for too long, is a DeviceError; the next
piece of work gets a new child.
"""

from __future__ import annotations

import os
import pickle
import select
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any

import numpy as np

from refsim.core.buffer import PackedBuffer
from refsim.core.errors import DeviceError, RefsimError
from refsim.core.launch import Launch
from refsim.exec.executor import Executor
from refsim.graph.graph import Graph
from refsim.graph.interpreter import Event, Observer
from refsim.ops.base.spec import Prepared

TIMEOUT_S = 300.0
_LENGTH = struct.Struct("<Q")


def send(stream: IO[bytes], message: Any) -> None:
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(_LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """The next message; EOFError if the other side is gone."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return pickle.loads(data)


class IsolatedExecutor(Executor):
    """A device in a child process, started with the first piece of work."""

    def __init__(self, index: int = 0, *, timeout_s: float = TIMEOUT_S) -> None:
        self.name = f"gpu:{index}"
        self.index = index
        self.timeout_s = timeout_s
        self._child: subprocess.Popen[bytes] | None = None
        self._graphs: dict[
            int, Graph
        ] = {}  # graphs that the child knows, by id; held so that ids stay theirs

    def open(self) -> None:
        """Start the child and test the device; DeviceError or MissingDependencyError if that fails."""
        self._ask("open", self.index)

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        self._graphs.clear()
        if child is not None:
            assert child.stdin is not None and child.stdout is not None
            child.stdin.close()
            child.stdout.close()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def __enter__(self) -> IsolatedExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def supports(self, launch: Launch) -> str | None:
        return self._work("supports", launch)

    def run(self, launch: Launch, inputs: Sequence[np.ndarray]) -> PackedBuffer:
        return self._work("run", launch, [np.asarray(words) for words in inputs])

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        return self._work("run_prepared", prepared, dict(inputs))

    def session(self, graph: Graph) -> IsolatedSession:
        return IsolatedSession(self, graph)

    def run_graph(
        self, graph: Graph, inputs: Sequence[np.ndarray], watched: bool
    ) -> tuple[list[Any], list[Any]]:
        """Outputs, and (node number, outputs, seconds) of each node if ``watched``."""
        key = id(graph)
        self._work("graph", key, None if key in self._graphs else graph)
        self._graphs[key] = graph
        return self._work("run_graph", key, list(inputs), watched)

    def _work(self, verb: str, *arguments: Any) -> Any:
        if self._child is None or self._child.poll() is not None:
            self.close()
            self._start()
            self._ask("open", self.index)
            if verb == "graph":
                self._graphs.clear()
        return self._ask(verb, *arguments)

    def _start(self) -> None:
        command = [sys.executable, "-m", "refsim_gpu.worker"]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def _ask(self, verb: str, *arguments: Any) -> Any:
        if self._child is None:
            self._start()
        child = self._child
        assert child is not None and child.stdin is not None and child.stdout is not None
        try:
            send(child.stdin, (verb, arguments))
            ready, _, _ = select.select([child.stdout], [], [], self.timeout_s)
            if not ready:
                child.kill()
                raise DeviceError(self.name, f"{verb} did not end", got=f"silence for {self.timeout_s:g} s")
            kind, result = receive(child.stdout)
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            status = child.wait()
            self.close()
            raise DeviceError(
                self.name, f"the driver ended the worker process during {verb}", got=_status(status)
            ) from error
        if kind == "error":
            raise result
        return result


def _status(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit status {code}"


class IsolatedSession:
    """A graph in the child process."""

    def __init__(self, executor: IsolatedExecutor, graph: Graph) -> None:
        self.executor = executor
        self.graph = graph

    def run(
        self, inputs: Sequence[np.ndarray], number: int = 0, observe: Observer | None = None
    ) -> list[np.ndarray]:
        outputs, events = self.executor.run_graph(self.graph, inputs, observe is not None)
        for node, results, seconds in events:
            assert observe is not None
            observe(Event(number, self.graph, self.graph.nodes[node], results, seconds))
        return outputs


class _Server:
    """The child's side: one device, the graphs that it was given, a method for each verb."""

    def __init__(self) -> None:
        self.executor: Any = None
        self.graphs: dict[int, Graph] = {}

    def open(self, index: int) -> None:
        from refsim_gpu.executor import open_executor

        self.executor = open_executor(index)

    def supports(self, launch: Launch) -> str | None:
        return self.executor.supports(launch)

    def run(self, launch: Launch, inputs: Sequence[np.ndarray]) -> PackedBuffer:
        return self.executor.run(launch, inputs)

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        return self.executor.run_prepared(prepared, inputs)

    def graph(self, key: int, graph: Graph | None) -> None:
        if graph is not None:
            self.graphs[key] = graph

    def run_graph(self, key: int, inputs: Sequence[np.ndarray], watched: bool) -> tuple[list[Any], list[Any]]:
        events: list[Any] = []

        def watch(event: Event) -> None:
            events.append((event.node.number, dict(event.outputs), event.seconds))

        session = self.executor.session(self.graphs[key])
        return session.run(inputs, 0, watch if watched else None), events


def main() -> int:
    """Serve until the parent closes the pipe. Whatever prints goes to stderr: stdout carries frames."""
    frames = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    server = _Server()
    while True:
        try:
            verb, arguments = receive(sys.stdin.buffer)
        except EOFError:
            return 0
        try:
            reply = ("ok", getattr(server, verb)(*arguments))
        except RefsimError as error:
            reply = ("error", error)
        except Exception as error:  # anything else is a defect; it must not look like a lost device's silence
            reply = ("error", DeviceError("worker", f"{type(error).__name__}: {error}"))
        send(frames, reply)


if __name__ == "__main__":
    sys.exit(main())
