"""Shapes that change between runs. What the runtime gets wrong is found by trying smaller shapes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from refsim.check.finding import Level
from refsim.check.rule import Hit, Rule
from refsim.check.rules.border import IN, STATIC, passed
from refsim.check.runtime import Runtime
from refsim.check.subject import Delegate, Method
from refsim.core.dtypes import BY_DELEGATE_CODE
from refsim.core.errors import RefsimError
from refsim.formats.vkgraph.schema import VkTensor
from refsim.graph.build import bound, build
from refsim.graph.graph import Graph
from refsim.graph.shapes import at_shapes, zeros


@dataclass(frozen=True)
class Trial:
    """A delegate at another shape: which dim of its inputs became what, in words, and its graph there. ``value`` and
    ``dim``: the input's. Without a graph no operator takes the shape."""

    shape: str
    value: int
    dim: int
    graph: Graph | None


def _dynamic_inputs(method: Method) -> Iterator[tuple[Delegate, set[int]]]:
    """Each delegate that is passed tensors whose shape may change, and the ids of those."""
    found: dict[int, set[int]] = {}
    for border, tensor in passed(method):
        if border.way == IN and tensor.shape_dynamism != STATIC:
            found.setdefault(border.delegate.number, set()).add(border.operand.value)
    for delegate in method.delegates:
        if delegate.number in found:
            yield delegate, found[delegate.number]


@lru_cache(2)
def _trials(method: Method) -> list[tuple[Delegate, list[Trial]]]:
    """The trials of each delegate whose inputs may change."""
    return [(delegate, list(_tried(delegate, changing))) for delegate, changing in _dynamic_inputs(method)]


