"""Scales and zero points as parameters; what quantize and dequantize share, and the rule of their golden cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from refsim.core.errors import ParameterError
from refsim.core.qmath import QMAX, QMIN, check_scale, check_zero_point
from refsim.ops.base import case_rule
from refsim.ops.base.case import Case, ErrorCase
from refsim.ops.base.case_rule import CaseRule, CaseSlot, Made, ranked_shape, rounded, twins_and_many


class Quantization:
    """Parameters among which are scales and zero points: ParameterError, naming the field, for one out of range."""

    where: ClassVar[str]

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name.endswith("scale"):
                check_scale(self.where, name, value)
            elif name.endswith("zp"):
                check_zero_point(self.where, name, value)


@dataclass(frozen=True)
class InOutParams(Quantization):
    """Scale and zero point of the input and of the output."""

    in_scale: float
    in_zp: int
    out_scale: float
    out_zp: int


@dataclass(frozen=True)
class QuantizedParams(Quantization):
    """Scale, zero point, and the range and dtype that go with them in a graph: int8 over [-128, 127].

    ``dtype`` is the graph's own code or None; it is recorded, the layouts say what the tensors hold.
    """

    where = "quantize_per_tensor"

    scale: float
    zp: int
    qmin: int = QMIN
    qmax: int = QMAX
    dtype: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value, need in (("qmin", self.qmin, QMIN), ("qmax", self.qmax, QMAX)):
            if value != need:
                raise ParameterError(self.where, f"{name} is not int8's", got=value, need=need)


def golden(slot: CaseSlot) -> Made:
    scale = slot.rng.choice([0.5, 0.25]) if slot.style == "ties" else rounded(slot.rng.scale_moderate())
    return {"scale": scale, "zp": slot.zero_point(0)}, {"x": ranked_shape(slot, 8)}, {}


def example(op: str, x: str, out: str) -> Case:
    """A small tensor, in layout ``x``, whose result is in layout ``out``."""
    return Case(op, dict(scale=0.02, zp=3), {"x": ((2, 5, 3, 7), x)}, out)


def rule(example: Case, *refused: ErrorCase, spread: int) -> CaseRule:
    """The cases of quantize and dequantize."""
    hard = twins_and_many(golden, "x")
    return case_rule.rule(example, dict(x=(1, 64, 112, 112)), *refused, spread=spread, make=golden, hard=hard)
