"""Where accuracy goes: what a quantized run gives, operator by operator, against the float program at the same place.

A place is found by what the operator is, by its number of elements and by its values: of the float nodes that may be
it, the nearest one. Two errors are told apart. What stands in a value is all that was lost on the way to it. Its *own*
error is what its operator adds: torch computes the same operator in float from the quantized values that it read.
What a program loses to an operator is the power of the error of its outputs if the own error of this operator is the
only one. What it would gain is seen in a run of the model in which this operator gives its float values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log10
from typing import Any

import numpy as np
import torch
from torch import fx

from refsim.core.buffer import PackedBuffer
from refsim.core.errors import GraphError
from refsim.exec.executor import Executor
from refsim.exec.model import Model
from refsim.exec.trace import Traced, trace
from refsim.formats.dumps import quantization, value_name
from refsim.graph.graph import Graph, Node
from refsim.ops.base.arg import Kind
from refsim.ops.base.spec import OpSpec
from refsim.ops.base.traits import INTEGER_SUMS, QUANTIZERS, Family
from refsim.partition.check import evaluate
from refsim.partition.fx_program import FxProgram
from refsim.partition.lower import prepare
from refsim.partition.nodes import target_name

_LOW, _HIGH = -128, 127
_PREFIX = "q8ta_"
#: Families whose operators have one meaning under several names -> the operators of a float program.
_OPERATORS: Mapping[Family, tuple[str, ...]] = {
    Family.CONVOLUTION: ("convolution",),
    Family.DEPTHWISE: ("convolution",),
    Family.LINEAR: ("addmm", "mm", "bmm", "linear"),
    Family.FLOAT_LINEAR: ("addmm", "mm", "bmm", "linear"),
}
#: What may stand between an operator and the value that it is fused to give.
_FUSED = {
    "relu", "hardtanh", "clamp", "_native_batch_norm_legit_no_training", "getitem", "clone", "alias", "dropout", "view",
    "add", "permute",
}  # fmt: skip


@dataclass(frozen=True)
class Loss:
    """What one operator loses. ``place`` is the node of the float program.

    ``sqnr`` and ``own`` are in dB: of the value, and of what the operator adds. ``largest`` and ``mean`` are errors of
    the value in steps of its scale, None for floats; ``saturated`` is the share of elements beyond what int8 holds.
    ``share`` is the operator's part of what the outputs lose, and ``gain`` how many dB they gain if it stayed
    in float (`refsim.partition.keep_float`), None for one without weights.
    """

    delegate: int
    node: int
    operator: str
    value: str
    place: str
    sqnr: float
    own: float
    largest: float | None
    mean: float | None
    saturated: float | None
    share: float
    gain: float | None


@dataclass(frozen=True)
class Accuracy:
    """What a run loses: its outputs in dB, its operators, the most costly first, and those that have no place."""

    outputs: tuple[float, ...]
    losses: tuple[Loss, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class _Value:
    """What an operator gave, as real values."""

    traced: Traced
    spec: OpSpec
    real: np.ndarray
    scale: float | None
    zp: int
    rounded: bool  # whether an int8 operator reads it
    alone: tuple[str, ...]  # floats that were quantized for this operator alone

    @property
    def names(self) -> tuple[str, ...]:
        return _OPERATORS.get(self.spec.family, (self.spec.name.removeprefix(_PREFIX),))

    @property
    def weighted(self) -> bool:
        return bool(self.spec.of_kind(Kind.CONST))

    @property
    def any_place(self) -> bool:
        """Whether it gives what another operator computes, in int8."""
        return self.spec.family in QUANTIZERS


def accuracy(model: Model, inputs: Sequence[np.ndarray], exported: Any, executor: Executor) -> Accuracy:
    """Run a model and its float program on the same inputs. ``exported`` may be the module itself, which is exported.

    GraphError if the program takes other inputs, or if nothing of the model is in it.
    """
    if isinstance(exported, torch.nn.Module):
        exported = torch.export.export(exported, tuple(map(torch.from_numpy, inputs)))
    found: list[_Value] = []

    def visit(traced: Traced) -> None:
        value = _value(traced, model.graphs[traced.delegate])
        if value is not None:
            found.append(value)

    outputs = trace(model, inputs, executor, visit)
    with torch.no_grad():
        program = prepare(exported, "float program")
        floats = _run(program, inputs)
        places = _places(program, floats, found)
        if not places:
            raise GraphError("float program", "none of the operators are in it", got=f"0 of {len(found)}")
        return _judged(program, floats, found, places, outputs, _Trial(model, inputs, executor))


def _value(traced: Traced, graph: Graph) -> _Value | None:
    """The real values of an int8 operator's output; None for other nodes, and for those that only move values."""
    node: Node = traced.node
    held = traced.outputs[traced.output]
    call = node.call or node.meaning
    if call is None or not isinstance(held, PackedBuffer):
        return None
    spec = call.op
    if spec.family in (Family.RELAYOUT, Family.DEQUANTIZE, Family.STAGE_OUT, Family.STAGE_IN):
        return None
    array, known = held.unpack().astype(np.float64), quantization(call.params)
    if held.data.dtype == np.int8:
        if not known:
            return None
        scale, zp = known.get("scale") or 1 / known["inv_scale"], int(known["zero_point"])
        readers = _readers(graph, node.outputs[0])
        rounded = not readers or any(_family(one) is not Family.DEQUANTIZE for one in readers)
        writers = {one.outputs[0]: one for one in graph.nodes if one.outputs}
        alone = (v for v in node.reads if v in writers and len(_readers(graph, v)) == 1)
        names = tuple(value_name(traced.delegate, v) for v in alone if _family(writers[v]) in QUANTIZERS)
        return _Value(traced, spec, (array - zp) * scale, float(scale), zp, rounded, names)
    return _Value(traced, spec, array, None, 0, False, ()) if spec.family in INTEGER_SUMS else None


