"""Show a file's operators, layouts, shapes, constants, memory and layout transitions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from refsim.cli._execute import kernels, note
from refsim.cli._origins import COLUMN, Origins, origin_option, read_origins
from refsim.cli.check import pointer
from refsim.cli.kit.options import runtime_option, threads_option
from refsim.cli.kit.target import at_shapes, input_shape_option, opened, target_option
from refsim.cli.kit.text import print_table, say, shape_text, wrote
from refsim.cli.kit.verb import Result, verb
from refsim.cli.kit.written import Written
from refsim.core import atomic_write
from refsim.core.counted import counted
from refsim.core.layout import layout
from refsim.exec.factory import executor_named
from refsim.exec.model import Model
from refsim.exec.shapes import InputBorder
from refsim.formats.dumps import value_name
from refsim.formats.pte.schema import DelegateCall, KernelCall
from refsim.formats.targets import TargetRow
from refsim.graph.graph import Graph, Node, Ref, Tensor, refs
from refsim.ops.base.registry import kernel_of

COLUMNS = ("node", "operator", "kernels", "inputs", "output", "shape", "layout", "bytes")
DROP = ("kernels", "inputs", "bytes", "output")


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
) -> Result:
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
        from refsim.cli._model_explorer import write_graph

        write_graph(explorer, model, made)
    if html is not None:
        from refsim.cli._graph_page import page

        atomic_write.write(html, page(model, made, changes(model), verdicts).encode())
        wrote(html)
    if as_plan:
        from refsim.cli._plan import plan_of  # imports the native executor and a compiler

        return plan_of(file, model, threads, dict(route.split("=") for route in routes))
    taken = taken_kernels(model, runner)
    delegates = [
        describe(number, graph, taken) | dynamic(model, number) for number, graph in model.graphs.items()
    ]
    facts = {"file": file, **aimed.as_json(), "plan": plan_steps(model), "delegates": delegates}
    if held := bounds(model):
        facts["bounds"] = [{"input": i, "dtype": str(r.dtype), "shape": list(r.sizes)} for i, r in held]

    def show() -> None:
        if family is not None:
            say(aimed.line())
        print_text(file, model, made, delegates)
        say()
        say(pointer(model.path, release), command=True)

    return Result({**facts, **made.as_json()}, show)


def _case(name: str) -> Result | None:
    """What a name of a case calls; None for another name."""
    from refsim.golden.named import is_name  # files need nothing of the corpus

    if not is_name(name):
        return None
    from refsim.cli._golden_cases import described

    return described(name)


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


def bounds(model: Model) -> list[tuple[str, InputBorder]]:
    """The inputs that may be smaller than the file says."""
    border = (model.bound or model).border
    return [(f"in{number}", row) for number, row in enumerate(border) if row.dynamic]


def dynamic(model: Model, delegate: int) -> dict[str, Any]:
    """What a delegate has beyond its graph: its SymInts, and the memory of the bound, which it has at all shapes."""
    facts = [
        {"value": value_name(delegate, n.value), "formula": n.formula, "number": n.number}
        for n in model.numbers(delegate)
    ]
    held: dict[str, Any] = {"numbers": facts} if facts else {}
    return held if model.bound is None else held | {"memory": memory(model.bound.graphs[delegate])}


def print_text(file: str, model: Model, made: Origins, delegates: Sequence[dict[str, Any]]) -> None:
    say(f"{file}: {counted(len(model.graphs), 'Vulkan delegate')}")
    steps = plan_steps(model)
    if steps:
        say(f"plan: {', '.join(steps)}")
    for name, row in bounds(model):
        say(f"{name}: {row.dtype}, up to {shape_text(row.sizes)}")
    for facts in delegates:
        graph_number = facts["delegate"]
        say()
        given = f"inputs {_values(facts['inputs'])}" if facts["inputs"] else "no inputs"
        say(f"delegate {graph_number}: {given}; outputs {_values(facts['outputs'])}")
        rows = [
            [*_cells(operator), *made.cell(graph_number, operator["node"])] for operator in facts["operators"]
        ]
        print_table((*COLUMNS, *([COLUMN] if made else [])), rows, DROP)
        for number in model.numbers(graph_number):
            say(str(number))
        memory, constants = facts["memory"], facts["constants"]
        say(f"constants: {constants['count']}, {counted(constants['bytes'], 'byte')}")
        say(
            f"memory: {counted(memory['bytes'], 'byte')} in {counted(memory['objects'], 'object')};"
            f" {memory['bytes_unshared']} if none were shared"
        )
        say(f"transitions: {len(facts['transitions'])}")
        for t in facts["transitions"]:
            change = f"{_short_layout(t['from'])} -> {_short_layout(t['to'])}"
            say(f"  node {t['node']} {t['operator']}: {change}, {counted(t['bytes'], 'byte')} written")
        for operator in facts["operators"]:
            if "note" in operator:
                say(f"note: node {operator['node']} {operator['operator']}: {operator['note']}")
    made.say_summary()


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


def describe(number: int, graph: Graph, taken: Mapping[tuple[int, int], str]) -> dict[str, Any]:
    """One delegate as plain data; ``taken`` as `taken_kernels` gives it."""
    constants = [t for t in graph.tensors.values() if t.data is not None]
    return {
        "delegate": number,
        "inputs": [_tensor(number, graph.tensors[i]) for i in graph.inputs],
        "outputs": [_tensor(number, graph.tensors[i]) for i in graph.outputs],
        "operators": [_operator(number, graph, node, taken) for node in graph.nodes],
        "constants": {
            "count": len(constants),
            "bytes": sum(t.data.nbytes for t in constants if t.data is not None),
        },
        "memory": memory(graph),
        "transitions": list(transitions(graph)),
    }


def memory(graph: Graph) -> dict[str, int]:
    """Memory objects of the activations, their bytes, and the bytes without sharing.

    Tensors with the same memory object never live at the same time; the object is as large as the largest.
    """
    objects: dict[object, int] = {}
    used = {*graph.inputs, *graph.outputs, *(value for node in graph.nodes for value in node.outputs)}
    sizes = [(t, _nbytes(t)) for t in graph.tensors.values() if t.id in used and t.data is None]
    for tensor, nbytes in sizes:
        key = tensor.mem_obj_id if tensor.mem_obj_id >= 0 else f"own {tensor.id}"
        objects[key] = max(objects.get(key, 0), nbytes)
    return {
        "objects": len(objects),
        "bytes": sum(objects.values()),
        "bytes_unshared": sum(nbytes for _, nbytes in sizes),
    }


def transitions(graph: Graph) -> Iterator[dict[str, Any]]:
    """Nodes whose int8 or float32 output has another layout than their first input."""
    for node in graph.nodes:
        source = next((graph.tensors[a.id] for a in node.args if isinstance(a, Ref)), None)
        target = graph.tensors.get(node.outputs[0]) if node.outputs else None
        if source is None or target is None or source.layout is target.layout:
            continue
        yield {
            "node": node.number,
            "operator": node.operator,
            "from": _long_layout(source),
            "to": _long_layout(target),
            "bytes": _nbytes(target),
        }


def changes(model: Model) -> dict[str, str]:
    """Transitions in words, by the name of the first output of the node that makes them."""
    found = {}
    for number, graph in model.graphs.items():
        outputs = {node.number: node.outputs for node in graph.nodes}
        for t in transitions(graph):
            name = value_name(number, outputs[t["node"]][0])
            found[name] = f"{_short_layout(t['from'])} -> {_short_layout(t['to'])}"
    return found


def _operator(number: int, graph: Graph, node: Node, taken: Mapping[tuple[int, int], str]) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "node": node.number,
        "node_id": node.node_id,
        "name": node.name,
        "operator": node.operator,
        "kernels": taken.get((number, node.number)) or kernels(node),
        "inputs": [value_name(number, i) for i in refs(node.args) if graph.tensors[i].data is None],
        "outputs": [_tensor(number, graph.tensors[i]) for i in node.outputs],
    }
    if (said := note(node)) is not None:
        facts["note"] = said
    if node.prepared is not None:
        facts["parameters"] = asdict(node.prepared.call.params)
        facts["dispatches"] = [
            {
                "shader": step.launch.shader,
                "specialization_words": list(step.launch.spec),
                "specialization_names": list(kernel_of(step.launch.shader).spec.names),
                "push_words": list(step.launch.push),
                "push_names": list(kernel_of(step.launch.shader).push.names),
                "workgroup": list(step.launch.local),
                "grid": list(step.launch.grid),
            }
            for step in node.prepared.dispatches
        ]
    return facts


def _cells(operator: dict[str, Any]) -> tuple[object, ...]:
    out = operator["outputs"][0] if operator["outputs"] else {}
    return (
        operator["node"],
        operator["operator"],
        operator["kernels"],
        " ".join(_short(name) for name in operator["inputs"]),
        _short(out["value"]) if out else None,
        shape_text(out["shape"]) if out else None,
        _layout_text(out) if out else None,
        out.get("bytes"),
    )


def _short(value: str) -> str:
    """``v30`` of ``delegate0_v30``: the delegate is in the head line."""
    return value.partition("_")[2]


def _values(tensors: Sequence[dict[str, Any]]) -> str:
    return ", ".join(
        f"{_short(t['value'])} {t['dtype']} {shape_text(t['shape'])} {_layout_text(t)}" for t in tensors
    )


def _tensor(number: int, tensor: Tensor) -> dict[str, Any]:
    return {
        "value": value_name(number, tensor.id),
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype),
        "layout": _long_layout(tensor),
        "memory_object": tensor.mem_obj_id,
        "bytes": _nbytes(tensor),
    }


def _layout(tensor: Tensor) -> str:
    return str(tensor.layout) if tensor.desc is not None else str(tensor.dtype)


def _long_layout(tensor: Tensor) -> str | None:
    """None for a tensor that a graph keeps in no layout."""
    return tensor.layout.name if tensor.desc is not None and tensor.layout is not None else None


def _layout_text(facts: dict[str, Any]) -> str:
    """The short name of a tensor's layout; its dtype if it has none."""
    return _short_layout(facts["layout"]) if facts["layout"] else str(facts["dtype"])


def _short_layout(name: str | None) -> str:
    return str(layout(name)) if name else "no layout"


def _nbytes(tensor: Tensor) -> int:
    if tensor.desc is not None:
        return tensor.desc.nbytes
    count = 1
    for size in tensor.shape:
        count *= size
    return count * tensor.dtype.itemsize
