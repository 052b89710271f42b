"""The arithmetic against exact rationals, in Python, NumPy and Numba alike; the checks of parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refsim.core import qmath
from refsim.core.errors import ParameterError
from refsim.core.jit import ready
from refsim.core.qmath import CANONICAL, LAVAPIPE, NVIDIA, Profile, fused, inv_scale, requant, requant_added
from refsim.core.rng import Rng

numba = ready()

NAN, INF = float("nan"), float("inf")
EVERY_PROFILE = [
    Profile(f"{contract}-{tie}-{flush}-{convert}", contract, tie, flush, convert)
    for contract, tie, flush, convert in product(
        (False, True), ("even", "away"), (False, True), qmath.CONVERT
    )
]
floats32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
laws = settings(derandomize=True, database=None, max_examples=400)


# --- binary32 by exact arithmetic ---------------------------------------------------------------------------


def nearest32(exact: Fraction) -> np.float32:
    """The binary32 number nearest to a rational, ties to even: by integers only."""
    if exact == 0:
        return np.float32(0.0)
    sign, exact = (-1, -exact) if exact < 0 else (1, exact)
    exponent = exact.numerator.bit_length() - exact.denominator.bit_length()
    if Fraction(2) ** exponent > exact:
        exponent -= 1
    step = Fraction(2) ** (max(exponent, -126) - 23)
    steps, rest = divmod(exact, step)
    if rest * 2 > step or (rest * 2 == step and steps % 2):
        steps += 1
    value = steps * step
    if value >= Fraction(2) ** 128:
        return np.float32(sign * INF)
    return np.float32(sign * float(value))


def same_bits(a: np.float32, b: np.float32) -> bool:
    return np.float32(a).tobytes() == np.float32(b).tobytes()


fused_compiled = numba.njit(lambda a, b, c: fused(a, b, c))


def check_fused(a: float, b: float, c: float) -> None:
    a, b, c = np.float32(a), np.float32(b), np.float32(c)
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    need = nearest32(exact)
    with np.errstate(over="ignore"):
        got = fused(a, b, c)
        inside = fused_compiled(a, b, c)
    if need == 0:
        assert got == 0 == inside, (a, b, c)
    else:
        assert same_bits(got, need), (a, b, c, got, need)
        assert same_bits(inside, need), (a, b, c, inside, need)


def test_nearest32_is_what_numpy_rounds_to() -> None:
    for value in Rng(1).uniform(-1e6, 1e6, (500,)):
        assert same_bits(nearest32(Fraction(value)), np.float32(value))
    assert same_bits(nearest32(Fraction(2) ** -149), np.float32(2.0**-149))
    assert nearest32(Fraction(2**24 + 1)) == 2**24


@laws
@given(floats32, floats32, floats32)
def test_fused_on_random_numbers(a: float, b: float, c: float) -> None:
    """Everything that refsim multiplies is checked to be far from overflow and denormals; so is this."""
    product_ = abs(float(a) * float(b))
    if all(x == 0 or 2.0**-60 < abs(x) < 2.0**60 for x in (a, b, c)) and product_ < 2.0**100:
        check_fused(a, b, c)


def adversarial() -> list[tuple[float, float, float]]:
    """Products whose last bits decide: sums on ties of binary32, ties missed by one bit in 2**48, cancellation."""
    rows = []
    rng = Rng(11)
    for _ in range(400):
        a, b = (float(np.float32(1 + rng.integer(0, 2**23 - 1) * 2.0**-23)) for _ in range(2))
        exact = Fraction(a) * Fraction(b)
        for scale in (1.0, 2.0**-20, 2.0**20):
            near = float(nearest32(exact * Fraction(scale)))
            ulp = float(np.spacing(np.float32(near)))
            sums = (-near, near, ulp / 2, -ulp / 2, near * 2.0**24, near * 2.0**25, near * 2.0**-24)
            rows += [(a * scale, b, c) for c in sums]
    # binary64 would round to the tie first: 1 + 2**-24 and a tail below 2**-53
    one = 1 + 2.0**-23
    rows += [(one, 1 - 2.0**-24, c) for c in (2.0**-24, -(2.0**-24), 2.0**-25, 1.0, -1.0)]
    rows += [(2.0**-30, sign * 2.0**-30, c) for sign in (1, -1) for c in (1 + 2.0**-23, 1.0, 2.0**24 - 1)]
    rows += [(2.0**12 + 1, 2.0**12 + 1, sign * 2.0**48) for sign in (1, -1)]
    rows += [((1 + 2.0**-12), (1 + 2.0**-12), 2.0**k) for k in range(-60, 60)]
    # the exact sum lies i * i * 2**-70 beside a tie: less than one unit of binary64, on either side of half of it
    for i in range(300, 600, 7):
        for c in (1.0, 1 + 2.0**-23):
            rows += [
                (2.0**-24 + i * 2.0**-47, 1 - i * 2.0**-23, c),
                (2.0**-24 - i * 2.0**-47, 1 - i * 2.0**-24, c),
            ]
    return rows + [(-a, b, -c) for a, b, c in rows]


def test_fused_on_adversarial_numbers() -> None:
    differs = 0
    for a, b, c in adversarial():
        check_fused(a, b, c)
        twice = np.float32(np.float32(a) * np.float32(b)) + np.float32(c)
        through64 = np.float32(float(np.float32(a)) * float(np.float32(b)) + float(np.float32(c)))
        differs += not same_bits(twice, fused(np.float32(a), np.float32(b), np.float32(c)))
        differs += not same_bits(through64, fused(np.float32(a), np.float32(b), np.float32(c)))
    assert differs > 100, "these numbers would not tell one rounding from two"


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_fused_keeps_infinities(sign: float) -> None:
    infinite, one = np.float32(sign * np.inf), np.float32(1.0)
    with np.errstate(all="ignore"):
        for compute in (fused, fused_compiled):
            for a, b, c in (
                (infinite, one, one),
                (one, infinite, -one),
                (one, one, infinite),
                (infinite, one, infinite),
            ):
                assert same_bits(compute(a, b, c), infinite)
            assert np.isnan(compute(infinite, one, -infinite))
            assert np.isnan(compute(infinite, np.float32(0.0), one))


# --- requant ------------------------------------------------------------------------------------------------


def rounded_exactly(y: np.float32, inv: np.float32, profile: Profile) -> int:
    """The int32 before the zero point, by rationals: round, convert as the profile says."""
    with np.errstate(over="ignore", invalid="ignore"):
        real = np.float32(y) * np.float32(inv)  # the one binary32 operation before the rounding
    convert = profile.convert
    if math.isnan(real):
        return -(2**31) if convert == "int_min" else 0
    if math.isinf(real):
        return {"int_min": -(2**31)}.get(convert, 2**31 - 1 if real > 0 else -(2**31))
    exact = Fraction(float(real))
    whole = math.floor(exact)
    rest = exact - whole
    if rest == Fraction(1, 2):
        whole += whole % 2 if profile.tie == "even" else int(exact > 0)
    else:
        whole += rest > Fraction(1, 2)
    if -(2**31) <= whole < 2**31:
        return whole
    return -(2**31) if convert == "int_min" else 2**31 - 1 if whole > 0 else -(2**31)


def clamped(whole: int, zp: int, profile: Profile) -> int:
    """With the zero point, in int8; the devices' int32 addition wraps."""
    total = whole + zp
    if profile.convert != "clamp":
        total = (total + 2**31) % 2**32 - 2**31
    return min(max(total, -128), 127)


