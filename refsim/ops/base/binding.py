"""From a `Case` to a checked call with data. The style of the data is one of `styles.STYLES`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from refsim.core import size_limit
from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.core.errors import ParameterError
from refsim.core.rng import Rng
from refsim.core.tensor import TensorDesc
from refsim.ops.base.arg import Kind
from refsim.ops.base.case import Case, CaseFeatures, check_case
from refsim.ops.base.registry import OPS
from refsim.ops.base.requantization import requantization
from refsim.ops.base.spec import Call
from refsim.ops.base.styles import FLOAT_STYLES, STYLES
from refsim.ops.base.target import Target
from refsim.ops.base.traits import INTEGER_SUMS, Family


@dataclass(frozen=True)
class BoundCase:
    """A call with its input buffers."""

    case: Case
    call: Call
    inputs: dict[str, PackedBuffer]


def has_sums(call: Call) -> bool:
    """Whether an operator requantizes integer sums."""
    return call.op.family in INTEGER_SUMS and call.op.family is not Family.FLOAT_LINEAR


def ruled(bound: BoundCase, rule: str) -> BoundCase:
    """The case under another rule of requantization: a name in `RULES`, or an expression.

    ParameterError for an operator that requantizes no integer sums.
    """
    if not has_sums(bound.call):
        raise ParameterError(
            bound.call.op.name, "has no integer sums to requantize", need="a convolution or a linear layer"
        )
    target = replace(bound.call.target, rule=requantization(rule))
    return replace(bound, call=replace(bound.call, target=target))


def bound_of(call: Call, inputs: Mapping[str, PackedBuffer]) -> BoundCase:
    """A call of a graph as a case: parameters and layouts are spelled out, and the data is what the call got."""
    params = {
        arg.name: getattr(call.params, arg.name)
        for arg in call.op.of_kind(Kind.PARAM)
        if getattr(call.params, arg.name, None) is not None
    }
    shapes = {name: (buffer.desc.shape, str(buffer.desc.layout)) for name, buffer in inputs.items()}
    return BoundCase(Case(call.op.name, params, shapes, str(call.out.layout)), call, dict(inputs))


def bind(case: Case, target: Target | None = None) -> BoundCase:
    """Bind a case's operator, and make its constants and input buffers from its seed."""
    check_case(case)
    if case.style not in STYLES:
        raise ParameterError(case.op, "unknown data style", got=repr(case.style), need=", ".join(STYLES))
    op = OPS[case.op]
    params = op.make_params(case.params)
    rng = Rng(case.seed)
    args = {arg.name: arg for arg in op.of_kind(Kind.INPUT)}
    descs = {
        name: args[name].desc(shape, layout) if name in args else TensorDesc(shape, layout)  # type: ignore[arg-type]
        for name, (shape, layout) in case.inputs.items()
    }
    shapes = {name: desc.shape for name, desc in descs.items()}
    op.check_inputs(descs)
    for desc in descs.values():
        if 8 * desc.numel > size_limit.LEAST:
            size_limit.check(f"{case.op}: data of {desc}", 8 * desc.numel)  # it is drawn in 64 bits
    features = CaseFeatures(case, style=case.style)
    consts = op.cases.constants(params, shapes, features, rng) if op.cases.constants else {}
    call = op.bind(params, descs, consts, case.out_layout, target=target)
    inputs = {}
    for number, arg in enumerate(op.of_kind(Kind.INPUT)):
        desc = descs[arg.name]
        array = input_data(replace(case, features=features), desc, rng, number, arg.name)
        inputs[arg.name] = PackedBuffer.pack(array, desc.layout, dtype=desc.dtype)
    if case.poison:
        for buffer in inputs.values():
            _poison(buffer, rng)
    return BoundCase(case, call, inputs)


def _poison(buffer: PackedBuffer, rng: Rng) -> None:
    """Fill the padding of an int8 buffer with random bytes."""
    if buffer.desc.is_int8:
        padding = buffer.kinds() != ByteKind.VALUE
        buffer.raw[padding] = rng.ints(0, 255, (int(padding.sum()),))


def input_data(case: Case, desc: TensorDesc, rng: Rng, number: int = 0, name: str = "") -> np.ndarray:
    """The logical values of one input."""
    own = OPS[case.op].cases.data
    made = None if own is None else own(case, name, desc, rng)
    if made is not None:
        return made
    count = prod(desc.shape)
    if desc.is_int8:
        return STYLES[case.style](rng, count, number).astype(np.int8).reshape(desc.shape)
    scale = float(case.params.get("scale", case.params.get("in_scale", case.features.get("scale", 1.0))))
    if case.style not in FLOAT_STYLES:
        return rng.floats(scale, desc.shape)
    steps = FLOAT_STYLES[case.style](rng, count) * np.float64(np.float32(scale))
    return steps.astype(np.float32).reshape(desc.shape)
