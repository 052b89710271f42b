"""Does each fused operator compute what it was fused from? torch answers, operator by operator.

Each q8ta operator is run on int8 tensors. The nodes that it replaced (dequantize, operator, quantize) are run in torch
on the same bytes, so that errors do not add up from one operator to the next. The two results may differ by rounding,
since torch multiplies in float where the kernel sums integers: by one quantization step. A larger difference means that
the graph is wrong, for instance that a scale was taken from another node. A result that is not quantized is compared in
steps of `FLOAT_STEP`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import fx

from refsim.core.buffer import PackedBuffer
from refsim.core.errors import GraphError
from refsim.exec.executor import Executor
from refsim.exec.factory import executor_named
from refsim.formats.vkgraph.read import read_blob
from refsim.graph.build import build
from refsim.graph.graph import Graph, Node, refs
from refsim.graph.interpreter import logical, run_node, stored
from refsim.partition.fx_program import FxProgram
from refsim.partition.lower import Lowered, LoweredDelegate
from refsim.partition.nodes import DEQUANTIZE, QUANTIZE, shape_of, target_name
from refsim.partition.rows import FusedOperator

#: A difference of more quantization steps than this is an error.
ALLOWED = 1
#: What counts as a step of a float result, as a part of its largest magnitude. torch adds floats where kernels add
#: integers, which moves a result by a few units of its last place.
FLOAT_STEP = 2.0**-17
LOW, HIGH = -128, 127
Shape = tuple[int, ...]


def _checkered(shape: Shape, one: int, other: int) -> np.ndarray:
    return np.where(np.indices(shape).sum(0) % 2, one, other) if shape else np.array(one)


#: How int8 inputs are drawn: name -> function of a generator, a shape and the input's zero point.
DRAWS: dict[str, Callable[[np.random.Generator, Shape, int], np.ndarray]] = {
    "uniform": lambda rng, shape, zp: rng.integers(LOW, HIGH + 1, shape),
    "near zero": lambda rng, shape, zp: np.clip(zp + rng.integers(-3, 4, shape), LOW, HIGH),
    "lowest": lambda rng, shape, zp: np.full(shape, LOW),
    "highest": lambda rng, shape, zp: np.full(shape, HIGH),
    "checkered": lambda rng, shape, zp: _checkered(shape, LOW, HIGH),
    "one each": lambda rng, shape, zp: np.where(rng.random(shape) < 0.02, HIGH, zp),
}
#: How the program's own inputs are drawn, in units of standard deviations.
PROGRAM_DRAWS: dict[str, Callable[[np.random.Generator, Shape], np.ndarray]] = {
    "run": lambda rng, shape: rng.standard_normal(shape),
    "run large": lambda rng, shape: 1e3 * rng.standard_normal(shape),
}


@dataclass
class Deviation:
    """How one operator differs from torch: the number of elements by the quantization steps between them."""

    delegate: int
    node: str
    operator: str
    steps: Counter[int] = field(default_factory=Counter)
    by_draw: dict[str, int] = field(default_factory=dict)  # most steps

    @property
    def worst(self) -> int:
        return max(self.steps, default=0)

    @property
    def wrong(self) -> bool:
        return self.worst > ALLOWED

    def add(self, draw: str, ours: np.ndarray, theirs: np.ndarray) -> None:
        if theirs.dtype == np.float32:
            unit = max(float(np.abs(theirs).max(initial=0.0)), np.finfo(np.float32).tiny) * FLOAT_STEP
            apart = np.ceil(np.abs(ours.astype(np.float64) - theirs) / unit - 0.5).astype(np.int64).ravel()
        else:
            apart = np.abs(ours.astype(np.int64) - theirs.astype(np.int64)).ravel()
        for steps, count in zip(*np.unique(apart, return_counts=True), strict=True):
            self.steps[int(steps)] += int(count)
        self.by_draw[draw] = max(self.by_draw.get(draw, 0), int(apart.max(initial=0)))


def check(
    lowered: Lowered,
    seed: int = 0,
    executor: str | Executor = "cpu",
    draws: Sequence[str] = tuple(DRAWS),
    tell: Callable[[], object] = lambda: None,
) -> list[Deviation]:
    """Compare every fused operator and every quantize with torch, on random, extreme and realistic inputs.

    ``tell`` is called after each operator, as many times as `count` says.
    GraphError for a fused operator that the lowered graph lacks.
    """
    runner = executor_named(executor) if isinstance(executor, str) else executor
    found = []
    with torch.no_grad():
        recorded = {
            name: _run(lowered.core, draw, np.random.default_rng([seed, at]))
            for at, (name, draw) in enumerate(PROGRAM_DRAWS.items())
        }
        for number, delegate in enumerate(lowered.delegates):
            graph = build(read_blob(delegate.serialized.blob()), f"{lowered.where}: delegate {number}")
            checker = _Checker(delegate, graph, runner, seed)
            for item in checker.items():
                difference = Deviation(number, item.node, item.operator)
                for draw in draws:
                    difference.add(draw, *checker.compare(item, checker.drawn(item, draw)))
                for name, values in recorded.items():
                    difference.add(name, *checker.compare(item, checker.taken(item, values)))
                found.append(difference)
                tell()
    return found


def count(lowered: Lowered) -> int:
    """How many operators `check` compares."""
    quantizes = (
        node for d in lowered.delegates for node in d.program.calls() if target_name(node) == QUANTIZE
    )
    return sum(len(delegate.fused) for delegate in lowered.delegates) + sum(1 for _ in quantizes)


def _run(
    program: FxProgram, draw: Callable[[np.random.Generator, Shape], np.ndarray], rng: np.random.Generator
) -> dict[str, torch.Tensor]:
    """Run the program in torch on random inputs; every tensor by the name of its node."""
    values: dict[fx.Node, Any] = {}
    for node in program.inputs():
        dtype = node.meta["val"].dtype
        # integers may be indices: 0 and 1 are
        drawn = draw(rng, shape_of(node)) if dtype.is_floating_point else rng.integers(0, 2, shape_of(node))
        values[node] = torch.from_numpy(np.asarray(drawn)).to(dtype)
    for node in program.calls():
        evaluate(program, node, values)
    return {node.name: value for node, value in values.items()}


def evaluate(program: FxProgram, node: fx.Node, values: dict[fx.Node, Any]) -> Any:
    """The value of a node, given those of others. What it needs besides is computed, and kept in ``values``."""
    pending = [node]
    while pending:
        current = pending[-1]
        if current in values:
            pending.pop()
        elif current.op == "placeholder":
            values[current] = program.constants[current.name]
        else:
            missing = [source for source in current.all_input_nodes if source not in values]
            pending += missing
            if not missing:
                args, kwargs = fx.map_arg((current.args, current.kwargs), values.__getitem__)
                values[current] = executable(current)(*args, **kwargs)
    return values[node]


#: What stands in for operators that torch itself does not have.
_STANDINS: dict[str, Callable[..., Any]] = {
    "dim_order_ops._clone_dim_order.default": lambda x, **options: x.clone(),
    "dim_order_ops._to_dim_order_copy.default": lambda x, dtype=None, **options: x.to(dtype or x.dtype),
}


def executable(node: fx.Node) -> Callable[..., Any]:
    function: Callable[..., Any] = _STANDINS.get(target_name(node), node.target)
    return function


@dataclass(frozen=True)
class _Item:
    """One comparison: an operator of the lowered graph, and the nodes of the program that it stands for."""

    node: str
    operator: str
    output: fx.Node  # the quantize, or the float operator, whose result it gives
    sources: tuple[fx.Node, ...]  # what it reads: int8 tensors, or a float one
    zero_points: tuple[int, ...]
    plain: bool = False  # the sources are floats or indices, and the operator quantizes nothing

    @property
    def quantizes(self) -> bool:
        """Whether it quantizes a float tensor: those have no zero point."""
        return not self.zero_points and not self.plain


def _plain(rng: np.random.Generator, draw: str, source: fx.Node) -> torch.Tensor:
    """A float tensor of a draw's shape of values, or indices, of which 0 and 1 are always there."""
    dtype, shape = source.meta["val"].dtype, shape_of(source)
    floats = dtype.is_floating_point
    drawn = DRAWS[draw](rng, shape, 0) / 32 if floats else rng.integers(0, 2, shape)
    return torch.from_numpy(np.asarray(drawn)).to(dtype)


