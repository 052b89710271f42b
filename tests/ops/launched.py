"""What is dispatched, as text: the build of a shader, its workgroups, and how much each of them computes.

A choice of a build or a tile changes no byte, only how fast it is: no comparison of bytes shows that it went wrong. So
what is chosen is written down, and a test compares; above all on both sides of every bound that a choice has.

python tests/ops/launched.py --write   writes tests/data/launches.txt anew, after a choice was changed on purpose.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from refsim.core.launch import Launch
from refsim.golden import rules
from refsim.ops.base import coopmat, gemm
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.base.traits import MatrixProblem, XQuads

FILE = Path(__file__).parents[1] / "data" / "launches.txt"
#: Cases of the corpus of each operator.
EACH = 14


def _window(x: tuple[int, ...], kernel: int, stride: int = 1, out: int = 0, **more: Any) -> Case:
    strides = more.pop("strides", (stride, stride))
    window = {
        "kernel_size": (kernel, kernel), "stride": strides, "padding": (kernel // 2, kernel // 2),
        "dilation": (1, 1), "groups": 1, "in_scale": 0.02, "in_zp": 5, "out_scale": 0.9, "out_zp": -7,
    }  # fmt: skip
    op = more.pop("op", "q8ta_conv2d_dw")
    features = {"out_channels": out} if out else {}
    groups = {} if out else {"groups": x[1]}
    return Case(op, {**window, **groups, **more}, {"x": (x, "4W4C")}, "4W4C", features=features)


def at_bounds() -> Iterator[Case]:
    """Cases on both sides of a bound, and windows that a build of its own exists for, or just not."""
    linear = dict(in_scale=0.02, in_zp=5, out_scale=0.03, out_zp=-9)
    for k in (1016, 1020, 1024, 1028):
        yield Case("q8ta_linear_gemv", linear, {"x": ((1, k), "4W")}, "4W", features={"out_channels": 9})
    for k in (1504, 1536, 4096):  # K in parts, or just not
        yield Case("q8ta_linear", linear, {"x": ((50, k), "4H4W")}, "4H4W", features={"out_channels": 37})
    for kernel, stride in product((3, 5, 7), (1, 2, 3)):
        yield _window((1, 8, 20, 23), kernel, stride)
    yield _window((1, 8, 20, 23), 3, padding=(1, 0))
    yield _window((1, 8, 20, 23), 3, padding=(0, 1))
    yield _window((1, 8, 20, 23), 3, strides=(1, 2))
    yield _window((1, 8, 20, 23), 3, dilation=(1, 2))
    yield _window((1, 8, 20, 23), 3, dilation=(2, 1))
    # words of channels x groups of columns x groups of rows: 2**18 of them, and just fewer
    for channels, width, height in (
        (64, 512, 512),
        (64, 508, 512),
        (60, 512, 512),
        (64, 512, 508),
        (64, 509, 509),
    ):
        yield _window((1, channels, height, width), 3)
    # 12 words of K, and just more: of a product, of the taps that the phases of a step share
    for op, kernel, stride, channels in (
        ("q8ta_conv2d_general", 1, 1, 48),
        ("q8ta_conv2d_general", 1, 1, 52),
        ("q8ta_conv2d_transposed", 3, 2, 16),
        ("q8ta_conv2d_transposed", 3, 2, 20),
    ):
        case = _window((1, channels, 100, 90), kernel, stride, 32, op=op)
        yield replace(case, inputs={"x": ((1, channels, 100, 90), "4C")}, out_layout="4C")
    for k in (48, 64):
        features = {"out_channels": 32}
        given = {"x": ((9000, k), "4H4W")}
        yield Case("linear_q8ta_q8csw_tiled", dict(in_scale=0.02, in_zp=5), given, "W", features=features)


def _line(launch: Launch) -> str:
    sizes = (launch.global_size, launch.local, launch.tile, launch.grid)
    return f"{launch.shader} {launch.variant or 'plain'} " + " ".join(
        "x".join(map(str, size)) for size in sizes
    )


def dispatched() -> Iterator[str]:
    """A line for each dispatch: the shader and its build; global size, workgroup, tile and grid."""
    for case in cases():
        yield from _of(case)


def cases() -> Iterator[Case]:
    for name in OPS:
        yield from (rules.case(name, 7 * number) for number in range(EACH))
    yield from at_bounds()


def _of(case: Case) -> Iterator[str]:
    call = bind(case).call
    yield from (f"{case.op} {call.out}: {_line(step.launch)}" for step in call.dispatches())
    if call.op.matrix is not None:
        problem = call.op.matrix(call)
        for step in coopmat.dispatches(call, problem, coopmat.plan(problem)):
            yield f"{case.op} {call.out}: {_line(step.launch)} {step.launch.out}"


def tiles() -> Iterator[str]:
    """Tiles of matrix-like kernels, for positions x words of channels x words of K x slices."""
    for slices, words, k in product((1, 3), (1, 4, 5, 8, 9, 16), (1, 12, 13)):
        names = [gemm.tile_config(positions, words, k, slices) for positions in _POSITIONS]
        yield f"{slices} slices, {words} words, K {k}: " + " ".join(
            f"{row.local[1]}.{row.tile[0]}" for row in names
        )


#: Numbers of positions, with both sides of 128 workgroups of 32 and of 64 positions.
_POSITIONS = (1, 64, 4032, 4064, 4065, 4096, 4097, 8127, 8128, 8129, 100_000)


def matrices() -> Iterator[str]:
    """Tiles and parts of cooperative matrices, for positions x channels x bytes of K; `no` if they are not worth it."""
    for positions, channels, depth in product(_SIZES, _CHANNELS, _DEPTHS):
        problem = matrix(positions, channels, depth)
        how = coopmat.plan(problem)
        grid = "x".join(map(str, how.tile.grid(problem, how.splits)))
        worth = "" if coopmat.worthwhile(problem) else " no"
        yield f"{positions} x {channels} x {depth}: {how.tile.name} {how.splits} {grid}{worth}"


_SIZES = (47, 48, 64, 1000, 1473, 6145, 12_288, 12_289, 51_200)
_CHANNELS = (31, 32, 47, 48, 95, 96, 256)
_DEPTHS = (127, 128, 1024, 1025, 1535, 1536, 9000)


def matrix(positions: int, channels: int, depth: int, groups: int = 1) -> MatrixProblem:
    return MatrixProblem(
        shader="coop/linear", push=(), positions=positions, channels=channels, groups=groups, depth=depth,
        chunks=-(-depth // coopmat.CHUNK), integer_zp=True, x_quads=XQuads.WORDS, weight=lambda value: value,
    )  # fmt: skip


def lines() -> list[str]:
    return [*dispatched(), *tiles(), *matrices()]


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        raise SystemExit(__doc__)
    FILE.write_text("\n".join(lines()) + "\n")