TIES = [k + 0.5 for k in range(-260, 260)]
EDGES = [
    0.0, -0.0, 0.49999997, -0.49999997, 0.50000006, -0.50000006, 1e-40, -1e-40, 8388607.5, 8388608.0, -8388608.5,
    2147483520.0, 2147483648.0, -2147483648.0, -2147483904.0, 3e9, -3e9, 3e38, -3e38, INF, -INF, NAN,
]  # fmt: skip
ZERO_POINTS = [-128, -127, -1, 0, 1, 5, 126, 127]


@numba.njit
def requant_compiled(values, inv, zp, flags):  # type: ignore[no-untyped-def]
    out = np.empty(values.size, np.int32)
    for i in range(values.size):
        out[i] = requant(values[i], inv, zp, flags)
    return out


@pytest.mark.parametrize("profile", EVERY_PROFILE, ids=lambda p: p.name)
def test_requant(profile: Profile) -> None:
    """Ties, edges and specials, for every zero point and profile; arrays, and scalars in compiled code."""
    rng = Rng(2)
    drawn = (*rng.uniform(-300, 300, (200,)), *rng.uniform(-3e9, 3e9, (50,)))
    values = np.array([*TIES, *EDGES, *drawn], np.float32)
    for inv in (np.float32(1.0), np.float32(0.5), inv_scale(0.3)):
        rounded = [rounded_exactly(value, inv, profile) for value in values]
        for zp in ZERO_POINTS:
            with np.errstate(all="ignore"):
                got = requant(values, inv, zp, profile.flags)
            need = [clamped(whole, zp, profile) for whole in rounded]
            assert got.dtype == np.int32
            assert got.tolist() == need
            assert requant_compiled(values, inv, np.int32(zp), np.int32(profile.flags)).tolist() == need


