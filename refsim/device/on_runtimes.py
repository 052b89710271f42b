"""One file on two runtimes, and which of its values are others on the second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from refsim.core.counted import counted
from refsim.core.plain import FLAT
from refsim.core.result import Comparison, Table, Text
from refsim.device.across import Across, across
from refsim.device.opened import Opened
from refsim.exec.factory import executor_named


@dataclass(frozen=True, kw_only=True)
class RuntimesCompared(Comparison):
    """With two runtimes: which values are others on the second one."""

    file: Annotated[str, "The file."]
    aimed: Annotated[Opened, FLAT]
    executors: Annotated[Sequence[str], "The executor that ran both."]
    runtimes: Annotated[Sequence[str], "The runtimes."]
    values: Annotated[Sequence[Across], "The values, in the order of execution."]
    outputs: Annotated[Sequence[str], "Outputs of delegates that are others."]
    first: Annotated[str | None, "The first value that is another."]

    def text(self) -> Text:
        yield Table.of(Across, self.values)
        differ = sum(bool(row.different) for row in self.values)
        yield f"{counted(len(self.values), 'value')} on {' and '.join(self.runtimes)}: {differ} differ"
        told = (text for row in self.values if row.alone for text in row.why if ":" in text)
        yield from (f"why {line}" for line in dict.fromkeys(told))
        yield f"outputs of delegates that differ: {', '.join(self.outputs) or 'none'}"


def compare_runtimes(
    file: str, first: Opened, second: Opened, given: Sequence[np.ndarray], executor: str
) -> RuntimesCompared:
    """Each value with the elements that are others on the second runtime, and why."""
    releases = (first.runtime, second.runtime)
    rows = across(first.model, second.model, given, executor_named(executor), releases)
    apart = [row.value for row in rows if row.different]
    graphs = first.model.graphs.items()
    outputs = {f"delegate{number}_v{value}" for number, graph in graphs for value in graph.outputs}
    return RuntimesCompared(
        file=file, aimed=first, executors=[executor], runtimes=list(releases), values=rows,
        outputs=sorted(value for value in apart if value in outputs), first=next(iter(apart), None), same=not apart,
    )  # fmt: skip
