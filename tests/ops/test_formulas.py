"""The formulas of docs/numerics.md element by element, in plain loops that share no arithmetic with refsim.

`define` and the kernels share their epilogues, so their agreement alone would not show a wrong formula; the recordings
of upstream's kernels show most, but not alpha, batches, leading dims and what else is wrong or missing there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from laws import EXECUTOR, sampled

from refsim.core.buffer import PackedBuffer
from refsim.core.qmath import CANONICAL, LAVAPIPE, NVIDIA, Profile
from refsim.golden.rules import RULES
from refsim.golden.rules import case as corpus_case
from refsim.ops.base.arg import Kind
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call, OpSpec
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Epilogue, Family

F = np.float32
#: nvidia but for its conversion out of range, which tests/core/test_qmath.py holds against rationals
FUSED = Profile("fused", contract=True, flush_denormals=True)
Arrays = dict[str, np.ndarray]


def nearest(exact: Fraction) -> np.float32:
    """A rational as binary32, ties to even, by integers; no overflow and no denormals here."""
    if exact == 0:
        return F(0)
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    step = Fraction(2) ** (exponent - 23)
    return F(float(round(exact / step) * step))  # round() of a Fraction goes to even


def fma(a: np.float32, b: np.float32, c: np.float32, fused: bool) -> np.float32:
    if fused:
        return nearest(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)))
    return F(F(a * b) + c)


def requant(y: np.float32, scale: float, zp: int) -> int:
    return requant_by_inverse(y, F(1) / F(scale), zp)


def requant_by_inverse(y: np.float32, inverse: np.float32, zp: int) -> int:
    with np.errstate(over="ignore", invalid="ignore"):
        steps = F(y * inverse)
    if math.isnan(steps):
        return zp
    whole = 2**40 * int(math.copysign(1, steps)) if math.isinf(steps) else round(float(steps))
    return min(max(whole, -128 - zp), 127 - zp) + zp


# --- one function per operator: the value at one NCHW index --------------------------------------------------


def add(p: Any, x: Arrays, c: Arrays, at: tuple[int, ...], fused: bool) -> int:
    a, b = F(int(x["a"][at]) - p.a_zp), F(F(int(x["b"][at]) - p.b_zp) * F(p.b_scale))
    if p.alpha != 1:
        b = F(F(p.alpha) * b)
    return requant(fma(a, F(p.a_scale), b, fused), p.out_scale, p.out_zp)


def relu(p: Any, x: Arrays, c: Arrays, at: tuple[int, ...], fused: bool) -> int:
    return requant(max(F(F(int(x["x"][at]) - p.in_zp) * F(p.in_scale)), F(0)), p.out_scale, p.out_zp)


def quantize(p: Any, x: Arrays, c: Arrays, at: tuple[int, ...], fused: bool) -> int:
    return requant(x["x"][at], p.scale, p.zp)


def dequantize(p: Any, x: Arrays, c: Arrays, at: tuple[int, ...], fused: bool) -> np.float32:
    return F(F(int(x["x"][at]) - p.zp) * F(p.scale))


def row_range(p: Any, row: np.ndarray) -> tuple[np.float32, float]:
    """Scale and zero point of a row, before the zero point is rounded."""
    numbers = [v for v in row if not math.isnan(v)]
    lo, hi = min([F(0), *numbers]), max([F(0), *numbers])
    with np.errstate(all="ignore"):
        scale = F(F(hi - lo) / F(p.qmax - p.qmin))
        if scale == 0 or math.isinf(F(1) / scale):
            scale = F(0.1)
        if scale < F(6.1e-5):
            larger = F(F(6.1e-5) / scale)
            scale = F(6.1e-5)
            if lo == 0:
                hi = F(scale * F(255))
            elif hi == 0:
                lo = F(-scale * F(255))
            else:
                lo, hi = F(lo * larger), F(hi * larger)
        a, b = F(lo / scale), F(hi / scale)
        from_below = F(F(abs(p.qmin)) - abs(a)) < F(F(abs(p.qmax)) - abs(b))
        return scale, float(F(F(p.qmin) - a) if from_below else F(F(p.qmax) - b))


def choose_scale(p: Any, x: Arrays, c: Arrays, at: tuple[int, ...], fused: bool) -> np.float32:
    return row_range(p, x["x"][at])[0]


def choose_zero_point(p: Any, x: Arrays, c: Arrays, at: tuple[int, ...], fused: bool) -> int:
    z = row_range(p, x["x"][at])[1]
    return 0 if math.isnan(z) else round(min(max(z, p.qmin), p.qmax))


def clone(p: Any, x: Arrays, c: Arrays, at: tuple[int, ...], fused: bool) -> int:
    return int(x["x"][at])


def pixel_shuffle(p: Any, x: Arrays, c: Arrays, at: tuple[int, ...], fused: bool) -> int:
    n, k, oh, ow = at
    r = p.upscale
    q = int(x["x"][n, k * r * r + oh % r * r + ow % r, oh // r, ow // r])
    scale, out_scale = F(p.in_scale), F(1) / F(p.out_inv_scale)
    if p.in_zp == p.out_zp and abs(scale - out_scale) <= F(1e-7) * max(abs(scale), F(1e-7)):
        return q
    return requant_by_inverse(F(F(q - p.in_zp) * scale), F(p.out_inv_scale), p.out_zp)


def finished(p: Any, t: np.float32, c: Arrays, oc: int, fused: bool) -> int:
    """Scale, bias, relu, requantization."""
    factor = F(F(c["weight_scales"][oc]) * F(p.in_scale))
    t = F(t * factor) if c["bias"] is None else fma(t, factor, c["bias"][oc], fused)
    return requant(max(t, F(0)) if p.activation == "relu" else t, p.out_scale, p.out_zp)


def late(p: Any, acc: int, c: Arrays, oc: int, fused: bool) -> int:
    """The zero point leaves in binary32."""
    t = fma(F(-int(c["weight_sums"][oc])), F(p.in_zp), F(acc), fused)
    return finished(p, t, c, oc, fused)


def early(p: Any, acc: int, c: Arrays, oc: int, fused: bool) -> int:
    """The zero point leaves in int32."""
    return finished(p, F(acc - p.in_zp * int(c["weight_sums"][oc])), c, oc, fused)


def taps(
    p: Any, image: np.ndarray, oh: int, ow: int, transposed: bool
) -> list[tuple[int, np.ndarray | None]]:
    """For each tap in order: its number, and the pixel (all channels) under it, None outside the image."""
    found = []
    for number, (i, j) in enumerate(product(*map(range, p.kernel_size))):
        if transposed:
            h, w = oh + p.padding[0] - i, ow + p.padding[1] - j
            inside = h % p.stride[0] == 0 and w % p.stride[1] == 0
            h, w = h // p.stride[0], w // p.stride[1]
        else:
            inside = True
            h = oh * p.stride[0] - p.padding[0] + i * p.dilation[0]
            w = ow * p.stride[1] - p.padding[1] + j * p.dilation[1]
        inside = inside and 0 <= h < image.shape[1] and 0 <= w < image.shape[2]
        found.append((number, image[:, h, w] if inside else None))
    return found


def convolution(epilogue: Callable[..., int], transposed: bool = False) -> Callable[..., int]:
    def value(p: Any, x: Arrays, c: Arrays, at: tuple[int, ...], fused: bool) -> int:
        n, oc, oh, ow = at
        channels = x["x"].shape[1] // p.groups
        group = oc // (len(c["weight"]) // p.groups)
        acc = 0
        for number, pixel in taps(p, x["x"][n], oh, ow, transposed):
            weight = c["weight"][oc, number * channels :][:channels].astype(int)
            q = p.in_zp if pixel is None else pixel[group * channels :][:channels].astype(int)
            acc += int((q * weight).sum())
        return epilogue(p, acc, c, oc, fused)

    return value


def depthwise(p: Any, x: Arrays, c: Arrays, at: tuple[int, ...], fused: bool) -> int:
    n, oc, oh, ow = at
    weight = c["weight"].reshape(-1, c["weight"].shape[-1])
    acc = 0
    for number, pixel in taps(p, x["x"][n], oh, ow, False):
        acc += (p.in_zp if pixel is None else int(pixel[oc])) * int(weight[number, oc])
    return late(p, acc, c, oc, fused)


def linear(p: Any, x: Arrays, c: Arrays, at: tuple[int, ...], fused: bool) -> int:
    row, oc = x["x"][at[:-1]], at[-1]
    return early(p, int(row.astype(int) @ c["weight"][oc].astype(int)), c, oc, fused)


def float_linear(p: Any, x: Arrays, c: Arrays, at: tuple[int, ...], fused: bool) -> np.float32:
    row, oc = x["x"][at[:-1]], at[-1]
    if row.dtype != np.int8:  # as `requant` does it; rows may have 131068 values
        with np.errstate(over="ignore", invalid="ignore"):
            steps = np.rint(row * (F(1) / F(p.in_scale)))
        row = np.clip(np.nan_to_num(steps), -128 - p.in_zp, 127 - p.in_zp) + p.in_zp
    acc = int(row.astype(int) @ c["weight"][oc].astype(int))
    real, factor = F(acc - p.in_zp * int(c["weight_sums"][oc])), F(c["weight_scales"][oc] * F(p.in_scale))
    return F(real * factor) if c["bias"] is None else fma(real, factor, c["bias"][oc], fused)


def group_linear(p: Any, x: Arrays, c: Arrays, at: tuple[int, ...], fused: bool) -> np.float32:
    row, n = x["x"][at[:-1]], at[-1]
    pairs = [(int(byte) & 15, int(byte) >> 4) for byte in c["weight"][n]]
    weight = [nibble - 8 for pair in pairs for nibble in pair]
    scales, total = c["weight_scales"][:, n], F(0)
    if x["x"].shape[-2] == 1:
        lanes = [F(0)] * 64
        for k, value in enumerate(row):
            lane = k // 4 % 64
            lanes[lane] = fma(value, F(F(weight[k]) * scales[k // p.group]), lanes[lane], fused)
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = [F(a + b) for a, b in zip(lanes[:half], lanes[half:], strict=True)]
        total = lanes[0]
    else:
        scale, zp = x["scale"][at[:-1]], int(x["zp"][at[:-1]])
        inverse = F(1) / scale
        for first in range(0, len(row), p.group):
            q = [requant_by_inverse(value, inverse, zp) for value in row[first : first + p.group]]
            acc = sum((a - zp) * w for a, w in zip(q, weight[first : first + p.group], strict=True))
            total = fma(F(acc), F(scale * scales[first // p.group]), total, fused)
    return total if c["bias"] is None else F(total + c["bias"][n])


def nibble(c: Arrays, row: int, k: int, high: int) -> np.float32:
    """The signed value of an element, the one with the even number in the low nibble if ``high`` is 0."""
    return F((int(c["weight"][row, k // 2]) >> 4 * ((k + high) % 2) & 15) - 8)


def lookup(p: Any, x: Arrays, c: Arrays, at: tuple[int, ...], fused: bool) -> np.float32:
    row, d = int(x["indices"][at[:-1]]), at[-1]
    if not 0 <= row < len(c["weight"]):
        return F(0)
    return F(nibble(c, row, d, not p.is_linear_weight) * c["scales"][row, d // p.group_size])


def weight_only(p: Any, x: Arrays, c: Arrays, at: tuple[int, ...], fused: bool) -> np.float32:
    row, n = x["x"][at[:-1]], at[-1]
    outputs = len(c["weight"])
    lanes = 64 if outputs <= 1024 else 16 if outputs <= 4096 else 8
    if len(x["x"].shape) > 1 and x["x"].shape[-2] > 1:
        lanes = 1
    sums = [F(0)] * lanes
    for k, value in enumerate(row):
        real = F(nibble(c, n, k, 0) * c["scales"][k // p.group_size, n])
        sums[k // 4 % lanes] = fma(value, real, sums[k // 4 % lanes], fused)
    while len(sums) > 1:
        half = len(sums) // 2
        sums = [F(a + b) for a, b in zip(sums[:half], sums[half:], strict=True)]
    return sums[0] if c["bias"] is None else F(sums[0] + c["bias"][n])


def formula_of(op: OpSpec) -> Callable[..., Any]:
    """The formula of an operator's family."""
    if op.family is Family.CONVOLUTION:
        return convolution(early if op.epilogue is Epilogue.INTEGER_ZP else late, op.transposed)
    if op.family is Family.ELEMENTWISE:
        return add if len(op.of_kind(Kind.INPUT)) == 2 else relu
    if op.family is Family.ROW_RANGE:
        return choose_zero_point if op.output.layouts[0].packed_int8 else choose_scale
    return {
        Family.SHUFFLE: pixel_shuffle,
        Family.RELAYOUT: clone,
        Family.QUANTIZE: quantize,
        Family.QUANTIZE_ROWS: quantize,
        Family.DEQUANTIZE: dequantize,
        Family.DEPTHWISE: depthwise,
        Family.LINEAR: linear,
        Family.LOOKUP: lookup,
        Family.WEIGHT_ONLY: weight_only,
        Family.FLOAT_LINEAR: float_linear,
        Family.GROUP_LINEAR: group_linear,
    }[op.family]


