"""How the cpu executor computes a model: the route of every operator, and the memory that it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from refsim.core.counted import counted
from refsim.core.meanings import DelegateNumber, FileName, OwnName
from refsim.core.result import Result, Table, Text
from refsim.exec.model import Model
from refsim.exec.plan_rows import PlanMemory, PlannedStep


@dataclass(frozen=True)
class PlannedDelegate:
    """A delegate as the executor cpu computes it."""

    delegate: DelegateNumber
    steps: Annotated[Sequence[PlannedStep], "The steps, in their order."]
    memory: Annotated[PlanMemory, "The memory that it takes."]


@dataclass(frozen=True)
class Processor:
    """The processor that the plan is for."""

    name: OwnName
    instructions: Annotated[str, "The instruction set."]
    threads: Annotated[int, "Threads of the executor cpu."]


@dataclass(frozen=True)
class PlannedFile(Result):
    """With --plan: how the executor cpu computes a file."""

    file: FileName
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
    delegates = [PlannedDelegate(number, plan.rows(), plan.memory) for number, plan in plans.items()]
    return PlannedFile(file, Processor(cpu().name, cpu().isa.name, threads), delegates)
