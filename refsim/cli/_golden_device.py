"""The corpus on a device that refsim cannot reach: write it as programs, and judge their outputs."""

from __future__ import annotations

import inspect
import os
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import click

import refsim
from refsim.check.runtime import DEFAULT, runtime
from refsim.cli.kit.options import folder_option, runtime_option, search_option
from refsim.cli.kit.text import wrote
from refsim.cli.kit.verb import verb
from refsim.cli.kit.written import Written
from refsim.core import atomic_write, choices, strict_json
from refsim.core.counted import counted
from refsim.core.doing import progress
from refsim.core.errors import ParameterError
from refsim.core.plain import FLAT, plain
from refsim.core.result import MOST_SHOWN, Command, FileSize, Result, Table, Text, rest
from refsim.core.status import DIFFERENT, SAME
from refsim.device.outputs import IN_FOLDER
from refsim.formats.cases import write_folder
from refsim.golden import certify, programs
from refsim.golden.chosen import Size, choose, exportable, layouts_of
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
        from refsim.golden.certificate import verdict, what

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


@verb("export", "--size small --pte out/corpus")
@click.argument("operators", nargs=-1)
@folder_option("Where to write the programs", "--pte", "folder")
@click.option(
    "--layout",
    "layouts",
    multiple=True,
    metavar="LAYOUT",
    help="Only cases with a tensor in it; may be repeated.",
)
@click.option(
    "--size",
    type=click.Choice([size.value for size in Size]),
    default=Size.ALL.value,
    show_default=True,
    help="Only cases with little data, or with much.",
)
@click.option(
    "--most",
    type=click.IntRange(10_000, programs.MAX_BYTES),
    default=programs.MAX_BYTES,
    show_default=True,
    help="Bytes of a file at most.",
)
@runtime_option
def export(
    operators: tuple[str, ...], folder: str, layouts: tuple[str, ...], size: str, most: int, release: str
) -> ExportedCorpus:
    """Write cases of the corpus, of all OPERATORS or of those named, as .pte files that need no input.

    Run each file on any device with ExecuTorch's own runtime, save all outputs, and give them to golden check.
    """
    files: list[programs.CorpusProgram] = []
    refused: list[programs.LeftOut] = []
    wanted = operators or exportable()
    with progress("operators", len(wanted)) as advance:
        for op in wanted:
            cases, left_out = programs.loadable(choose((op,), layouts, Size(size)), release)
            files += list(programs.programs(cases, most))
            refused += left_out
            advance()
    if not files:
        raise _none_chosen(operators, layouts, Size(size), refused)
    content = {file.file: file.data for file in files}
    content[programs.MANIFEST] = programs.manifest(files, refsim.__version__, refused)
    write_folder(folder, content)
    wrote(folder, said=True)
    rows = [ExportedFile(file.file, len(file.data), len(file.cases)) for file in files]
    return ExportedCorpus(folder, rows, refused, release)


export.help = f"{inspect.cleandoc(export.help or '')}\n\nOPERATORS: {', '.join(exportable())}"


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


@verb("check", "--pte out/corpus --outputs out/outputs")
@click.option("--pte", "folder", metavar="DIR", required=True, help="The folder that golden export wrote.")
@click.option(
    "--outputs",
    metavar="OUTPUTS",
    required=True,
    help=f"The outputs of its programs: {IN_FOLDER}.",
)
@click.option("--device", metavar="TEXT", help="For the certificate: the device that ran them.")
@click.option("--driver", metavar="TEXT", help="For the certificate: its driver.")
@runtime_option
@search_option
@click.option(
    "--certificate",
    type=Written(),
    metavar="FILE",
    multiple=True,
    help="Write the certificate, as .json or .html; may be repeated.",
)
def check(
    folder: str,
    outputs: str,
    device: str | None,
    driver: str | None,
    release: str,
    certificate: tuple[str, ...],
) -> JudgedDevice:
    """Judge what a device made of exported cases: which kernels are wrong, in which layouts and shapes, and why."""
    from refsim.golden.certificate import page

    for name in certificate:
        if os.path.splitext(name)[1] not in (".json", ".html"):
            raise ParameterError("--certificate", "unknown form", got=name, need="FILE.json or FILE.html")
    files = certify.read(folder)
    described = runtime(release)
    if described.refusals:
        need = "a runtime of the Vulkan backend"
        raise ParameterError("--runtime", "does not load what golden export writes", got=release, need=need)
    given = {"device": device, "driver": driver, "runtime": f"{described.name}: {described.title}"}
    about = {key: value for key, value in given.items() if value}
    with progress("cases", sum(len(file.cases) for file in files)) as advance:
        found = certify.check(files, outputs, about, advance, described.behaviour)
    for name in certificate:
        facts = {"refsim": refsim.__version__, **plain(found)}
        text = strict_json.dumps(facts, indent=1) + "\n" if name.endswith(".json") else page(found)
        atomic_write.write(name, text.encode())
        wrote(name)
    return JudgedDevice(folder, outputs, found)
