"""What native kernels are asked to do for calls of drawn sizes, as `planned` writes it down for chosen ones.

A choice has bounds that nobody lists: whether the rows of a block fit, whether some threads would wait for others.
Sizes that are drawn lie on both sides of most of them. Each processor has draws of its own.

python tests/exec/cpu/drawn.py --write   writes tests/data/plans/drawn/ anew, after a choice was changed on purpose.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import planned

from refsim.core.rng import Rng
from refsim.golden import rules
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.base.traits import Family

FOLDER = planned.FOLDER / "drawn"
#: Convolutions and linear layers of each processor; calls of any other operator.
MATRICES, OTHERS = 100, 5
CONVOLUTIONS = (
    "q8ta_conv2d_general", "q8ta_conv2d_im2col", "q8ta_conv2d_pw", "q8ta_conv2d_dw", "q8ta_conv2d_transposed",
    "q8ta_linear", "linear_q8ta_q8csw_tiled",
)  # fmt: skip
#: Routes that are asked for besides the one that is chosen, one for each convolution.
ROUTES = ("winograd4", "winograd2", "gemm", "gemm8", "amx")
#: The most weights, and elements of an input.
MOST_WEIGHTS, MOST_ELEMENTS = 150_000, 400_000


def cases(machine: tuple[str, int]) -> Iterator[tuple[Case, str]]:
    """The calls of a processor, each with the route that it is forced to take; "" for the one that is chosen."""
    rng = Rng(9300 + planned.MACHINES.index(machine))
    for _ in range(MATRICES):
        case = _matrix(rng)
        yield case, ""
        if not case.op.endswith("_dw"):
            yield case, rng.choice(ROUTES)
    for name, op in OPS.items():
        for _ in range(OTHERS if op.family not in (Family.CONVOLUTION, Family.DEPTHWISE) else 0):
            yield _other(rng, name), ""


def _size(rng: Rng, most: int) -> int:
    """Small sizes as often as large ones."""
    return rng.integer(1, most >> rng.integer(0, most.bit_length() - 1))


def _matrix(rng: Rng) -> Case:
    op = rng.choice(CONVOLUTIONS)
    while True:
        channels, out = _size(rng, 300), _size(rng, 300)
        shape = (_size(rng, 3), channels, _size(rng, 120), _size(rng, 160 if rng.chance(80) else 1500))
        kernel, stride, dilation = (3, 3), (1, 1), (1, 1)
        if rng.chance(50):
            kernel = (rng.integer(1, 7), rng.integer(1, 7))
            stride = (rng.integer(1, 3), rng.integer(1, 3))
            dilation = (rng.integer(1, 3), rng.integer(1, 3)) if rng.chance(30) else (1, 1)
        groups = rng.integer(2, 4) if rng.chance(15) and "conv2d" in op else 1
        if groups > 1 or op.endswith(("im2col", "_dw")):  # channels fill words
            channels, out = (-(-size // (4 * groups)) * 4 * groups for size in (channels, out))
        groups = channels if op.endswith("_dw") else groups
        shape = (shape[0], channels, *shape[2:])
        case = _call(rng, op, shape, out, kernel, stride, dilation, groups)
        taps = 1 if "linear" in op or op.endswith("_pw") else kernel[0] * kernel[1]
        fits = channels * out * taps // groups <= MOST_WEIGHTS and np.prod(shape) <= MOST_ELEMENTS
        reach = all(size > (k - 1) * d for size, k, d in zip(shape[2:], kernel, dilation, strict=True))
        if fits and reach:
            return case


def _call(
    rng: Rng,
    op: str,
    shape: tuple[int, int, int, int],
    out: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
) -> Case:
    features = {"out_channels": out, "bias": rng.chance(70)}
    if "conv2d" not in op:
        rows = max(1, shape[2] * shape[3] // 8)
        params = dict(in_scale=0.02, in_zp=5)
        if op == "q8ta_linear":
            params |= dict(out_scale=0.03, out_zp=-9)
        layout = "4H4W" if op == "q8ta_linear" else "W"
        return Case(op, params, {"x": ((rows, -(-shape[1] // 4) * 4), "4H4W")}, layout, features=features)
    x_layout = "4W4C" if op.endswith("_pw") else rng.choice(("4C", "4C1W", "4W4C"))
    padding = tuple(rng.integer(0, size // 2) for size in kernel)
    more = {"stride": stride, "dilation": dilation, "groups": groups, "padding": padding}
    if op.endswith("_pw"):
        kernel = (1, 1)
        more |= {"stride": (1, 1), "dilation": (1, 1), "padding": (0, 0)}
    if op.endswith("transposed"):
        more["dilation"] = (1, 1)
    case = planned.conv(op, shape, out, 1, layout=x_layout)
    params = {**case.params, "kernel_size": kernel, **more}
    features = {} if op.endswith("_dw") else features
    return replace(case, params=params, out_layout=rng.choice(("4C", "4C1W", "4W4C")), features=features)


def _other(rng: Rng, name: str) -> Case:
    """A case of the corpus; where the layouts alone decide what runs, of another shape."""
    op = OPS[name]
    case = rules.case(name, rng.integer(0, rules.RULES[name].count - 1))
    if op.family not in planned.BY_LAYOUT:
        return case
    shape = (_size(rng, 3), _size(rng, 200), _size(rng, 40), _size(rng, 300))
    while np.prod(shape) > MOST_ELEMENTS:
        shape = (shape[0], shape[1] // 2, *shape[2:])
    case = rules.case(name, rng.integer(0, len(op.layouts) - 1))
    return planned.reshaped(case, shape)


def lines(machine: tuple[str, int]) -> list[str]:
    return list(planned.calls(*machine, cases(machine)))


def path(machine: tuple[str, int]) -> Path:
    return FOLDER / planned.path(*machine).name


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        raise SystemExit(__doc__)
    FOLDER.mkdir(exist_ok=True)
    for machine in planned.MACHINES:
        path(machine).write_text("\n".join(lines(machine)) + "\n")
