"""The corpus on a device that refsim cannot reach, as values: cases as programs, and what the device made of them."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import refsim
from refsim.check.runtime import DEFAULT
from refsim.core import choices
from refsim.core.counted import counted
from refsim.core.doing import progress
from refsim.core.errors import ParameterError
from refsim.core.plain import FLAT
from refsim.core.result import MOST_SHOWN, Command, FileSize, Result, Table, Text, rest
from refsim.core.status import DIFFERENT, SAME
from refsim.device.outputs import IN_FOLDER
from refsim.formats.cases import write_folder
from refsim.golden import certify, programs
from refsim.golden.programs import Size, choose, exportable, layouts_of
from refsim.golden.told import kernels_text


@dataclass(frozen=True)
class ExportedFile(FileSize):
    """A program of the corpus."""

    cases: Annotated[int, "How many cases it holds."]


@dataclass(frozen=True)
class ExportedCorpus(Result):
    """Cases as programs."""

    folder: Annotated[str, "The folder."]
    files: Annotated[Sequence[ExportedFile], "The files that were written."]
    not_exported: Annotated[Sequence[programs.LeftOut], "Cases that the runtime would not load."]
    release: str

    @property
    def cases(self) -> Annotated[int, "How many cases."]:
        return sum(one.cases for one in self.files)

    @property
    def bytes(self) -> Annotated[int, "Size of all files."]:
        return sum(one.bytes for one in self.files)

    def text(self) -> Text:
        yield Table(
            ("file", "cases count", "bytes"), [(one.file, one.cases, one.bytes) for one in self.files]
        )
        for rule, count in Counter(row.rule for row in self.not_exported).items():
            what = next(row.what for row in self.not_exported if row.rule == rule)
            yield f"not exported: {counted(count, 'case')}, {rule}: {what}"
        files = f"{counted(len(self.files), 'file')}, {counted(self.bytes, 'byte')}"
        yield f"{self.folder}: {counted(self.cases, 'case')} in {files}"
        run = "run each file with ExecuTorch's runtime on the device, without inputs"
        yield f"{run}, and save all outputs in one folder"
        then = ["refsim", "golden", "check", "--pte", self.folder, "--outputs", "OUTPUTS"]
        then += [] if self.release == DEFAULT else ["--runtime", self.release]
        yield Command(f"then: {shlex.join(then)}")
        yield f"OUTPUTS: {IN_FOLDER}"


@dataclass(frozen=True)
class JudgedDevice(Result):
    """What a device made of exported cases."""

    folder: Annotated[str, "The folder."]
    outputs: Annotated[str, "The outputs."]
    found: Annotated[certify.Certificate, FLAT]

    @property
    def status(self) -> int:
        return SAME if self.found.right else DIFFERENT

    def text(self) -> Text:
        from refsim.golden.certify import verdict, what

        found = self.found
        columns = ("operator", *(f"{name} count" for name in certify.VERDICTS))
        yield Table(columns, [(op, *counts.values()) for op, counts in found.operators.items()])
        rows = found.deviations
        told = [row for row in rows if row.verdict == certify.WRONG]
        told = told or [row for row in rows if row.verdict == certify.LEGAL]
        for row in told[:MOST_SHOWN]:
            yield f"{row.case} {row.layouts}: {'; '.join(what(row))}"
            yield f"  {row.bound.case.configuration}"
        yield from rest(len(told))
        yield from kernels_text(found.causes)
        yield from (f"known defect {name}: {text}" for name, text in found.known.items())
        yield f"profile {found.profile}; {verdict(found)}"


def exported(
    folder: str, operators: Sequence[str], layouts: Sequence[str], size: Size, most: int, release: str
) -> ExportedCorpus:
    """Cases of the corpus written to a folder as programs; ParameterError where there is none of this kind."""
    files: list[programs.CorpusProgram] = []
    refused: list[programs.LeftOut] = []
    wanted = operators or exportable()
    with progress("operators", len(wanted)) as advance:
        for op in wanted:
            cases, left_out = programs.loadable(choose((op,), layouts, size), release)
            files += list(programs.programs(cases, most))
            refused += left_out
            advance()
    if not files:
        raise _none_chosen(operators, layouts, size, refused)
    content = {file.file: file.data for file in files}
    content[programs.MANIFEST] = programs.manifest(files, refsim.__version__, refused)
    write_folder(folder, content)
    rows = [ExportedFile(file.file, len(file.data), len(file.cases)) for file in files]
    return ExportedCorpus(folder, rows, refused, release)


def _none_chosen(
    operators: Sequence[str], layouts: Sequence[str], size: Size, refused: Sequence[programs.LeftOut]
) -> ParameterError:
    """What there is instead: other layouts of these operators, or cases of another size."""
    if refused:
        said = f"the runtime loads none of {counted(len(refused), 'case')}"
        return ParameterError("golden export", said, got=refused[0].case, need=refused[0].error.what)
    names, asked = ", ".join(operators) or "any operator", ", ".join(layouts)
    if next(choose(operators, layouts), None) is None:
        need = choices.listed(layouts_of(operators or exportable()))
        return ParameterError("golden export", f"no case of {names} has such a layout", got=asked, need=need)
    what = f"no case of {names} in {asked} has this size" if layouts else f"no case of {names} has this size"
    return ParameterError("golden export", what, got=size.value, need=Size.ALL.value)
