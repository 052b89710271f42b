"""What a faster way relies on is checked at its very bounds: the last value let through, and the first that is not.

A guard that lets through one value more gives wrong bytes only for inputs that hardly anyone draws, so cases do not
show it. Here each guard is asked on both sides.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from refsim.exec.cpu import dot, epilogue
from refsim.exec.cpu.conv_problem import ConvProblem, conv_problem
from refsim.exec.cpu.elementwise import prepack as elementwise
from refsim.exec.cpu.groups import prepack as groups
from refsim.exec.cpu.winograd import prepack as winograd
from refsim.exec.cpu.winograd.kernel import TRANSFORMS
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case

#: Binary32 holds every whole number up to here.
EXACT = 1 << 24


def problem(weight: np.ndarray, in_zp: int = 0, sums: np.ndarray | None = None) -> ConvProblem:
    """A convolution with these weights: group, output channel, row, column, input channel."""
    window = {"kernel_size": (3, 3), "stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    params = {**window, "in_scale": 0.5, "in_zp": 0, "out_scale": 0.5, "out_zp": 0}
    case = Case("q8ta_conv2d_im2col", params, {"x": ((1, 4, 5, 5), "4C")}, "4C", features={"out_channels": 4})
    made = conv_problem(bind(case).call)
    channels = weight.shape[0] * weight.shape[1]
    own = weight.astype(np.int64).sum((2, 3, 4)).reshape(-1).astype(np.int32)
    return replace(
        made, weight=weight, in_zp=in_zp, sums=own if sums is None else sums,
        scales=np.full(channels, 0.5, np.float32), bias=None,
    )  # fmt: skip


def adding_up_to(total: int, *, sign: int = 1) -> np.ndarray:
    """Weights of one output channel whose magnitudes add up to that much."""
    whole = np.full(-(-total // 127), 127, np.int8)
    whole[-1] = total - 127 * (len(whole) - 1)
    return (sign * whole).astype(np.int8).reshape(1, 1, 1, 1, -1)


@pytest.mark.parametrize("seed", range(20))
def test_the_largest_sum_is_that_of_the_worst_input(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weight = rng.integers(-128, 128, (1, 5, 3, 3, 4)).astype(np.int8)
    weight[0, 0] = np.abs(weight[0, 0].astype(np.int16)).clip(0, 127)
    weight[0, 1] = -weight[0, 0]
    made = problem(weight, in_zp=int(rng.integers(-128, 128)))
    flat = weight.reshape(5, -1).astype(np.int64)
    worst = 128 * np.abs(flat).sum(
        1
    )  # of numbers of up to 128 of either sign; 127 and -128 differ by less than 1 %
    assert made.largest_sum == worst.max()
    assert made.largest_total == (worst + np.abs(made.in_zp * flat.sum(1))).max()
    for x in (np.where(flat > 0, 127, -128), np.where(flat > 0, -128, 127)):
        assert (np.abs((flat * x).sum(1)) <= worst).all()


@pytest.mark.parametrize(
    ("magnitudes", "taken", "zp", "exact"),
    [
        (EXACT // 128, 0, 0, True), (EXACT // 128 + 1, 0, 0, False), (8, EXACT, 1, True), (8, EXACT, -1, True),
        (8, EXACT + 1, 0, False), (8, -EXACT, 1, True), (8, -EXACT - 1, 0, False), (8, EXACT // 128, -128, True),
        (8, EXACT // 128 + 1, -128, False), (8, -EXACT // 128, -128, True), (8, -EXACT // 128 - 1, -128, False),
        (8, EXACT // 64, 64, True), (8, EXACT // 64 + 1, 64, False),
    ],
)  # fmt: skip
def test_zero_points_are_taken_out_of_whole_numbers_only_where_floats_hold_them(
    magnitudes: int, taken: int, zp: int, exact: bool
) -> None:
    made = problem(adding_up_to(magnitudes), in_zp=zp, sums=np.array([taken], np.int32))
    assert made.zp_is_exact is exact
    product = np.float32(taken) * np.float32(zp)
    if exact:
        assert int(product) == taken * zp and int(np.float32(made.largest_sum)) == made.largest_sum


@pytest.mark.parametrize("m", (2, 4))
@pytest.mark.parametrize("beyond", (0, 1))
def test_winograd_takes_sums_that_32_bits_hold_and_no_larger_ones(m: int, beyond: int) -> None:
    limit = 1 << (31 - TRANSFORMS[m].shift)
    weight = np.zeros((1, 1, 3, 3, 4), np.int8)
    weight[0, 0, 1, 1] = 1
    rest = limit - 1 - 128 * 4 + beyond
    made = replace(problem(weight, in_zp=1, sums=np.array([rest], np.int32)))
    assert made.largest_total == limit - 1 + beyond
    said = winograd.why_not(made, m)
    assert (said is None) == (not beyond)
    if said:
        assert said == f"a sum may reach {limit}, not below {limit}"


@pytest.mark.parametrize("m", (2, 4))
def test_winograd_takes_scales_that_can_be_divided(m: int) -> None:
    weight = np.ones((1, 1, 3, 3, 4), np.int8)
    least = np.float32(2.0**-126 * (1 + 2.0**-23))  # with its last bit set, and none to spare
    shift = TRANSFORMS[m].shift
    for scale, fits in ((np.ldexp(least, shift), True), (np.ldexp(least, shift - 1), False)):
        made = replace(problem(weight), scales=np.array([scale], np.float32))
        said = winograd.why_not(made, m)
        assert (said is None) is fits, said
        assert fits or f"divided by {1 << shift}" in str(said)


@pytest.mark.parametrize("steps", [(2, 1), (1, 2)])
@pytest.mark.parametrize("name", ["stride", "dilation", "input_dilation"])
def test_winograd_is_for_plain_windows(name: str, steps: tuple[int, int]) -> None:
    made = problem(np.ones((1, 1, 3, 3, 4), np.int8))
    assert winograd.why_not(made, 2) is None
    assert winograd.why_not(replace(made, **{name: steps}), 2) == "not a 3x3 window of stride and dilation 1"
    assert winograd.why_not(replace(made, weight=np.ones((1, 1, 3, 2, 4), np.int8)), 2) is not None
    two = problem(np.ones((2, 1, 3, 3, 4), np.int8), sums=np.full(2, 36, np.int32))
    assert winograd.why_not(two, 2) == "grouped"


@pytest.mark.parametrize(
    ("bound", "zp", "relu", "clamp"),
    [
        (2.0**22 - 256, 0, False, epilogue.RANGE), (2.0**22 - 255, 0, False, epilogue.FULL),
        (2.0**22 - 256, 0, True, epilogue.LOW), (2.0**22 - 256, -128, True, epilogue.RANGE),
        (0.0, -127, True, epilogue.LOW), (2.0**22, -128, True, epilogue.FULL), (float("nan"), 0, False, epilogue.FULL),
        (float("inf"), 0, True, epilogue.FULL),
    ],
)  # fmt: skip
def test_values_are_clamped_unless_their_bound_proves_it_idle(
    bound: float, zp: int, relu: bool, clamp: str
) -> None:
    """Rounding by 1.5 * 2**23 is exact below 2**22, where a zero point still fits on top."""
    assert epilogue.clamp_for(bound, zp, relu) == clamp


def test_the_bound_of_outputs_is_that_of_the_worst_sum() -> None:
    """In steps of the output: sums times their scales, and the bias, over the output's scale."""
    made = problem(adding_up_to(1 << 15), in_zp=0)  # sums of up to 2**22
    limit = 2.0**22 - 256
    for inv, bias, clamp in ((0.5, None, "range"), (2.0, None, "full"), (0.5, np.float32(2 * limit), "full")):
        biased = None if bias is None else np.array([bias], np.float32)
        assert replace(made, inv=np.float32(inv), bias=biased).clamp == clamp
    scale = np.float32(limit / 2**22)
    assert replace(made, inv=np.float32(1.0), scales=np.array([scale], np.float32)).clamp == "range"
    above = np.nextafter(scale, np.float32(2))
    assert replace(made, inv=np.float32(1.0), scales=np.array([above], np.float32)).clamp == "full"


