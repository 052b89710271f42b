"""A chain that is made node by node: what the rules of the corpus draw with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from refsim.core.rng import Rng
from refsim.golden.chain import ChainCase, Link
from refsim.ops.base.case_rule import rounded
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import OpSpec
from refsim.ops.base.traits import Family

Shape = tuple[int, ...]
Quantization = tuple[float, int]
HARDTANH, RELU = "aten.hardtanh.default", "aten.relu.default"


def only(wanted: Callable[[OpSpec], bool]) -> str:
    return next(name for name, op in OPS.items() if wanted(op))


def of(family: Family) -> str:
    return only(lambda op: op.family is family)


def elementwise(inputs: int) -> str:
    """The operator on elements with so many int8 inputs."""
    return only(lambda op: op.family is Family.ELEMENTWISE and len(op.layouts[0]) == inputs + 1)


def sides(x: Quantization, out: Quantization) -> dict[str, Any]:
    """Parameters of an operator of one input."""
    return {"in_scale": x[0], "in_zp": x[1], "out_scale": out[0], "out_zp": out[1]}


def terms(a: Quantization, b: Quantization, out: Quantization, alpha: float) -> dict[str, Any]:
    """Parameters of an operator of two inputs."""
    inputs = {"a_scale": a[0], "a_zp": a[1], "b_scale": b[0], "b_zp": b[1], "alpha": alpha}
    return inputs | {"out_scale": out[0], "out_zp": out[1]}


class ChainDraft:
    """Collects the nodes of a chain. ``at`` is the number of the value that the last node made."""

    def __init__(self, kind: str, rng: Rng, shape: Shape) -> None:
        self.kind, self.rng = kind, rng
        self.input = self.shape = shape
        self.links: list[Link] = []
        self.at, self._next = 0, 1
        self.low = self.high = 0.0

    def _add(self, link: Link, outputs: int = 1) -> int:
        self.links.append(link)
        self.at, self._next = self._next, self._next + outputs
        return self.at

    def bound(self, op: str, params: dict[str, Any], layout: str, *others: int, **features: Any) -> int:
        """An operator of the corpus, of the last value and ``others``."""
        return self._add(Link(op, (self.at, *others), params, layout, features))

    def quantize(self, q: Quantization, layout: str) -> int:
        """The first one says which values there are: some beyond the range, to both sides."""
        if not self.links:
            scale, zp = q
            self.low, self.high = rounded((-140 - zp) * scale), rounded((139 - zp) * scale)
        return self.bound(of(Family.QUANTIZE), {"scale": q[0], "zp": q[1]}, layout)

    def dequantize(self, q: Quantization, layout: str = "W") -> int:
        return self.bound(of(Family.DEQUANTIZE), {"scale": q[0], "zp": q[1]}, layout)

    def through(self, q: Quantization, layout: str, real: str = "W") -> int:
        """Quantized in a layout, and dequantized again into another."""
        self.quantize(q, layout)
        return self.dequantize(q, real)

    def floats(self, op: str, *args: Any, shapes: tuple[Shape, ...] | None = None, layout: str = "") -> int:
        """A float operator; its outputs are of the input's shape where none is said."""
        shapes = shapes or (self.shape,)
        self.shape = shapes[0]
        return self._add(Link(op, (self.at,), layout=layout, args=args, shapes=shapes), len(shapes))

    def clamp(self, bounds: tuple[float, ...] | None, scale: float) -> None:
        """Between these bounds, in steps of this scale; of an empty pair a relu; none."""
        if bounds is not None:
            self.floats(HARDTANH if bounds else RELU, *(rounded(bound * scale) for bound in bounds))

    def chain(self, *more: int) -> ChainCase:
        """All of it; the last value and ``more`` are its outputs."""
        seed = self.rng.integer(0, (1 << 31) - 1) & ~1  # the seed beside it makes the values of another run
        return ChainCase(
            self.kind, self.input, self.low, self.high, tuple(self.links), (self.at, *more), seed
        )
