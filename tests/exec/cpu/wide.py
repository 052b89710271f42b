"""Random configurations large enough for several blocks, panels and tiles; the operators' own samples are small."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np

from refsim.bytediff import diff
from refsim.core.layout import INT8_LAYOUTS
from refsim.core.rng import Rng
from refsim.exec.cpu import EmulatedExecutor, NativeExecutor
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import OpSpec
from refsim.ops.base.target import Target
from refsim.ops.base.traits import BY_ROWS, WINDOWED, Family

ROOT = Path(__file__).parents[3]
EMULATED = EmulatedExecutor()
#: Operators whose window is 3 x 3 if it is asked for.
SQUARE = [
    op.name for op in OPS.of_family(Family.CONVOLUTION) if not (op.picks or op.one_tap or op.transposed)
]


def wide(name: str, seed: int) -> Case:
    """A sample of the operator with larger sizes."""
    rng, op = Rng(seed), OPS[name]
    case = op.sample(rng)
    inputs = {}
    for key, (shape, layout) in case.inputs.items():
        inputs[key] = (grown(op, case, shape, rng), layout)
    if op.family is Family.GROUP_LINEAR:
        group, (shape, layout) = case.params["group"], inputs["x"]
        shape = (*shape[:-1], group * 2 * rng.integer(1, 12))
        rows = {name: (shape[:-1], row) for name, (_, row) in inputs.items() if name != "x"}
        inputs = {"x": (shape, layout), **rows}
    if len(inputs) == 2:
        first = next(iter(inputs.values()))[0]
        inputs = {key: (first, layout) for key, (_, layout) in inputs.items()}
    features, params = dict(case.features), dict(case.params)
    groups = params.get("groups", 1)
    if op.family is Family.DEPTHWISE:
        params["groups"] = inputs["x"][0][1]
    elif "out_channels" in features and groups == 1:
        features["out_channels"] = rng.integer(1, 150)
    if op.family is Family.STAGE_IN:
        shape = tuple(rng.integer(1, limit) for limit in (2, 40, 20, 40))
        params["shape"], inputs["x"] = shape, ((int(np.prod(shape)),), inputs["x"][1])
    if op.family is Family.WEIGHT_ONLY:  # outputs and groups come in fours
        features["out_channels"] = 4 * rng.integer(1, 60)
        k = inputs["x"][0][-1]
        params["group_size"] = rng.choice([size for size in range(4, k + 1, 4) if k % size == 0])
        if rng.chance(40):  # one row
            shape, layout = inputs["x"]
            inputs["x"] = ((*shape[:-2], 1, k), layout)
    if "block" in params:  # one row
        shape = inputs["x"][0]
        params["block"] = (*(1 for _ in shape[:-1]), shape[-1])
    return replace(case, inputs=inputs, features=features, params=params)


def large_window(seed: int) -> Case:
    """A depthwise convolution whose kernel is too large to be written out tap by tap; every third one 16 x 16."""
    rng = Rng(9000 + seed)
    case = OPS["q8ta_conv2d_dw"].sample(rng)
    kernel = (16, 16) if seed % 3 == 0 else (rng.integer(9, 19), rng.integer(6, 19))
    stride, dilation = (rng.integer(1, 4), rng.integer(1, 4)), (rng.integer(1, 3), rng.integer(1, 3))
    channels = 4 * rng.integer(1, 22)
    spans = (d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True))
    image = tuple(span + rng.integer(0, 20) for span in spans)
    window = {
        "kernel_size": kernel, "stride": stride, "dilation": dilation, "groups": channels,
        "padding": (rng.integer(0, kernel[0]), rng.integer(0, kernel[1])),
    }  # fmt: skip
    layout = case.inputs["x"][1]
    return replace(
        case,
        params={**case.params, **window},
        inputs={"x": ((rng.integer(1, 3), channels, *image), layout)},
    )


def grown(op: OpSpec, case: Case, shape: tuple[int, ...], rng: Rng) -> tuple[int, ...]:
    """A larger shape that the operator still takes."""
    if op.one_row:
        return (*shape[:-1], 4 * rng.integer(1, 200))
    if op.family in BY_ROWS:
        return (*shape[:-2], rng.integer(1, 90), 4 * rng.integer(1, 80))
    if op.family in WINDOWED:
        n, channels, h, w = shape
        groups = case.params.get("groups", 1)
        if op.family is Family.DEPTHWISE:
            channels = 4 * rng.integer(1, 40)
        elif groups == 1:
            channels = 4 * rng.integer(1, 20) if channels % 4 == 0 else rng.integer(1, 80)
        return (n, channels, h + rng.integer(0, 24), w + rng.integer(0, 40))
    if op.family is Family.SHUFFLE:
        r = case.params["upscale"]
        return (shape[0], rng.integer(1, 12) * r * r, rng.integer(1, 20), rng.integer(1, 40))
    limits = ([1] * 4 + [2, 40, 20, 40])[-len(shape) :]
    return tuple(rng.integer(1, limit) for limit in limits)


def repacks(shape: tuple[int, ...]) -> Iterator[Case]:
    """Every int8 layout from and to each of them, itself included, and NCHW bytes."""
    layouts = [str(layout) for layout in INT8_LAYOUTS]
    stage_in, stage_out, relayout = (
        OPS.of_family(family)[0].name for family in (Family.STAGE_IN, Family.STAGE_OUT, Family.RELAYOUT)
    )
    for a in layouts:
        yield Case(stage_in, {"shape": shape}, {"x": ((prod(shape),), "4W")}, a)
        yield Case(stage_out, {}, {"x": (shape, a)}, "4W")
        yield from (Case(relayout, {}, {"x": (shape, a)}, b) for b in layouts)


def check(case: Case, executor: NativeExecutor, target: Target | None = None, poison: int = 1) -> str:
    """Same bytes as the emulated kernels, also with random bytes in the inputs' padding; gives the route taken."""
    bound = bind(case, target)
    prepared = Prepared(bound.call)
    route = executor.choose(prepared).route
    if bound.call.padding.copied:
        inputs = bound.inputs
    else:
        rng = np.random.default_rng(poison)
        inputs = {name: buffer.poison(rng) for name, buffer in bound.inputs.items()}
    before = {name: buffer.raw.copy() for name, buffer in inputs.items()}
    actual = executor.run_prepared(prepared, inputs)
    expected = EMULATED.run_prepared(prepared, bound.inputs)
    if not np.array_equal(actual.raw, expected.raw):
        raise AssertionError(f"{route}, {case}: {diff(expected, actual, call=bound, limit=1)}")
    for name, raw in before.items():
        inputs[name].check_guards(name)
        assert np.array_equal(inputs[name].raw, raw), f"{route} wrote to its input {name}: {case}"
    return route


def on_processor(name: str, code: str) -> str:
    """What code prints in a process of its own whose kernels are compiled for another processor, by LLVM's name."""
    env = {**os.environ, "NUMBA_CPU_NAME": name, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    env.pop("NUMBA_CPU_FEATURES", None)
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, 'tests/exec/cpu')\n{code}"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
