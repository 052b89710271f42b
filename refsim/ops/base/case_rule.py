"""How rules make golden cases: what a rule is given, and the draws that the rules of several operators share.

Case i of an operator is the same on every machine. Within one combination of layouts, the sizes run through every
residue modulo 4 of W, H and C. Data styles, zero points, activations and biases run through their values with periods
that share no factor. One case in sixteen is large: it has several workgroups along each axis, the last one only
partly filled. Everything else is drawn at random. The order of the draws is part of a rule: another order makes other
cases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from refsim.core.layout import C, Layout
from refsim.core.rng import Rng
from refsim.core.tensor import TensorDesc
from refsim.ops.base.arg import Shapes
from refsim.ops.base.case import Case, ErrorCase
from refsim.ops.base.styles import SPREAD

ZERO_POINTS = (-128, -1, 0, 1, 127, 5, -37)


@dataclass(frozen=True)
class CaseSlot:
    """What a rule gets: the layouts, the case's number among those with the same layouts, and a source of draws.

    ``fixed`` is the style of the data where it does not follow from the number. A ``wild`` slot makes a random case
    rather than one of the corpus: never a large one, with scales, zero points and ranks (up to ``max_rank``) at random.
    """

    layouts: tuple[Layout, ...]
    number: int
    rng: Rng
    fixed: str = ""
    wild: bool = False
    max_rank: int = 4

    @property
    def style(self) -> str:
        return self.fixed or SPREAD[self.number % len(SPREAD)]

    @property
    def activation(self) -> str:
        return "relu" if self.number // 2 % 3 == 0 else "none"

    @property
    def bias(self) -> bool:
        return self.number % 7 % 3 != 0

    def zero_point(self, tensor: int) -> int:
        """The zero point of a tensor: a different one for each."""
        if self.wild:
            return self.rng.zero_point()
        return ZERO_POINTS[(self.number // (1 + 2 * tensor) + 3 * tensor) % len(ZERO_POINTS)]

    def residue(self, dim: int) -> int:
        """0 to 3 for W (0), H (1) and C (2); all 64 combinations in a row."""
        return self.number // 4**dim % 4

    @property
    def large(self) -> bool:
        return self.number % 16 == 11 and not self.wild

    @property
    def huge(self) -> bool:
        """Whether the case has enough positions for the largest tiles of the matrix-like kernels."""
        return self.number in (43, 59) and not self.wild

    def size(self, dim: int, most: int) -> int:
        """A size of the slot's residue mod 4, up to about ``most``."""
        return self.residue(dim) + 4 * self.rng.integer(0 if self.residue(dim) else 1, most // 4)

    @property
    def batch(self) -> int:
        return (1, 2, 3, 2)[self.number // 3 % 4]


#: Parameters by name, shapes by input, and what constants to make.
Made = tuple[dict[str, Any], dict[str, tuple[int, ...]], dict[str, Any]]
#: Makes the constants of a case, from (params, shapes, features, rng).
Constants = Callable[[Any, Shapes, Mapping[str, Any], Rng], dict[str, Any]]


@dataclass(frozen=True)
class Hard:
    """Cases of one kind that stand behind the spread ones, for what those never reach.

    There are ``count``. So many as ``alike`` in a row have the same layouts, seed and draws; `make` tells them apart by
    the number, which counts from 0. ``style`` is that of their data, if not that of their number.
    """

    kind: str
    count: int
    make: Callable[[CaseSlot], Made]
    style: str = ""
    alike: int = 1


@dataclass(frozen=True)
class CaseRule:
    """An operator's cases: how many golden ones there are, how the one of a slot is made, and the named ones.

    ``spread`` cases run through layouts, sizes and styles; ``hard`` ones have the numbers behind them.
    """

    spread: int
    make: Callable[[CaseSlot], Made]
    example: Case  # a small call
    bench: Case  # the example in the size of a layer of a real network
    refused: tuple[ErrorCase, ...]  # changes of the example that must be refused
    hard: tuple[Hard, ...] = ()
    constants: Constants | None = None
    #: (case, name, desc, rng): the values of an input that cannot be just any; None where the style says them
    data: Callable[[Case, str, TensorDesc, Rng], np.ndarray | None] | None = None

    @property
    def count(self) -> int:
        """How many cases there are, hard ones included."""
        return self.spread + sum(kind.count for kind in self.hard)

    def draw(self, name: str, layouts: Sequence[tuple[Layout, ...]], max_rank: int, rng: Rng) -> Case:
        """A random legal case of the operator of this name: what the rule makes of a slot drawn at random."""
        number = rng.integer(0, SLOTS - 1)
        slot = CaseSlot(rng.choice(layouts), number, rng, wild=True, max_rank=max_rank)
        return made_case(name, slot, self.make(slot))

    def hard_of(self, number: int) -> tuple[Hard, int] | None:
        """(kind, number within it) of a case that is not spread."""
        left = number - self.spread
        for kind in self.hard if left >= 0 else ():
            if left < kind.count:
                return kind, left
            left -= kind.count
        return None


def rule(
    example: Case, bench: Mapping[str, Any], *refused: ErrorCase, spread: int, make: Callable[[CaseSlot], Made],
    **more: Any,
) -> CaseRule:  # fmt: skip
    """A `CaseRule`: ``bench`` changes the example; ``more`` are ``hard``, ``constants`` and ``data``."""
    return CaseRule(spread, make, example, example.changed(**bench), refused, **more)


#: A random case has the number of one of so many slots: every residue of three dims, with every style.
SLOTS = 1 << 10
SEEDS = 1 << 31


def made_case(name: str, slot: CaseSlot, made: Made) -> Case:
    """What a rule made of a slot, as a case with a seed of its own."""
    params, shapes, features = made
    inputs = {key: (shape, str(row)) for (key, shape), row in zip(shapes.items(), slot.layouts, strict=False)}
    return Case(
        name, params, inputs, str(slot.layouts[-1]), slot.rng.integer(0, SEEDS - 1), features,
        style=slot.style, poison=slot.number % 4 != 3,
    )  # fmt: skip


def rounded(value: float) -> float:
    """The number with six digits, so that the corpus stays readable."""
    return float(f"{value:.6g}")


def scales(slot: CaseSlot, names: tuple[str, ...]) -> dict[str, float]:
    """A scale per tensor, the output's last, as the style needs them."""
    rng = slot.rng
    if slot.wild and slot.style == "random":
        return {name: rng.scale() for name in names}
    moderate = {name: rounded(rng.scale_moderate()) for name in names}
    if slot.style == "ties":
        return {name: rng.choice([0.25, 0.5]) for name in names[:-1]} | {names[-1]: rng.choice([0.5, 1.0])}
    if slot.style == "near_ties":
        base = moderate[names[-1]]
        parts = {name: rounded(base * rng.choice([0.5, 1.5, 0.25, 1.0])) for name in names[:-1]}
        return parts | {names[-1]: base}
    if slot.style == "saturation":
        return moderate | {names[-1]: rounded(moderate[names[0]] * rng.choice([0.25, 0.5, 0.75]))}
    return moderate


def quantization(slot: CaseSlot, *names: str) -> dict[str, Any]:
    """Scales and zero points of tensors, the output's last: parameters NAME_scale and NAME_zp."""
    found = scales(slot, names)
    params: dict[str, Any] = {f"{name}_scale": found[name] for name in names}
    return params | {f"{name}_zp": slot.zero_point(i) for i, name in enumerate(names)}


def shape4(slot: CaseSlot) -> tuple[int, ...]:
    """(N, C, H, W) of every residue, with unequal H and W and usually more than one block per row.

    A large one has more than 1024 words in a plane of its two fastest dims.
    """
    if slot.large:
        few, wide = slot.rng.integer(1, 3), 65 + slot.residue(0)
        if slot.layouts[-1].inner == C:
            return (slot.rng.integer(1, 2), 68 + slot.residue(2), few, wide)
        return (slot.rng.integer(1, 2), few, 68 + slot.residue(1), wide)
    return (slot.batch, slot.size(2, 12), slot.size(1, 8), slot.size(0, 16))


def ranked_shape(slot: CaseSlot, max_rank: int = 4) -> tuple[int, ...]:
    """A `shape4`, or sometimes a shape of another rank."""
    shape = shape4(slot)
    odd = slot.rng.chance(60 if slot.wild else 12) and not slot.large
    most = max(max_rank, slot.max_rank)
    rank = slot.rng.choice([1, 2, 3, 5, 6, 7, 8][: 3 if most == 4 else 7]) if odd else 4
    return shape[4 - rank :] if rank <= 4 else (*(slot.rng.integer(1, 2) for _ in range(rank - 4)), *shape)


def ranked_input(slot: CaseSlot) -> Made:
    """An input of such a shape, and no parameters."""
    return {}, {"x": ranked_shape(slot)}, {}


# --- hard cases ------------------------------------------------------------------------------------------

#: More positions than 16 bits count, in sizes that no block divides.
MANY_ROWS, MANY_COLUMNS = 259, 257
MANY = MANY_ROWS * MANY_COLUMNS

_TWINS = 4


def twins(make: Callable[[CaseSlot], Made]) -> Hard:
    """Calls that differ in zero points, in scales, or in constants alone: one that keeps anything of the other shows.

    They stand one behind the other, and an executor runs them so.
    """

    def twin(slot: CaseSlot) -> Made:
        first, which = slot.number - slot.number % _TWINS, slot.number % _TWINS
        params, shapes, features = make(CaseSlot(slot.layouts, 5 + 37 * first, slot.rng, slot.fixed))
        changed: dict[str, Any] = {}
        for name, value in params.items():
            if which == 1 and name.endswith("zp"):
                changed[name] = (value + 128 + 57) % 256 - 128
            elif which == 2 and (name.endswith("_scale") or name == "scale"):
                changed[name] = rounded(value * 1.375)
        return (
            params | changed,
            shapes,
            {**features, "negated": True} if which == 3 and features else features,
        )

    return Hard("twins", 2 * _TWINS, twin, "random", alike=_TWINS)


def many(make: Callable[[CaseSlot], Made], shape: tuple[int, ...], *names: str) -> Hard:
    """Two cases of a shape with more than 65,536 positions for the inputs of these names."""

    def large(slot: CaseSlot) -> Made:
        params, _, features = make(CaseSlot(slot.layouts, 1 + slot.number, slot.rng, slot.fixed))
        return params, dict.fromkeys(names, shape), features

    return Hard("many positions", 2, large, "position")


#: Output channels that end anywhere in a panel of weights: after each count of vectors of 4, 8 or 16 lanes, and alone.
TAILS = (15, 17, 31, 33, 47, 65, 113, 1)

#: An image of that many positions, for operators that take any.
MANY_IMAGE = (1, 3, MANY_ROWS, MANY_COLUMNS)


def moving_rule(example: Case, *refused: ErrorCase, spread: int) -> CaseRule:
    """The cases of an operator that moves the elements of a tensor of any shape, and has no parameters."""
    hard = (many(ranked_input, MANY_IMAGE, "x"),)
    return rule(example, dict(x=(1, 64, 112, 112)), *refused, spread=spread, make=ranked_input, hard=hard)


def twins_and_many(make: Callable[[CaseSlot], Made], *inputs: str) -> tuple[Hard, ...]:
    """What is hard for an operator that computes each element by itself: twins, and many positions for its inputs."""
    return (twins(make), many(make, MANY_IMAGE, *inputs))
