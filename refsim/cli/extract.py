"""Cut one operator call out of a model's run, as a case directory that needs no model."""

from __future__ import annotations

import contextlib

import click

from refsim.cli._buffers import inputs_options, model_inputs
from refsim.cli._main import SAME
from refsim.cli._options import json_option, output_option
from refsim.cli._output import print_json
from refsim.core.errors import GraphError
from refsim.exec.factory import executor_named
from refsim.exec.model import load
from refsim.exec.trace import Traced, find_node, trace
from refsim.formats.cases import contents, write_folder


class _Found(Exception):
    """Raised to end the run once the node has been seen."""


@click.command("extract")
@click.argument("file")
@click.option(
    "--node",
    "-n",
    required=True,
    help="NUMBER or DELEGATE:NUMBER, as inspect lists the node, or the name of its output.",
)
@inputs_options
@output_option("the case: a new folder")
@json_option
def command(file: str, node: str, inputs: str | None, seed: int | None, output: str, as_json: bool) -> int:
    """Run FILE up to a node, and write that node's call, inputs, constants and output as a case."""
    model = load(file)
    delegate, wanted = find_node(model, node)
    if wanted.call is None:
        raise GraphError(
            f"{file}: {wanted}", "is a float operator", need="an int8 operator, which has a case"
        )
    seen: list[Traced] = []

    def visit(traced: Traced) -> None:
        if traced.delegate == delegate and traced.node is wanted:
            seen.append(traced)
            raise _Found

    with contextlib.suppress(_Found):
        trace(model, model_inputs(model, inputs, seed), executor_named("cpu"), visit)
    if not seen:
        raise GraphError(f"{file}: {wanted}", "was not executed", need="a node that the plan reaches")
    bound = seen[0].bound
    assert bound is not None
    note = f"{wanted} of {model.path}, delegate {delegate}, writing {seen[0].output}"
    files = contents(bound, bound.call.expected(bound.inputs), note)
    write_folder(output, files)
    facts = {
        "file": file, "node": wanted.number, "delegate": delegate, "operator": bound.call.op.name, "case": output,
        "files": {name: len(data) for name, data in files.items()},
    }  # fmt: skip
    if as_json:
        print_json("extract", facts)
    else:
        click.echo(f"{output}: {note}")
        click.echo(f"refsim replay {output}")
    return SAME
