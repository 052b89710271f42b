"""Rewrite a file so that values inside its delegates become outputs, which an unchanged runtime hands out."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import click

from refsim.check.run import refusals
from refsim.check.runtime import DEFAULT as RECORDED
from refsim.check.runtime import runtime
from refsim.cli.kit.options import output_option, runtime_option
from refsim.cli.kit.target import at_shapes, input_shape_option, target_option
from refsim.cli.kit.text import wrote
from refsim.cli.kit.verb import verb
from refsim.core import atomic_write, choices
from refsim.core.counted import counted, form
from refsim.core.errors import GraphError, ParameterError
from refsim.core.layout import layout
from refsim.core.meanings import FileName
from refsim.core.result import Command, Result, Table, Text, shape_text
from refsim.device.choose import NO_WORDS
from refsim.device.expose import FILL, Exposed, ExposeOptions, expose, write
from refsim.device.manifest import VALUES, WORDS, ExposedOutput, Manifest, judged_by, path_of
from refsim.device.outputs import FORM
from refsim.device.runs import MOST, SUFFIX, script
from refsim.device.strip import SEED, Unchanged, verify
from refsim.exec.model import Model, load
from refsim.formats.targets import TargetRow

COLUMNS = ("output", "value", "operator", "shape", "layout", "as", "bytes")
DEFAULT = "default"


class FillByte(click.ParamType):
    """A byte such as 0x5A or 90; or none."""

    name = "byte"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str | None:
        if value in (None, DEFAULT, "none"):
            return None if value == "none" else str(value)
        try:
            return int(str(value), 0)
        except ValueError:
            self.fail(f"{value!r} is not a byte, such as 0x5A, or none", param, ctx)


@dataclass(frozen=True)
class ExposedFile:
    """A file that was written, and its manifest."""

    file: FileName
    manifest: Annotated[str, "The file of its manifest."]


@dataclass(frozen=True, kw_only=True)
class ExposedProgram(Result):
    """Copies of a program that hand out the values inside its delegates."""

    file: Annotated[str, "The file that was read."]
    files: Annotated[Sequence[ExposedFile], "The files that were written."]
    manifests: Annotated[Sequence[Manifest], "What they hold."]
    left_out: Annotated[Mapping[str, str], "Values that cannot be handed out, and why."]
    verified: Annotated[
        Sequence[Unchanged], "With --verify: what is the same in each file as in the program."
    ]
    script: Annotated[str | None, "With --runs: the script that runs the program many times; else null."]
    exposed: Sequence[Exposed]
    way: str | None
    release: str
    repeated: int | None

    @property
    def _paths(self) -> list[str]:
        return [one.file for one in self.files]

    def text(self) -> Text:
        paths = self._paths
        for one, path in zip(self.manifests, paths, strict=True):
            rows = [_cells(row) for row in one.outputs if row.held is not None]
            if len(paths) > 1:
                yield f"{path}:"
            yield Table(COLUMNS, rows, drop=("as", "bytes", "shape"))
        if self.way is None:
            outputs = (row for one in self.manifests for row in one.outputs if row.way == VALUES)
            yield from (f"as values: {row.value}, {NO_WORDS}" for row in outputs)
        yield from (f"left out: {name}, {reason}" for name, reason in self.left_out.items())
        for proof, path in zip(self.verified, paths, strict=False):
            count, own = counted(proof.operators, "operator"), counted(proof.outputs, "output")
            yield (
                f"verified: {path} has the {count} and {counted(proof.values, 'value')} of {self.file} as they were, "
                f"each read from memory that nothing else wrote since; {own} of a run with --random {SEED} "
                f"{form(proof.outputs, 'has', 'have')} the same bits"
            )
        first, *more = paths
        it, its = ("each", "its .json") if more else ("it", path_of(first))
        yield (
            f"{choices.first(paths)}: run {it} with ExecuTorch's runtime on the device (refsim run does not take it), "
            f"with the inputs of {self.file}, and save all outputs in order; keep {its} beside it"
        )
        yield from map(Command, refusals(self.file, self.release))
        if self.script is not None:
            yield f"or {self.repeated} times: sh {self.script} COMMAND, which says in its head what COMMAND is"
        yield Command(f"then: {self._next()}")
        yield f"OUTPUTS: {'those of each file, ' if len(paths) > 1 else ''}{FORM}"

    def _next(self) -> str:
        """The command that judges the outputs of one run of all files; some of the values are a part of a run."""
        first, *more = self._paths
        words = ["refsim", "triage", first, "-i", "IN.npz", "--outputs", "OUTPUTS1" if more else "OUTPUTS"]
        for number, path in enumerate(more, 2):
            words += ["--more", path, f"OUTPUTS{number}"]
        words += [] if self.release == RECORDED else ["--runtime", self.release]
        return shlex.join(words if self.exposed[0].whole else [*words, "--partial"])


def _cells(row: ExposedOutput) -> tuple[object, ...]:
    held = row.held
    assert held is not None
    lies = str(layout(held.layout)) if held.layout else held.dtype
    about = (held.operator or "(input)", shape_text(held.shape), lies)
    return (row.output, row.value, *about, row.way, held.nbytes)


@verb("expose", "model.pte -o exposed.pte")
@click.argument("file")
@output_option("the rewritten program; the manifest is written beside it, as FILE.json")
@click.option(
    "--value",
    "patterns",
    multiple=True,
    metavar="REGEX",
    help="Only values whose name, or whose operator's name, matches; give it several times for more. [default: all]",
)
@click.option(
    "--as",
    "way",
    type=click.Choice((WORDS, VALUES)),
    help="Packed int8 values as the words of their buffers, padding included, or as exact floats. [default: words, "
    "and values where the runtime takes no words]",
)
@click.option(
    "--share",
    is_flag=True,
    help="Leave the memory plan as it is, and copy each value at once, not at the end.",
)
@click.option(
    "--fill",
    type=FillByte(),
    default=DEFAULT,
    metavar="BYTE",
    help=f"What buffers hold before the run: 0x00 to 0xFF, or none. [default: {FILL:#x}; none with --share and values]",
)
@click.option(
    "--chunk", type=click.IntRange(1), metavar="N", help="Write several files of at most N values each."
)
@click.option(
    "--runs",
    "repeated",
    type=click.IntRange(2, MOST),
    metavar="N",
    help="Also write a script that runs the program N times on the device and keeps the results that differ.",
)
@click.option(
    "--verify", "proven", is_flag=True, help="Prove that the program's own outputs keep their bits."
)
@input_shape_option("The shape of the runs that are to be judged, of a program with dynamic dims")
@target_option("left open")
@runtime_option
def command(
    file: str,
    output: str,
    patterns: tuple[str, ...],
    way: str | None,
    share: bool,
    fill: int | str | None,
    chunk: int | None,
    repeated: int | None,
    proven: bool,
    given: tuple[tuple[int, tuple[int, ...]], ...],
    family: TargetRow | None,
    release: str,
) -> ExposedProgram:
    """Write a copy of FILE that also hands out the values inside its delegates, as more outputs.

    Any device runs it with ExecuTorch's own runtime; refsim triage then judges the outputs. The program's own outputs
    keep their places; they keep their bits if the runtime writes all bytes that it reads.

    What cannot be handed out is refused, with the reason, before anything is written.
    """
    if repeated is not None and chunk is not None:
        raise click.UsageError("--runs excludes --chunk")
    if runtime(release).behaviour.flat:
        if way == WORDS:
            raise ParameterError("expose", f"{release} has no packed buffers", got=f"--as {way}", need=VALUES)
        way = VALUES
    chosen = fill if not isinstance(fill, str) else None if share or way == VALUES else FILL
    try:
        shaped = partial(at_shapes, given=given, static=True) if given else None
        files = expose(file, ExposeOptions(way, share, chosen), patterns, chunk, output, family, shaped)
    except GraphError as error:
        if judge := judged_by(file):
            what = "is a program of calls alone, which have nothing inside to hand out"
            need = "the file of a model; what judges the outputs of this one, see below"
            raise GraphError(file, what, need=need, hints=judge) from error
        raise
    verified = _verified(file, files, family, shaped) if proven else []
    paths = write(output, files)
    for path in paths:
        wrote(path, said=True)
        wrote(path_of(path), said=True)
    if repeated is not None:
        atomic_write.write(output + SUFFIX, script(output, repeated).encode())
        wrote(output + SUFFIX, said=True)
    return ExposedProgram(
        file=file, files=[ExposedFile(path, path_of(path)) for path in paths],
        manifests=[one.manifest for one in files], left_out=files[0].manifest.left_out, verified=verified,
        script=output + SUFFIX if repeated is not None else None, exposed=files, way=way, release=release,
        repeated=repeated,
    )  # fmt: skip


def _verified(
    file: str, files: Sequence[Exposed], family: TargetRow | None, shaped: Callable[[Model], Model] | None
) -> list[Unchanged]:
    """What is the same in each file as in the program; GraphError for what is not."""
    model = load(file, None if family is None else family.target())
    model = model if shaped is None else shaped(model)
    return [verify(model, one) for one in files]
