"""A program as the passes see it: a torch.fx graph, and the constants that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import wraps
from itertools import count
from typing import Any

import torch
from torch import fx

from refsim.partition.nodes import MADE_FOR, is_node, nodes_in


class InputKind(IntEnum):
    """What a placeholder stands for. Delegates have their placeholders in this order."""

    PARAMETER = 0
    BUFFER = 1
    CONSTANT = 2
    USER = 3


#: Where a placeholder's kind is kept.
KIND = "input_kind"


def kind_of(node: fx.Node) -> InputKind:
    """A placeholder's kind; constants that passes made are buffers, as in ExecuTorch."""
    kind: InputKind = node.meta.get(KIND, InputKind.BUFFER)
    return kind


@dataclass(frozen=True)
class Operator:
    """The target of a node that calls an operator unknown to torch.

    A call may leave out trailing arguments, which then have the values in ``defaults``. ``compute`` gives the result
    for constants, where a program may have the operator on them.
    """

    name: str
    arguments: tuple[str, ...]
    defaults: tuple[Any, ...] = ()
    compute: Callable[..., torch.Tensor] | None = field(default=None, compare=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.compute is not None:
            return self.compute(*args, **kwargs)
        raise NotImplementedError(f"{self.name} is executed by refsim, not by torch")

    @property
    def __name__(self) -> str:
        return self.name.removesuffix(".default").rpartition(".")[2]

    def __str__(self) -> str:
        return self.name


@dataclass
class FxProgram:
    """A graph, and its constants by the name of the placeholder that stands for each.

    A pass takes a program and returns another; it never changes the one that it is given.
    """

    graph: fx.Graph
    constants: dict[str, torch.Tensor] = field(default_factory=dict)

    def copy(self) -> FxProgram:
        """A copy whose graph can be changed; it shares the tensors and fake values."""
        graph = fx.Graph()
        mapped: dict[fx.Node, fx.Node] = {}
        result = graph.graph_copy(self.graph, mapped)
        for old, new in mapped.items():
            new.meta = dict(old.meta)
        output = graph.output(result)
        output.meta = dict(self.output.meta)
        return FxProgram(graph, dict(self.constants))

    @property
    def output(self) -> fx.Node:
        return next(node for node in reversed(self.graph.nodes) if node.op == "output")

    def inputs(self) -> list[fx.Node]:
        """The placeholders that a caller fills, in order."""
        return [n for n in self.graph.nodes if n.op == "placeholder" and n.name not in self.constants]

    def outputs(self) -> list[fx.Node]:
        return list(nodes_in(self.output.args[0]))

    def calls(self) -> Iterator[fx.Node]:
        """The nodes that call operators, in order; the graph may be changed on the way."""
        yield from [node for node in self.graph.nodes if node.op == "call_function"]

    # --- constants ---

    def is_constant(self, item: Any) -> bool:
        """Whether the node is a constant, or computed from constants alone."""
        if not is_node(item):
            return False
        pending, seen = [item], {item}
        while pending:
            node = pending.pop()
            if node.op == "placeholder" and node.name in self.constants:
                continue
            if node.op != "call_function" or not node.all_input_nodes:
                return False
            fresh = [source for source in node.all_input_nodes if source not in seen]
            pending += fresh
            seen.update(fresh)
        return True

    def constant(self, item: Any) -> torch.Tensor | None:
        """The value of a constant node, computed if need be; None for any other argument."""
        if not self.is_constant(item):
            return None
        if item.op == "placeholder":
            return self.constants[item.name]
        args, kwargs = fx.map_arg((item.args, item.kwargs), self.constant)
        result: torch.Tensor = item.target(*args, **kwargs)
        return result

    def add_constant(self, name: str, value: torch.Tensor, shared: bool = True) -> fx.Node:
        """The placeholder of a new constant called ``name``, or ``name_1`` and so on if that name is taken.

        If ``shared`` and there is already a constant with that name and the same data, it is that one's placeholder. A
        constant that is not shared stands behind all others, a shared one in front.
        """
        taken = {node.name: node for node in self.graph.nodes}
        free = name
        for number in count(1):
            if free not in taken:
                break
            known = self.constants.get(free)
            if shared and known is not None and known.dtype == value.dtype and torch.equal(known, value):
                return taken[free]
            free = f"{name}_{number}"
        nodes = list(self.graph.nodes)
        first = nodes[0] if shared else next(n for n in nodes if n.name not in self.constants)
        with self.graph.inserting_before(first):
            node = self.graph.placeholder(free)
        node.meta["val"] = like(self, value)
        self.constants[node.name] = value
        return node

    # --- changes ---

    def call(
        self,
        before: fx.Node,
        target: Any,
        args: Sequence[Any],
        val: Any,
        kwargs: dict[str, Any] | None = None,
    ) -> fx.Node:
        """A new node in front of ``before`` that calls ``target``; its result is like the fake tensor ``val``."""
        with self.graph.inserting_before(before):
            node = self.graph.create_node("call_function", target, tuple(args), kwargs or {})
        node.meta |= {"val": val, MADE_FOR: before.meta.get(MADE_FOR, before.name)}
        return node

    def clean(self) -> FxProgram:
        """Drop nodes that nothing reads, and constants without a placeholder; inputs stay. Returns itself."""
        for node in reversed(list(self.graph.nodes)):
            constant = node.op == "placeholder" and node.name in self.constants
            if not node.users and (node.op == "call_function" or constant):
                self.graph.erase_node(node)
        there = {node.name for node in self.graph.nodes if node.op == "placeholder"}
        self.constants = {name: value for name, value in self.constants.items() if name in there}
        return self


def each_call(
    visit: Callable[[FxProgram, fx.Node], None],
) -> Callable[[FxProgram], FxProgram]:
    """The pass that visits each call of a copy of a program, in order; what nothing reads then is gone."""

    @wraps(visit)
    def run(program: FxProgram) -> FxProgram:
        program = program.copy()
        for node in program.calls():
            visit(program, node)
        return program.clean()

    return run


def like(program: FxProgram, value: torch.Tensor) -> Any:
    """A fake tensor of the program's own kind with the shape and dtype of ``value``."""
    for node in program.graph.nodes:
        val = node.meta.get("val")
        if isinstance(val, torch.Tensor):
            return val.new_empty(tuple(value.shape), dtype=value.dtype)
    return torch.empty(tuple(value.shape), dtype=value.dtype, device="meta")
