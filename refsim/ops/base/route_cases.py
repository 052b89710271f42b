"""Shapes that reach the native routes of products: small, yet with enough products that the routes differ.

A CPU computes a product of few values in another way than one of many, and takes other ways still for one output pixel
or for 3x3 windows of stride 1. `refsim.golden.route_coverage` counts which case takes which route, on each instruction
set, and what it meets there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from refsim.core.rng import Rng
from refsim.ops.base.case_rule import CaseSlot
from refsim.ops.base.conv import WindowKind

#: How many cases there are of convolutions with windows of any size, of others, and of linear operators.
WINDOWS, ONES, ROWS = 128, 32, 24
#: About so many products in one group, and for each further one: enough for tiles, whose set-up they must outweigh.
PRODUCTS, MORE = 600_000, 500_000

Pair = tuple[int, int]
#: What cases are like, in turn: of few pixels over many channels, where 3x3 windows have routes of their own; large
#: enough for tiles; with one output pixel; with sums that pass 2**24.
FEW, TILED, ALONE, DEEP = "few", "tiled", "alone", "deep"
_TURNS = (FEW, TILED, DEEP, TILED, FEW, ALONE, TILED, FEW, TILED, ALONE, DEEP, FEW, TILED, ALONE, FEW, TILED)
_KERNELS: tuple[Pair, ...] = ((3, 3), (1, 1), (3, 3), (2, 3), (1, 1), (1, 5), (5, 1))
_STEPS: tuple[Pair, ...] = ((1, 1), (1, 2), (2, 1), (2, 2))
#: Output images of few pixels, and the least and most channels over which they take routes of their own.
_FEW: tuple[tuple[Pair, Pair], ...] = (
    ((2, 2), (56, 140)), ((4, 4), (32, 120)), ((2, 4), (60, 90)), ((3, 3), (64, 130)), ((2, 2), (56, 140)),
    ((4, 7), (24, 100)), ((1, 8), (96, 140)), ((2, 4), (32, 80)), ((7, 7), (20, 36)), ((2, 2), (60, 90)),
    ((3, 3), (64, 130)), ((4, 20), (24, 60)), ((2, 4), (60, 90)), ((6, 4), (30, 110)), ((1, 8), (96, 140)),
    ((4, 4), (32, 120)), ((4, 7), (24, 60)),
)  # fmt: skip
#: The same for sums that pass 2**24, and the least and most words of outputs.
_FEW_DEEP: tuple[tuple[Pair, Pair], ...] = (((4, 4), (2, 3)), ((2, 2), (6, 12)))
_WIDEST = 40
_GROUPS = (1, 1, 1, 2, 3, 4)
#: Products of an output whose sums pass 2**24.
_DEPTH = 2330


@dataclass(frozen=True)
class Shape:
    """A convolution: ``x`` is the input's shape, ``out`` its output channels."""

    window: dict[str, Any]
    groups: int
    x: tuple[int, ...]
    out: int


def windows(slot: CaseSlot, kind: WindowKind) -> Shape:
    """The convolution of a slot. What it is like follows from its number, all else is drawn."""
    i, rng = slot.number, slot.rng
    turn = _TURNS[i % len(_TURNS)]
    plain = turn == FEW or i % 16 == 10
    size = (1, 1) if kind.one_tap else (3, 3) if plain or turn == ALONE else rng.choice(_KERNELS)
    several = size != (1, 1) and not plain
    groups, channels, out = _channels(slot, turn, prod(size), 1 if plain else rng.choice(_GROUPS), kind)
    window = {
        "kernel_size": size,
        "stride": rng.choice(_STEPS) if several else (1, 1),
        "padding": (0, 0) if turn == ALONE else (size[0] // 2, size[1] // 2),
        "dilation": rng.choice(_STEPS) if several and not kind.transposed else (1, 1),
        **({"output_padding": (0, 0)} if kind.transposed else {}),
    }
    images = 1 if turn == ALONE else rng.integer(1, 2)
    if turn == ALONE:
        pixels = (1, 1)
    elif plain:
        pixels, _ = _FEW_DEEP[i // 16 % 2] if turn == DEEP else _FEW[i % len(_FEW)]
    else:
        pixels = _pixels(rng, prod(size) * channels // groups * out, groups)
    sides = (_side(axis, count, window, kind) for axis, count in enumerate(pixels))
    return Shape(window, groups, (images, channels, *sides), out)


def _channels(slot: CaseSlot, turn: str, taps: int, groups: int, kind: WindowKind) -> tuple[int, int, int]:
    """(groups, input channels, output channels): those of several groups fill words."""
    i, rng = slot.number, slot.rng
    if kind.depthwise:
        channels = 4 * rng.integer(1, 24)
        return channels, channels, channels
    least, most = (96, 200) if taps == 1 else _FEW[i % len(_FEW)][1] if turn == FEW else (32, 96)
    if turn != FEW and groups == 1 and rng.chance(60 if turn == ALONE else 30):
        least, most = 1, 3
    depth = rng.integer(least, most)
    if turn == DEEP or (turn == ALONE and i % 5 == 0):
        depth = _DEPTH // taps + rng.integer(0, 3)
    whole = kind.whole_words or groups > 1 or rng.chance(40)
    words = _FEW_DEEP[i // 16 % 2][1] if turn == DEEP else (4, 9)
    out = rng.choice([rng.integer(9, 100), 16 * rng.integer(1, 6)])
    out = 4 * rng.integer(*words) if turn == DEEP or groups > 1 else out
    return groups, groups * (-(-depth // 4) * 4 if whole else depth), groups * out


def _pixels(rng: Rng, each: int, groups: int) -> Pair:
    """Rows and columns of an output, so that there are about as many products as wanted, ``each`` to a pixel."""
    high = rng.integer(2, 9)
    return high, min(_WIDEST, 4 + (PRODUCTS + MORE * (groups - 1)) // (each * high))


def _side(axis: int, count: int, window: Mapping[str, Any], kind: WindowKind) -> int:
    """The input's size along an axis whose output has so many positions; at least so many if transposed."""
    size, stride, pad, dilation = (
        window[name][axis] for name in ("kernel_size", "stride", "padding", "dilation")
    )
    reach = dilation * (size - 1) + 1
    if kind.transposed:
        return int(max(1, -(-(count - reach + 2 * pad) // stride) + 1))
    return int(max(1, (count - 1) * stride + reach - 2 * pad))


def rows(slot: CaseSlot, one_row: bool) -> tuple[tuple[int, ...], int]:
    """(shape of the input, outputs) of a linear operator: one row in some cases, else enough for tiles."""
    rng, deep = slot.rng, slot.number % 6 == 4
    k = 4 * (rng.integer(640, 700) if deep else rng.integer(24, 80))
    out = rng.integer(9, 30) if deep else rng.choice([rng.integer(9, 140), 16 * rng.integer(1, 8)])
    if one_row or slot.number % 8 == 5:
        return (1, k), out
    count = max(5, PRODUCTS // (k * out)) + rng.integer(0, 2)
    return (2, -(-count // 2), k) if slot.number % 5 == 2 else (count, k), out
