"""The one place that rounds: requantization, numerics profiles, and the checks of quantization parameters.

Everything is IEEE binary32, and each operation rounds once. The same functions work on NumPy arrays (in definitions)
and on Numba scalars (in kernels). ``flags`` is a profile as one word; a kernel finds it among its push words.
`shaders/include/qmath.glsl` has the same arithmetic for the profile ``canonical``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from refsim.core.errors import ParameterError
from refsim.core.jit import float64_bits, jitable, select, widen
from refsim.core.meanings import OwnName

CONTRACT, TIE_AWAY, FLUSH = 1, 2, 4
CONVERT_SHIFT, CONVERT_MASK = 3, 3
CONVERT = {"clamp": 0, "int_min": 1, "saturate": 2}
#: What wrong kernels do and no device may do; bytediff computes them to recognize them. Bits 5 to 7 of the flags.
TRUNCATE, TIE_UP, CLAMP_FIRST = 32, 64, 128

QMIN, QMAX = -128, 127
#: Bits of the flags from which on a byte says how far a kernel's bounds lie inside of QMIN and QMAX.
LEAST_SHIFT, MOST_SHIFT = 16, 24
MAX_K = 131071
SCALE_RANGE = (2.0**-60, 2.0**60)
PRODUCT_RANGE = (2.0**-100, 2.0**100)

_MIN_NORMAL = np.float32(2.0**-126)
_TWO31 = np.float32(2.0**31)
_ONE = np.float32(1.0)
_ZERO = np.float32(0.0)


@dataclass(frozen=True)
class Profile:
    """How a device computes where the standard leaves it a choice.

    - ``contract``: `fma()` and expressions a*b+c are fused, so they round once.
    - ``tie``: how halves are rounded, ``even`` or ``away`` (from zero).
    - ``flush_denormals``: a denormal float that is read counts as 0.
    - ``convert``: what a float outside the range of int32 becomes. With ``clamp`` it is clamped before the
      conversion, and NaN is 0; refsim's own executors do this. ``int_min`` gives -2**31. ``saturate`` gives the
      nearest int32, and 0 for NaN. In both of these the zero point is added afterwards.
    """

    name: OwnName
    contract: Annotated[bool, "Whether a product and a sum are fused."] = False
    tie: Annotated[str, "Where halves are rounded to."] = "even"
    flush_denormals: Annotated[bool, "Whether denormals become 0."] = False
    convert: Annotated[str, "What becomes of a float out of the range of int32."] = "clamp"

    def __post_init__(self) -> None:
        for what, value, allowed in (
            ("tie", self.tie, ("even", "away")),
            ("convert", self.convert, tuple(CONVERT)),
        ):
            if value not in allowed:
                raise ParameterError(
                    f"numerics profile {self.name}",
                    f"unknown {what}",
                    got=repr(value),
                    need=", ".join(allowed),
                )

    @property
    def flags(self) -> int:
        """The profile as one word."""
        return (
            CONTRACT * self.contract
            | TIE_AWAY * (self.tie == "away")
            | FLUSH * self.flush_denormals
            | CONVERT[self.convert] << CONVERT_SHIFT
        )


#: A file for each family of devices, with what measured it. Of some nothing was measured; these hold no profile.
PROFILE_FILES = Path(__file__).parent / "profiles"


def _measured() -> dict[str, Profile]:
    rows = [json.loads(path.read_bytes())["profile"] for path in sorted(PROFILE_FILES.glob("*.json"))]
    return {row["name"]: Profile(**row) for row in rows if row is not None}


#: The numerics of devices by name, as they were measured; ``canonical`` is that of the definitions.
PROFILES = _measured()
CANONICAL, LAVAPIPE, NVIDIA = (PROFILES[name] for name in ("canonical", "lavapipe", "nvidia"))


def known(profile: Profile) -> Profile:
    """The profile in `PROFILES` with the same numerics; without one the profile itself."""
    return next((one for one in PROFILES.values() if one.flags == profile.flags), profile)


# --- arithmetic, shared by definitions and kernels -------------------------------------------------------


@jitable
def f32(value: Any) -> Any:
    """An int32 as binary32, rounded to nearest even."""
    return np.float32(value)


@jitable
def wrap32(value: Any) -> Any:
    """An integer modulo 2**32, as a device's int32 holds it."""
    return ((value + 2**31) & 0xFFFFFFFF) - 2**31


