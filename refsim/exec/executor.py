"""The interface of an executor, and how any executor runs a call or a whole graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Protocol, TypeVar

import numpy as np

from refsim.core import size_limit
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import GuardError, RefsimError
from refsim.core.launch import Launch
from refsim.core.meanings import Detail, OwnName
from refsim.core.qmath import Profile
from refsim.exec.finding import KernelFinding
from refsim.graph.graph import Graph
from refsim.graph.interpreter import Observer, run_nodes
from refsim.ops.base.module_call import WrittenOutput
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.spec import Call
from refsim.ops.flat.call import meant_flat


@dataclass(frozen=True)
class Tries:
    """``code`` is the module ``shader`` with all edits; a row of ``choices`` at its last binding chooses one (uint32).

    An output is right if, where ``compared`` is true, its bytes are those of one of ``wanted`` (uint8).
    """

    shader: str
    code: bytes
    choices: np.ndarray = field(repr=False)
    compared: np.ndarray = field(repr=False)
    wanted: tuple[np.ndarray, ...] = field(repr=False)


class Session(Protocol):
    """A graph made ready on an executor: everything that a run needs was computed, uploaded and recorded once.

    A session may also have a method ``start`` with the arguments of `run`, which returns a `Pending`: then several
    runs can be in flight.
    """

    def run(
        self, inputs: Sequence[np.ndarray], number: int = 0, observe: Observer | None = None
    ) -> list[np.ndarray]:
        """The graph's outputs as logical arrays; `observe` gets an `Event` of delegate `number` for each step."""
        ...


class Pending(Protocol):
    """A run that has begun; `finish` waits for its end. Others may begin before."""

    def finish(self) -> list[np.ndarray]:
        """The outputs as logical arrays; raises what `Session.run` raises. To be called once."""
        ...


@dataclass(frozen=True)
class Finished:
    """A run of an executor that keeps none in flight: it ended when it began."""

    outputs: list[np.ndarray]

    def finish(self) -> list[np.ndarray]:
        return self.outputs


@dataclass(frozen=True)
class ExecutorInfo:
    """An executor's name for `executor_named`, and a description; or why it is not available, and how to fix that."""

    name: OwnName
    available: Annotated[bool, "Whether it can be used."]
    detail: Detail


@dataclass(frozen=True)
class Source:
    """Where the kernels of a call come from.

    ``whose`` is `OURS`, or `YOURS` for kernels of another build, which have the defects of upstream's. ``kernels`` are
    their names in the order of the dispatches; ``why`` says what kept an executor of yours from taking yours.
    """

    #: Whether a known defect of upstream's kernel is no fault of this one.
    forgiven: ClassVar[bool] = True

    whose: Annotated[str, "ours, or yours."]
    kernels: Annotated[tuple[str, ...], "Names of the kernels, in the order of the dispatches."]
    why: Annotated[str, "Why refsim's own kernels ran."] = ""

    def __str__(self) -> str:
        return f"{self.whose}: {', '.join(self.kernels)}"


@dataclass(frozen=True)
class OwnSource(Source):
    """Kernels that are not upstream's: they have no excuse to be wrong."""

    forgiven: ClassVar[bool] = False


#: Shapes of one program, beside its bound, for which an executor keeps what it has made ready.
MOST_SHAPES = 32
OURS, YOURS = "ours", "yours"


def canonical_only(profile: Profile) -> str:
    """Why an executor whose kernels are canonical refuses a call under a profile with other numerics."""
    return f"the numerics of profile {profile.name}, but refsim's shaders are canonical"


Entered = TypeVar("Entered", bound="Executor")