def _readers(graph: Graph, value: int) -> list[Node]:
    return [node for node in graph.nodes if value in node.reads]


def _family(node: Node) -> Family | None:
    held = node.call or node.meaning
    return None if held is None else held.op.family


def _run(program: FxProgram, inputs: Sequence[np.ndarray]) -> dict[fx.Node, Any]:
    """Every value of the float program."""
    wanted = program.inputs()
    shapes = [list(node.meta["val"].shape) for node in wanted]
    if shapes != [list(array.shape) for array in inputs]:
        raise GraphError(
            "float program", "takes other inputs", got=[list(a.shape) for a in inputs], need=shapes
        )
    values: dict[fx.Node, Any] = {
        node: torch.from_numpy(np.array(array)) for node, array in zip(wanted, inputs, strict=True)
    }
    for node in program.calls():
        evaluate(program, node, values)
    return values


def _places(program: FxProgram, floats: Mapping[fx.Node, Any], found: Sequence[_Value]) -> dict[int, fx.Node]:
    """The float node of each value, by its number; each node is that of one value but for those that only quantize."""
    named = _names(program)
    pairs = sorted(
        (-sqnr(_array(floats[node]).reshape(value.real.shape), value.real), number, order)
        for number, value in enumerate(found)
        for order, (node, names) in enumerate(named.items())
        if (value.any_place or not names.isdisjoint(value.names))
        and isinstance(floats[node], torch.Tensor)
        and floats[node].numel() == value.real.size
    )
    nodes, places = list(named), dict[int, fx.Node]()
    taken: set[int] = set()
    for _, number, order in pairs:
        alone = not found[number].any_place
        if number not in places and not (alone and order in taken):
            places[number] = nodes[order]
            taken |= {order} if alone else set()
    return places


def _names(program: FxProgram) -> dict[fx.Node, set[str]]:
    """Node -> the operators that may have given its value: its own, and those that it is fused to."""
    found: dict[fx.Node, set[str]] = {node: set() for node in program.inputs()}
    for node in program.calls():
        if program.is_constant(node):
            continue
        own = _plain(node)
        names = {own}
        sources = [source for source in node.all_input_nodes if source in found]
        if own in _FUSED and len(sources) == 1:
            names |= found[sources[0]]
        found[node] = names
    return found


def _plain(node: fx.Node) -> str:
    name = target_name(node)
    base = name.partition(".")[2].partition(".")[0] if "." in name else name
    return (base or name).removesuffix("_copy").removesuffix("_")


