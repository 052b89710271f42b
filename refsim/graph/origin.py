"""What an operator of a delegate was made from: operators of a torch.export program, and the lines of code of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from refsim.core.counted import counted
from refsim.core.result import Table

#: What stands in the way of the code that a model's author wrote: torch's own modules.
_TORCH = ("/torch/", "/torchao/")
_PACKAGES = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class Frame:
    """A line of Python: file, number, function, and its text where the stack trace has it."""

    file: Annotated[str, "Its file."]
    line: Annotated[int, "Its number."]
    function: Annotated[str, "The function that it is in."]
    code: Annotated[str, "Its text."] = ""

    @property
    def is_torch(self) -> bool:
        """Whether the line is torch's own."""
        path = self.file.replace("\\", "/")
        return any(packages + torch in path for packages in _PACKAGES for torch in _TORCH)

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}" + (f": {self.code}" if self.code else "")


@dataclass(frozen=True)
class ExportedNode:
    """One operator. ``inputs`` and ``outputs`` are names of tensors, ``numbers`` the plain numbers among its arguments.

    ``target`` is the operator with its namespace, as ``aten.conv2d.default``. ``module`` and ``module_type`` say in
    which module of the model it was called, as ``block.conv`` and ``Conv2d``. ``handle`` is ExecuTorch's debug handle.
    """

    target: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    numbers: Mapping[str, float] = field(default_factory=dict)
    frames: tuple[Frame, ...] = ()
    module: str = ""
    module_type: str = ""
    handle: int | None = None

    @property
    def own_frame(self) -> Frame | None:
        """The innermost line that is not torch's own; if all are torch's, the innermost one."""
        own = [frame for frame in self.frames if not frame.is_torch] or list(self.frames)
        return own[-1] if own else None


@dataclass(frozen=True)
class Origin:
    """What an operator was made from: operators of the exported program in order; or an input that it only converts."""

    nodes: tuple[ExportedNode, ...]
    input: Annotated[str, "The input that it only converts; else empty."] = ""

    @property
    def frames(self) -> Annotated[list[Frame], "The lines of the model's own code, each once, in order."]:
        return list(dict.fromkeys(frame for node in self.nodes if (frame := node.own_frame) is not None))

    @property
    def module(self) -> Annotated[str, "The innermost module of the first operator, as `first.narrow`."]:
        return self.nodes[0].module if self.nodes else ""

    @property
    def module_type(self) -> Annotated[str, "The type of that module."]:
        return self.nodes[0].module_type if self.nodes else ""

    @property
    def operators(self) -> Annotated[list[str], "The operators of the exported program, in order."]:
        return [node.target for node in self.nodes]

    def lines(self) -> list[str]:
        """Sentences for a report: the module, then each line of code."""
        if self.input:
            return [f"input {self.input}"]
        place = f"{self.module} ({self.module_type})" if self.module else self.module_type
        return [*([place] if place else []), *map(str, self.frames)]

    def __str__(self) -> str:
        """For the cell of a table: file, line and module, or the operator where no line is known."""
        if self.input:
            return f"input {self.input}"
        first = self.frames[0] if self.frames else None
        line = "" if first is None else f"{first.file.replace(chr(92), '/').rpartition('/')[2]}:{first.line}"
        return " ".join(part for part in (line, self.module) if part) or self.nodes[0].target


@dataclass(frozen=True)
class Origins:
    """Origins by delegate and number of the node. Nothing is known, and nothing is shown, without a record."""

    found: Mapping[tuple[int, int], Origin] = field(default_factory=dict)
    #: names of the outputs of these nodes
    values: Mapping[tuple[int, int], str] = field(default_factory=dict)
    record: str | None = None
    operators: int = 0

    def __bool__(self) -> bool:
        return self.record is not None

    def cell(self, delegate: int, node: int) -> list[object]:
        """The last cell of a row; nothing without a record."""
        return [self.found.get((delegate, node), "-")] if self else []

    def made_by(self, delegate: int, node: int) -> Iterator[str]:
        """What made an operator."""
        origin = self.found.get((delegate, node))
        if origin is not None:
            first, *others = origin.lines() or [str(origin)]
            yield f"made by: {first}"
            yield from (f"  {line}" for line in others)

    def lines(self) -> dict[tuple[int, int], list[str]] | None:
        """Numbers of delegate and node -> the text of its cell, then its module and lines; None without a record."""
        return {place: [str(one), *one.lines()] for place, one in self.found.items()} if self else None

    def summary(self) -> Iterator[str]:
        if self:
            yield f"origin: {len(self.found)} of {counted(self.operators, 'operator')} found in {self.record}"

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[tuple[tuple[int, int], Sequence[object]]],
        drop: Sequence[str],
    ) -> Table:
        """A table with a column more if there is a record. ``rows``: (delegate, node), and the cells."""
        cells = [[*row, *self.cell(*place)] for place, row in rows]
        return Table((*columns, *(["origin"] if self else [])), cells, drop)

    @property
    def origins(
        self,
    ) -> Annotated[dict[str, Origin] | None, "With --origin: by the operator's output; else null."]:
        return {self.values[place]: origin for place, origin in self.found.items()} if self else None