class Executor(ABC):
    """Runs launches. Two executors given the same launch and the same input words write the same words."""

    name: str
    #: Whether it runs kernels of another build where it has them; `source` says where.
    foreign = False
    #: Whether its kernels compute on flat tensors, in graphs of a runtime with flat storage.
    flat = False
    #: Whether a session stays good as long as the executor lives, so that a model asks for it once.
    keeps_sessions = False
    #: Whether its sessions run one node after the other, whoever watches.
    node_by_node = False
    #: How many threads compute a call.
    threads = 1
    #: How many calls it takes at once (`run_batch`) without more trouble than for one.
    batch = 1

    def close(self) -> None:  # noqa: B027
        """Give up what it holds of a device, or of another process."""

    def __enter__(self: Entered) -> Entered:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def anew(self, threads: int) -> Executor | None:
        """The same on so many threads, in a process that has run nothing yet; None if there is no such."""
        return None

    def alternatives(self, call: Call) -> Iterator[tuple[str, Executor]]:
        """What may compute a call, in words, and an executor on which it does: first what does so here.

        Nothing where there is but one way.
        """
        return iter(())

    def device_info(self) -> Any:
        """What the driver says of the device (`DeviceInfo`); None for the CPU."""
        return None

    def supports(self, launch: Launch) -> str | None:
        """None if this executor can run the launch, else the reason why not."""
        return None

    def source(self, call: Call) -> Source:
        """Where the kernels of a call come from."""
        return Source(OURS, tuple(step.launch.shader for step in call.dispatches()))

    def meant(self, call: Call) -> Call:
        """The call as its kernels mean it: with the flat meaning, if they compute it on flat tensors."""
        return meant_flat(call) if self.flat and self.source(call).whose == YOURS else call

    def written(self, call: Call) -> WrittenOutput | None:
        """Who writes the output of a call, where that is a module of another build; None for kernels of ours."""
        return None

    def stores(self, call: Call) -> list[tuple[str, str]]:
        """(place, source line) of each store to a call's output, where that module knows its lines; else empty."""
        return []

    def refusal(self, call: Call) -> str | None:
        """None if this executor can run the call, else the reason why not."""
        return next(filter(None, (self.supports(step.launch) for step in call.dispatches())), None)

    def runs(self, call: Call) -> bool:
        """Whether it runs the call, and on kernels of its own: where they refuse it, refsim's may run instead."""
        return self.source(call).whose == YOURS if self.foreign else self.refusal(call) is None

    def session(self, graph: Graph, watched: Set[int] = frozenset()) -> Session | None:
        """The graph made ready; or None, and then its nodes run one by one.

        ``watched`` are the ids of the values whose buffers an observer will want. The executor may compute all other
        values in fewer steps, and keep them in other layouts.
        """
        return None

    def forget(self, graph: Graph) -> None:  # noqa: B027
        """Give up what was made ready for a graph and its copies at other shapes; it is made anew if one runs again."""

    def plain(self, name: str) -> Callable[..., np.ndarray | None] | None:
        """A faster way to run a plain kernel between delegates, such as ``aten::mean.out``; None if there is none.

        It takes the arguments without outputs, and gives the definition's bits, or None for arguments of another kind.
        """
        return None

    @abstractmethod
    def run(self, launch: Launch, inputs: Sequence[np.ndarray]) -> PackedBuffer:
        """Dispatch once. ``inputs`` are the words (int32) of each buffer that the kernel reads, in order.

        Returns a fresh buffer, zeroed before the dispatch; raises RawBufferError if a guard word around it
        was overwritten.
        """

    def sanitize(
        self, call: Call, inputs: Mapping[str, PackedBuffer], repeats: int = 0
    ) -> list[KernelFinding]:
        """What the kernels of a call do and must not do, although its bytes may be right.

        Only an executor of modules looks, and only where its own modules compute the call. The call then also runs
        ``repeats`` times more. Raises what `run_call` raises.
        """
        return []

    def try_edits(self, call: Call, inputs: Mapping[str, PackedBuffer], tries: Tries) -> list[int]:
        """The numbers of those edits of a module that make the bytes of a call right.

        Only an executor of modules can do this. Raises what `run_call` raises.
        """
        return []

    def run_call(self, call: Call, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        """Run all dispatches of one operator call, in order, and return the output."""
        return self.run_prepared(Prepared(call), inputs)

    def run_batch(
        self, work: Sequence[tuple[Call, Mapping[str, PackedBuffer]]]
    ) -> list[PackedBuffer | RefsimError]:
        """The output of each of several calls, or the error that `run_call` raises for it."""
        return [self._tried(call, inputs) for call, inputs in work]

    def _tried(self, call: Call, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer | RefsimError:
        try:
            return self.run_call(call, inputs)
        except RefsimError as error:
            return error

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        """The same for a prepared call. Its constants are laid out at the first run.

        GuardError, which holds the output, if a dispatch wrote outside of its buffer.
        """
        buffers = {name: buffer.words for name, buffer in inputs.items()}
        buffers |= {name: prepared.words(name) for name in prepared.constants}
        broken: GuardError | None = None
        for step in prepared.dispatches:
            try:
                result = self.run(step.launch, [buffers[name] for name in step.inputs])
            except (
                GuardError
            ) as error:  # what follows is computed all the same, so that the output can be compared
                if error.buffer is None:
                    raise
                result, broken = error.buffer, broken or error
            buffers[step.output] = result.words
        if broken is not None:
            broken.buffer = result
            raise broken
        return result


def run_graph(
    graph: Graph,
    inputs: Sequence[np.ndarray],
    executor: Executor,
    number: int = 0,
    observe: Observer | None = None,
) -> list[np.ndarray]:
    """Run one delegate and return its outputs as logical arrays. LimitError before it if it needs too much memory."""
    return started(session_of(graph, executor, number, observe), graph, inputs, number, observe).finish()


def session_of(graph: Graph, executor: Executor, number: int = 0, observe: Observer | None = None) -> Session:
    """A graph's session; where an executor has none, what runs its nodes one by one. LimitError as `run_graph`."""
    size_limit.check(graph.where, graph.nbytes, size_limit.TOTAL)
    watched = observe.watched(number, graph) if observe else frozenset()
    alone = observe is not None and observe.node_by_node and not executor.node_by_node
    return (None if alone else executor.session(graph, watched)) or NodeByNode(graph, executor)


def started(
    session: Session, graph: Graph, inputs: Sequence[np.ndarray], number: int, observe: Observer | None
) -> Pending:
    """A run of a graph's session that has begun, and ended if the session keeps none in flight."""
    if observe is not None:
        observe.enter(number, graph, inputs)
    start: Callable[..., Pending] | None = getattr(session, "start", None)
    if start is not None:
        return start(inputs, number, observe)
    return Finished(session.run(inputs, number, observe))


@dataclass(frozen=True)
class NodeByNode:
    """The session of an executor that prepares nothing."""

    graph: Graph
    executor: Executor

    def run(
        self, inputs: Sequence[np.ndarray], number: int = 0, observe: Observer | None = None
    ) -> list[np.ndarray]:
        return run_nodes(self.graph, inputs, self.executor, number, observe)


class Definition(Executor):
    """Computes calls as their operators define them. It runs whole calls only, because a launch has no definition."""

    name = "define"

    def run(self, launch: Launch, inputs: Sequence[np.ndarray]) -> PackedBuffer:
        raise NotImplementedError("a definition has no launches")

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        return prepared.call.expected(inputs)


class MeantBy(Definition):
    """Computes calls by definition, as another executor's kernels mean them."""

    def __init__(self, kernels: Executor) -> None:
        super().__init__()
        self.kernels = kernels

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        return self.kernels.meant(prepared.call).expected(inputs)
