"""From a `Case` to a checked call with data, and the comparison that every executor must pass on it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refsim.buffer import PackedBuffer
from refsim.draw import Draw
from refsim.op import OPS, Call, Case, Kind, Target
from refsim.tensor import TensorDesc


@dataclass(frozen=True)
class Bound:
    """A call with its input buffers."""

    case: Case
    call: Call
    inputs: dict[str, PackedBuffer]


def bind(case: Case, target: Target | None = None) -> Bound:
    """Make a case's constants and inputs from its seed, and bind its operator."""
    op = OPS[case.op]
    params = op.make_params(case.params)
    draw = Draw(case.seed)
    descs = {name: TensorDesc(shape, layout) for name, (shape, layout) in case.inputs.items()}  # type: ignore[arg-type]
    shapes = {name: desc.shape for name, desc in descs.items()}
    consts = op.constants(params, shapes, case.features, draw) if op.constants else {}
    call = op.bind(params, descs, consts, case.out_layout, target=target)
    inputs = {}
    for arg in op.of_kind(Kind.INPUT):
        desc = descs[arg.name]
        inputs[arg.name] = PackedBuffer.pack(input_data(case, desc, draw), desc.layout)
    return Bound(case, call, inputs)


def input_data(case: Case, desc: TensorDesc, draw: Draw) -> np.ndarray:
    """The logical values of one input."""
    if desc.is_int8:
        return draw.int8(desc.shape)
    return draw.floats(float(case.params.get("scale", 1.0)), desc.shape)