@jitable
def fused(a: Any, b: Any, c: Any) -> Any:
    """fma(a, b, c) of binary32, exactly: one rounding.

    A plain binary64 sum would round twice. The product is exact in binary64. The sum is rounded to odd there; two-sum
    gives its error. Rounding to odd leaves two bits to spare, so the final rounding to binary32 is the only one.
    """
    product = widen(a) * widen(b)
    addend = widen(c)
    total = product + addend
    back = total - product
    error = (product - (total - back)) + (addend - back)
    bits = float64_bits(total)
    towards = select((error > 0.0) == (total > 0.0), 1, -1)
    inexact = (error < 0.0) | (error > 0.0)  # NaN, if the sum is no finite number, is neither
    step = select(inexact & (bits & 1 == 0), towards, 0)
    return np.float32(np.int64(bits + step).view(np.float64))


@jitable
def mul_add(a: Any, b: Any, c: Any, flags: Any) -> Any:
    """a * b + c: two roundings, or one under a profile that contracts."""
    if flags & CONTRACT:
        return fused(a, b, c)
    return a * b + c


@jitable
def flush(x: Any, flags: Any) -> Any:
    """A float read from memory: denormals become 0 under a profile that flushes them."""
    if flags & FLUSH:
        return select(np.abs(x) < _MIN_NORMAL, _ZERO, x)
    return x


@jitable
def round_half(y: Any, flags: Any) -> Any:
    """Round to the nearest integer (as binary32): ties to even, or away from 0 if the profile says so."""
    if flags & TRUNCATE:
        return np.trunc(y)
    if flags & TIE_UP:
        return np.floor(y + np.float32(0.5))
    if flags & TIE_AWAY:
        whole = np.trunc(y)
        tie = np.abs(y - whole) >= np.float32(0.5)
        return select(tie, whole + np.copysign(_ONE, y), whole)
    return np.rint(y)


@jitable
def clamp(value: Any, low: Any, high: Any) -> Any:
    """The value, at least ``low`` and at most ``high``."""
    return np.minimum(np.maximum(value, low), high)


@jitable
def to_int32(y: Any, flags: Any) -> Any:
    """A float as an int32, its fraction cut off; what is out of range, as the profile says (``Profile.convert``)."""
    in_range = (y >= -_TWO31) & (y < _TWO31)  # NaN is not
    whole = np.int64(select(in_range, y, _ZERO))
    if (flags >> CONVERT_SHIFT) & CONVERT_MASK == 1:
        return select(in_range, whole, np.int64(-(2**31)))
    whole = select(y >= _TWO31, np.int64(2**31 - 1), whole)
    return select(y < -_TWO31, np.int64(-(2**31)), whole)


@jitable
def to_int8(y: Any, zp: Any, flags: Any) -> Any:
    """Quantize y, a real value already divided by the scale: round, add the zero point, clamp to [-128, 127]."""
    whole = to_int32(round_half(y, flags), flags)
    if flags & CLAMP_FIRST:
        return np.int32(clamp(whole, QMIN, QMAX) + zp)
    if (flags >> CONVERT_SHIFT) & CONVERT_MASK == 0:
        return np.int32(clamp(whole + zp, QMIN, QMAX))
    return np.int32(clamp(wrap32(whole + zp), QMIN, QMAX))


@jitable
def to_int8_added(y: Any, zp: Any, flags: Any) -> Any:
    """As `to_int8`, by a kernel that adds the zero point before the conversion: in binary32, as a float.

    In range this gives the same. Out of range the conversion meets the sum, and NaN becomes what it makes of NaN.
    """
    convert = (flags >> CONVERT_SHIFT) & CONVERT_MASK
    if (convert == 0) | (flags & CLAMP_FIRST != 0):
        return to_int8(y, zp, flags)
    return np.int32(clamp(to_int32(round_half(y, flags) + f32(zp), flags), QMIN, QMAX))


