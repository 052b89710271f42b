"""Mutations of a delegate's graph that keep most of it consistent, so that a mutant gets as far as the plan.

Each takes a random generator and a `VkGraph`, and gives another graph. They exchange what is alike (tensors, operators,
lists, numbers), and change a thing in all places where it stands rather than in one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from typing import Any

from refsim.core.layout import BY_SCHEMA_VALUE
from refsim.formats.literals import Double, Int, IntList, Null
from refsim.formats.vkgraph.schema import (
    DATATYPES,
    STORAGES,
    OperatorCall,
    Value,
    ValueList,
    VkGraph,
    VkTensor,
)

Mutate = Callable[[random.Random, VkGraph], VkGraph]

CLONE, PREPACK = "aten.clone.default", "et_vk.prepack.default"
#: Operators of one tensor without further arguments, and of two.
UNARY = tuple(
    f"aten.{name}.default"
    for name in ("relu", "hardswish", "hardsigmoid", "sigmoid", "abs", "neg", "exp", "tanh", "clone", "sqrt", "floor")
)  # fmt: skip
BINARY = tuple(
    f"aten.{name}" for name in ("mul.Tensor", "add.Tensor", "sub.Tensor", "div.Tensor", "minimum.default")
)
_SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 33, -1)
_INTS = (-1, 0, 1, 2, 3, 4, 5, 8, 127, -128, 128, -129)
_REALS = (0.0, -0.5, 1e-9, 0.01, 0.5, 1.0, 3.0, 1e9, float("nan"), float("inf"))


def mutate(rng: random.Random, graph: VkGraph) -> VkGraph:
    """One to four of these mutations; one that finds nothing to change leaves the graph as it is."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        graph = rng.choice(WAYS)(rng, graph)
    return graph


# --- parts -----------------------------------------------------------------------------------------------


def _activations(graph: VkGraph) -> list[int]:
    return [
        n for n, value in enumerate(graph.values) if isinstance(value, VkTensor) and not value.is_constant
    ]


def _kind(value: Value) -> Any:
    """What makes two values alike: of tensors, whether they are stored."""
    return (VkTensor, value.is_constant) if isinstance(value, VkTensor) else type(value)


def _alike(rng: random.Random, graph: VkGraph, number: int) -> int:
    """Another value of the same kind; of tensors mostly one of the same dtype, often one of the same dims."""
    mine = graph.values[number]
    found = [n for n, value in enumerate(graph.values) if _kind(value) == _kind(mine) and n != number]
    if isinstance(mine, VkTensor):
        for name, share in (("datatype", 0.8), ("dims", 0.6)):
            near = [n for n in found if getattr(graph.values[n], name) == getattr(mine, name)]
            found = near if near and rng.random() < share else found
    return rng.choice(found) if found else number


def _with_value(graph: VkGraph, number: int, value: Value) -> VkGraph:
    return replace(graph, values=(*graph.values[:number], value, *graph.values[number + 1 :]))


def _added(graph: VkGraph, value: Value) -> tuple[VkGraph, int]:
    return replace(graph, values=(*graph.values, value)), len(graph.values)


def _with_args(graph: VkGraph, at: int, args: tuple[int, ...]) -> VkGraph:
    call = replace(graph.chain[at], args=args)
    return replace(graph, chain=(*graph.chain[:at], call, *graph.chain[at + 1 :]))


def _renumbered(graph: VkGraph, new: dict[int, int], first: int) -> VkGraph:
    """Other values in the place of these, as arguments from a position of the chain on, and as outputs."""
    chain = [
        call if at < first else replace(call, args=tuple(new.get(n, n) for n in call.args))
        for at, call in enumerate(graph.chain)
    ]
    return replace(graph, chain=tuple(chain), output_ids=tuple(new.get(n, n) for n in graph.output_ids))


def _call(rng: random.Random, graph: VkGraph) -> int:
    return rng.randrange(len(graph.chain))


def _written(graph: VkGraph, at: int) -> Iterator[int]:
    """The tensors that a call writes."""
    last = graph.chain[at].args[-1]
    value = graph.values[last]
    for number in value.items if isinstance(value, ValueList) else (last,):
        if isinstance(graph.values[number], VkTensor):
            yield number


# --- arguments -------------------------------------------------------------------------------------------


def _exchanged(rng: random.Random, graph: VkGraph) -> VkGraph:
    """An argument becomes another value of its kind."""
    at = _call(rng, graph)
    args = list(graph.chain[at].args)
    place = rng.randrange(len(args))
    args[place] = _alike(rng, graph, args[place])
    return _with_args(graph, at, tuple(args))


def _crossed(rng: random.Random, graph: VkGraph) -> VkGraph:
    """Two calls exchange arguments of one kind, or one call two of its own."""
    a, b = _call(rng, graph), _call(rng, graph)
    i = rng.randrange(len(graph.chain[a].args))
    kind = _kind(graph.values[graph.chain[a].args[i]])
    places = [j for j, n in enumerate(graph.chain[b].args) if _kind(graph.values[n]) == kind]
    j = rng.choice(places or range(len(graph.chain[b].args)))
    mine, other = graph.chain[a].args[i], graph.chain[b].args[j]
    for at, place, number in ((a, i, other), (b, j, mine)):
        args = list(graph.chain[at].args)
        args[place] = number
        graph = _with_args(graph, at, tuple(args))
    return graph