def _tried(delegate: Delegate, changing: set[int]) -> Iterator[Trial]:
    """Each dim of each input that may change, smaller: by one, or by as little as all operators take.

    Other inputs whose dim has the same size change with it, as they do where one Dim of an export names both.
    """
    try:
        whole = bound(delegate.blob, "")
    except RefsimError:
        return
    sizes = {n: v.dims for n, v in enumerate(delegate.graph.values) if isinstance(v, VkTensor)}
    for value in sorted(changing & sizes.keys()):
        for dim, size in enumerate(sizes[value]):
            graph = None
            for smaller in dict.fromkeys(
                n for n in (size - 1, size - 2, size - 4, size // 2) if 0 < n < size
            ):
                given = {
                    n: tuple(
                        smaller if n in changing and d == dim and s == size else s for d, s in enumerate(dims)
                    )
                    for n, dims in sizes.items()
                }
                if (graph := _at(delegate, whole, given)) is not None:
                    break
            if size > 1:
                shape = f"{'x'.join(map(str, given[value]))} of {'x'.join(map(str, sizes[value]))} for value {value}"
                yield Trial(shape, value, dim, graph)


def _at(delegate: Delegate, whole: Graph, given: dict[int, tuple[int, ...]]) -> Graph | None:
    """The delegate with inputs of these shapes; None if an operator does not take them."""
    values, arrays = delegate.graph.values, []
    for number in delegate.graph.input_ids:
        held = values[number]
        if not isinstance(held, VkTensor):
            return None  # a number, which only a run gives
        arrays.append(zeros(given[number], BY_DELEGATE_CODE[held.datatype].numpy))
    with suppress(RefsimError):
        return build(at_shapes(delegate.blob, whole, arrays, "")[0], "", of=whole, runs=False)
    return None


def _hits(method: Method, stops: bool) -> Iterator[Hit]:
    """The nodes whose output has a wrong shape, or whose resize stops the runtime, with a shape that shows it."""
    for delegate, trials in _trials(method):
        calls = {output: call for call in delegate.calls for output in call.writes}
        seen: set[int] = set()
        for trial in trials:
            for node, row in trial.graph.misshaped() if trial.graph is not None else ():
                call = calls.get(node.outputs[0])
                if call is None or call.number in seen or row.stops is not stops:
                    continue
                seen.add(call.number)
                facts = {"operator": call.name, "note": row.note, "shape": trial.shape}
                yield Hit(call.place(node.outputs[0]), facts)


def misshaped(method: Method, runtime: Runtime) -> Iterator[Hit]:
    return _hits(method, stops=False)


def stopping(method: Method, runtime: Runtime) -> Iterator[Hit]:
    return _hits(method, stops=True)


def fixed_operator(method: Method, runtime: Runtime) -> Iterator[Hit]:
    """Those that the description of the runtime names."""
    for delegate, changing in _dynamic_inputs(method):
        reached = set(changing)
        for call in delegate.calls:
            if reached.isdisjoint(call.reads):
                continue
            out = call.operand("-1")
            if runtime.behaviour.fixes(call.name, 0 if out is None else len(out.dims)):
                yield Hit(call.place(call.id("-1")), {"operator": call.name})
            else:
                reached.update(call.writes)


def dynamic_input(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for delegate, changing in _dynamic_inputs(method):
        for number in sorted(changing):
            yield Hit(delegate.place(number), {"dims": list(delegate.graph.values[number].dims)})  # type: ignore[union-attr]


def bound_by_elements(method: Method, runtime: Runtime) -> Iterator[Hit]:
    """Inputs of which two dims may change: one may then grow beyond its bound."""
    for delegate, trials in _trials(method):
        free: dict[int, list[int]] = {}
        for trial in trials:
            if trial.graph is not None:
                free.setdefault(trial.value, []).append(trial.dim)
        for value, dims in free.items():
            held = delegate.graph.values[value]
            if len(dims) > 1 and isinstance(held, VkTensor):
                beyond = list(held.dims)
                first, second = dims[-2:]
                beyond[first], beyond[second] = 2 * beyond[first], max(beyond[second] // 2, 1)
                yield Hit(
                    delegate.place(value), {"dims": list(held.dims), "beyond": beyond, "count": held.numel}
                )


def unchecked_dim(method: Method, runtime: Runtime) -> Iterator[Hit]:
    """Dims of dynamic inputs that an operator needs as they are."""
    for delegate, trials in _trials(method):
        for trial in trials:
            if trial.graph is None:
                size = delegate.graph.values[trial.value].dims[trial.dim]  # type: ignore[union-attr]
                yield Hit(delegate.place(trial.value), {"dim": trial.dim, "size": size})


#: What holds for any runtime with operators that do not follow their inputs.
RESIZING = (
    Rule(
        "fixed-operator",
        Level.WARNING,
        "{operator} keeps the shapes of export, but the delegate's input may have another shape",
        "the operator computes its output at the exported size: values are missing, or left over from another run",
        "export with static shapes, or keep the operator out of the delegate",
        fixed_operator,
    ),
)
RULES = (
    Rule(
        "unresized-output",
        Level.WARNING,
        "{note}; at {shape}",
        "the output has the bound's shape and depends on what ran before; what reads it computes with stale rows",
        "run the bound's shape alone, export with static shapes, or keep {operator} out of the delegate",
        misshaped,
    ),
    Rule(
        "resize-stops",
        Level.WARNING,
        "{note}; at {shape}",
        "the run ends with an error, and so does every later run of the loaded method, at the bound too",
        "write dims as numbers from 0 on, give a linear three dims at most, or export with static shapes",
        stopping,
    ),
    *RESIZING,
    Rule(
        "bound-by-elements",
        Level.NOTE,
        "the runtime compares the number of elements with the bound's {count}, and takes {beyond} for {dims}",
        "texels outside of the image are lost, buffers are written past their end, and every later run throws",
        "let the app check each dim against the bound",
        bound_by_elements,
    ),
    Rule(
        "unchecked-dim",
        Level.NOTE,
        "operators need {size} in dim {dim} of the input, which the runtime does not check",
        "the program does not say which dims are dynamic: another size runs and gives garbage",
        "let the app check the dims that were exported static",
        unchecked_dim,
    ),
    Rule(
        "dynamic-input",
        Level.NOTE,
        "the input's shape may change between runs, up to {dims}",
        "the runtime allocates the largest shape, and encodes its commands again after each change",
        "export with static shapes where one shape is enough",
        dynamic_input,
    ),
)
