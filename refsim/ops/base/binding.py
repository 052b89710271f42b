"""From a `Case` to a checked call with data, and the comparison that every executor must pass on it.

The data of a case has a *style*. ``random`` is uniform; ``position`` encodes in each value where it stands, so that
a value in the wrong place always shows; ``ties`` lands on halves where the scales are powers of two;
``near_ties`` puts many sums within an ulp of a tie; and ``saturation`` is made of extremes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.core.errors import ParameterError
from refsim.core.rng import Rng
from refsim.core.tensor import TensorDesc
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call, Kind, Target


@dataclass(frozen=True)
class BoundCase:
    """A call with its input buffers."""

    case: Case
    call: Call
    inputs: dict[str, PackedBuffer]


def bind(case: Case, target: Target | None = None) -> BoundCase:
    """Make a case's constants and inputs from its seed, and bind its operator."""
    if case.style not in STYLES:
        raise ParameterError(case.op, "unknown data style", got=repr(case.style), need=", ".join(STYLES))
    op = OPS[case.op]
    params = op.make_params(case.params)
    rng = Rng(case.seed)
    descs = {name: TensorDesc(shape, layout) for name, (shape, layout) in case.inputs.items()}  # type: ignore[arg-type]
    shapes = {name: desc.shape for name, desc in descs.items()}
    features = {**case.features, "style": case.style}
    consts = op.constants(params, shapes, features, rng) if op.constants else {}
    call = op.bind(params, descs, consts, case.out_layout, target=target)
    inputs = {}
    for number, arg in enumerate(op.of_kind(Kind.INPUT)):
        desc = descs[arg.name]
        inputs[arg.name] = PackedBuffer.pack(input_data(case, desc, rng, number), desc.layout)
    if case.poison:
        for buffer in inputs.values():
            _poison(buffer, rng)
    return BoundCase(case, call, inputs)


def _poison(buffer: PackedBuffer, rng: Rng) -> None:
    """Random bytes into an int8 buffer's padding."""
    if buffer.desc.is_int8:
        padding = buffer.kinds() != ByteKind.VALUE
        buffer.raw[padding] = rng.ints(0, 255, (int(padding.sum()),))


def positions(count: int, number: int = 0) -> np.ndarray:
    """int64 in [-125, 125]: the place in NCHW order modulo the prime 251, begun elsewhere for each input."""
    return (np.arange(count) + 17 * number) % 251 - 125


def _extremes(rng: Rng, count: int) -> np.ndarray:
    """-128 and 127 in no order after a first quarter of -128 alone, which makes the largest sums."""
    values = rng.choices([-128, 127], (count,))
    values[: count // 4] = -128
    return values


#: Style -> steps of the quantized range (int64) for a count of elements and the input's number.
STYLES: dict[str, Callable[[Rng, int, int], np.ndarray]] = {
    "random": lambda rng, count, number: rng.ints(-128, 127, (count,)),
    "position": lambda rng, count, number: positions(count, number),
    "ties": lambda rng, count, number: rng.ints(-40, 40, (count,)),
    "near_ties": lambda rng, count, number: rng.ints(-128, 127, (count,)),
    "saturation": lambda rng, count, number: _extremes(rng, count),
}

#: Style -> what a float input holds, in steps; "random" is `Rng.floats`.
_FLOATS: dict[str, Callable[[Rng, int], np.ndarray]] = {
    "position": lambda rng, count: positions(count).astype(np.float64),
    "ties": lambda rng, count: rng.ints(-200, 200, (count,)) + 0.5,
    "near_ties": lambda rng, count: (
        rng.ints(-140, 140, (count,)) + 0.5 + rng.ints(-4, 4, (count,)) * 2.0**-24
    ),
    "saturation": lambda rng, count: rng.ints(-600, 600, (count,)) * 1.0,
}


def input_data(case: Case, desc: TensorDesc, rng: Rng, number: int = 0) -> np.ndarray:
    """The logical values of one input."""
    count = prod(desc.shape)
    if desc.is_int8:
        return STYLES[case.style](rng, count, number).astype(np.int8).reshape(desc.shape)
    scale = float(case.params.get("scale", 1.0))
    if case.style not in _FLOATS:
        return rng.floats(scale, desc.shape)
    steps = _FLOATS[case.style](rng, count) * np.float64(np.float32(scale))
    return steps.astype(np.float32).reshape(desc.shape)
