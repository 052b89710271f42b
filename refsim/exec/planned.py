"""How the cpu executor computes a model: the route of every operator, and the memory that it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from refsim.core.counted import counted
from refsim.core.plain import Column
from refsim.core.result import Result, Table, Text
from refsim.exec.model import Model
from refsim.exec.plan_memory import PlanMemory


def _span(nodes: Sequence[int]) -> str:
    return f"{nodes[0]}-{nodes[-1]}" if len(nodes) > 1 else str(nodes[0])


@dataclass(frozen=True)
class PlannedStep:
    """A step of a plan."""

    nodes: Annotated[Sequence[int], "Numbers of the nodes.", Column(show=_span)]
    operator: Annotated[str, "Names of the operators.", Column()]
    route: Annotated[str, "The route that it takes.", Column()]
    reads: Annotated[
        Sequence[str], "What it reads, and how that lies in memory.", Column(drop=2, show="; ".join)
    ]
    writes: Annotated[Sequence[str], "What it writes, and how that lies in memory.", Column(show="; ".join)]
    tasks: Annotated[int, "Into how many tasks it is divided.", Column(drop=3)]
    kernel: Annotated[str, "The compiled kernel.", Column(drop=1)]
    rejected: Annotated[Mapping[str, str], "Routes that it does not take, and why."]


@dataclass(frozen=True)
class PlannedDelegate:
    """A delegate as the executor cpu computes it."""

    delegate: Annotated[int, "Number of the delegate."]
    steps: Annotated[Sequence[PlannedStep], "The steps, in their order."]
    memory: Annotated[PlanMemory, "The memory that it takes."]


@dataclass(frozen=True)
class Processor:
    """The processor that the plan is for."""

    name: Annotated[str, "Its name."]
    instructions: Annotated[str, "The instruction set."]
    threads: Annotated[int, "Threads of the executor cpu."]


@dataclass(frozen=True)
class PlannedFile(Result):
    """With --plan: how the executor cpu computes a file."""

    file: Annotated[str, "The file."]
    processor: Annotated[Processor, "The processor that the plan is for."]
    delegates: Annotated[Sequence[PlannedDelegate], "The delegates."]

    def text(self) -> Text:
        on = self.processor
        yield f"{self.file}: {on.name}, {on.instructions}, {counted(on.threads, 'thread')}"
        for one in self.delegates:
            yield ""
            yield f"delegate {one.delegate}"
            yield Table.of(PlannedStep, one.steps)
            yield f"memory: {one.memory}"


def plan_of(file: str, model: Model, threads: int, routes: Mapping[str, str]) -> PlannedFile:
    """The plan of every delegate."""
    from refsim.exec.cpu import NativeExecutor  # a compiler comes with it
    from refsim.exec.cpu.isa import cpu

    executor = NativeExecutor(threads, routes)
    plans = {number: executor.session(graph) for number, graph in model.graphs.items()}
    delegates = [
        PlannedDelegate(number, [PlannedStep(**row) for row in plan.rows()], plan.memory)
        for number, plan in plans.items()
    ]
    return PlannedFile(file, Processor(cpu().name, cpu().isa.name, threads), delegates)
