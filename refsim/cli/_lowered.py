"""What `refsim lower` made, as values, and their text."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from refsim.check.finding import Finding
from refsim.check.run import pointer
from refsim.core.counted import counted
from refsim.core.meanings import DeviceFamily, NodeName
from refsim.core.result import Command, FileSize, Result, Table, Text
from refsim.core.status import DIFFERENT, NOT_LOADED, SAME
from refsim.device.execution import Misshaped
from refsim.exec.model import LOWERED
from refsim.partition.refusal import RefusedNode
from refsim.partition.rows import CheckedOperator, DelegateReport

FUSED = ("delegate", "node", "operator", "made of")
REFUSED = ("node", "operator", "code", "why")
REFUSALS = ("delegate", "node", "operator", "rule", "what")
STATISTICS = {
    "operators": "operators", "int8 operators": "int8_operators", "float operators": "float_operators",
    "int8 dispatches": "dispatches", "transitions": "transitions", "clones": "clones", "clone bytes": "clone_bytes",
    "constant bytes": "constant_bytes", "memory bytes": "memory_bytes", "unshared bytes": "memory_bytes_unshared",
}  # fmt: skip
CHECKED = ("delegate", "node", "operator", "elements", "0 steps", "1 step", "more", "worst")
SUFFIX = ".pte"


@dataclass(frozen=True)
class ExplainedNode(Result):
    """With --explain: what became of a node."""

    file: Annotated[str, "The program."]
    explain: NodeName
    lines: Annotated[Sequence[str], "What became of it, in sentences."]

    def text(self) -> Text:
        yield from self.lines


@dataclass(frozen=True, kw_only=True)
class LoweredProgram(Result):
    """A program as ExecuTorch's partitioner would lower it. ``output``: where it was to be written."""

    file: Annotated[str, "The program."]
    target: DeviceFamily
    runtime: Annotated[str, "The runtime that must load it."]
    steps: Annotated[Sequence[str], "The program's steps in words."]
    delegates: Annotated[Sequence[DelegateReport], "The delegates."]
    refused: Annotated[Sequence[RefusedNode], "Nodes outside of delegates."]
    unfused: Annotated[Sequence[RefusedNode], "Quantized, but left in float."]
    runtime_errors: Annotated[
        Sequence[Finding],
        "Why the runtime does not load the program; nothing is written then without --force.",
    ]
    idle_blocks: Annotated[Sequence[str], "Operators of --block that kept no node out."]
    defects: Annotated[Sequence[Misshaped], "Nodes that ExecuTorch's runtime gets wrong."]
    check: Annotated[Sequence[CheckedOperator] | None, "With --check: against torch; else null."]
    files: Annotated[Sequence[FileSize], "What was written."] = ()
    output: str | None
    force: bool

    @property
    def quantized(self) -> Annotated[bool, "Whether any quantized operator was fused."]:
        return any(one.fused for one in self.delegates)

    @property
    def wrong(self) -> list[CheckedOperator]:
        return [one for one in self.check or () if one.wrong]

    @property
    def status(self) -> int:
        if self.runtime_errors and not self.force:
            return NOT_LOADED
        return DIFFERENT if self.wrong or not self.quantized else SAME

    def text(self) -> Text:
        yield f"{self.file}: {counted(len(self.delegates), 'delegate')}; steps: {', '.join(self.steps)}"
        yield ""
        yield "fused"
        fused = [(one.delegate, *operator.cells()) for one in self.delegates for operator in one.fused]
        yield Table(FUSED, fused, drop=("delegate",))
        refused = {"outside of delegates": self.refused, "quantized, but left in float": self.unfused}
        for title, rows in refused.items():
            yield ""
            yield f"{title}: {len(rows)}"
            if rows:
                yield Table(REFUSED, [row.cells() for row in rows], drop=("operator",))
        for operator in self.idle_blocks:
            yield f"--block {operator} keeps no node out: each is part of a fused operator, which ExecuTorch fuses too"
        if self.defects:
            yield ""
            yield f"wrong on ExecuTorch's runtime: {len(self.defects)}"
            yield Table.of(Misshaped, self.defects)
        yield from self._costs()
        yield from self._checked()
        yield from self._written()

    def _costs(self) -> Iterator[str | Table]:
        """What is needed in another layout, and what each delegate costs."""
        made = [(one.delegate, change) for one in self.delegates for change in one.clones]
        yield ""
        yield f"clones: {sum(not change.reused for _, change in made)}"
        for number, change in made:
            verb = "shares" if change.reused else "needs"
            yield (
                f"  delegate {number}: {change.source} is {change.before}; argument {change.argument} of "
                f"{change.forced_by} ({change.operator}) {verb} {change.clone} in {change.after}"
            )
        yield ""
        rows = [
            (one.delegate, *(one.statistics[key] for key in STATISTICS.values())) for one in self.delegates
        ]
        yield Table(
            ("delegate", *STATISTICS), rows, drop=("unshared bytes", "clone bytes", "float operators")
        )

    def _checked(self) -> Iterator[str | Table]:
        if self.check is not None:
            yield ""
            yield "against torch, in quantization steps"
            yield Table(CHECKED, [one.cells() for one in self.check], drop=("delegate", "more", "operator"))
            yield f"{counted(len(self.check), 'operator')} checked, {len(self.wrong)} wrong (more than 1 step)"

    def _written(self) -> Iterator[str | Table]:
        """What the runtime refuses, and what was written."""
        yield ""
        yield f"refused by the runtime {self.runtime}: {len(self.runtime_errors)}"
        rows = [
            (one.place.delegate, one.place.node, one.place.operator, one.rule, one.what)
            for one in self.runtime_errors
        ]
        if rows:
            yield Table(REFUSALS, rows, drop=("delegate",))
        if rows and self.output is not None and not self.files:
            yield f"{self.output} is not written, since that runtime does not load it; --force writes it"
        if not self.quantized:
            yield "no quantized operator: nothing was fused, and all of it runs in float; quantize the program first"
        if self.output is not None and self.files:
            alone = self.output.endswith(SUFFIX)
            folder = os.path.dirname(self.output) if alone else self.output
            for row in self.files:
                yield f"wrote {os.path.join(folder, row.file)}, {counted(row.bytes, 'byte')}"
            written = self.output if alone else os.path.join(self.output, LOWERED)
            yield Command(pointer(written, self.runtime))