#: Operators that have a formula: not those that move bytes to and from NCHW, or are one of several others.
WITH_FORMULA = [
    name
    for name, op in OPS.items()
    if op.family not in (Family.STAGE_IN, Family.STAGE_OUT, Family.WINDOWS) and not op.picks
]


def some_indices(call: Call, most: int, seed: int) -> list[tuple[int, ...]]:
    """Corners and random elements of the output."""
    shape = call.out.shape
    rng = np.random.default_rng(seed)
    picked = rng.integers(0, call.out.numel, most)
    return [(0,) * len(shape), tuple(s - 1 for s in shape)] + [
        tuple(int(i) for i in np.unravel_index(at, shape)) for at in picked
    ]


def cases(name: str) -> Iterator[Case]:
    """Random configurations, and cases of the golden corpus in every data style: ties, near ties, extremes, places."""
    yield from (sampled(name, seed) for seed in range(40))
    count = RULES[name].count
    yield from (corpus_case(name, number) for number in range(0, count, max(1, count // 100)))


@pytest.mark.few(4)
@pytest.mark.parametrize("profile", [CANONICAL, FUSED], ids=lambda p: p.name)
@pytest.mark.parametrize("name", WITH_FORMULA)
def test_formula(name: str, profile: Profile) -> None:
    seen, formula = 0, formula_of(OPS[name])
    for number, case in enumerate(cases(name)):
        bound = bind(case, Target(profile))
        call = bound.call
        arrays = {key: buffer.unpack() for key, buffer in bound.inputs.items()}
        values = call.define(arrays)
        if profile.flush_denormals and OPS[name].takes_floats and "x" in arrays:
            arrays["x"] = np.where(np.abs(arrays["x"]) < 2.0**-126, F(0), arrays["x"])
        for at in some_indices(call, 10 if call.consts else 80, number):
            need = formula(call.params, arrays, dict(call.consts), at, profile.contract)
            assert values[at] == need, f"{profile.name}, at {at}: {case}"
            seen += 1
    assert seen > 1000


#: Operators whose sums can be long.
LONG = [
    name
    for name in WITH_FORMULA
    if OPS[name].family is Family.CONVOLUTION or (OPS[name].family is Family.LINEAR and not OPS[name].one_row)
]


@pytest.mark.parametrize("name", LONG)
def test_long_sums(name: str) -> None:
    """Sums beyond 2**26, which binary32 holds to 8, around inputs near the zero point: every rounding shows."""
    op, k, out = OPS[name], 6000, 8
    rows = op.family is Family.LINEAR
    rng = np.random.default_rng(5)
    window = {} if rows else {"kernel_size": (1, 1)}
    params = op.make_params(dict(in_scale=0.5, in_zp=127, out_scale=0.5, out_zp=3, **window))
    weight = rng.integers(60, 128, (out, k)).astype(np.int8)
    consts = {
        "weight": weight,
        "weight_sums": weight.sum(1, dtype=np.int32),
        "weight_scales": np.full(out, 0.125, np.float32),
        "bias": np.arange(out, dtype=np.float32) / 2,
    }
    x = np.where(rng.random((9, k)) < 0.001, 126, 127).astype(np.int8)
    x = x if rows else np.ascontiguousarray(x.T).reshape(1, k, 1, 9)
    layout = "4H4W" if rows else "4W4C"
    buffer = PackedBuffer.pack(x, layout)
    results = []
    for profile in (CANONICAL, FUSED):
        call = op.bind(params, {"x": buffer.desc}, consts, layout, target=Target(profile))
        values = call.define({"x": x})
        for at in np.ndindex(values.shape):
            assert values[at] == formula_of(op)(params, {"x": x}, consts, at, profile.contract)
        assert EXECUTOR.run_call(call, {"x": buffer}) == call.expected({"x": buffer})
        results.append(values)
    assert len(np.unique(results[0])) > 20
    assert (results[0] != results[1]).any() == (op.epilogue is Epilogue.FLOAT_ZP)


@pytest.mark.parametrize("closeness", [0.0, 2e-8, 1.5e-7, 1e-6, 1e-3])
def test_pixel_shuffle_of_nearly_equal_scales(closeness: float) -> None:
    """Bytes move up to a relative difference of 1e-7; beyond it they are requantized, whatever comes out."""
    (op,) = OPS.of_family(Family.SHUFFLE)
    for in_scale in (0.5, 0.013, 3.7, 2.0**-50):
        inverse = float(F(1) / F(in_scale * (1 + closeness)))
        params = op.make_params(
            dict(in_scale=in_scale, in_zp=-3, out_inv_scale=inverse, out_zp=-3, upscale=2)
        )
        difference = abs(F(in_scale) - F(1) / F(inverse))
        assert params.moves_bytes == bool(difference <= F(1e-7) * max(F(in_scale), F(1e-7)))
        if closeness in (0.0, 1e-3):
            assert params.moves_bytes == (closeness == 0.0 or in_scale < 1e-8)


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.picks])
def test_a_choice_is_one_of_two_formulas(name: str) -> None:
    """Upstream's choice of kernel decides which; on Mali grouped ones go through im2col too."""
    taken = set()
    for seed in range(60):
        for mali in (False, True):
            bound = bind(sampled(name, seed), Target(mali=mali))
            call, p = bound.call, bound.call.params
            channels = call.descs["x"].shape[-3] // p.groups
            pixels = call.out.shape[-1] * call.out.shape[-2]
            im2col = channels % 4 == 0 and (mali or (p.groups == 1 and (channels >= 32 or pixels <= 4096)))
            arrays = {"x": bound.inputs["x"].unpack()}
            values = call.define(arrays)
            formula = convolution(early if im2col else late)
            for at in some_indices(call, 3, seed):
                assert values[at] == formula(p, arrays, dict(call.consts), at, False), (seed, mali, at)
            taken.add((im2col, mali, p.groups > 1))
    assert taken >= {(True, False, False), (False, False, True), (True, True, True), (False, False, False)}


@pytest.mark.parametrize(("op", "inputs"), [("q8ta_relu", "x"), ("q8ta_add", "ab")])
@pytest.mark.parametrize("zp", [-7, 9])
def test_sums_out_of_range_do_not_wrap(op: str, inputs: str, zp: int) -> None:
    """The zero point is added as a float: what lavapipe makes of a number that is too large is -128, whatever the
    zero point; the definition, and a device that saturates, make 127 of it."""
    scales = {f"{name}_scale": 2.0**20 for name in (("in",) if op == "q8ta_relu" else inputs)}
    params = dict(scales, out_scale=2.0**-50, out_zp=zp) | {name.replace("scale", "zp"): 0 for name in scales}
    case = Case(op, params, dict.fromkeys(inputs, ((1, 4, 2, 4), "4C1W")), "4C1W")
    for profile, most in ((LAVAPIPE, -128), (NVIDIA, 127), (CANONICAL, 127)):
        bound = bind(case, Target(profile))
        arrays = {name: np.full((1, 4, 2, 4), 100, np.int8) for name in inputs}
        with np.errstate(all="ignore"):
            assert set(bound.call.define(arrays).reshape(-1).tolist()) == {most}
