"""How the cpu executor computes a model: the route of every operator, and the memory that it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from refsim.cli.kit.text import print_table, say
from refsim.cli.kit.verb import Result
from refsim.core.counted import counted
from refsim.exec.cpu import NativeExecutor
from refsim.exec.cpu.isa import cpu
from refsim.exec.model import Model

COLUMNS = ("nodes", "operator", "route", "reads", "writes", "tasks", "kernel")
DROP = ("kernel", "reads", "tasks")


def plan_of(file: str, model: Model, threads: int, routes: Mapping[str, str]) -> Result:
    """The plan of every delegate; the JSON also says which routes were rejected, and why."""
    executor = NativeExecutor(threads, routes)
    plans = {number: executor.session(graph) for number, graph in model.graphs.items()}
    processor = {"name": cpu().name, "instructions": cpu().isa.name, "threads": threads}
    delegates = [
        {"delegate": number, "steps": plan.rows(), "memory": plan.memory.as_dict()}
        for number, plan in plans.items()
    ]

    def show() -> None:
        say(f"{file}: {processor['name']}, {processor['instructions']}, {counted(threads, 'thread')}")
        for number, plan in plans.items():
            say()
            say(f"delegate {number}")
            print_table(COLUMNS, [_cells(row) for row in plan.rows()], DROP)
            say(f"memory: {plan.memory}")

    return Result({"file": file, "processor": processor, "delegates": delegates}, show)


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    nodes = row["nodes"]
    span = str(nodes[0]) if len(nodes) == 1 else f"{nodes[0]}-{nodes[-1]}"
    reads, writes = ("; ".join(row[key]) for key in ("reads", "writes"))
    return (span, row["operator"], row["route"], reads, writes, row["tasks"], row["kernel"])
