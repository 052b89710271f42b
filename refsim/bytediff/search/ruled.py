"""Another library's rule of requantization as a function: it stands for a kernel's epilogue, and is edited like it."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import numpy as np

from refsim.core.qmath import wrap32
from refsim.ops.base import epilogue
from refsim.ops.base.requantization import SCOPE, Requantization

#: What the function's file is called where a cause names a line.
FILE = "--rule"
#: The names of a rule, as the epilogue's arguments have them.
_NAMES = {"sx": "in_scale", "sw": "weight_scale", "so": "OUT_SCALE", "has_relu": "flags & RELU"}
_SOURCE = """\
def rule(acc, wsum, in_zp, weight_scale, in_scale, bias, inv, zp, flags):
    acc = wrap32(acc - np.int64(in_zp) * wsum)
    bias = bias if flags & HAS_BIAS else f32(0.0)
    return np.int32({})
"""


def function_of(rule: Requantization, out_scale: float) -> Callable[..., Any]:
    """The rule as a function with an epilogue's arguments, of a call with this output scale."""
    source = _SOURCE.format(rule.as_python(_NAMES))
    linecache.cache[FILE] = len(source), None, source.splitlines(keepends=True), FILE
    space: dict[str, Any] = {
        "__name__": __name__, **SCOPE, "wrap32": wrap32, "RELU": epilogue.RELU, "HAS_BIAS": epilogue.HAS_BIAS,
        "OUT_SCALE": np.float32(out_scale),
    }  # fmt: skip
    exec(compile(source, FILE, "exec"), space)
    made: Callable[..., Any] = space["rule"]
    return made
