"""Cut one operator call out of a model's run, as a case directory that needs no model."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from functools import partial
from typing import Any

import click
import numpy as np

from refsim.cli.kit.buffers import GivenInputs, inputs_options
from refsim.cli.kit.options import folder_option
from refsim.cli.kit.target import opened, target_option
from refsim.cli.kit.text import say, wrote
from refsim.cli.kit.verb import Lacking, Result, verb
from refsim.core import choices
from refsim.core.errors import GraphError
from refsim.device.single_output import FORMS
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
) -> Result:
    """Run FILE up to a node, and write that node's call, inputs, constants and output as a case.

    FILE may also be a case itself, as replay names it: OPERATOR/NUMBER writes one of the golden corpus.
    """
    if is_name(file):
        _only_a_case(file, {"--node": node, "--input": inputs, "--random": seed, "--target": family})
        stored = open_case(file)
        return _write(stored, output, program, file, {})
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
    facts = {"node": wanted.number, "delegate": delegate, **aimed.as_json()}
    run = identity(model.path, given)
    made = Stored(note, bound, bound.call.expected(bound.inputs), run, seen[0].output)
    return _write(made, output, program, f"{file}: {wanted}", {"file": file, **facts})


def _only_a_case(file: str, given: Mapping[str, object]) -> None:
    """UsageError for options that choose something in a model."""
    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise click.UsageError(f"{file} is a case, which takes no {choices.listed(wrong)}")


def _write(
    made: Stored,
    output: str,
    program: str | None,
    where: str,
    more: Mapping[str, object],
) -> Result:
    """The folder of a case, and what was written."""
    bound, note = made.bound, made.name
    files = contents(bound, made.expected, note, made.run if made.run.as_json() else None, made.value)
    if program is not None:
        files |= _program(bound, program, where)
    write_folder(output, files)
    wrote(output, said=True)
    facts = {
        "file": where, "operator": bound.call.op.name, "case": output,
        "files": [{"file": name, "bytes": len(data)} for name, data in files.items()], **more,
    }  # fmt: skip
    given = None if program is None else f"inputs {output}/{INPUTS}" if INPUTS in files else "no inputs"
    return Result(facts, partial(_show, output, note, given, _alone(bound)))


def _show(output: str, note: str, given: str | None, alone: bool) -> None:
    """``given``: what the program gets that was written, if one was; ``alone``: whether there can be one."""
    say(f"{output}: {note}")
    if given is not None:
        say(
            f"run {output}/{PROGRAM} with ExecuTorch's runtime on the device, {given}; "
            f"then: refsim replay {output} --actual OUTPUT",
            command=True,
        )
        say(f"OUTPUT: {FORMS}")
        return
    say(f"run it again: refsim replay {output}", command=True)
    if alone:
        say("for ExecuTorch's runtime on a device: --pte words also writes a program of this call")


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
