"""Measures what a device makes of binary32 numbers where the standards leave it a choice.

    python -m refsim_gpu.probe 0 --json FILE   probes device 0 and saves its numerics profile

Each question is one operation on numbers that reveal the answer (shaders/probe/numerics.comp). The answer is one word
if all numbers agree on it, and ``mixed`` otherwise.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from refsim.core.plain import plain
from refsim.device.measured import MIXED, MeasuredDevice
from refsim_gpu.command import command
from refsim_gpu.kompute import Device

SHADER = "probe/numerics"
LOCAL = 64
#: In the order of the cases in the shader.
OPERATIONS = (
    "round", "round_even", "fma", "expression", "precise", "add", "multiply", "divide", "convert", "subgroup",
)  # fmt: skip
SAMPLES = 1 << 16
QUOTIENTS = 1 << 20
SEED = 3
MIN_NORMAL = np.float32(2.0**-126)
OUT_OF_RANGE = {
    "2**31": 2.0**31, "3e9": 3e9, "1e20": 1e20, "inf": np.inf, "-3e9": -3e9, "-1e20": -1e20, "-inf": -np.inf,
    "nan": np.nan,
}  # fmt: skip


class _Measure:
    """Runs single operations on a device."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.random = np.random.default_rng(SEED)

    def bits(self, operation: str, a: np.ndarray, b: Any = 0.0, c: Any = 0.0) -> np.ndarray:
        """int32: the result's bits for each of the (binary32) operands, which broadcast."""
        operands = [np.ascontiguousarray(x) for x in np.broadcast_arrays(*map(np.float32, (a, b, c)))]
        size = operands[0].size
        return self.device.once(
            SHADER,
            [x.view(np.int32) for x in operands],
            np.full(size, 0x5A5A5A5A, np.int32),
            (-(-size // LOCAL), 1, 1),
            spec=(OPERATIONS.index(operation),),
            push=(size,),
        )

    def floats(self, low_exponent: int, high_exponent: int, size: int = SAMPLES) -> np.ndarray:
        """Random binary32 numbers of both signs, 2**low_exponent <= magnitude < 2**high_exponent."""
        exponents = self.random.integers(low_exponent, high_exponent, size)
        signs = self.random.choice([-1.0, 1.0], size)
        return np.float32(signs * np.ldexp(1.0 + self.random.random(size), exponents) * (1 - 2.0**-25))


def verdict(got: np.ndarray, answers: Mapping[str, np.ndarray]) -> str:
    """The answer that predicts all of these bits; ``mixed`` if none does."""
    for name, expected in answers.items():
        if np.array_equal(got, np.asarray(expected, np.float32).view(np.int32)):
            return name
    return MIXED


def halves(measure: _Measure, operation: str) -> str:
    """Ties of both signs up to where halves end, their neighbours, and random numbers."""
    ties = np.concatenate([np.arange(-300, 300), 2 ** np.arange(9, 22), -(2 ** np.arange(9, 22))]) + 0.5
    ties = ties.astype(np.float32)
    near = [np.nextafter(ties, np.float32(side * np.inf)) for side in (-1, 1)]
    y = np.concatenate([ties, *near, measure.floats(-3, 21)])
    whole = np.trunc(y)
    away = np.where(np.abs(y - whole) >= 0.5, whole + np.copysign(np.float32(1), y), whole)
    up = np.copysign(np.floor(y.astype(np.float64) + 0.5), y)
    return verdict(measure.bits(operation, y), {"even": np.rint(y), "away": away, "up": up})


def roundings(measure: _Measure, operation: str) -> str:
    """a * b - f32(a * b): the product's error, which binary32 holds exactly, if fused; else 0."""
    a, b = measure.floats(-20, 20), measure.floats(-20, 20)
    product = a * b
    error = a.astype(np.float64) * b - product
    used = error != 0
    got = measure.bits(operation, a[used], b[used], -product[used])
    return verdict(got, {"separate": np.zeros(int(used.sum())), "fused": error[used]})


def denormals(measure: _Measure) -> tuple[dict[str, str], dict[str, str]]:
    """How each operation treats denormal operands, and denormal results of normal operands."""
    small = (measure.random.integers(1, 1 << 23, SAMPLES).astype(np.int32)).view(np.float32)
    normal = np.abs(measure.floats(-126, -125))
    normal = normal[normal > MIN_NORMAL]

    def each(x: np.ndarray, term: np.float32, factor: np.float32, flushed: np.float32) -> dict[str, str]:
        """``flushed``: a sum with ``term`` where a denormal counts as 0."""
        product = {"kept": x * factor, "flushed": np.zeros(x.size)}
        return {
            "add": verdict(
                measure.bits("add", x, term), {"kept": x + term, "flushed": np.full(x.size, flushed)}
            ),
            **{name: verdict(measure.bits(name, x, factor), product) for name in ("multiply", "fma")},
        }

    inputs = each(small, MIN_NORMAL, np.float32(2.0**40), MIN_NORMAL)
    return inputs, each(normal, -MIN_NORMAL, np.float32(0.5), np.float32(0))


def conversion(measure: _Measure) -> tuple[str, dict[str, int]]:
    """How floats beyond int32 convert, and what each became; also ``mixed`` if one within int32 is not truncated."""
    beyond = np.array(list(OUT_OF_RANGE.values()), np.float32)
    inside = np.append(measure.floats(-3, 31), np.float32(-(2.0**31)))
    got = measure.bits("convert", beyond)
    low, high = -(2**31), 2**31 - 1
    answers = {"int_min": np.full(beyond.size, low), "saturate": np.where(beyond > 0, high, low)}
    answers["saturate"][np.isnan(beyond)] = 0
    right = np.array_equal(measure.bits("convert", inside), inside.astype(np.int32))
    names = [name for name, expected in answers.items() if right and np.array_equal(got, expected)]
    return (names or [MIXED])[0], {name: int(v) for name, v in zip(OUT_OF_RANGE, got, strict=True)}


def division(measure: _Measure) -> tuple[int, int]:
    """How many of QUOTIENTS random quotients differ from IEEE division, and by how many ulp at most."""
    a, b = measure.floats(-30, 30, QUOTIENTS), measure.floats(-30, 30, QUOTIENTS)
    apart = np.abs(measure.bits("divide", a, b).astype(np.int64) - (a / b).view(np.int32))
    return int(np.count_nonzero(apart)), int(apart.max())


def dot_product(measure: _Measure, shader: str) -> str:
    """Compare the dot product of random words and of extremes with integer arithmetic."""
    rows = measure.random.integers(-128, 128, (2, SAMPLES, 4), np.int8)
    rows[:, :4] = np.array([[-128] * 4, [127] * 4, [-128, 127] * 2, [0] * 4], np.int8)
    rows[1, 2] = 127
    words = [side.reshape(-1).view(np.int32) for side in rows]
    grid = (SAMPLES // LOCAL, 1, 1)
    got = measure.device.once(shader, words, np.zeros(SAMPLES, np.int32), grid, push=(SAMPLES,))
    return "exact" if np.array_equal(got, (rows[0].astype(np.int32) * rows[1]).sum(axis=1)) else "wrong"


def run(index: int = 0) -> MeasuredDevice:
    """Probe device ``index`` in less than a second; DeviceError or MissingDependencyError if it cannot be opened."""
    with Device(index) as device:
        measure = _Measure(device)
        info = device.info
        inputs, outputs = denormals(measure)
        convert, converted = conversion(measure)
        wrong, ulps = division(measure)
        return MeasuredDevice(
            device=info.name,
            vendor=info.vendor,
            driver=info.driver,
            api_version=info.api_version,
            round=halves(measure, "round"),
            round_even=halves(measure, "round_even"),
            fma=roundings(measure, "fma"),
            expression=roundings(measure, "expression"),
            precise=roundings(measure, "precise"),
            denormal_inputs=inputs,
            denormal_outputs=outputs,
            convert=convert,
            converted=converted,
            wrong_quotients=wrong,
            quotients=QUOTIENTS,
            quotient_ulps=ulps,
            dot=dot_product(measure, "probe/dot") if info.integer_dot_product else "absent",
            dot_spelled_out=dot_product(measure, "probe/dot_portable"),
            subgroup_size=int(measure.bits("subgroup", np.zeros(1))[0]),
        )


def text(findings: MeasuredDevice) -> list[str]:
    """What was found, line by line."""
    lines = [f"{findings.device} ({findings.driver})"]
    lines += [f"{question:26} {answer}" for question, answer in findings.rows()]
    profile = findings.to_profile()
    lines += [f"no profile has this: {remark}" for remark in findings.remarks]
    return [*lines, f"numerics profile: {profile.name if profile else 'none describes this device'}"]


@command("refsim_gpu.probe")
def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m refsim_gpu.probe", description=__doc__.splitlines()[0])
    parser.add_argument("index", type=int, nargs="?", default=0, help="the device, counted from 0")
    parser.add_argument("--json", metavar="FILE", help="save the profile and what was measured")
    options = parser.parse_args(arguments)
    findings = run(options.index)
    print("\n".join(text(findings)))
    if options.json:
        from refsim.formats import profiles

        profiles.write(options.json, findings.to_profile(), measured=plain(findings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
