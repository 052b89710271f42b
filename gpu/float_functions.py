"""Float operators that need exp, log, tanh or a root: shaders/include/function.glsl has these to the bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from refsim.aten.elementwise import GELU
from refsim.aten.row import axis
from refsim_gpu.float_site import Launched, Row, Site
from refsim_gpu.float_words import FUNCTIONS, MAP_DIMS, REDUCE_DIMS
from refsim_gpu.strided import LOCAL, Unfit, a_group_each, counted, laid, reshaped


def function(name: str, numbers: Callable[..., tuple[float, float]] = lambda: (0.0, 0.0)) -> Row:
    """A function of each element; ``numbers`` makes its two numbers of the other arguments."""

    def row(site: Site) -> Iterator[Launched]:
        p, q = numbers(*site.args)
        x, out = site.x, site.out()
        if x.view.shape != out.view.shape:
            raise Unfit(f"{list(x.view.shape)} to {list(out.view.shape)}")
        words, rows = laid(MAP_DIMS, OUT=out, A=x)
        words |= {f"B_{dim}": 0 for dim in (*range(MAP_DIMS), "AT")}
        words |= {"P": np.float32(p), "Q": np.float32(q)}
        size = counted(words["COUNT"])
        yield site.launched("function", out, (x,), size, words, FUNCTION=FUNCTIONS[name], DIMS=rows)

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
    words, rows = laid(REDUCE_DIMS, OUT=out.viewed(whole[1][first]), A=x.viewed(whole[0][first]))
    words |= {
        "LENGTH": whole[0].shape[at], "OUT_STEP": whole[1].strides[at] // 4, "A_STEP": whole[0].strides[at] // 4,
    }  # fmt: skip
    yield site.launched(
        "softmax", out, (x,), a_group_each(words["COUNT"]), words, LOGARITHM=logarithm, BY_TEXELS=packed,
        BOUNDED=packed or place.buffer, FINITE=not packed, LANES=LOCAL, DIMS=rows,
    )  # fmt: skip


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