def _judged(
    program: FxProgram,
    floats: Mapping[fx.Node, Any],
    found: Sequence[_Value],
    places: Mapping[int, fx.Node],
    outputs: Sequence[np.ndarray],
    trial: _Trial,
) -> Accuracy:
    quantized: dict[fx.Node, Any] = {}
    for number in sorted(
        places, key=lambda number: not found[number].any_place
    ):  # what computes a value has the last word
        node = places[number]
        quantized[node] = torch.from_numpy(found[number].real.astype(np.float32)).reshape(floats[node].shape)
    given = {node: floats[node] for node in program.inputs()}
    right = [_array(floats[node]) for node in program.outputs()]
    named = {found[number].traced.output: node for number, node in places.items()}

    def computed(node: fx.Node, without: Sequence[fx.Node]) -> np.ndarray:
        """A node in float, from the quantized values that it reads but for some."""
        read = {source: held for source, held in quantized.items() if source not in (node, *without)}
        return _array(given[node] if node in given else evaluate(program, node, given | read))

    before = _noise(outputs, right)
    losses = []
    for number, node in places.items():
        value, local = found[number], computed(node, ())
        error = value.real.reshape(local.shape) - local
        moved = floats[node] + torch.from_numpy(error.astype(np.float32))
        after = _downstream(node)
        rest = {source: held for source, held in floats.items() if source not in after} | {node: moved}
        alone = [_array(evaluate(program, output, dict(rest))) for output in program.outputs()]
        loss = _loss(value, node, _array(floats[node]), local)
        gain = None
        if value.weighted and before:
            spared = [named[name] for name in value.alone if name in named]
            left = _noise(trial.outputs(value, computed(node, spared)), right)
            gain = 10 * log10(before / left) if left else inf
        losses.append(replace(loss, share=_noise(alone, right), gain=gain))
    whole = sum(loss.share for loss in losses) or 1.0
    ranked = [replace(loss, share=loss.share / whole) for loss in losses]
    ends = [sqnr(a, b.reshape(a.shape)) for a, b in zip(right, outputs, strict=True)]
    missing = [value.traced.output for number, value in enumerate(found) if number not in places]
    return Accuracy(tuple(ends), tuple(sorted(ranked, key=_rank)), tuple(missing))


def _rank(loss: Loss) -> tuple[float, float]:
    return (-(loss.gain or 0.0), -loss.share)


def _loss(value: _Value, node: fx.Node, exact: np.ndarray, local: np.ndarray) -> Loss:
    """All but the share, which all operators together say."""
    traced, scale = value.traced, value.scale
    real = value.real.reshape(exact.shape)
    largest = mean = beyond = None
    if scale is not None:
        steps = np.abs(real - exact) / scale
        low, high = ((edge - value.zp) * scale for edge in (_LOW - 0.5, _HIGH + 0.5))
        largest, mean = float(steps.max(initial=0.0)), float(steps.mean())
        beyond = float(np.mean((exact < low) | (exact > high)))
    return Loss(
        traced.delegate, traced.node.number, value.spec.name, traced.output, node.name, sqnr(exact, real),
        sqnr(local, real), largest, mean, beyond, 0.0, None,
    )  # fmt: skip


@dataclass(frozen=True)
class _Trial:
    """A run of the model in which one operator gives what it would in float, and all others what they give then."""

    model: Model
    inputs: Sequence[np.ndarray]
    executor: Executor

    def outputs(self, value: _Value, local: np.ndarray) -> list[np.ndarray]:
        """``local``: the operator's values in float, which are rounded where an int8 operator reads them."""
        own, graph = value.traced, self.model.graphs[value.traced.delegate]
        instead = [own.node] if value.rounded or value.scale is None else _readers(graph, own.node.outputs[0])
        numbers = {node.number for node in instead}

        def visit(traced: Traced) -> None:
            held = traced.outputs[traced.output]
            if traced.delegate != own.delegate or traced.node.number not in numbers:
                return
            given = local.astype(np.float32)
            if held.dtype == np.int8 if isinstance(held, np.ndarray) else held.desc.is_int8:
                assert value.scale is not None
                given = np.clip(np.rint(local / value.scale) + value.zp, _LOW, _HIGH).astype(np.int8)
            if isinstance(held, PackedBuffer):
                held.raw[:] = PackedBuffer.pack(given.reshape(held.desc.shape), held.desc.layout).raw
            else:
                held[...] = given.reshape(held.shape)

        return trace(self.model, self.inputs, self.executor, visit)


def _noise(got: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> float:
    """Power of the outputs' errors, each against that of the output."""
    return sum(_power(a.reshape(b.shape) - b) / (_power(b) or 1.0) for a, b in zip(got, right, strict=True))


def _downstream(node: fx.Node) -> set[fx.Node]:
    found, left = set[fx.Node](), [node]
    while left:
        fresh = [user for user in left.pop().users if user not in found]
        found.update(fresh)
        left += fresh
    return found


def _array(tensor: Any) -> np.ndarray:
    array: np.ndarray = tensor.detach().numpy().astype(np.float64)
    return array


def _power(array: np.ndarray) -> float:
    return float(np.square(array).sum())


def sqnr(exact: np.ndarray, other: np.ndarray) -> float:
    """Power of the exact values over that of the error, in dB; infinite where both are the same."""
    noise, power = _power(other - exact), _power(exact)
    return inf if noise == 0 else 10 * log10(power / noise) if power else -inf