def test_where_the_zero_point_is_added() -> None:
    """Kernels that add it as a float, before the conversion, cannot wrap."""
    values, one = np.array([3e9, -3e9, INF, 100.0], np.float32), np.float32(1.0)
    with np.errstate(all="ignore"):
        for zp in (-5, 5):
            above, below = 127, -128
            assert requant_added(values, one, zp, LAVAPIPE.flags).tolist() == [-128] * 3 + [100 + zp]
            assert requant_added(values, one, zp, NVIDIA.flags).tolist() == [above, below, above, 100 + zp]
            assert requant_added(values, one, zp, CANONICAL.flags).tolist() == [above, below, above, 100 + zp]


def test_flush() -> None:
    values = np.array([1e-40, -1e-40, 2.0**-126, -(2.0**-126), NAN], np.float32)
    assert np.array_equal(qmath.flush(values, 0), values, equal_nan=True)
    flushed = qmath.flush(values, NVIDIA.flags)
    assert flushed.dtype == np.float32
    assert np.array_equal(flushed, np.array([0, 0, *values[2:]], np.float32), equal_nan=True)


def test_mul_add_fuses_only_where_the_profile_contracts() -> None:
    a, b, c = np.float32(1 + 2.0**-12), np.float32(1 + 2.0**-12), np.float32(-1 - 2.0**-11)
    assert qmath.mul_add(a, b, c, CANONICAL.flags) == 0
    assert qmath.mul_add(a, b, c, NVIDIA.flags) == np.float32(2.0**-24)


def test_wrap32() -> None:
    for value in (0, 1, -1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32, 3 * 2**31, 2**40 + 7):
        assert qmath.wrap32(value) == (value + 2**31) % 2**32 - 2**31
        assert qmath.wrap32(np.int64(value)) == qmath.wrap32(value)


def test_inv_scale_rounds_twice_on_purpose() -> None:
    """The scale to binary32, then the quotient: not 1 / scale of the double."""
    differs = 0
    for scale in Rng(6).uniform(1e-3, 1.0, (2000,)):
        need = nearest32(1 / Fraction(float(np.float32(scale))))
        assert same_bits(inv_scale(scale), need)
        differs += not same_bits(np.float32(1.0 / scale), need)
    assert differs


# --- profiles -----------------------------------------------------------------------------------------------


