"""Float operators that need exp, log, tanh or a root: shaders/include/function.glsl has these to the bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

import numpy as np

from refsim.aten.elementwise import GELU
from refsim.aten.row import axis
from refsim.core.launch import Launch
from refsim_gpu.float_site import Launched, Row, Site
from refsim_gpu.float_words import FUNCTION, FUNCTIONS, MAP_DIMS, REDUCE_DIMS, SOFTMAX
from refsim_gpu.strided import LOCAL, ROW_GROUPS, Unfit, counted, dims, joined, reshaped


def function(name: str, numbers: Callable[..., tuple[float, float]] = lambda: (0.0, 0.0)) -> Row:
    """A function of each element; ``numbers`` makes its two numbers of the other arguments."""

    def row(site: Site) -> Iterator[Launched]:
        p, q = numbers(*site.args)
        x, out = site.x, site.out()
        if x.view.shape != out.view.shape:
            raise Unfit(f"{list(x.view.shape)} to {list(out.view.shape)}")
        count = prod(out.view.shape)
        rows = joined(out.view.shape, [out.view, x.view], MAP_DIMS)
        push, spec = FUNCTION
        words = push.pack(
            {}, **dims([(*row, 0) for row in rows], ("SIZE", "OUT", "A", "B"), MAP_DIMS),
            OUT_AT=out.first, A_AT=x.first, B_AT=0, COUNT=count, P=np.float32(p), Q=np.float32(q),
        )  # fmt: skip
        constants = spec.pack({}, FUNCTION=FUNCTIONS[name], DIMS=len(rows))
        desc = site.desc(out.key)
        yield Launch("float/function", desc, constants, words, counted(count), (LOCAL, 1, 1)), (x,), out

    return row


def gelu(approximate: str = "none") -> tuple[float, float]:
    """ET-VK's shader has the form with tanh only."""
    return float(GELU), 0.044715


def power(exponent: float) -> tuple[float, float]:
    if exponent != 0.5:
        raise Unfit(f"a power of {exponent}")
    return 0.0, 0.0


def softmax(logarithm: bool) -> Row:
    """A row for each workgroup, summed as `refsim.aten.norm` says."""
    return lambda site: _softmax(site, logarithm)


def _softmax(site: Site, logarithm: bool) -> Iterator[Launched]:
    x, out, place = site.x, site.out(), site.graph.place(site.node)
    rank = x.view.ndim
    at = axis(site.args[0], rank)
    whole = (x.view, out.view) if rank else (x.view.reshape(1), reshaped(out.view, (1,)))
    packed = not place.buffer and rank - 1 - at == place.packed
    first = tuple(0 if d == at else slice(None) for d in range(max(rank, 1)))
    left, made = (view[first] for view in whole)
    rows, count = joined(left.shape, [made, left], REDUCE_DIMS), prod(left.shape)
    push, spec = SOFTMAX
    words = push.pack(
        {}, **dims(rows, ("SIZE", "OUT", "A"), REDUCE_DIMS), OUT_AT=out.first, A_AT=x.first, COUNT=count,
        LENGTH=whole[0].shape[at], OUT_STEP=whole[1].strides[at] // 4, A_STEP=whole[0].strides[at] // 4,
    )  # fmt: skip
    constants = spec.pack(
        {},
        LOGARITHM=logarithm,
        BY_TEXELS=packed,
        BOUNDED=packed or place.buffer,
        FINITE=not packed,
        LANES=LOCAL,
        DIMS=len(rows),
    )
    size = (LOCAL * min(count, ROW_GROUPS), -(-count // ROW_GROUPS), 1)
    yield Launch("float/softmax", site.desc(out.key), constants, words, size, (LOCAL, 1, 1)), (x,), out


ROWS: dict[str, Row] = {
    "exp": function("EXP"),
    "sigmoid": function("SIGMOID"),
    "silu": function("SILU"),
    "tanh": function("TANH"),
    "gelu": function("GELU", gelu),
    "sqrt": function("SQRT"),
    "rsqrt": function("RSQRT"),
    "pow.Tensor_Scalar": function("ROOT_OF_SIZE", power),
    "reciprocal": function("RECIPROCAL"),
    "log": function("LOG"),
    "softmax _softmax": softmax(False),
    "log_softmax _log_softmax": softmax(True),
}
