"""Take the partitions out of a program, and order the delegates and the nodes outside of them.

ExecuTorch takes out one partition after the other, and sorts the whole graph anew after each, breadth first. So both
the order of a delegate's operators and outputs and the order of the plan depend on what was taken out before. Here the
same functions of torch.fx do the same steps.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import fx
from torch.fx.passes.tools_common import legalize_graph
from torch.fx.passes.utils.fuser_utils import erase_nodes, fuse_as_graphmodule, insert_subgm, topo_sort

from refsim.core.errors import GraphError
from refsim.partition.features import features_of
from refsim.partition.fx_program import FxProgram, InputKind, kind_of
from refsim.partition.nodes import nodes_in

#: Keys of ``node.meta`` while a program is taken apart: the partition of a node, and its name in the whole program.
_TAG = "partition"
_ORIGIN = "origin"


@dataclass(frozen=True)
class Delegate:
    """A partition, as a program of its own. ``inputs`` and ``outputs`` are names of nodes of the whole program."""

    program: FxProgram
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class ScheduledCall:
    """What a program runs at a time: a delegate, by its number, or else a node outside of any."""

    delegate: int | None
    node: fx.Node | None = None


def divide(
    program: FxProgram, groups: Sequence[Sequence[fx.Node]], where: str
) -> tuple[list[Delegate], list[ScheduledCall]]:
    """The delegates in the order in which they run, and all calls in that order.

    GraphError if delegates need each other's results in a circle.
    """
    owner = {node.name: number for number, group in enumerate(groups) for node in group}
    whole = program.copy()
    for node in list(whole.graph.nodes):
        node.meta[_ORIGIN] = node.name
        node.meta[_TAG] = owner.get(node.name)
    _give_each_its_weights(whole)
    _give_each_its_constants(whole)
    module = fx.GraphModule(torch.nn.Module(), whole.graph)
    delegates = {}
    try:
        for number in range(len(groups)):
            delegates[number] = _take_out(module, number, whole)
    except (AssertionError, RuntimeError) as error:
        raise GraphError(where, "delegates depend on each other in a circle", got=error) from error
    by_name = {node.name: node for node in program.graph.nodes}
    order: list[int] = []
    calls = []
    for node in module.graph.nodes:
        if node.op != "call_function" or (node.target is operator.getitem and _is_delegate(node.args[0])):
            continue
        if _is_delegate(node):
            calls.append(ScheduledCall(len(order)))
            order.append(node.meta[_TAG])
        else:
            calls.append(ScheduledCall(None, by_name[node.meta[_ORIGIN]]))
    return [delegates[number] for number in order], calls


def _call(*args: object) -> None:
    """The target of a node that calls a delegate."""


def _is_delegate(item: object) -> bool:
    return isinstance(item, fx.Node) and item.op == "call_function" and item.target is _call


def _give_each_its_weights(program: FxProgram) -> None:
    """Copy into a partition what computes its weights from constants, if it lies in another one or in none.

    Operators that pack a weight by themselves take nothing that another delegate computes.
    """
    for reader in program.calls():
        features, tag = features_of(reader), reader.meta[_TAG]
        if tag is None or features is None or not features.prepacks:
            continue
        for index, arg in enumerate(reader.args):
            if index != features.primary and program.is_constant(arg):
                assert isinstance(arg, fx.Node)
                _replace_argument(reader, arg, _copy_chain(program, arg, reader))


def _copy_chain(program: FxProgram, node: fx.Node, reader: fx.Node) -> fx.Node:
    """``node`` itself, or a copy if it is computed elsewhere than ``reader``."""
    if node.op != "call_function":
        return node
    sources = {source: _copy_chain(program, source, reader) for source in node.all_input_nodes}
    if node.meta[_TAG] == reader.meta[_TAG] and all(old is new for old, new in sources.items()):
        return node
    with program.graph.inserting_before(reader):
        new = program.graph.node_copy(node, sources.__getitem__)
    new.meta = {**node.meta, _TAG: reader.meta[_TAG]}
    return new


def _give_each_its_constants(program: FxProgram) -> None:
    """Copy a constant that several partitions read: for each reader but the first, as ExecuTorch does."""
    for node in [n for n in program.graph.nodes if n.op == "placeholder" and n.name in program.constants]:
        readers = list(node.users)
        tags = {reader.meta.get(_TAG) for reader in readers}
        if tags == {None} or not tags:
            continue
        if len(tags) > 1:
            for number, reader in enumerate(readers[1:]):
                with program.graph.inserting_before(node):
                    copied = program.graph.placeholder(f"{node.name}_copy_{number}")
                copied.meta = {**node.meta, _TAG: reader.meta.get(_TAG)}
                program.constants[copied.name] = program.constants[node.name]
                _replace_argument(reader, node, copied)
        node.meta[_TAG] = readers[0].meta.get(_TAG)


def _replace_argument(reader: fx.Node, old: fx.Node, new: fx.Node) -> None:
    if old is not new:
        reader.replace_input_with(old, new)


def _take_out(module: fx.GraphModule, number: int, program: FxProgram) -> Delegate:
    """Replace a partition by a call, and sort what is left."""
    inside = topo_sort([node for node in module.graph.nodes if node.meta.get(_TAG) == number])
    # the name ends up in the module as a class's
    part, inputs, outputs = fuse_as_graphmodule(
        module, inside, f"delegate_{number}", always_return_tuple=True
    )
    insert_subgm(module, part, inputs, outputs)
    delegate = Delegate(
        _as_program(part, program),
        tuple(n.meta[_ORIGIN] for n in inputs if n.op != "placeholder" or n.name not in program.constants),
        tuple(n.meta[_ORIGIN] for n in outputs),
    )
    erase_nodes(module, inside)
    legalize_graph(module)
    called = next(n for n in module.graph.nodes if n.op == "call_module")
    with module.graph.inserting_before(called):
        # ExecuTorch's call reads the delegate as an attribute, which takes part in the next sorting
        held = module.graph.get_attr(f"delegate_{number}")
        given = [n for n in called.args if isinstance(n, fx.Node) and n.name not in program.constants]
        new = module.graph.call_function(_call, (held, *given))
        new.meta = {_TAG: number, _ORIGIN: f"delegate_{number}"}
        held.meta = {_ORIGIN: held.name}
    called.replace_all_uses_with(new)
    module.graph.erase_node(called)
    for node in list(module.graph.nodes):
        if node.op == "placeholder" and node.name in program.constants and not node.users:
            module.graph.erase_node(node)
    return delegate


def _as_program(part: fx.GraphModule, whole: FxProgram) -> FxProgram:
    """The program of a partition: parameters first, then buffers, other constants, and inputs."""
    ordered = fx.Graph()
    mapped: dict[fx.Node, fx.Node] = {}
    nodes = list(part.graph.nodes)
    placeholders = [n for n in nodes if n.op == "placeholder"]
    rank = {n: kind_of(n) if n.name in whole.constants else InputKind.USER for n in placeholders}
    for node in sorted(placeholders, key=rank.__getitem__) + [n for n in nodes if n.op == "call_function"]:
        if rank.get(node) is InputKind.USER:
            mapped[node] = ordered.placeholder(node.meta[_ORIGIN])
        else:
            mapped[node] = ordered.node_copy(node, mapped.__getitem__)
        mapped[node].meta = {key: value for key, value in node.meta.items() if key not in (_TAG, _ORIGIN)}
    (result,) = (n for n in nodes if n.op == "output")
    ordered.output(tuple(mapped[node] for node in nodes_in(result.args[0])))
    constants = {n.name: whole.constants[n.name] for n in placeholders if n.name in whole.constants}
    return FxProgram(ordered, constants)
