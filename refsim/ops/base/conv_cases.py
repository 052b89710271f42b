"""Cases of convolutions: constants, an example and what is refused of it, and the draws that their rules share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from refsim.core.errors import LayoutError, ParameterError, ShapeError
from refsim.core.rng import Rng
from refsim.ops.base import case_rule, route_cases
from refsim.ops.base.arg import Shapes
from refsim.ops.base.case import Case, ErrorCase
from refsim.ops.base.case_rule import (
    MANY_COLUMNS,
    MANY_ROWS,
    TAILS,
    CaseRule,
    CaseSlot,
    Constants,
    Hard,
    Made,
    quantization,
    twins,
)
from refsim.ops.base.conv import ANY, ConvParams, WindowKind
from refsim.ops.base.epilogue import row_constants
from refsim.ops.base.styles import CANCELLED


def constants(params: ConvParams, shapes: Shapes, features: Mapping[str, Any], rng: Rng) -> dict[str, Any]:
    """Random weights with the sums, scales and bias that an exporter would store."""
    channels = shapes["x"][-3]
    if channels % params.groups:
        raise ShapeError(
            params.where, "channels do not divide into groups", got=f"{channels}, {params.groups} groups"
        )
    k = params.taps * (channels // params.groups)
    return row_constants(params, features["out_channels"], k, features, rng)


def example(op: str, layout: str = "4C1W", **window: Any) -> Case:
    """A small image, and a window that keeps its size if none is given."""
    params = dict(in_scale=0.02, in_zp=3, out_scale=0.05, out_zp=-4)
    params |= window or dict(kernel_size=(3, 3), padding=(1, 1))
    return Case(
        op, params, {"x": ((2, 8, 7, 9), layout)}, layout, features={"out_channels": 12, "bias": True}
    )


def refused(case: Case) -> tuple[ErrorCase, ...]:
    """What every convolution must refuse of its example."""
    return (
        case.refused(ParameterError, "in_scale", in_scale=2.0**-61),
        case.refused(ParameterError, "stride", stride=(0, 1)),
        case.refused(ParameterError, "activation", activation="gelu"),
        case.refused(ShapeError, "larger than the padded image", kernel_size=(12, 2)),
        case.refused(ShapeError, "do not fill words", x=(1, 12, 5, 6), groups=2),
        case.refused(LayoutError, "x has a layout", x="4W"),
    )


# --- the rules that make cases ---------------------------------------------------------------------------


def golden_window(slot: CaseSlot) -> dict[str, Any]:
    """Kernel, stride, padding and dilation; the pairs have unequal sides as a rule."""
    rng, i = slot.rng, slot.number

    def pair(low: int, high: int) -> tuple[int, int]:
        first = rng.integer(low, high)
        return first, low + (first - low + rng.choice([0, 1, 1, 2])) % (high - low + 1)

    return {
        "kernel_size": pair(1, 4),
        "stride": pair(1, 3) if i % 3 else (1, 1),
        "padding": pair(0, 3) if i % 4 else (0, 0),
        "dilation": pair(1, 3) if i % 5 > 2 else (1, 1),
    }


def golden_image(
    slot: CaseSlot, params: Mapping[str, Any], channels: int, width: int = 40
) -> dict[str, tuple[int, ...]]:
    """An image that the window fits into, its height and width of the slot's residues.

    A large one gives more than ``width`` output columns, a huge one some 16,400 output positions.
    """
    strides = params.get("stride", (1, 1))
    if slot.huge:
        return {"x": (1, channels, 101 * strides[0], 163 * strides[1])}
    if slot.large:
        wide = (width + slot.residue(0)) * strides[1] + 12
        return {"x": (slot.rng.integer(1, 2), channels, slot.size(1, 8) + 12, wide)}
    sides = []
    for axis, (dim, most) in enumerate(((1, 8), (0, 12))):
        dilation = params.get("dilation", (1, 1))[axis]
        least = dilation * (params["kernel_size"][axis] - 1) + 1 - 2 * params["padding"][axis]
        side = slot.size(dim, most)
        sides.append(side + 4 * max(0, -(-(least - side) // 4)))
    return {"x": (slot.batch, channels, *sides)}


def golden_params(slot: CaseSlot, window: Mapping[str, Any], groups: int) -> dict[str, Any]:
    """Quantization of input and output, the window, groups and activation."""
    rest = {"groups": groups, "activation": slot.activation}
    return {**quantization(slot, "in", "out"), **window, **rest}


def golden_channels(slot: CaseSlot, kind: WindowKind = ANY) -> tuple[int, int, int]:
    """(groups, input channels, output channels); one case in eight has many input channels."""
    rng, i = slot.rng, slot.number
    if slot.large:  # as many output words as the widest tile has, and some
        channels = slot.size(2, 8)
        out = {43: 36, 59: 21}.get(i, 33 + slot.residue(1))
        return 1, (channels + 3) // 4 * 4 if kind.whole_words else channels, out
    groups = (1, 1, 2, 1, 3)[i % 5]
    if groups > 1:
        return groups, 4 * groups * rng.integer(1, 2), 4 * groups * rng.integer(1, 2)
    channels = slot.size(2, 8)
    if i % 8 == 5:
        channels += rng.choice([64, 128, 256])
    return (
        1,
        (channels + 3) // 4 * 4 if kind.whole_words else channels,
        slot.residue(2) ^ 3 or rng.integer(1, 13),
    )


def golden(slot: CaseSlot, kind: WindowKind = ANY) -> Made:
    """A convolution over any window."""
    groups, channels, out = golden_channels(slot, kind)
    params = golden_params(slot, golden_window(slot), groups)
    return params, golden_image(slot, params, channels), {"out_channels": out, "bias": slot.bias}


def rule(
    example: Case, bench: Mapping[str, Any], *refused: ErrorCase, kind: WindowKind = ANY, spread: int = 1440,
    make: Callable[[CaseSlot], Made] | None = None, constants: Constants = constants,
) -> CaseRule:  # fmt: skip
    """The cases of a convolution, by `golden` if nothing else makes them; ``bench`` changes its example."""
    make = make or partial(golden, kind=kind)
    draws: dict[str, Any] = {"hard": hard(make, kind), "constants": constants}
    return case_rule.rule(example, bench, *refused, spread=spread, make=make, **draws)


# --- hard golden cases -----------------------------------------------------------------------------------

#: Input channels of a 3x3 window whose sums pass 2**24, most of them no multiple of 4.
_DEEP = (258, 229, 322, 1030)
#: Ordinary images, for which the routes of a CPU differ.
_IMAGES = ((14, 14), (28, 27), (7, 9), (13, 16), (6, 31))
_WIDE = (227, 230, 258, 388, 514)
_PLAIN = {"stride": (1, 1), "dilation": (1, 1)}


def hard(make: Callable[[CaseSlot], Made], kind: WindowKind) -> tuple[Hard, ...]:
    """Sums and biases that cancel, windows over many channels, many positions, twins, panels that are not full."""
    # over few channels it takes large windows until sums pass 2**24
    kernel = (1, 1) if kind.one_tap else (11, 16) if kind.depthwise else (3, 3)

    def window(size: tuple[int, int], pad: int) -> dict[str, Any]:
        rest = {**_PLAIN, "output_padding": (0, 0)} if kind.transposed else _PLAIN
        return {"kernel_size": size, "padding": (pad, pad), **rest}

    def whole(channels: int) -> int:
        return -(-channels // 4) * 4 if kind.whole_words else channels

    def cancelling(slot: CaseSlot) -> Made:
        at = slot.number % len(_DEEP)
        channels, out = whole(_DEEP[at] * 9 // prod(kernel)), 9 + at
        side = (9, 10) if kernel == (3, 3) else (5, 7)
        if kind.depthwise:
            channels = out = 8 + 4 * at
            side = (17, 22)
        params = golden_params(slot, window(kernel, kernel[0] // 2), out if kind.depthwise else 1)
        if slot.number >= len(_DEEP) and not kind.one_tap:  # no route for stride 1 alone
            params["stride"] = (2, 1)
        by_bias = slot.number % 2 == 1
        params["in_zp"] = 127 if by_bias else CANCELLED
        return params, {"x": (1 + slot.number % 2, channels, *side)}, {"out_channels": out, "bias": by_bias}

    def wide(slot: CaseSlot) -> Made:
        at = slot.number % len(_WIDE)
        params = golden_params(slot, window(kernel, kernel[0] // 2), 1)
        out = (64, 16, 33, 9, 20)[at]
        return params, {"x": (1, whole(_WIDE[at]), *_IMAGES[at])}, {"out_channels": out, "bias": slot.bias}

    def positions(slot: CaseSlot) -> Made:
        params = golden_params(slot, window((1, 1), 0), 4 if kind.depthwise else 1)
        features = {"out_channels": 4 + (0 if kind.depthwise else slot.number), "bias": slot.bias}
        return params, {"x": (1, 4, MANY_ROWS, MANY_COLUMNS)}, features

    def tails(slot: CaseSlot) -> Made:
        """Weights whose last panel is filled anyhow, over channels that fill anything but words."""
        at = slot.number
        out, channels = TAILS[at], whole((17, 3, 13, 33, 66, 5, 19, 31)[at])
        size = (
            kernel if kind.one_tap else ((3, 3), (1, 3), (3, 2), (2, 2), (5, 5), (3, 3), (1, 1), (4, 3))[at]
        )
        if kind.depthwise:
            out = channels = -(-out // 4) * 4
        params = golden_params(slot, window(size, size[1] // 2), out if kind.depthwise else 1)
        if not kind.one_tap and at % 2:
            params["stride"] = (1, 2) if at % 4 == 1 else (2, 1)
        return params, {"x": (1, channels, 6, 7 + at)}, {"out_channels": out, "bias": slot.bias}

    def routed(slot: CaseSlot) -> Made:
        """As the routes of a CPU need it."""
        shape = route_cases.windows(slot, kind)
        params = golden_params(slot, shape.window, shape.groups)
        return params, {"x": shape.x}, {"out_channels": shape.out, "bias": slot.bias}

    def far(slot: CaseSlot) -> Made:
        """As the case that cancels by its bias, over an image that nearly is one value, in windows inside of it."""
        params, x, features = cancelling(replace(slot, number=2 * slot.number + 1))
        inside = {"stride": (1, 1), "padding": params["padding"] if kind.transposed else (0, 0)}
        return {**params, **inside}, x, features

    rows = [
        Hard("cancelling sums", 8, cancelling, "cancelling"),
        Hard("many positions", 2, positions, "position"),
    ]
    if not kind.depthwise:
        rows.insert(1, Hard("many channels", 10, wide))
    tail = Hard("tails", len(TAILS), tails, "random")
    count = route_cases.ONES if kind.depthwise or kind.one_tap else route_cases.WINDOWS
    return (*rows, twins(make), tail, Hard("routes", count, routed), Hard("far biases", 4, far, "far_bias"))