class _Checker:
    def __init__(self, delegate: LoweredDelegate, graph: Graph, runner: Executor, seed: int) -> None:
        self.delegate = delegate
        self.graph = graph
        self.runner = runner
        self.seed = seed
        self.before = {node.name: node for node in delegate.unfused.graph.nodes}
        self.ids = delegate.serialized.values
        self.writers = {output: node for node in graph.nodes for output in node.outputs}
        #: quantize (or float operator) before fusing -> the node that gives its result now
        self.now = {fused.quantize: fused.node for fused in delegate.fused}

    def items(self) -> Iterator[_Item]:
        for fused in self.delegate.fused:
            if fused.node not in self.ids:
                raise GraphError(
                    f"{self.graph.where}: {fused.node}",
                    "was fused, but nothing reads its result",
                    got=fused.operator,
                )
            yield self.fused_item(fused)
        for node in self.delegate.program.calls():
            if target_name(node) == QUANTIZE:
                before = self.before[node.name]
                source = before.args[0]
                assert isinstance(source, fx.Node)
                yield _Item(node.name, "quantize", before, (source,), ())

    def fused_item(self, fused: FusedOperator) -> _Item:
        if fused.sources:
            read = tuple(self.before[name] for name in fused.sources)
            return _Item(fused.node, fused.operator, self.before[fused.quantize], read, (), plain=True)
        dequantizes = [self.before[name] for name in fused.dequantizes]
        assert all(target_name(node) == DEQUANTIZE for node in dequantizes)
        return _Item(
            fused.node,
            fused.operator,
            self.before[fused.quantize],
            tuple(node.args[0] for node in dequantizes),
            tuple(node.args[2] for node in dequantizes),
        )

    def drawn(self, item: _Item, draw: str) -> list[torch.Tensor]:
        rng = np.random.default_rng([self.seed, len(item.node), *map(ord, item.node), *map(ord, draw)])
        if item.quantizes:
            scale, zp = item.output.args[1:3]
            shape = shape_of(item.sources[0])
            # where rounding is decided: halves of a step, and floats beside them
            steps = DRAWS[draw](rng, shape, zp) + rng.choice([0.0, 0.5, 0.25], shape)
            return [torch.from_numpy(np.asarray((steps - zp) * scale, np.float32))]
        if item.plain:
            return [_plain(rng, draw, source) for source in item.sources]
        return [
            torch.from_numpy(np.asarray(DRAWS[draw](rng, shape_of(source), zp), np.int8))
            for source, zp in zip(item.sources, item.zero_points, strict=True)
        ]

    def taken(self, item: _Item, values: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """What the sources are in a run of the whole program."""
        unfused = self.delegate.unfused
        known: dict[fx.Node, Any] = {node: values[node.name] for node in unfused.inputs()}
        return [evaluate(unfused, source, known) for source in item.sources]

    def compare(self, item: _Item, inputs: Sequence[torch.Tensor]) -> tuple[np.ndarray, np.ndarray]:
        known: dict[fx.Node, Any] = dict(zip(item.sources, inputs, strict=True))
        theirs = evaluate(self.delegate.unfused, item.output, known)
        # where ExecuTorch skips a view in front, the rows have the dims from before it
        return self.lowered(item, inputs).reshape(tuple(theirs.shape)), theirs.numpy()

    def lowered(self, item: _Item, inputs: Sequence[torch.Tensor]) -> np.ndarray:
        """The result of the nodes that stand for the item in the lowered graph."""
        graph = self.graph
        values: dict[int, PackedBuffer | np.ndarray] = {
            tensor.id: tensor.data for tensor in graph.tensors.values() if tensor.data is not None
        }
        result = self.ids[item.node]
        given = list(self.writers[result].inputs.values())
        for at, (source, array) in enumerate(zip(item.sources, inputs, strict=True)):
            name = self.now.get(source.name, source.name)
            # a quantize may read another float tensor by now: what was folded in front of it is left out here
            first = next(refs(self.writers[result].args))
            number = given[at] if item.plain else first if item.quantizes else self.ids[name]
            values[number] = stored(
                graph, number, array.numpy().reshape(graph.tensors[number].shape), item.node
            )
        self.compute(result, values)
        return logical(graph, values, result)

    def compute(self, number: int, values: dict[int, PackedBuffer | np.ndarray]) -> None:
        """Compute a value from those that are known; mostly that is one node, or a clone besides."""
        if number not in values:
            node: Node = self.writers[number]
            for source in refs(node.args):
                self.compute(source, values)
            values |= run_node(self.graph, node, values, self.runner)
