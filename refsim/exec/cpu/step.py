"""Step: what a plan executes at a time, one operator or several fused."""

from __future__ import annotations

from dataclasses import dataclass

from refsim.exec.cpu import compiled
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

    @property
    def kernels(self) -> str:
        """Its kernels, each with the file that writes it."""
        return compiled.told(kernel for job in self.jobs for kernel in job.kernels)

    @property
    def by(self) -> str:
        """What computes it, in words."""
        return f"the route {self.route}, {self.kernels}" if self.jobs else ""


def value_name(value: int) -> str:
    return f"value {value}"