def _more_or_fewer(rng: random.Random, graph: VkGraph) -> VkGraph:
    at = _call(rng, graph)
    args = list(graph.chain[at].args)
    place = rng.randrange(len(args))
    if rng.random() < 0.5 and len(args) > 1:
        del args[place]
    else:
        args.insert(place, rng.choice(args) if rng.random() < 0.5 else rng.randrange(len(graph.values)))
    return _with_args(graph, at, tuple(args))


def _number(rng: random.Random, graph: VkGraph) -> VkGraph:
    """A number or a list of them, for all who read it, or for one call alone."""
    plain = [n for n, value in enumerate(graph.values) if isinstance(value, Int | Double | IntList)]
    if not plain:
        return graph
    number = rng.choice(plain)
    changed = _near(rng, graph.values[number])
    readers = [at for at, call in enumerate(graph.chain) if number in call.args]
    if rng.random() < 0.5 or not readers:
        return _with_value(graph, number, changed)
    graph, new = _added(graph, changed)
    at = rng.choice(readers)
    return _with_args(graph, at, tuple(new if n == number else n for n in graph.chain[at].args))


def _near(rng: random.Random, value: Value) -> Value:
    if isinstance(value, Int):
        return Int(rng.choice((value.value + 1, value.value - 1, *_INTS)))
    if isinstance(value, Double):
        return Double(rng.choice((value.value * 2, value.value * 1.01, -value.value, *_REALS)))
    assert isinstance(value, IntList)
    items = list(value.items)
    way = rng.randrange(4)
    if way == 0 or not items:
        items.append(rng.choice(_INTS))
    elif way == 1:
        items.pop()
    elif way == 2:
        rng.shuffle(items)
    else:
        items[rng.randrange(len(items))] = rng.choice(_SIZES)
    return IntList(tuple(items))


# --- tensors ---------------------------------------------------------------------------------------------


def _undescribed(rng: random.Random, graph: VkGraph) -> VkGraph:
    """What a call writes, or an input or output, is no activation: nothing, a number, a constant, without dtype."""
    number = rng.choice([*_written(graph, _call(rng, graph)), *graph.input_ids, *graph.output_ids])
    value = graph.values[number]
    if not isinstance(value, VkTensor):
        return graph
    stored = [n for n in graph.values if isinstance(n, VkTensor) and n.is_constant]
    plain = [n for n in graph.values if not isinstance(n, VkTensor)]
    others: list[Value] = [
        Null(),
        Int(3),
        *rng.sample(plain, min(2, len(plain))),
        *rng.sample(stored, min(2, len(stored))),
    ]
    others += [
        replace(value, datatype=127),
        replace(value, dims=(*value.dims[:-1], 0)),
        replace(value, dims=()),
    ]
    if stored:
        others += [replace(value, constant_id=rng.choice(stored).constant_id)] * 2
    return _with_value(graph, number, rng.choice(others))


def _reshaped(rng: random.Random, graph: VkGraph) -> VkGraph:
    """Other dims: of one tensor, or of all that have the same."""
    activations = _activations(graph)
    if not activations:
        return graph
    chosen = graph.values[rng.choice(activations)]
    assert isinstance(chosen, VkTensor)
    dims = _dims(rng, chosen.dims)
    if rng.random() < 0.6:
        values = tuple(
            replace(v, dims=dims)
            if isinstance(v, VkTensor) and not v.is_constant and v.dims == chosen.dims
            else v
            for v in graph.values
        )
        return replace(graph, values=values)
    return _with_value(graph, graph.values.index(chosen), replace(chosen, dims=dims))


def _dims(rng: random.Random, old: tuple[int, ...]) -> tuple[int, ...]:
    dims = list(old)
    way = rng.randrange(6)
    if way == 0 or not dims:
        dims.insert(rng.randrange(len(dims) + 1), rng.choice((1, 1, 2)))
    elif way == 1:
        del dims[rng.randrange(len(dims))]
    elif way == 2:
        rng.shuffle(dims)
    elif way == 3:
        at = rng.randrange(len(dims))
        dims[at:] = [prod(dims[at:])]
    else:
        at = rng.randrange(len(dims))
        dims[at] = rng.choice((dims[at] + 1, max(dims[at] - 1, 0), *(size for size in _SIZES if size >= 0)))
    return tuple(dims)


