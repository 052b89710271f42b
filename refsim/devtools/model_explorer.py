"""Files for Model Explorer, Google's viewer of large graphs: the graph of a program, and a colour for each operator.

Two formats of its own are written, both JSON. A graph collection has nodes with a namespace, attributes and incoming
edges. Node data has a result for each node: here the verdict of a comparison, with its colour. The id of an operator's
node is the name of its first output, as in every other table of refsim.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from refsim.cli.kit.text import wrote
from refsim.core import atomic_write
from refsim.core.result import shape_text
from refsim.exec.model import Model
from refsim.formats.dumps import value_name
from refsim.formats.pte.schema import DelegateCall, KernelCall, MoveCall, TensorList
from refsim.graph.describe import kernels
from refsim.graph.graph import Graph, Node, Tensor, refs
from refsim.graph.origin import Origins

#: The id of the one graph, of whichever file: node data of an exposed file fits the file that it was made from.
GRAPH = "program"
#: Background and text colour of each verdict. A verdict that is not here stays white.
COLOURS: Mapping[str, tuple[str, str]] = {
    "same": ("#c8e6c9", "#000000"),
    "legal": ("#fff59d", "#000000"),
    "wrong": ("#c62828", "#ffffff"),
    "unknown inputs": ("#ffcc80", "#000000"),
    "wrong inputs": ("#ffcc80", "#000000"),
}


def write_graph(path: str, model: Model, made: Origins) -> None:
    """Write the graph collection of a program. With a record, operators lie in the modules that they come from."""
    _write(path, {"label": os.path.basename(model.path), "graphs": [graph_of(model, made)]})


def write_node_data(path: str, name: str, verdicts: Iterable[tuple[str, str]]) -> None:
    """Write (value name, verdict) pairs as node data."""
    _write(path, {GRAPH: {"name": name, "results": {key: _result(text) for key, text in verdicts}}})


def _result(verdict: str) -> dict[str, str]:
    colours = COLOURS.get(verdict)
    styled = {} if colours is None else {"bgColor": colours[0], "textColor": colours[1]}
    return {"value": verdict, **styled}


def _write(path: str, content: Any) -> None:
    atomic_write.write(path, (json.dumps(content, indent=1) + "\n").encode())
    wrote(path)


def graph_of(model: Model, made: Origins) -> dict[str, Any]:
    """The whole program as one graph: its inputs and outputs, its plain kernels, and the operators of its delegates."""
    writer = _GraphWriter(made)
    if model.plan is None:
        for number, graph in model.graphs.items():
            inputs = [writer.input(at, graph.tensors[value]) for at, value in enumerate(graph.inputs)]
            ends = writer.delegate(number, graph, inputs)
            for at, end in enumerate(ends):
                writer.add(f"output {at}", f"output {at}", edges=[end])
        return {"id": GRAPH, "nodes": writer.nodes}
    held: dict[int, _End | None] = {
        value: writer.input(at, None) for at, value in enumerate(model.plan.inputs)
    }
    instructions = [step for chain in model.plan.chains for step in chain.instructions]
    for at, step in enumerate(instructions):
        if isinstance(step, DelegateCall) and step.delegate_index in model.graphs:
            graph, count = model.graphs[step.delegate_index], len(step.args)
            given = min(len(graph.inputs), count)
            ends = writer.delegate(step.delegate_index, graph, [held.get(v) for v in step.args[:given]])
            held.update(zip(step.args[given:], ends, strict=False))
        elif isinstance(step, DelegateCall | KernelCall):
            last = model.plan.values[step.args[-1]] if step.args else None
            written = last.items if isinstance(last, TensorList) else step.args[-1:]
            edges = [held.get(value) for value in _flat(model, step.args) if value not in written]
            node = writer.add(f"instruction {at}", _called(model, step), edges=edges)
            held.update({value: (node, str(index)) for index, value in enumerate(written)})
        elif isinstance(step, MoveCall) and step.move_from in held:
            held[step.move_to] = held[step.move_from]
    for at, value in enumerate(model.plan.outputs):
        writer.add(f"output {at}", f"output {at}", edges=[held.get(value)])
    return {"id": GRAPH, "nodes": writer.nodes}


def _called(model: Model, step: DelegateCall | KernelCall) -> str:
    """The name of a plain kernel, or of the backend whose delegate is called."""
    assert model.plan is not None
    if isinstance(step, DelegateCall):
        return model.plan.delegates[step.delegate_index].id
    return str(model.plan.operators[step.op_index])


def _flat(model: Model, args: Sequence[int]) -> list[int]:
    """The values of an instruction, those of lists of tensors too."""
    assert model.plan is not None
    values = model.plan.values
    found = list(args)
    for number in args:
        value = values[number]
        if isinstance(value, TensorList):
            found += value.items
    return list(dict.fromkeys(found))


#: Where a value comes from: the id of a node, and which of its outputs it is.
_End = tuple[str, str]


@dataclass
class _GraphWriter:
    made: Origins
    nodes: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self,
        name: str,
        label: str,
        namespace: str = "",
        edges: Sequence[_End | None] = (),
        attrs: Mapping[str, object] | None = None,
        outputs: Sequence[Mapping[str, object]] = (),
    ) -> str:
        """Add a node; returns its id. An edge of which nothing is known is left out."""
        node: dict[str, Any] = {"id": name, "label": label, "namespace": namespace}
        node["incomingEdges"] = [
            {"sourceNodeId": end[0], "sourceNodeOutputId": end[1], "targetNodeInputId": str(at)}
            for at, end in enumerate(edges)
            if end is not None
        ]
        node["attrs"] = _pairs(attrs or {})
        node["outputsMetadata"] = [
            {"id": str(at), "attrs": _pairs(facts)} for at, facts in enumerate(outputs)
        ]
        self.nodes.append(node)
        return name

    def input(self, at: int, tensor: Tensor | None) -> _End:
        outputs = [] if tensor is None else [_facts(f"input {at}", tensor)]
        return self.add(f"input {at}", f"input {at}", outputs=outputs), "0"

    def delegate(self, number: int, graph: Graph, inputs: Sequence[_End | None]) -> list[_End | None]:
        """Add the operators of a delegate; returns where its outputs come from."""
        held: dict[int, _End | None] = dict(zip(graph.inputs, inputs, strict=False))
        for node in graph.nodes:
            edges = [
                held.get(value)
                for value in dict.fromkeys(refs(node.args))
                if graph.tensors[value].data is None
            ]
            facts = [_facts(value_name(number, value), graph.tensors[value]) for value in node.outputs]
            name = str(facts[0]["tensor_name"]) if facts else f"delegate{number}_node{node.number}"
            origin = self.made.found.get((number, node.number))
            modules = origin.module.split(".") if origin is not None and origin.module else []
            about = _about(node) | ({} if origin is None else {"made by": "\n".join(origin.lines())})
            group = "/".join([f"delegate {number}", *modules])
            self.add(name, node.operator, group, edges, about, facts)
            held |= {value: (name, str(at)) for at, value in enumerate(node.outputs)}
        return [held.get(value) for value in graph.outputs]


def _about(node: Node) -> dict[str, object]:
    """What the side panel says about an operator."""
    said: dict[str, object] = {"node": node.number, "serialized as": node.name, "kernels": kernels(node)}
    if node.call is not None:
        said |= asdict(node.call.params)
    if node.upstream is not None:
        said["known defect"] = node.upstream
    return said


def _facts(name: str, tensor: Tensor) -> dict[str, object]:
    layout = tensor.layout if tensor.desc is not None else None
    return {
        "tensor_name": name, "shape": shape_text(tensor.shape), "dtype": tensor.dtype, "layout": layout or "-",
        "bytes": tensor.nbytes, "memory object": tensor.mem_obj_id,
    }  # fmt: skip


def _pairs(facts: Mapping[str, object]) -> list[dict[str, str]]:
    return [{"key": key, "value": str(value)} for key, value in facts.items()]