@jitable
def requant(y: Any, inv: Any, zp: Any, flags: Any) -> Any:
    """int(clamp(rne(y * inv), -128 - zp, 127 - zp)) + zp, as int32; `inv` is 1 / scale, see `inv_scale`."""
    return to_int8(y * inv, zp, flags)


@jitable
def requant_added(y: Any, inv: Any, zp: Any, flags: Any) -> Any:
    """`requant` by a kernel that adds the zero point before the conversion: see `to_int8_added`."""
    return to_int8_added(y * inv, zp, flags)


def bounds_bits(bounds: tuple[int, int] | None) -> int:
    """The least and the greatest byte that a kernel gives, as bits of its flags (int32)."""
    least, most = (QMIN, QMAX) if bounds is None else bounds
    return int(np.int32(np.uint32((least - QMIN) << LEAST_SHIFT | (QMAX - most) << MOST_SHIFT)))


@jitable
def bounded(q: Any, flags: Any) -> Any:
    """Requantized bytes within the bounds that the flags hold."""
    if flags >> LEAST_SHIFT == 0:
        return q
    least, most = QMIN + ((flags >> LEAST_SHIFT) & 255), QMAX - ((flags >> MOST_SHIFT) & 255)
    return np.int32(clamp(q, least, most))


def inv_scale(scale: float) -> np.float32:
    """f32(1 / f32(scale)), computed on the host: division on a device is not IEEE."""
    return np.float32(1.0) / np.float32(scale)


# --- checks ----------------------------------------------------------------------------------------------


def check_scale(where: str, name: str, value: float) -> np.float32:
    """The scale, rounded to binary32 once. It must lie in [2**-60, 2**60], so that no product is denormal."""
    low, high = SCALE_RANGE
    if not isinstance(value, int | float | np.floating) or not low <= float(value) <= high:
        raise ParameterError(where, f"{name} is out of range", got=value, need="2**-60 <= scale <= 2**60")
    return np.float32(value)


def check_zero_point(where: str, name: str, value: int) -> int:
    """The zero point; ParameterError unless it is an integer in [-128, 127]."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not QMIN <= value <= QMAX:
        raise ParameterError(where, f"{name} is out of range", got=value, need="an integer in [-128, 127]")
    return int(value)


def check_weight_scales(where: str, in_scale: float, weight_scales: np.ndarray) -> None:
    """Check weight scales (f32, one per output channel, no padding) and their products with the input's scale."""
    low, high = SCALE_RANGE
    _check_each(where, "weight_scales", weight_scales, low, high, "2**-60 <= scale <= 2**60")
    products = np.float64(in_scale) * weight_scales.astype(np.float64)
    low, high = PRODUCT_RANGE
    _check_each(where, "in_scale * weight_scales", products, low, high, "a product in [2**-100, 2**100]")


def check_bias(where: str, bias: np.ndarray) -> None:
    """ParameterError unless every bias is 0 or has a magnitude in [2**-100, 2**100]."""
    with np.errstate(invalid="ignore"):  # what is no number is refused, without a warning
        magnitude = np.where(bias == 0, 1.0, np.abs(bias).astype(np.float64))
    low, high = PRODUCT_RANGE
    _check_each(where, "|bias|", magnitude, low, high, "finite, 0 or in [2**-100, 2**100]")


def check_k(where: str, k: int) -> None:
    """ParameterError if K, taps * channels per group, is so large that an int32 accumulator could overflow."""
    if k > MAX_K:
        raise ParameterError(
            where,
            "too many products per output for an int32 accumulator",
            got=f"K = {k}",
            need=f"K <= {MAX_K}",
        )


def _check_each(where: str, name: str, values: np.ndarray, low: float, high: float, need: str) -> None:
    bad = ~((values >= low) & (values <= high))
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        raise ParameterError(where, f"{name}[{at}] is out of range", got=float(values[at]), need=need)