def test_pairs_of_weights_are_split_where_16_bits_would_saturate() -> None:
    """Every pair of weights: 255 times what those of one sign add up to stays below 2**15, in both parts."""
    a, b = (axis.reshape(-1).astype(np.int8) for axis in np.mgrid[-128:128, -128:128])
    weight = np.stack([a, b, b, a], 1)
    first, rest = (part.astype(np.int64) for part in dot.safe(weight))
    assert np.array_equal(first + rest, weight)
    for part in (first, rest):
        pairs = part.reshape(-1, 2, 2)
        for sign in (1, -1):
            assert (255 * np.maximum(sign * pairs, 0).sum(-1) <= 2**15 - 1 + (sign < 0)).all()
    alone = np.maximum(np.maximum(weight, 0).astype(int).reshape(-1, 2, 2).sum(-1), 0)
    below = np.maximum(-weight.astype(int), 0).reshape(-1, 2, 2).sum(-1)
    fits = (np.maximum(alone, below) <= 128).all(1)
    assert not rest[fits].any() and rest[~fits].any(1).all()


def test_the_largest_group_is_the_last_whose_sums_floats_hold() -> None:
    most = 255 * 8
    assert groups.MOST * most <= EXACT < (groups.MOST + 1) * most


@pytest.mark.parametrize(("size", "fits"), [(groups.MOST // 8 * 8, True), (groups.MOST // 8 * 8 + 8, False)])
def test_larger_groups_are_left_to_whole_numbers(size: int, fits: bool) -> None:
    rows = {"scale": ((2,), "WIDTH_PACKED"), "zp": ((2,), "4W")}
    inputs = {"x": ((2, size), "WIDTH_PACKED"), **rows}
    features = {"out_channels": 4, "scale": 0.03125}
    case = Case("linear_dq8ca_q4gsw", {"group": size}, inputs, "WIDTH_PACKED", features=features)
    said = groups.why_not(bind(case).call)
    assert (said is None) is fits and (fits or f"groups of {size} values" in str(said))


@pytest.mark.parametrize(
    ("scale", "product", "clamp"),
    [(8223.0, False, "range"), (8224.0, False, "full"), (8.031, True, "range"), (8.0314, True, "full")],
)
def test_two_inputs_are_clamped_as_their_largest_results_need(
    scale: float, product: bool, clamp: str
) -> None:
    """Two real values of at most 255 steps each, in steps of 1 of the output."""
    shape = (1, 4, 2, 2)
    side = bind(Case("q8ta_dequantize", {"scale": scale, "zp": 3}, {"x": (shape, "4C")}, "WIDTH_PACKED")).call
    out = bind(Case("q8ta_quantize", {"scale": 1.0, "zp": -4}, {"x": (shape, "WIDTH_PACKED")}, "4C")).call
    assert elementwise.of_two(side, side, product, out).clamp == clamp
