"""The chains of the corpus, by rule: what executors compute in one step, and what looks alike and must stay apart.

Chain i is the same on every machine. Kinds follow one another. Within a kind the number runs through layouts, clamps
and quantizations; sizes and windows are drawn. A kind says whether the CPU's plan joins its operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

from refsim.aten.pool import PoolWindow
from refsim.core.rng import Rng
from refsim.golden.chain import (
    CHAINS,
    ChainCase,
    ChainDraft,
    Link,
    Quantization,
    Shape,
    dequantize,
    of,
    only,
    quantize,
)
from refsim.ops.base.case_rule import ZERO_POINTS, rounded
from refsim.ops.base.traits import Family

MAX_POOL, MEAN, VIEW = "aten.max_pool2d_with_indices.default", "aten.mean.dim", "aten.view_copy.default"
GROUP_NORM, LAYER_NORM = "aten.native_group_norm.default", "aten.native_layer_norm.default"
AVERAGE, BILINEAR, SUM = "aten.avg_pool2d.default", "aten.upsample_bilinear2d.vec", "aten.sum.dim_IntList"
#: The bounds of clamps, in quantization steps: none, those of a relu, to both sides, those that cut nothing, one alone.
BOUNDS: tuple[tuple[float, ...] | None, ...] = (
    None,
    (0.0, 60.5),
    (),
    (-30.2, 41.7),
    (-9e6, 9e6),
    (-9e6, 3.3),
)
#: Channels of one vector of 16 lanes, of several, and of none: bytes that fill no word, no vector, or both exactly.
CHANNELS = (1, 3, 4, 13, 16, 17, 31, 32, 50, 64, 65, 130)


@dataclass(frozen=True)
class ChainKind:
    """``count`` chains. ``joined``: whether the CPU's plan computes operators of them in one step; None: of some.

    ``looks_up``: it does so where the processor looks bytes up in a table, and only there.
    """

    name: str
    count: int
    make: Callable[[Rng, int], ChainCase]
    joined: bool | None = True
    looks_up: bool = False


def _quantization(rng: Rng, number: int) -> Quantization:
    return rounded(rng.scale_moderate()), ZERO_POINTS[number % len(ZERO_POINTS)]


def _moved(q: Quantization, number: int) -> Quantization:
    """The same quantization in every second chain, else another."""
    return (rounded(q[0] * 0.72), q[1] // 2 + 9) if number % 2 else q


def _bounds(number: int) -> tuple[float, ...] | None:
    return BOUNDS[number % len(BOUNDS)]


def _channels(number: int) -> int:
    return CHANNELS[(5 * number + 3) % len(CHANNELS)]


# --- what the plan joins ---------------------------------------------------------------------------------

_BY_CHANNELS = ("4C", "4C1W", "4W4C")


def _window(rng: Rng, number: int) -> tuple[Shape, PoolWindow]:
    """An image, and a window with unequal sides that fits it: padding, dilation and rounding up in turn."""
    kernel = (rng.integer(1, 3), rng.integer(2, 4)) if number % 2 else (rng.integer(2, 4), rng.integer(1, 3))
    dilation = (1, 1) if number % 3 else (2, 1 + number % 2)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    padding = (rng.integer(0, reach[0] // 2), rng.integer(0, reach[1] // 2)) if number % 4 else (0, 0)
    size = (reach[0] + rng.integer(0, 9), reach[1] + rng.integer(1, 14))
    stride = (rng.integer(1, 3), rng.integer(1, 2))
    return size, PoolWindow(size, kernel, stride, padding, dilation, bool(number % 5 % 2))


def _max_pool(rng: Rng, number: int) -> ChainCase:
    size, window = _window(rng, number)
    images, channels = 1 + number % 2, _channels(number)
    draft, q = RuleDraft("max pool", rng, (images, channels, *size)), _quantization(rng, number)
    layout = _BY_CHANNELS[number % 3]
    draft.through(q, layout)
    draft.clamp(_bounds(number // 2 + 1), q[0])
    sides = (list(pair) for pair in (window.kernel, window.stride, window.padding, window.dilation))
    draft.floats(MAX_POOL, *sides, window.ceil_mode)
    after = _moved(q, number)
    draft.through(after, layout)
    return draft.made()


def _mean(rng: Rng, number: int) -> ChainCase:
    images, channels = 1 + number % 3, _channels(number + 2)
    shape = (images, channels, rng.integer(1, 11), rng.integer(2, 17))
    draft, q = RuleDraft("mean", rng, shape), _quantization(rng, number + number // 6)
    draft.through(q, _BY_CHANNELS[number % 3])
    draft.clamp(_bounds(number), q[0])
    dims = ([-1, -2], [2, 3], [3, 2])[number // 2 % 3]
    draft.floats(MEAN, dims, True)
    viewed = number % 2 == 1
    if viewed:
        draft.floats(VIEW, [images, channels])
    after = (
        (rounded(q[0] * 0.31), q[1]) if abs(q[1]) < 6 else (rounded(q[0] * 0.9), q[1] + 1 - 2 * (q[1] > 0))
    )
    draft.through(after, "4W" if viewed else "4C")
    return draft.made()


def _clamp(rng: Rng, number: int) -> ChainCase:
    """A clamp between two quantizations, or nothing between them: by lookup, and by arithmetic."""
    shape: Shape = (1 + number % 2, _channels(number), rng.integer(1, 7), rng.integer(3, 19))
    layout = ("4C", "4W", "4W4C", "4H4W", "4C1W")[number % 5]
    shape = shape[number // 5 % 3 :] if layout in ("4W", "4H4W") else shape
    draft, q = RuleDraft("clamp", rng, shape), _quantization(rng, number)
    draft.through(q, layout)
    draft.clamp(_bounds(number + 1), q[0])
    after = (rounded(q[0] * (0.4, 1.7, 1.0, 0.013)[number % 4]), q[1] // 2 + 3)
    draft.through(after, layout)
    return draft.made()


# --- what must stay apart --------------------------------------------------------------------------------


def _read_twice(rng: Rng, number: int) -> ChainCase:
    """The real values between are an output too, or the clamped ones are, or another operator reads them."""
    shape = (1, _channels(number + 4), 6, 5 + number)
    draft, q = RuleDraft("read twice", rng, shape), _quantization(rng, number + 1)
    real = draft.through(q, "4C")
    if number % 3 == 0:
        draft.clamp((0.0, 60.5), q[0])
    else:
        real = draft.floats(HARDTANH, rounded(-31.0 * q[0]), rounded(40.5 * q[0]))
    if number % 3 == 2:
        draft.at = real
        more = draft.floats(RELU)
        draft.at = real
    else:
        more = real
    after = _moved(q, number)
    draft.through(after, "4C")
    return draft.made(more)


def _residual(rng: Rng, number: int) -> ChainCase:
    """Convolutions, a relu, an add of an early and a late value, another layout, a shuffle: memory that is shared.

    The last is so large that several threads share it.
    """
    channels, out = (16, 24, 20, 68, 16, 128)[number], (32, 12, 36, 20, 32, 132)[number]
    images, *sizes = (1 + number % 2, 5 + number, 7 + 2 * number) if number < 5 else (1, 48, 50)
    draft = RuleDraft("residual", rng, (images, channels, *sizes))
    a, b, c, d = ((rounded(rng.scale_moderate() * (1, 9, 30, 30)[k]), 7 * k - 5 * number) for k in range(4))
    first, second = "4W4C", ("4C1W", "4C", "4W4C")[number % 3]

    def window(size: int, groups: int) -> dict[str, Any]:
        pad = size // 2
        rest = {"stride": (1, 1), "dilation": (1, 1), "groups": groups, "activation": "none"}
        return {"kernel_size": (size, size), "padding": (pad, pad), **rest}

    draft.quantize(a, first)
    point = only(lambda op: op.family is Family.CONVOLUTION and op.one_tap)
    features = {"out_channels": out, "bias": bool(number % 2)}
    early = draft.bound(point, sides(a, b) | window(1, 1), first, **features)
    draft.bound(of(Family.DEPTHWISE), sides(b, c) | window(3, out), first, **(features | {"bias": True}))
    draft.bound(elementwise(1), sides(c, c), first)
    late = draft.at
    draft.at = early
    draft.bound(elementwise(2), terms(b, c, d, 1.0 + number % 3 / 2), first, late)
    draft.bound(of(Family.RELAYOUT), {}, second)
    inverse = rounded(0.7 / d[0])
    shuffle = {"in_scale": d[0], "in_zp": d[1], "out_inv_scale": inverse, "out_zp": a[1], "upscale": 2}
    draft.bound(of(Family.SHUFFLE), shuffle, second)
    draft.dequantize((rounded(d[0] / 0.7), a[1]))
    return draft.made(early) if number % 4 == 3 else draft.made()


# --- what the cases and the other chains do not hold ------------------------------------------------------


def _ties(rng: Rng, number: int) -> ChainCase:
    """Means that lie exactly between two steps of the output: scales are powers of two, and so is the pixels' count."""
    images, channels = 1 + number % 2, _channels(number + 3)
    size = ((2, 2), (1, 4), (2, 4), (4, 1))[number % 4]
    draft, scale = RuleDraft("mean ties", rng, (images, channels, *size)), 0.25
    draft.through((scale, 3 - number), _BY_CHANNELS[number % 3])
    draft.floats(MEAN, [-1, -2], True)
    after = (scale * 2 / (size[0] * size[1]) * (1, 3)[number // 4 % 2], number - 4)
    draft.through(after, "4C")
    return draft.made()


def _two_clones(rng: Rng, number: int) -> ChainCase:
    """One value that two readers need in two layouts, each other than its own; and a third that takes it as it is."""
    layouts = ("4C", "4W4C", "4C1W")
    own, first, second = (layouts[(number + k) % 3] for k in range(3))
    draft, q = (
        RuleDraft("two clones", rng, (1 + number % 2, _channels(number), 5, 6 + number)),
        _quantization(rng, number),
    )
    draft.quantize(q, own)
    read, ends = draft.at, list[int]()
    for layout in (first, second, own):
        draft.at = read
        if layout != own:
            draft.bound(of(Family.RELAYOUT), {}, layout)
        if number % 2 or layout == first:
            draft.bound(elementwise(1), sides(q, q), layout)
        ends.append(draft.dequantize(q))
    return draft.made(*ends[:-1])


def _other_zero(rng: Rng, number: int) -> ChainCase:
    """Requantized with the same scale and another zero point: the bytes move, and are no copies."""
    draft, q = (
        RuleDraft("other zero point", rng, (1, _channels(number), 4, 5 + number)),
        _quantization(rng, number),
    )
    first, second = _BY_CHANNELS[number % 3], _BY_CHANNELS[(number + number // 3) % 3]
    draft.through(q, first)
    draft.clamp(BOUNDS[number % 2], q[0])
    after = (q[0], q[1] + (19, 7, 1)[number % 3] * (1 if q[1] < 0 else -1))
    draft.through(after, second)
    return draft.made()


def _float(rng: Rng, number: int) -> ChainCase:
    """A float operator that adds many elements in an order of its own, between a dequantize and a quantize."""
    turn, packed = number % 5, ("W", "CHANNELS_PACKED")[number // 5 % 2]
    images, channels = 1 + number % 2, (6, 14, 22, 19, 13)[turn]
    size = (259, 257) if number == 8 else (rng.integer(4, 9), rng.integer(5, 12))
    shape = (1 if number == 8 else images, channels, *size)
    draft, q = RuleDraft("float", rng, shape), _quantization(rng, number)
    layout = _BY_CHANNELS[number % 3]
    draft.through(q, layout, packed)
    where = "" if packed == "W" else packed
    if turn == 0:
        draft.floats(AVERAGE, [3, 2], [2, 1], [1, 0], False, bool(number % 3), None, layout=where)
    elif turn in (1, 2):  # 7 and 11 channels to a group, or 3 and 2 groups
        groups = (2, channels // 3 if channels % 3 == 0 else 2)[number // 10 % 2]
        sizes = (shape[0], channels, size[0] * size[1])
        draft.floats(GROUP_NORM, None, None, *sizes, groups, 1e-5, layout=where, outputs=1)
    elif turn == 3:
        draft.floats(SUM, [1], True, layout=where)
    else:
        out = [size[0] * 2 - 1, size[1] + 3]
        draft.floats(BILINEAR, out, bool(number // 5 % 2), None, layout=where)
    after = (rounded(q[0] * (1.0, 1.0 / q[0] / 30, 1.0 / q[0] / 30, 7.0, 0.9)[turn]), 4 - number)
    draft.through(after, layout)
    return draft.made()


def _layer_norm(rng: Rng, number: int) -> ChainCase:
    """Rows of an image, or of a matrix, each normalized by its own mean and deviation."""
    shape: Shape = ((2, 5, 7, 19), (9, 68), (1, 6, 4, 70), (3, 5, 33))[number % 4]
    draft, q = RuleDraft("layer norm", rng, shape), _quantization(rng, number)
    layout = "4W" if len(shape) < 4 else _BY_CHANNELS[number % 3]
    draft.through(q, layout)
    draft.floats(LAYER_NORM, [shape[-1]], None, None, 1e-5)
    after = (1 / 32, 3 - number)
    draft.through(after, layout)
    return draft.made()


def _two_shapes(rng: Rng, number: int) -> ChainCase:
    """At its bound, and at a smaller shape in the memory of the bound: images by turns, and rows."""
    draft = RuleDraft(
        "two shapes", rng, ((1 + number % 3, 12 + 4 * number, 9, 14), (11, 24))[number % 4 == 3]
    )
    a, b, c = ((rounded(rng.scale_moderate() * (1, 9, 30)[k]), 7 * k - 5 * number) for k in range(3))
    first = sides(a, b)
    if len(draft.input) == 2:
        draft.quantize(a, "4H4W")
        many = only(lambda op: op.family is Family.LINEAR and not op.one_row and op.channel_dim == -1)
        draft.bound(many, first | {"activation": "relu"}, "4H4W", out_channels=19, bias=True)
        draft.dequantize(b)
        return replace(draft.made(), smaller=(5, 24))
    channels, layout = draft.input[1], ("4W4C", "4C", "4C1W")[number % 3]
    draft.quantize(a, layout)
    rest = {"padding": (1, 1), "dilation": (1, 1), "activation": ("none", "relu")[number % 2]}
    params = first | {"kernel_size": (3, 3), "stride": (1, 1), "groups": channels, **rest}
    early = draft.bound(of(Family.DEPTHWISE), params, "4W4C", out_channels=channels, bias=True)
    draft.bound(elementwise(1), sides(b, b), "4W4C")
    draft.bound(elementwise(2), terms(b, b, c, 1.0), "4W4C", early)
    draft.dequantize(c)
    draft.clamp(_bounds(number), c[0])
    if number % 2:
        draft.floats(MEAN, [2, 3], True)
    draft.quantize(b, "4C")
    draft.dequantize(b)
    images = 1 if number % 3 else draft.input[0]
    return replace(
        draft.made(early), smaller=(images, channels, 1 + rng.integer(1, 7), 1 + rng.integer(1, 12))
    )


KINDS = (
    ChainKind("max pool", 16, _max_pool),
    ChainKind("mean", 12, _mean),
    ChainKind("clamp", 15, _clamp),
    ChainKind("read twice", 3, _read_twice, joined=None),
    ChainKind("residual", 6, _residual, joined=False, looks_up=True),
    ChainKind("mean ties", 8, _ties),
    ChainKind("two clones", 6, _two_clones, joined=False),
    ChainKind("other zero point", 9, _other_zero),
    ChainKind("float", 15, _float, joined=False),
    ChainKind("layer norm", 4, _layer_norm, joined=False),
    ChainKind("two shapes", 8, _two_shapes, joined=None),
)

COUNT = sum(kind.count for kind in KINDS)


def kindof(number: int) -> tuple[ChainKind, int]:
    """(kind, number within it) of a chain."""
    for kind in KINDS:
        if number < kind.count:
            return kind, number
        number -= kind.count
    raise IndexError(f"no chain {number}")


def chain(number: int) -> ChainCase:
    """Chain ``number`` of the corpus."""
    kind, place = kindof(number)
    return kind.make(Rng(crc32(CHAINS.encode()) << 20 | number), place)


def chains() -> Iterator[ChainCase]:
    """All chains, in order."""
    return map(chain, range(COUNT))


HARDTANH, RELU = "aten.hardtanh.default", "aten.relu.default"


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


class RuleDraft(ChainDraft):
    """A chain of a rule. Each node reads the value that the last one made."""

    def __init__(self, kind: str, rng: Rng, shape: Shape) -> None:
        super().__init__(kind, shape)
        self.rng = rng

    def bound(self, op: str, params: dict[str, Any], layout: str, *others: int, **features: Any) -> int:
        """An operator of the corpus, of the last value and ``others``."""
        return self.add(Link(op, (self.at, *others), params, layout, features))

    def quantize(self, q: Quantization, layout: str) -> int:
        """The first one says which values there are."""
        if not self.links:
            self.spread(q)
        return self.add(quantize(self.at, q, layout))

    def dequantize(self, q: Quantization, layout: str = "W") -> int:
        return self.add(dequantize(self.at, q, layout))

    def through(self, q: Quantization, layout: str, real: str = "W") -> int:
        """Quantized in a layout, and dequantized again into another."""
        self.quantize(q, layout)
        return self.dequantize(q, real)

    def floats(self, op: str, *args: Any, layout: str = "", outputs: int | None = None) -> int:
        """A float operator; ``outputs``: how many of its results there are, if not all."""
        return self.add(Link(op, (self.at,), layout=layout, args=args), outputs)

    def clamp(self, bounds: tuple[float, ...] | None, scale: float) -> None:
        """Between these bounds, in steps of this scale; of an empty pair a relu; none."""
        if bounds is not None:
            self.floats(HARDTANH if bounds else RELU, *(rounded(bound * scale) for bound in bounds))

    def made(self, *more: int) -> ChainCase:
        """All of it; the last value and ``more`` are its outputs."""
        # even: the seed beside it makes the values of another run
        self.seed = self.rng.integer(0, (1 << 31) - 1) & ~1
        return self.chain(self.at, *more)
