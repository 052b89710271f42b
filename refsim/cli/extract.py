"""Cut one operator call out of a model's run, as a case directory that needs no model."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import click
import numpy as np

from refsim.cli.kit.options import folder_option, inputs_options
from refsim.cli.kit.target import GivenInputs, target_option
from refsim.cli.kit.text import wrote
from refsim.cli.kit.verb import Lacking, verb
from refsim.core import choices
from refsim.core.errors import GraphError
from refsim.core.meanings import DelegateNumber, FolderName, NodeNumber, OperatorName
from refsim.core.plain import FLAT
from refsim.core.result import Command, FileSize, Result, Text
from refsim.device.opened import Opened, opened
from refsim.device.outputs import ONE_FORMS
from refsim.exec.factory import executor_named
from refsim.exec.trace import Traced, find_node, trace
from refsim.formats.cases import Stored, contents, write_folder
from refsim.formats.run_identity import identity
from refsim.formats.targets import TargetRow
from refsim.golden.named import is_name, open_case
from refsim.golden.programs import single
from refsim.ops.base.binding import BoundCase

WORDS, CONSTANTS = "words", "constants"
PROGRAM, INPUTS = "program.pte", "inputs.npz"


class _Found(Exception):
    """Raised to end the run once the node has been seen."""


@dataclass(frozen=True, kw_only=True)
class ExtractedCase(Result):
    """A case that was written."""

    file: Annotated[str, "The case that was copied; or the file, and the node in it."]
    operator: OperatorName
    case: FolderName
    files: Annotated[Sequence[FileSize], "The files that were written."]
    note: str
    program: bool
    alone: bool

    def text(self) -> Text:
        yield f"{self.case}: {self.note}"
        if self.program:
            given = INPUTS in {one.file for one in self.files}
            given_text = f"inputs {self.case}/{INPUTS}" if given else "no inputs"
            run = f"run {self.case}/{PROGRAM} with ExecuTorch's runtime on the device, {given_text}"
            yield Command(f"{run}; then: refsim replay {self.case} --actual OUTPUT")
            yield f"OUTPUT: {ONE_FORMS}"
            return
        yield Command(f"run it again: refsim replay {self.case}")
        if self.alone:
            yield "for ExecuTorch's runtime on a device: --pte words also writes a program of this call"


@dataclass(frozen=True, kw_only=True)
class ExtractedNode(ExtractedCase):
    """A case that was written of a node of a file."""

    aimed: Annotated[Opened, FLAT]
    node: NodeNumber
    delegate: DelegateNumber


@verb("extract", "model.pte -n 0:7 --random 0 -o case")
@click.argument("file")
@click.option(
    "--node",
    "-n",
    help="NUMBER or DELEGATE:NUMBER, as inspect lists the node, or the name of its output.",
)
@inputs_options
@target_option()
@folder_option("Where to write the case")
@click.option(
    "--pte",
    "program",
    type=click.Choice((WORDS, CONSTANTS)),
    help=f"Also write the call as {PROGRAM}, which any ExecuTorch runtime runs: with packed inputs as int32 words "
    f"({INPUTS}), or with all of them as constants and no inputs.",
)
def command(
    file: str,
    node: str | None,
    inputs: str | None,
    seed: int | None,
    family: TargetRow | None,
    output: str,
    program: str | None,
) -> ExtractedCase | ExtractedNode:
    """Run FILE up to a node, and write that node's call, inputs, constants and output as a case.

    FILE may also be a case itself, as replay names it: OPERATOR/NUMBER writes one of the golden corpus.
    """
    if is_name(file):
        _only_a_case(file, {"--node": node, "--input": inputs, "--random": seed, "--target": family})
        stored = open_case(file)
        return ExtractedCase(**_written(stored, output, program, file))
    if node is None:
        raise Lacking("give the node with --node NUMBER")
    asked = GivenInputs(inputs, seed)
    aimed = opened(file, family, shaped=asked.at)
    model = aimed.model
    delegate, wanted = find_node(model, node)
    if wanted.call is None:
        having = [str(node) for _, node in model.nodes() if node.call is not None]
        need = f"an int8 operator, which has a case, as refsim inspect lists them: {choices.first(having)}"
        raise GraphError(f"{file}: {wanted}", "is a float operator", need=need)
    given = asked.of(model)
    seen: list[Traced] = []

    def visit(traced: Traced) -> None:
        if traced.delegate == delegate and traced.node is wanted:
            seen.append(traced)
            raise _Found

    with contextlib.suppress(_Found):
        trace(model, given, executor_named("cpu"), visit)
    if not seen:
        raise GraphError(f"{file}: {wanted}", "was not executed", need="a node that the plan reaches")
    bound = seen[0].bound
    assert bound is not None
    note = f"{wanted} of {model.path}, delegate {delegate}, writing {seen[0].output}"
    run = identity(model.path, given)
    made = Stored(note, bound, bound.call.expected(bound.inputs), run, seen[0].output)
    facts = _written(made, output, program, f"{file}: {wanted}")
    return ExtractedNode(aimed=aimed, node=wanted.number, delegate=delegate, **facts | {"file": file})


def _only_a_case(file: str, given: Mapping[str, object]) -> None:
    """UsageError for options that choose something in a model."""
    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise click.UsageError(f"{file} is a case, which takes no {choices.listed(wrong)}")


def _written(made: Stored, output: str, program: str | None, where: str) -> dict[str, Any]:
    """Write the folder of a case; what was written."""
    bound = made.bound
    run = made.run if made.run.as_json() else None
    files = contents(bound, made.expected, made.name, run, made.value)
    if program is not None:
        files |= _program(bound, program, where)
    write_folder(output, files)
    wrote(output, said=True)
    return {
        "file": where, "operator": bound.call.op.name, "case": output, "note": made.name,
        "files": [FileSize(name, len(data)) for name, data in files.items()],
        "program": program is not None, "alone": _alone(bound),
    }  # fmt: skip


def _alone(bound: BoundCase) -> bool:
    """Whether a call can stand alone in a program."""
    return bool(bound.call.op.serialized) and not bound.call.op.siblings


def _program(bound: BoundCase, program: str, where: str) -> dict[str, bytes]:
    """The call as a program, and what to feed it."""
    if not _alone(bound):
        raise GraphError(
            where, "cannot stand alone in a program", got=bound.call.op.name, need="an operator of one output"
        )
    data, arrays = single(bound, program == CONSTANTS)
    if not arrays:
        return {PROGRAM: data}
    held = io.BytesIO()
    named: dict[str, Any] = {f"in{number}": array for number, array in enumerate(arrays)}
    np.savez(held, **named)
    return {PROGRAM: data, INPUTS: held.getvalue()}