def test_flags_are_distinct_and_read_back() -> None:
    assert len({profile.flags for profile in EVERY_PROFILE}) == len(EVERY_PROFILE)
    assert CANONICAL.flags == 0
    for profile in EVERY_PROFILE:
        assert bool(profile.flags & qmath.CONTRACT) == profile.contract
        assert bool(profile.flags & qmath.TIE_AWAY) == (profile.tie == "away")
        assert bool(profile.flags & qmath.FLUSH) == profile.flush_denormals
        assert profile.flags >> qmath.CONVERT_SHIFT == qmath.CONVERT[profile.convert]


@pytest.mark.parametrize(("what", "value"), [("tie", "odd"), ("tie", ""), ("convert", "wrap")])
def test_unknown_choices_of_a_profile(what: str, value: str) -> None:
    with pytest.raises(ParameterError, match=f"numerics profile mine: unknown {what}; got '{value}', need "):
        Profile("mine", **{what: value})  # type: ignore[arg-type]


# --- checks -------------------------------------------------------------------------------------------------


LEGAL = [
    (qmath.check_scale, [2.0**-60, 2.0**60, 1, 0.1, np.float32(0.5), np.float64(3)]),
    (qmath.check_zero_point, [-128, 127, 0, np.int8(-3), np.int64(5)]),
]
ILLEGAL = [
    (qmath.check_scale, r"2\*\*-60", [0.0, -0.1, 2.0**-61, np.nextafter(2.0**60, INF), INF, NAN, "0.1", None, [0.1]]),
    (qmath.check_zero_point, r"an integer in \[-128, 127\]", [-129, 128, 0.0, 1.5, True, "1", None, NAN]),
]  # fmt: skip


@pytest.mark.parametrize(("check", "value"), [(check, value) for check, row in LEGAL for value in row])
def test_legal_parameters(check: Callable[..., float], value: float) -> None:
    assert check("op", "name", value) == np.float32(value)


@pytest.mark.parametrize(
    ("check", "need", "value"), [(check, need, value) for check, need, row in ILLEGAL for value in row]
)
def test_illegal_parameters_are_named(check: Callable[..., float], need: str, value: object) -> None:
    said = rf"^op: name is out of range(; got .*)?[,;] need {need}"
    with pytest.raises(ParameterError, match=said) as caught:
        check("op", "name", value)
    assert caught.value.got is value


def test_weight_scales() -> None:
    good = np.array([2.0**-40, 1.0, 2.0**40], np.float32)
    qmath.check_weight_scales("op", 2.0**-60, good)
    for bad, at in (([1.0, 0.0], 1), ([NAN, 1.0], 0), ([1.0, 1.0, -1.0], 2), ([INF], 0)):
        with pytest.raises(ParameterError, match=rf"^op: weight_scales\[{at}\] is out of range; got "):
            qmath.check_weight_scales("op", 1.0, np.array(bad, np.float32))
    with pytest.raises(ParameterError, match=r"^op: in_scale \* weight_scales\[1\] is out of range"):
        qmath.check_weight_scales("op", 2.0**-60, np.array([1.0, 2.0**-41], np.float32))
    with pytest.raises(ParameterError, match=r"\* weight_scales\[0\]"):
        qmath.check_weight_scales("op", 2.0**60, np.array([2.0**41], np.float32))


def test_bias() -> None:
    qmath.check_bias("op", np.array([0.0, -0.0, 2.0**-100, -(2.0**100), 3.0], np.float32))
    for bad in ([NAN], [INF], [1.0, 2.0**-101], [-(2.0**101)]):
        with pytest.raises(
            ParameterError, match=r"^op: \|bias\|\[\d+\] is out of range; got .*, need finite"
        ):
            qmath.check_bias("op", np.array(bad, np.float32))


def test_accumulator_length() -> None:
    """131071 products of two int8 stay inside int32; one more need not."""
    qmath.check_k("op", qmath.MAX_K)
    assert qmath.MAX_K * 128 * 128 < 2**31 <= (qmath.MAX_K + 1) * 128 * 128
    with pytest.raises(ParameterError, match=r"^op: .*; got K = 131072, need K <= 131071"):
        qmath.check_k("op", qmath.MAX_K + 1)
