"""golden export and golden check: the corpus as programs, and what a device made of them."""

from __future__ import annotations

import inspect
import os

import click

import refsim
from refsim.check.runtime import runtime
from refsim.cli.kit.options import folder_option, runtime_option, search_option
from refsim.cli.kit.text import wrote
from refsim.cli.kit.verb import verb
from refsim.cli.kit.written import Written
from refsim.core import atomic_write, strict_json
from refsim.core.doing import progress
from refsim.core.errors import ParameterError
from refsim.core.plain import plain
from refsim.device.outputs import IN_FOLDER
from refsim.golden import certify, programs
from refsim.golden.certify import JudgedDevice
from refsim.golden.programs import ExportedCorpus, exported
from refsim.golden.telling import Size, exportable


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
    found = exported(folder, operators, layouts, Size(size), most, release)
    wrote(folder, said=True)
    return found


export.help = f"{inspect.cleandoc(export.help or '')}\n\nOPERATORS: {', '.join(exportable())}"


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
        text = strict_json.dumps(facts, indent=1) + "\n" if name.endswith(".json") else certify.page(found)
        atomic_write.write(name, text.encode())
        wrote(name)
    return JudgedDevice(folder, outputs, found)
