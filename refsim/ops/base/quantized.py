"""What quantize and dequantize share: their parameters, and the rule of their golden cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from refsim.core.errors import ParameterError
from refsim.core.qmath import QMAX, QMIN, check_scale, check_zero_point
from refsim.ops.base.case_rule import MANY_IMAGE, CaseSlot, Made, many, ranked_shape, rounded, twins


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
        check_scale(self.where, "scale", self.scale)
        check_zero_point(self.where, "zp", self.zp)
        for name, value, need in (("qmin", self.qmin, QMIN), ("qmax", self.qmax, QMAX)):
            if value != need:
                raise ParameterError(self.where, f"{name} is not int8's", got=value, need=need)


def golden(slot: CaseSlot) -> Made:
    scale = slot.rng.choice([0.5, 0.25]) if slot.style == "ties" else rounded(slot.rng.scale_moderate())
    return {"scale": scale, "zp": slot.zero_point(0)}, {"x": ranked_shape(slot, 8)}, {}


HARD = (twins(golden), many(golden, MANY_IMAGE, "x"))
