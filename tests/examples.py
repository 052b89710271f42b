"""The operator that a test takes as an example where any other of its family would do as well."""

from __future__ import annotations

from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Kind, OpSpec
from refsim.ops.base.traits import Family


def elementwise(inputs: int) -> OpSpec:
    """The first elementwise operator with that many inputs."""
    return next(op for op in OPS.of_family(Family.ELEMENTWISE) if len(op.of_kind(Kind.INPUT)) == inputs)


UNARY, BINARY = elementwise(1), elementwise(2)
LINEAR = OPS.of_family(Family.LINEAR)[0]
