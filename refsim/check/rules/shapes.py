"""Shapes that change between runs."""

from __future__ import annotations

from collections.abc import Iterator

from refsim.check.finding import Level
from refsim.check.rule import Hit, Rule
from refsim.check.rules.border import IN, STATIC, passed
from refsim.check.runtime import Runtime
from refsim.check.subject import Delegate, Method
from refsim.ops.base.registry import OPS


def _resizes(name: str, runtime: Runtime) -> bool:
    op = OPS.serialized(name)
    return op.resizes if op is not None else name not in runtime.fixed_shape


def _dynamic_inputs(method: Method) -> Iterator[tuple[Delegate, set[int]]]:
    """Each delegate that is passed tensors whose shape may change, and the ids of those."""
    found: dict[int, set[int]] = {}
    for border, tensor in passed(method):
        if border.way == IN and tensor.shape_dynamism != STATIC:
            found.setdefault(border.delegate.number, set()).add(border.operand.value)
    for delegate in method.delegates:
        if delegate.number in found:
            yield delegate, found[delegate.number]


def fixed_operator(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for delegate, changing in _dynamic_inputs(method):
        for call in delegate.calls:
            if changing.isdisjoint(call.reads):
                continue
            if _resizes(call.name, runtime):
                changing.update(call.writes)
            else:
                yield Hit(call.place(call.id("-1")), {"operator": call.name})


def dynamic_input(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for delegate, changing in _dynamic_inputs(method):
        for number in sorted(changing):
            yield Hit(delegate.place(number), {"dims": list(delegate.graph.values[number].dims)})  # type: ignore[union-attr]


RULES = (
    Rule(
        "fixed-operator",
        Level.WARNING,
        "{operator} keeps the shapes of export, but the delegate's input may have another shape",
        "the operator computes its output at the exported size: values are missing, or left over from another run",
        "export with static shapes, or keep the operator out of the delegate",
        fixed_operator,
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
