"""Rewrite a file so that values inside its delegates become outputs, which an unchanged runtime hands out."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial

import click

from refsim.check.runtime import DEFAULT as RECORDED
from refsim.check.runtime import runtime
from refsim.cli.check import refusals
from refsim.cli.kit.options import output_option, runtime_option
from refsim.cli.kit.target import at_shapes, input_shape_option, target_option
from refsim.cli.kit.text import print_table, say, shape_text, wrote
from refsim.cli.kit.verb import Result, verb
from refsim.core import atomic_write, choices
from refsim.core.counted import counted, form
from refsim.core.errors import GraphError, ParameterError
from refsim.device.choose import NO_WORDS
from refsim.device.expose import FILL, Exposed, ExposeOptions, expose, write
from refsim.device.manifest import VALUES, WORDS, judged_by, path_of
from refsim.device.outputs import FORM
from refsim.device.runs import MOST, SUFFIX, script
from refsim.device.unchanged import SEED, Unchanged, verify
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
    "--verify", "proven", is_flag=True, help="Prove that the program's own outputs keep their bits."
)
@click.option(
    "--runs",
    "repeated",
    type=click.IntRange(2, MOST),
    metavar="N",
    help="Also write a script that runs the program N times on the device and keeps the results that differ.",
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
    proven: bool,
    repeated: int | None,
    given: tuple[tuple[int, tuple[int, ...]], ...],
    family: TargetRow | None,
    release: str,
) -> Result:
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
    content = {
        "file": file,
        "files": [{"file": path, "manifest": path_of(path)} for path in paths],
        "manifests": [one.manifest.as_json() for one in files],
        "left_out": dict(files[0].manifest.left_out),
        **({"script": output + SUFFIX} if repeated is not None else {}),
        **({"verified": [asdict(one) for one in verified]} if proven else {}),
    }
    as_values = [] if way is not None else _as_values(files)
    return Result(content, partial(_show, file, files, paths, as_values, release, verified, repeated))


def _verified(
    file: str, files: Sequence[Exposed], family: TargetRow | None, shaped: Callable[[Model], Model] | None
) -> list[Unchanged]:
    """What is the same in each file as in the program; GraphError for what is not."""
    model = load(file, None if family is None else family.target())
    model = model if shaped is None else shaped(model)
    return [verify(model, one) for one in files]


def _show(
    file: str,
    files: Sequence[Exposed],
    paths: Sequence[str],
    as_values: Sequence[str],
    release: str,
    verified: Sequence[Unchanged],
    repeated: int | None,
) -> None:
    for one, path in zip(files, paths, strict=True):
        rows = []
        for row in one.manifest.outputs:
            if row.held is not None:
                layout = row.held.layout or row.held.dtype
                shape = shape_text(row.held.shape)
                operator = row.held.operator or "(input)"
                rows.append((row.output, row.value, operator, shape, layout, row.way, row.held.nbytes))
        if len(paths) > 1:
            say(f"{path}:")
        print_table(COLUMNS, rows, drop=("as", "bytes", "shape"))
    for name in as_values:
        say(f"as values: {name}, {NO_WORDS}")
    for name, reason in files[0].manifest.left_out.items():
        say(f"left out: {name}, {reason}")
    for proof, path in zip(verified, paths, strict=False):
        count, own = counted(proof.operators, "operator"), counted(proof.outputs, "output")
        say(
            f"verified: {path} has the {count} and {counted(proof.values, 'value')} of {file} as they were, each read "
            f"from memory that nothing else wrote since; {own} of a run with --random {SEED} "
            f"{form(proof.outputs, 'has', 'have')} the same bits"
        )
    first, *more = paths
    it, its = ("each", "its .json") if more else ("it", path_of(first))
    say(
        f"{choices.first(paths)}: run {it} with ExecuTorch's runtime on the device (refsim run does not take it), "
        f"with the inputs of {file}, and save all outputs in order; keep {its} beside it"
    )
    for line in refusals(file, release):
        say(line, command=True)
    if repeated is not None:
        say(f"or {repeated} times: sh {first}{SUFFIX} COMMAND, which says in its head what COMMAND is")
    say(f"then: {_next(paths, files[0].whole, release)}", command=True)
    say(f"OUTPUTS: {'those of each file, ' if len(paths) > 1 else ''}{FORM}")


def _as_values(files: Sequence[Exposed]) -> list[str]:
    """The packed values that go out as values since they have no words."""
    return [str(row.value) for one in files for row in one.manifest.outputs if row.way == VALUES]


def _next(paths: Sequence[str], whole: bool, release: str) -> str:
    """The command that judges the outputs of one run of all files; only some of the values are a part of a run."""
    first, *more = paths
    words = ["refsim", "triage", first, "-i", "IN.npz", "--outputs", "OUTPUTS1" if more else "OUTPUTS"]
    for number, path in enumerate(more, 2):
        words += ["--more", path, f"OUTPUTS{number}"]
    words += [] if release == RECORDED else ["--runtime", release]
    return shlex.join(words if whole else [*words, "--partial"])
