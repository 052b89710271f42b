"""The corpus on a device that refsim cannot reach: write it as programs, and judge their outputs."""

from __future__ import annotations

import inspect
import os
import shlex
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

import refsim
from refsim.check.runtime import DEFAULT, runtime
from refsim.cli.kit.apart import print_kernels
from refsim.cli.kit.options import folder_option, runtime_option, search_option
from refsim.cli.kit.progress import progress
from refsim.cli.kit.text import MOST_SHOWN, print_table, say, say_rest, wrote
from refsim.cli.kit.verb import Result, verb
from refsim.cli.kit.written import Written
from refsim.core import atomic_write, choices, strict_json
from refsim.core.counted import counted
from refsim.core.errors import ParameterError
from refsim.core.plain import plain
from refsim.core.status import DIFFERENT, SAME
from refsim.device.outputs import IN_FOLDER
from refsim.formats.cases import write_folder
from refsim.golden import programs
from refsim.golden.chosen import Size, choose, exportable, layouts_of

if TYPE_CHECKING:
    from refsim.golden.certify import Certificate


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
) -> Result:
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
    count, nbytes = sum(len(file.cases) for file in files), sum(len(file.data) for file in files)
    rows = [{"file": f.file, "bytes": len(f.data), "cases": len(f.cases)} for f in files]
    facts = {"folder": folder, "files": rows, "cases": count, "bytes": nbytes}
    facts["not_exported"] = plain(refused)
    said = f"{folder}: {counted(count, 'case')} in {counted(len(files), 'file')}, {counted(nbytes, 'byte')}"
    return Result(facts, partial(_show_exported, folder, files, refused, said, release))


def _show_exported(
    folder: str,
    files: Sequence[programs.CorpusProgram],
    refused: Sequence[programs.LeftOut],
    said: str,
    release: str,
) -> None:
    print_table(("file", "cases count", "bytes"), [(f.file, len(f.cases), len(f.data)) for f in files])
    for rule, rule_cases in Counter(row.error.rule for row in refused).items():
        error = next(row.error for row in refused if row.error.rule == rule)
        say(f"not exported: {counted(rule_cases, 'case')}, {rule}: {error.what}")
    say(said)
    say(
        "run each file with ExecuTorch's runtime on the device, without inputs, and save all outputs in one folder"
    )
    then = ["refsim", "golden", "check", "--pte", folder, "--outputs", "OUTPUTS"]
    then += [] if release == DEFAULT else ["--runtime", release]
    say(f"then: {shlex.join(then)}", command=True)
    say(f"OUTPUTS: {IN_FOLDER}")


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
) -> Result:
    """Judge what a device made of exported cases: which kernels are wrong, in which layouts and shapes, and why."""
    from refsim.golden import certify
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
        facts = {"refsim": refsim.__version__, **found.as_json()}
        text = strict_json.dumps(facts, indent=1) + "\n" if name.endswith(".json") else page(found)
        atomic_write.write(name, text.encode())
        wrote(name)
    content = {"folder": folder, "outputs": outputs, **found.as_json()}
    return Result(content, partial(_show_judged, found), SAME if found.right else DIFFERENT)


def _show_judged(found: Certificate) -> None:
    from refsim.golden import certify
    from refsim.golden.certificate import verdict, what

    columns = ("operator", *(f"{name} count" for name in certify.VERDICTS))
    print_table(columns, [(op, *(n[v] for v in certify.VERDICTS)) for op, n in found.counts().items()])
    rows = found.deviations()
    told = [row for row in rows if row.verdict == certify.WRONG] or [
        r for r in rows if r.verdict == certify.LEGAL
    ]
    for row in told[:MOST_SHOWN]:
        say(f"{row.case} {row.layouts}: {'; '.join(what(row))}")
        say(f"  {row.bound.case.configuration}")
    say_rest(len(told))
    print_kernels(found.causes)
    for name, text in found.as_json()["known"].items():
        say(f"known defect {name}: {text}")
    say(f"profile {found.profile}; {verdict(found)}")
