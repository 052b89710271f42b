"""How the cpu executor computes a model: the route of every operator, and the memory that it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from refsim.core.counted import counted
from refsim.core.result import Result, Table, Text
from refsim.exec.model import Model
from refsim.exec.plan_memory import PlanMemory

COLUMNS = ("nodes", "operator", "route", "reads", "writes", "tasks", "kernel")
DROP = ("kernel", "reads", "tasks")


@dataclass(frozen=True)
class PlannedStep:
    """A step of a plan."""

    nodes: Annotated[Sequence[int], "Numbers of the nodes."]
    operator: Annotated[str, "Names of the operators."]
    route: Annotated[str, "The route that it takes."]
    kernel: Annotated[str, "The compiled kernel."]
    reads: Annotated[Sequence[str], "What it reads, and how that lies in memory."]
    writes: Annotated[Sequence[str], "What it writes, and how that lies in memory."]
    tasks: Annotated[int, "Into how many tasks it is divided."]
    rejected: Annotated[Mapping[str, str], "Routes that it does not take, and why."]

    def cells(self) -> tuple[object, ...]:
        first, last = self.nodes[0], self.nodes[-1]
        span = str(first) if len(self.nodes) == 1 else f"{first}-{last}"
        reads, writes = "; ".join(self.reads), "; ".join(self.writes)
        return (span, self.operator, self.route, reads, writes, self.tasks, self.kernel)


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
            yield Table(COLUMNS, [step.cells() for step in one.steps], DROP)
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
