"""Operators with a definition of their own: layouts and constants that their kernels need, and known wrong kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from refsim.check.finding import Level
from refsim.check.rule import Hit, Rule
from refsim.check.rules.requirements import refused
from refsim.check.runtime import Runtime
from refsim.check.subject import Call, Method
from refsim.ops.base.arg import Arg, Kind
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import OpSpec

Bound = tuple[OpSpec, dict[str, str]]


def _bound(call: Call) -> Bound | None:
    """The definition of a call's operator, and the key of each argument by name; None if there is none that fits."""
    op = OPS.serialized(call.name)
    given = len(call.operator.args)
    if op is None or given < len(op.args):
        return None
    keys = {arg.name: str(at) for at, arg in enumerate(op.args[:-1])} | {op.args[-1].name: "-1"}
    first = call.operand("0")
    # names such as that of a clone stand for float tensors, too
    int8 = all(row.packed_int8 for row in op.args[0].layouts)
    if int8 and (first is None or first.dtype != "INT8" or not first.is_packed_int8):
        return None
    return op, keys


def _tensors(op: OpSpec) -> Iterator[Arg]:
    return (arg for arg in op.args if arg.kind in (Kind.INPUT, Kind.OUTPUT))


def wrong_layout(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for call in method.calls:
        op, keys = _bound(call) or (None, {})
        if call.name in runtime.shader_of:
            continue  # one name for several kernels: which is meant shows in the shader
        for arg in _tensors(op) if op is not None else ():
            operand = call.operand(keys[arg.name])
            if operand is None or operand.layout is None or operand.layout.is_dynamic or operand.is_constant:
                continue
            # int8 values in a plain layout are no packed tensor: where they may lie is not the definition's business
            kind = [row for row in arg.layouts if row.packed_int8 == operand.is_packed_int8]
            if kind and operand.layout not in kind:
                facts = {"argument": arg.name, "layout": operand.layout, "operator": call.name}
                yield Hit(call.place(operand.value), facts | {"need": ", ".join(map(str, arg.layouts))})


def not_constant(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for call in method.calls:
        op, keys = _bound(call) or (None, {})
        for arg in op.args if op is not None else ():
            operand = call.operand(keys[arg.name])
            if operand is not None and operand.is_constant != (arg.kind is Kind.CONST):
                facts = {"argument": arg.name, "operator": call.name}
                need = "a constant" if arg.kind is Kind.CONST else "a computed tensor"
                yield Hit(call.place(operand.value), facts | {"need": need})


def known_defect(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for call in method.calls:
        if refused(call, runtime):
            continue  # nothing is computed at all
        for node in call.nodes:
            if node.upstream is not None:
                yield Hit(replace(call.place(node.outputs[0]), node=node.number), {"said": node.upstream})


RULES = (
    Rule(
        "operator-layout",
        Level.ERROR,
        "{argument} of {operator} is in {layout}, which the operator does not take",
        "loading stops at a check of the operator: the packed dim or the block size is another one",
        "clone the tensor into one of {need} first",
        wrong_layout,
    ),
    Rule(
        "operator-constant",
        Level.ERROR,
        "{argument} of {operator} has to be {need}",
        "loading throws: the argument is of the wrong kind (TensorRef and Tensor)",
        "serialize the argument as {need}",
        not_constant,
    ),
    Rule(
        "known-defect",
        Level.WARNING,
        "{said}",
        "the file runs, and the values are wrong",
        "avoid these shapes or parameters, or keep the operator out of the delegate",
        known_defect,
    ),
)
