"""Show a file's operators, layouts, shapes, constants, memory and layout transitions."""

from __future__ import annotations

import os
from dataclasses import replace

import click

from refsim.cli.kit.devtools import origin_option, read_origins
from refsim.cli.kit.options import runtime_option, threads_option
from refsim.cli.kit.target import at_shapes, input_shape_option, target_option
from refsim.cli.kit.text import wrote
from refsim.cli.kit.verb import tool, verb
from refsim.cli.kit.written import Written
from refsim.core import atomic_write
from refsim.device.inspected import InputBound, InspectedFile, change
from refsim.device.opened import opened
from refsim.exec.factory import executor_named
from refsim.exec.model import Model
from refsim.exec.planned import PlannedFile, plan_of
from refsim.formats.dumps import value_name
from refsim.formats.pte.schema import DelegateCall, KernelCall
from refsim.formats.targets import TargetRow
from refsim.graph.describe import DelegateFacts, NumberFacts, describe, memory, transitions
from refsim.ops.base.shown import ShownCase


@verb("inspect", "model.pte")
@click.argument("file")
@click.option(
    "--model-explorer",
    "explorer",
    type=Written(),
    metavar="OUT",
    help="Also write the graph as a JSON file for Model Explorer.",
)
@click.option(
    "--html",
    type=Written(),
    metavar="OUT",
    help="Also write the graph as a picture, on a self-contained HTML page.",
)
@click.option(
    "--verdicts",
    metavar="JSON",
    help="With --html: colour the operators by what triage --json or bisect --json printed.",
)
@click.option(
    "--plan",
    "as_plan",
    is_flag=True,
    help="Print instead how the executor cpu computes the file: steps, routes, kernels, memory.",
)
@click.option(
    "--route",
    "routes",
    metavar="OPERATOR=ROUTE",
    multiple=True,
    help="With --plan: the only route that an operator (* for all) may take. May be repeated.",
)
@click.option(
    "--executor",
    "-x",
    "runner",
    metavar="NAME",
    help="Name the kernels that this executor takes: gpu:0, for instance.",
)
@input_shape_option("Show the file at other shapes than its bound")
@target_option()
@runtime_option
@origin_option
@threads_option
def command(
    file: str,
    explorer: str | None,
    html: str | None,
    verdicts: str | None,
    as_plan: bool,
    routes: tuple[str, ...],
    runner: str | None,
    given: tuple[tuple[int, tuple[int, ...]], ...],
    family: TargetRow | None,
    release: str,
    origin: str | None,
    threads: int,
) -> InspectedFile | PlannedFile | ShownCase:
    """Show how FILE, a .pte or a delegate blob, would be executed, with all layouts resolved.

    FILE may also be a case, as replay names it: OPERATOR/NUMBER is one of the golden corpus.
    """
    if not os.path.isfile(file) and (case := _case(file)) is not None:
        if any((explorer, html, as_plan, routes, runner, given, family, origin)):
            raise click.UsageError(f"{file} is a case, which takes no options but --json")
        return case
    aimed = opened(file, family, runs=as_plan, shaped=lambda model: at_shapes(model, given), release=release)
    model = aimed.model
    if routes and not as_plan:
        raise click.UsageError("--route needs --plan")
    if verdicts is not None and html is None:
        raise click.UsageError("--verdicts needs --html")
    if runner is not None and as_plan:
        raise click.UsageError("--executor excludes --plan")
    wrong = [route for route in routes if route.count("=") != 1]
    if wrong:
        raise click.UsageError(f"--route {wrong[0]}: not OPERATOR=ROUTE")
    made = read_origins(model, origin)
    if explorer is not None:
        tool("graph")(explorer, model, made)
    if html is not None:
        atomic_write.write(html, tool("page")(model, made, changes(model), verdicts).encode())
        wrote(html)
    if as_plan:
        return plan_of(file, model, threads, dict(route.split("=") for route in routes))
    taken = taken_kernels(model, runner)
    delegates = [_dynamic(model, describe(number, graph, taken)) for number, graph in model.graphs.items()]
    border = (model.bound or model).border
    bounds = [
        InputBound(f"in{number}", str(row.dtype), row.sizes)
        for number, row in enumerate(border)
        if row.dynamic
    ]
    return InspectedFile(
        file=file, aimed=aimed, plan=plan_steps(model), bounds=bounds, delegates=delegates, made=made,
        targeted=family is not None,
    )  # fmt: skip


def _dynamic(model: Model, one: DelegateFacts) -> DelegateFacts:
    """With its SymInts, and the memory of the bound, which it has at all shapes."""
    facts = [
        NumberFacts(value_name(one.delegate, n.value), n.formula, n.number)
        for n in model.numbers(one.delegate)
    ]
    held = one.memory if model.bound is None else memory(model.bound.graphs[one.delegate])
    return replace(one, numbers=facts, memory=held)


def _case(name: str) -> ShownCase | None:
    """What a name of a case calls; None for another name."""
    from refsim.golden.named import is_name, open_case  # files need nothing of the corpus

    return ShownCase.of(name, open_case(name).bound) if is_name(name) else None


def taken_kernels(model: Model, runner: str | None) -> dict[tuple[int, int], str]:
    """By delegate and node: the kernels that an executor takes for the operators that have some."""
    if runner is None:
        return {}
    executor = executor_named(runner)
    return {
        (number, node.number): ", ".join(executor.source(call).kernels)
        for number, node in model.nodes()
        if (call := model.graphs[number].asked(node, executor.flat)) is not None
    }


def plan_steps(model: Model) -> list[str]:
    """The instructions around the delegates, in words."""
    if model.plan is None:
        return []
    words = {
        DelegateCall: lambda i: f"delegate {i.delegate_index}",
        KernelCall: lambda i: str(model.plan.operators[i.op_index]),  # type: ignore[union-attr]
    }
    return [
        words.get(type(i), lambda i: type(i).__name__)(i)
        for chain in model.plan.chains
        for i in chain.instructions
    ]


def changes(model: Model) -> dict[str, str]:
    """Transitions in words, by the name of the first output of the node that makes them."""
    found = {}
    for number, graph in model.graphs.items():
        outputs = {node.number: node.outputs for node in graph.nodes}
        for row in transitions(graph):
            found[value_name(number, outputs[row.node][0])] = change(row.before, row.after)
    return found
