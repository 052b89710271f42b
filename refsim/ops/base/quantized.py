"""Scales and zero points as parameters; what quantize and dequantize share, and the rule of their golden cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from refsim.core.errors import ParameterError
from refsim.core.qmath import QMAX, QMIN, check_scale, check_zero_point
from refsim.ops.base.case_rule import CaseSlot, Made, ranked_shape, rounded, twins_and_many


def check(params: Any) -> None:
    """ParameterError, naming the field, for a scale or a zero point of a `Params` that is out of range."""
    for name, value in vars(params).items():
        if name.endswith("scale"):
            check_scale(params.where, name, value)
        elif name.endswith("zp"):
            check_zero_point(params.where, name, value)


@dataclass(frozen=True)
class InOutParams:
    """Scale and zero point of the input and of the output."""

    where: ClassVar[str]

    in_scale: float
    in_zp: int
    out_scale: float
    out_zp: int

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class QuantizedParams:
    """Scale, zero point, and the range and dtype that go with them in a graph: int8 over [-128, 127].

    ``dtype`` is the graph's own code or None; it is recorded, the layouts say what the tensors hold.
    """

    where: ClassVar[str] = "quantize_per_tensor"

    scale: float
    zp: int
    qmin: int = QMIN
    qmax: int = QMAX
    dtype: int | None = None

    def __post_init__(self) -> None:
        check(self)
        for name, value, need in (("qmin", self.qmin, QMIN), ("qmax", self.qmax, QMAX)):
            if value != need:
                raise ParameterError(self.where, f"{name} is not int8's", got=value, need=need)


def golden(slot: CaseSlot) -> Made:
    scale = slot.rng.choice([0.5, 0.25]) if slot.style == "ties" else rounded(slot.rng.scale_moderate())
    return {"scale": scale, "zp": slot.zero_point(0)}, {"x": ranked_shape(slot, 8)}, {}


HARD = twins_and_many(golden, "x")
