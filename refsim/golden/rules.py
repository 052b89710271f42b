"""The cases of the corpus, by rule: case number i of an operator is always the same, on every machine.

Numbers count through the legal layouts of the operator first; within a combination of layouts the sizes run through
every residue modulo 4 of W, H and C, and data styles, zero points, activations and biases through their values at
periods without common factors. One case in sixteen is large: several workgroups along each axis of its dispatch, the
last one partial. The rest (window, scales, sizes beyond the residues) is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod
from typing import Any
from zlib import crc32

from refsim.core.layout import C, Layout
from refsim.core.qmath import inv_scale
from refsim.core.rng import Rng
from refsim.ops.base.binding import STYLES
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Kind

ZERO_POINTS = (-128, -1, 0, 1, 127, 5, -37)
STYLE_NAMES = tuple(STYLES)
SEEDS = 1 << 31


@dataclass(frozen=True)
class Slot:
    """What a rule gets: the layouts, the case's number among those with the same layouts, and a source of draws."""

    layouts: tuple[Layout, ...]
    number: int
    rng: Rng

    @property
    def style(self) -> str:
        return STYLE_NAMES[self.number % len(STYLE_NAMES)]

    @property
    def relu(self) -> str:
        return "relu" if self.number // 2 % 3 == 0 else "none"

    @property
    def bias(self) -> bool:
        return self.number % 7 % 3 != 0

    def zero_point(self, tensor: int) -> int:
        """A different one for each tensor."""
        return ZERO_POINTS[(self.number // (1 + 2 * tensor) + 3 * tensor) % len(ZERO_POINTS)]

    def residue(self, dim: int) -> int:
        """0 to 3 for W (0), H (1) and C (2); all 64 combinations in a row."""
        return self.number // 4**dim % 4

    @property
    def large(self) -> bool:
        return self.number % 16 == 11

    @property
    def huge(self) -> bool:
        """Enough positions for the largest tiles of the matrix-like kernels."""
        return self.number in (43, 59)

    def size(self, dim: int, most: int) -> int:
        """A size of the slot's residue mod 4, up to about ``most``."""
        return self.residue(dim) + 4 * self.rng.integer(0 if self.residue(dim) else 1, most // 4)

    @property
    def batch(self) -> int:
        return (1, 2, 3, 2)[self.number // 3 % 4]


Make = Callable[[Slot], tuple[dict[str, Any], dict[str, tuple[int, ...]], dict[str, Any]]]


def _rounded(value: float) -> float:
    """Six digits, so that the corpus stays readable."""
    return float(f"{value:.6g}")


def scales(slot: Slot, names: tuple[str, ...]) -> dict[str, float]:
    """A scale per tensor, the output's last, as the style needs them."""
    rng = slot.rng
    moderate = {name: _rounded(rng.scale_moderate()) for name in names}
    if slot.style == "ties":
        return {name: rng.choice([0.25, 0.5]) for name in names[:-1]} | {names[-1]: rng.choice([0.5, 1.0])}
    if slot.style == "near_ties":
        base = moderate[names[-1]]
        parts = {name: _rounded(base * rng.choice([0.5, 1.5, 0.25, 1.0])) for name in names[:-1]}
        return parts | {names[-1]: base}
    if slot.style == "saturation":
        return moderate | {names[-1]: _rounded(moderate[names[0]] * rng.choice([0.25, 0.5, 0.75]))}
    return moderate


def quantization(slot: Slot, names: tuple[str, ...], zp: str = "_zp") -> dict[str, Any]:
    """Scales and zero points of tensors, parameters NAME_scale and NAME_zp."""
    found = scales(slot, names)
    params: dict[str, Any] = {f"{name}_scale": found[name] for name in names}
    return params | {f"{name}{zp}": slot.zero_point(i) for i, name in enumerate(names)}


def shape4(slot: Slot) -> tuple[int, ...]:
    """(N, C, H, W) of every residue, unequal H and W, more than one block per row as a rule.

    A large one has more than 1024 words in a plane of its two fastest dims.
    """
    if slot.large:
        few, wide = slot.rng.integer(1, 3), 65 + slot.residue(0)
        if slot.layouts[-1].inner == C:
            return (slot.rng.integer(1, 2), 68 + slot.residue(2), few, wide)
        return (slot.rng.integer(1, 2), few, 68 + slot.residue(1), wide)
    return (slot.batch, slot.size(2, 12), slot.size(1, 8), slot.size(0, 16))


def _ranked(slot: Slot, most: int) -> tuple[int, ...]:
    """Now and then another rank than 4."""
    shape = shape4(slot)
    odd = slot.rng.chance(12) and not slot.large
    rank = slot.rng.choice([1, 2, 3, 5, 6, 7, 8][: 3 if most == 4 else 7]) if odd else 4
    return shape[4 - rank :] if rank <= 4 else (*(slot.rng.integer(1, 2) for _ in range(rank - 4)), *shape)


def _add(slot: Slot) -> Any:
    alpha = slot.rng.choice([1.0, 1.0, 0.5, -2.0, 0.3, 0.0])
    shape = _ranked(slot, 4)
    return {**quantization(slot, ("a", "b", "out")), "alpha": alpha}, {"a": shape, "b": shape}, {}


def _relu(slot: Slot) -> Any:
    return quantization(slot, ("in", "out")), {"x": _ranked(slot, 4)}, {}


def _clone(slot: Slot) -> Any:
    return {}, {"x": _ranked(slot, 4)}, {}


def _convert(slot: Slot) -> Any:
    scale = slot.rng.choice([0.5, 0.25]) if slot.style == "ties" else _rounded(slot.rng.scale_moderate())
    return {"scale": scale, "zp": slot.zero_point(0)}, {"x": _ranked(slot, 8)}, {}


def _stage(slot: Slot) -> Any:
    shape = _ranked(slot, 4)
    return {"shape": shape}, {"x": (prod(shape),)}, {}


def _shuffle(slot: Slot) -> Any:
    rng = slot.rng
    r = rng.choice([2, 2, 2, 1, 3])
    params = quantization(slot, ("in", "out"))
    out_scale = params.pop("out_scale")
    if slot.number % 5 % 3 == 0:  # quantized alike: bytes move
        out_scale, params["out_zp"] = params["in_scale"], params["in_zp"]
    params |= {"out_inv_scale": float(inv_scale(out_scale)), "upscale": r}
    if slot.large:
        return params, {"x": (1, (68 + slot.residue(2)) * r * r, 1, -(-70 // r))}, {}
    channels = slot.size(2, 6) * r * r
    return params, {"x": (slot.batch, channels, slot.size(1, 5), slot.size(0, 7))}, {}


def _window(slot: Slot) -> dict[str, Any]:
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


def _image(
    slot: Slot, params: Mapping[str, Any], channels: int, width: int = 40
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


def _conv_params(slot: Slot, window: dict[str, Any], groups: int) -> dict[str, Any]:
    rest = {"groups": groups, "activation": slot.relu}
    return {**quantization(slot, ("in", "out")), **window, **rest}


def _channels(slot: Slot, whole_words: bool) -> tuple[int, int, int]:
    """(groups, input channels, output channels); one case in eight has many input channels."""
    rng, i = slot.rng, slot.number
    if slot.large:  # as many output words as the widest tile has, and some
        channels = slot.size(2, 8)
        out = {43: 36, 59: 21}.get(i, 33 + slot.residue(1))
        return 1, (channels + 3) // 4 * 4 if whole_words else channels, out
    groups = (1, 1, 2, 1, 3)[i % 5]
    if groups > 1:
        return groups, 4 * groups * rng.integer(1, 2), 4 * groups * rng.integer(1, 2)
    channels = slot.size(2, 8)
    if i % 8 == 5:
        channels += rng.choice([64, 128, 256])
    return 1, (channels + 3) // 4 * 4 if whole_words else channels, slot.residue(2) ^ 3 or rng.integer(1, 13)


def _conv(slot: Slot, whole_words: bool = False) -> Any:
    groups, channels, out = _channels(slot, whole_words)
    params = _conv_params(slot, _window(slot), groups)
    return params, _image(slot, params, channels), {"out_channels": out, "bias": slot.bias}


def _conv_words(slot: Slot) -> Any:
    return _conv(slot, whole_words=True)


def _common_window(slot: Slot) -> dict[str, Any] | None:
    """In three cases of eleven the windows of mobile networks, which devices keep builds of their own for."""
    turn, rest = divmod(slot.number, 11)
    if rest > 2:
        return None
    k, s = (3, 5)[turn % 2], (1, 2)[turn // 2 % 2]
    return {"kernel_size": (k, k), "stride": (s, s), "padding": (k // 2, k // 2), "dilation": (1, 1)}


def _depthwise(slot: Slot) -> Any:
    channels = 4 * slot.rng.integer(1, 5)
    if slot.large and not slot.huge:
        channels = 36
    params = _conv_params(slot, _common_window(slot) or _window(slot), channels)
    wide = 257 if slot.layouts[-1].block_transposed else 40
    return params, _image(slot, params, channels, wide), {"out_channels": channels, "bias": slot.bias}


def _pointwise(slot: Slot) -> Any:
    groups, channels, out = _channels(slot, whole_words=False)
    window = {"kernel_size": (1, 1), "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
    params = _conv_params(slot, window, groups)
    return params, _image(slot, params, channels), {"out_channels": out, "bias": slot.bias}


def _transposed(slot: Slot) -> Any:
    rng = slot.rng
    groups, channels, out = _channels(slot, whole_words=False)
    window = _window(slot)
    kernel, stride = window["kernel_size"], window["stride"]
    window |= {
        "dilation": (1, 1),
        "padding": tuple(rng.integer(0, (k - 1) // 2) for k in kernel),
        "output_padding": tuple(rng.integer(0, s - 1) for s in stride),
    }
    params = _conv_params(slot, window, groups)
    image = {"x": (slot.batch, channels, slot.size(1, 5), slot.size(0, 7))}
    if slot.huge:
        image = {"x": (1, channels, 101 // stride[0], 163 // stride[1])}
    return params, image, {"out_channels": out, "bias": slot.bias}


def _im2col(slot: Slot) -> Any:
    groups = (1, 1, 2)[slot.number % 3]
    params = {"in_scale": 1.0, "in_zp": slot.zero_point(0), "out_scale": 1.0, "out_zp": 0, "groups": groups}
    params |= _window(slot)
    return params, _image(slot, params, 4 * groups * slot.rng.integer(1, 3)), {}


def _linear_params(slot: Slot) -> dict[str, Any]:
    return {**quantization(slot, ("in", "out")), "activation": slot.relu}


#: K of the two linear operators: mostly small, some that need every bit of the accumulator.
_LARGE_K = (1024, 4096, 16384, 131068)


def _k(slot: Slot) -> tuple[int, int]:
    """(K, most outputs): few outputs where K is large."""
    if slot.number % 11 == 3:
        k = _LARGE_K[slot.number // 11 % len(_LARGE_K)]
        return k, 6 if k <= 4096 else 2
    return 4 * slot.rng.integer(1, 24), 44


def _linear(slot: Slot) -> Any:
    k, most = _k(slot)
    lead = slot.rng.choice([(), (), (2,), (2, 3)])
    rows = slot.size(1, 8) if k < 1024 else 1 + slot.residue(1)
    out = min(slot.size(0, 20), most)
    if slot.large:
        k, lead = 4 * slot.rng.integer(1, 5), ()
        rows, out = 33 + slot.residue(1), 33 + slot.residue(0)
    if slot.huge:
        rows, out = 16411, {43: 36, 59: 21}[slot.number]
    features = {"out_channels": out, "bias": slot.bias}
    return _linear_params(slot), {"x": (*(lead if k < 1024 else ()), rows, k)}, features


def _gemv(slot: Slot) -> Any:
    k, most = _k(slot)
    lead = slot.rng.choice([(), (1,), (1, 1)])
    return (
        _linear_params(slot),
        {"x": (*lead, k)},
        {"out_channels": min(slot.size(0, 40), most), "bias": slot.bias},
    )


#: Operator -> how many cases, and the rule that makes one.
RULES: dict[str, tuple[int, Make]] = {
    "int8x4_to_nchw": (640, _clone),
    "nchw_to_int8x4": (640, _stage),
    "q8ta_add": (2240, _add),
    "q8ta_clone": (1600, _clone),
    "q8ta_conv2d": (1440, _conv),
    "q8ta_conv2d_dw": (1440, _depthwise),
    "q8ta_conv2d_general": (1440, _conv),
    "q8ta_conv2d_im2col": (1440, _conv_words),
    "q8ta_conv2d_pw": (1280, _pointwise),
    "q8ta_conv2d_transposed": (1440, _transposed),
    "q8ta_dequantize": (1200, _convert),
    "q8ta_im2col": (640, _im2col),
    "q8ta_linear": (960, _linear),
    "q8ta_linear_gemv": (960, _gemv),
    "q8ta_pixel_shuffle": (1200, _shuffle),
    "q8ta_quantize": (1440, _convert),
    "q8ta_relu": (1040, _relu),
}


@cache
def layouts_of(name: str) -> tuple[tuple[Layout, ...], ...]:
    """Every legal combination of layouts: those of the inputs, then the output's."""
    op = OPS[name]
    tensors = [*op.of_kind(Kind.INPUT), op.output]
    found = []
    for rows in product(*(arg.layouts for arg in tensors)):
        infos = {row.packed_dim_info for arg, row in zip(tensors, rows, strict=True) if arg.name in op.sync}
        if len(infos) <= 1:
            found.append(rows)
    return tuple(found)


def case(name: str, number: int) -> Case:
    """Case ``number`` of an operator."""
    combinations = layouts_of(name)
    rng = Rng(crc32(name.encode()) << 20 | number)
    slot = Slot(combinations[number % len(combinations)], number // len(combinations), rng)
    params, shapes, features = RULES[name][1](slot)
    inputs = {key: (shape, str(row)) for (key, shape), row in zip(shapes.items(), slot.layouts, strict=False)}
    return Case(
        name, params, inputs, str(slot.layouts[-1]), rng.integer(0, SEEDS - 1), features,
        style=slot.style, poison=slot.number % 4 != 3,
    )  # fmt: skip


def cases(name: str) -> Iterator[Case]:
    """All cases of an operator, in order."""
    for number in range(RULES[name][0]):
        yield case(name, number)
