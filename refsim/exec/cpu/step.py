"""Step: what a plan executes at a time, one operator or several fused."""

from __future__ import annotations

from dataclasses import dataclass

from refsim.exec.cpu.job import Job
from refsim.exec.cpu.routes import RouteChoice
from refsim.graph.graph import Node


@dataclass(frozen=True)
class PlanStep:
    """One operator, or several fused: how it is computed, what it reads and writes (value ids)."""

    nodes: tuple[Node, ...]
    route: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    jobs: tuple[Job, ...] = ()
    choice: RouteChoice | None = None

    @property
    def is_native(self) -> bool:
        return bool(self.jobs)


def value_name(value: int) -> str:
    return f"value {value}"