def _retyped(rng: random.Random, graph: VkGraph) -> VkGraph:
    """Another dtype, layout, storage or memory object."""
    tensors = [n for n, value in enumerate(graph.values) if isinstance(value, VkTensor)]
    if not tensors:
        return graph
    number = rng.choice(_activations(graph) or tensors) if rng.random() < 0.8 else rng.choice(tensors)
    value = graph.values[number]
    assert isinstance(value, VkTensor)
    other = graph.values[_alike(rng, graph, number)]
    assert isinstance(other, VkTensor)
    row: dict[str, Any] = rng.choice(
        (
            {"datatype": rng.choice(tuple(DATATYPES))},
            {"memory_layout": rng.choice((*BY_SCHEMA_VALUE, 255))},
            {"memory_layout": other.memory_layout, "storage_type": other.storage_type},
            {"storage_type": rng.choice(tuple(STORAGES))},
            {"mem_obj_id": rng.choice((-1, 0, 1, other.mem_obj_id))},
            {"constant_id": rng.choice((-1, 0, other.constant_id))},
        )
    )
    return _with_value(graph, number, replace(value, **row))


# --- nodes -----------------------------------------------------------------------------------------------


def _renamed(rng: random.Random, graph: VkGraph) -> VkGraph:
    """A call becomes one of another operator, mostly of one that takes as many arguments."""
    at = _call(rng, graph)
    call = graph.chain[at]
    alike = [other.name for other in graph.chain if len(other.args) == len(call.args)]
    alike += {2: UNARY, 3: BINARY}.get(len(call.args), ())
    name = rng.choice(alike) if rng.random() < 0.8 else rng.choice((*UNARY, *BINARY, CLONE, PREPACK))
    return replace(graph, chain=(*graph.chain[:at], replace(call, name=name), *graph.chain[at + 1 :]))


def _without(rng: random.Random, graph: VkGraph) -> VkGraph:
    """A call is gone; who read its output reads, if there is one, a tensor of the same dims."""
    if len(graph.chain) < 2:
        return graph
    at = _call(rng, graph)
    new = {number: _alike(rng, graph, number) for number in _written(graph, at)} if rng.random() < 0.8 else {}
    graph = replace(graph, chain=graph.chain[:at] + graph.chain[at + 1 :])
    return _renumbered(graph, new, at)


def _doubled(rng: random.Random, graph: VkGraph) -> VkGraph:
    """A call once more: into new tensors, which some of the later calls read; or again into the same ones."""
    at = _call(rng, graph)
    call = graph.chain[at]
    if rng.random() < 0.2:
        return replace(graph, chain=(*graph.chain[: at + 1], call, *graph.chain[at + 1 :]))
    new: dict[int, int] = {}
    for number in _written(graph, at):
        graph, new[number] = _added(graph, graph.values[number])
    last = graph.chain[at].args[-1]
    if isinstance(held := graph.values[last], ValueList):
        graph, new[last] = _added(graph, ValueList(tuple(new.get(n, n) for n in held.items)))
    copy = replace(call, args=(*call.args[:-1], new.get(last, last)))
    chain = (*graph.chain[: at + 1], copy, *graph.chain[at + 1 :])
    graph = replace(graph, chain=chain)
    return _renumbered(graph, new, rng.randrange(at + 2, len(graph.chain) + 1))


def _moved(rng: random.Random, graph: VkGraph) -> VkGraph:
    """A call stands somewhere else."""
    chain = list(graph.chain)
    call = chain.pop(_call(rng, graph))
    chain.insert(rng.randrange(len(chain) + 1), call)
    return replace(graph, chain=tuple(chain))


def _joined(rng: random.Random, graph: VkGraph) -> VkGraph:
    """Another float operator behind a tensor, on single elements; later calls read what it makes."""
    activations = _activations(graph)
    if not activations:
        return graph
    number = rng.choice(activations)
    graph, new = _added(graph, graph.values[number])
    makers = [at for at in range(len(graph.chain)) if number in _written(graph, at)]
    at = makers[0] + 1 if makers else 0
    if rng.random() < 0.6:
        name, args = rng.choice(UNARY), (number, new)
    else:
        name, args = rng.choice(BINARY), (number, _alike(rng, graph, number), new)
    graph = replace(graph, chain=(*graph.chain[:at], OperatorCall(99, name, args), *graph.chain[at:]))
    return _renumbered(graph, {number: new}, at + 1)


# --- the border ------------------------------------------------------------------------------------------


def _border(rng: random.Random, graph: VkGraph) -> VkGraph:
    """More, fewer or other inputs and outputs: mostly a value within becomes an output."""
    activations = _activations(graph) or [0]
    way = rng.randrange(6)
    inputs, outputs = list(graph.input_ids), list(graph.output_ids)
    if way < 3:
        outputs.append(rng.choice(activations))
    elif way == 3:
        inputs.append(rng.choice(activations))
    else:
        side = outputs if way == 4 else inputs
        rng.shuffle(side)
        del side[:1]
    return replace(graph, input_ids=tuple(inputs), output_ids=tuple(outputs))


WAYS: tuple[Mutate, ...] = (
    _exchanged, _exchanged, _crossed, _more_or_fewer, _number, _number, _undescribed, _reshaped, _reshaped, _retyped,
    _retyped, _renamed, _without, _doubled, _moved, _joined, _joined, _border, _border,
)  # fmt: skip
