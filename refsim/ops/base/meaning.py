"""An operator on tensors that its kernels do not take: files hold such nodes, and the definition says the bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from refsim.core import size_limit
from refsim.core.errors import ShapeError
from refsim.core.tensor import TensorDesc
from refsim.ops.base.arg import Arrays, Kind
from refsim.ops.base.spec import OpSpec
from refsim.ops.base.target import Target


@dataclass(frozen=True)
class Meaning:
    """A checked node that runs by its operator's definition. ``upstream`` says what ET-VK's kernel does instead."""

    op: OpSpec
    params: Any
    target: Target
    consts: Mapping[str, np.ndarray | None]
    upstream: str

    def run(self, arrays: Arrays) -> np.ndarray:
        """The output as a logical array, from the inputs as logical arrays by name."""
        result: np.ndarray = self.op.define(self.params, self.target, **arrays, **self.consts)
        return result


def meaning(
    op: OpSpec, params: Any, inputs: Mapping[str, TensorDesc], consts: Mapping[str, np.ndarray | None],
    out: TensorDesc, target: Target,
) -> Meaning | None:  # fmt: skip
    """None where the kernels take these shapes, or where the operator means nothing for them either.

    Raises LayoutError, ShapeError or ParameterError that name the argument, as `OpSpec.bind` does.
    """
    shapes = {name: desc.shape for name, desc in inputs.items()}
    upstream = None if op.upstream.beyond is None else op.upstream.beyond(shapes)
    quantized = op.upstream.if_quantized is not None and all(desc.is_int8 for desc in inputs.values())
    if quantized:
        upstream = op.upstream.if_quantized
    if upstream is None:
        return None
    for arg in op.of_kind(Kind.INPUT):
        if not quantized:  # kernels are never given these values, so they may lie in any way
            arg.check_layout(op.name, inputs[arg.name].layout)
    op.output.check_layout(op.name, out.layout)
    trimmed = {}
    for arg in op.of_kind(Kind.CONST):
        arg.check_const(op.name, consts.get(arg.name))
        if len(out.shape) < -op.channel_dim:
            raise ShapeError(
                op.name, "the output has too few dims", got=list(out.shape), need=f"{-op.channel_dim} or more"
            )
        trimmed[arg.name] = arg.trim(op.name, consts.get(arg.name), out.shape[op.channel_dim])
    size_limit.check(op.name, 8 * max(map(prod, (*shapes.values(), out.shape))))
    # what the definition gives for zeros has the right shape, and fits the constants
    made = Meaning(op, params, target, trimmed, upstream)
    try:
        found = made.run({name: np.zeros(shape, np.int8) for name, shape in shapes.items()}).shape
    except (ValueError, IndexError, ZeroDivisionError) as error:
        raise ShapeError(op.name, "tensors do not fit each other", got=shapes) from error
    if found != out.shape:
        raise ShapeError(op.name, "the declared output shape is wrong", got=list(out.shape), need=list(found))
    return made
