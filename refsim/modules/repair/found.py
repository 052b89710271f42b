"""What a search for a repair found: edits of a module, where they are, and how many cases they make right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from refsim.core.counted import counted
from refsim.core.meanings import ModuleName, OperatorName, Seconds
from refsim.formats.module_folder import SUFFIX
from refsim.modules.repair.code import Code, Site
from refsim.modules.repair.draft import Edit
from refsim.modules.repair.schema import edited
from refsim.spirv.lines import SourceLine
from refsim.spirv.opcodes import Op

#: Instructions that are shown in front of one, and behind it, where a module has no lines.
AROUND = 3


@dataclass(frozen=True)
class FoundRepair:
    """An edit of a module."""

    module: ModuleName
    edit: Edit
    code: Code
    cases: Annotated[int, "Cases that are right with it."] = 0
    wrong: Annotated[str | None, "A case that is not; null if all are right."] = None

    @property
    def site(self) -> Site | None:
        """The first instruction that is edited; None if declarations are."""
        return self.edit.changes[0].site if self.edit.changes else None

    @property
    def line(self) -> SourceLine | None:
        """The source line; None without debug information. A branch may have none: its condition's, or what follows."""
        if self.site is None:
            mark = next((mark for mark, _ in self.edit.marks), None)
            if mark is None or self.code.lines is None:
                return None
            return self.code.lines.declared(mark.args[0], mark.args[-1])
        function, row = self.site
        made_at, length = self.code.made_at, len(self.code.module.functions[function])
        operands = (made_at[word] for word in self.code.at(self.site).args if word in made_at)
        behind = (Site(function, at) for at in range(row + 1, length))
        return next(filter(None, map(self.code.line, (self.site, *operands, *behind))), None)

    @property
    def detour(self) -> bool:
        """Whether branches alone are edited: then another way through the kernel may be right, and this one wrong."""
        sites = (change.site for change in self.edit.changes)
        return self.site is not None and all(self.code.at(site).op == Op.BRANCH_CONDITIONAL for site in sites)

    @property
    def at(self) -> object:
        """Where it is: a line, else an instruction, else what is declared."""
        return self.module, self.line or self.site or self.edit.said

    @property
    def place(self) -> Annotated[str | None, "File and line; null without line numbers."]:
        return None if self.line is None else str(self.line)

    @property
    def source(self) -> Annotated[str, "The text of that line."]:
        lines = self.code.lines
        return "" if self.line is None or lines is None else lines.text(self.line)

    @property
    def change(self) -> Annotated[str, "The edit, in words."]:
        return self.edit.said

    @property
    def instruction(self) -> Annotated[str, "The instruction that is edited; empty if declarations are."]:
        return "" if self.site is None else self.code.at(self.site).disassembled

    @property
    def copies(self) -> Annotated[int, "How many copies of it are edited."]:
        return len(self.edit.changes)

    @property
    def spirv(self) -> bytes:
        """The module with the edit."""
        return edited(self.code, self.edit).to_bytes()

    def __str__(self) -> str:
        """One line: where, what in place of what, and how many cases it makes right."""
        own = "declarations" if self.site is None else self.code.at(self.site).name
        place = self.line or f"{self.module}{SUFFIX}, {own}"
        if self.wrong is None:
            return f"{place}: {self.change} makes all {counted(self.cases, 'case')} right"
        return f"{place}: {self.change} is right in {counted(self.cases, 'case')}, wrong in {self.wrong}"

    def around(self) -> list[str]:
        """The instruction among its neighbours, as a disassembler writes them."""
        if self.site is None:
            return []
        function, row = self.site
        body, first = self.code.module.functions[function], max(0, row - AROUND)
        return [
            f"{'>' if at == row else ' '} {one.disassembled}"
            for at, one in enumerate(body[first : row + AROUND + 1], first)
        ]


@dataclass
class RepairSearch:
    """A search for a repair of one operator, in the order in which it found them."""

    operator: OperatorName
    witness: Annotated[str, "The case that each edit was tried on."] = ""
    modules: Annotated[Sequence[str], "The modules that were edited."] = ()
    repairs: Annotated[list[FoundRepair], "Edits with which all cases are right."] = field(
        default_factory=list
    )
    partial: Annotated[
        list[FoundRepair], "Edits with which all witnesses are right, and some other case is not."
    ] = field(default_factory=list)
    tried: Annotated[int, "How many edits were tried."] = 0
    edits: Annotated[int, "How many edits there are."] = 0
    seconds: Seconds = 0.0
    unread: Annotated[
        Mapping[str, Sequence[str]], "By module: what it never uses of what its host gives it."
    ] = field(default_factory=dict)

    @property
    def mended(self) -> bool:
        """Whether an edit was found that is no detour."""
        return not all(one.detour for one in self.repairs)

    @property
    def per_line(self) -> Counter[object]:
        """How many repairs each line has."""
        return Counter(one.at for one in self.repairs)

    @property
    def ended(self) -> bool:
        """Whether more time would find nothing else: there is a repair that is no detour, or all was tried."""
        return self.mended or 0 < self.edits == self.tried

    def lines(self) -> Iterator[str]:
        """What the search found, line by line."""
        for number, one in enumerate(self.repairs):
            yield f"{'or' if number else 'repair'}: {one}"
            if one.line is None:
                yield from (f"    {row}" for row in one.around())
            elif one.source:
                yield f"    {one.source}"
        if not self.repairs:
            yield f"no repair: {self._nothing()}"
            yield from (f"  not it: {one}" for one in self.partial)
            for module, facts in self.unread.items():
                yield from (f"  {module}{SUFFIX} {fact}" for fact in facts)

    def _nothing(self) -> str:
        """What was tried."""
        files = ", ".join(f"{name}{SUFFIX}" for name in self.modules)
        if not self.edits:  # stopped before they were listed
            return f"no edit of {files} was tried"
        tried = f"{self.tried} of {self.edits}" if self.tried < self.edits else f"all {self.edits}"
        return f"none of the single edits that were tried, {tried} of {files}, makes all cases of {self.operator} right"
