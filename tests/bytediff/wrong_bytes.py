"""Bugs in convolutions, sums of two tensors, dispatches and stores, written plainly and apart from refsim.bytediff."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from wrong_addresses import ROWS as ADDRESS_ROWS
from wrong_channels import ROWS as CHANNEL_ROWS
from wrong_distances import ROWS as DISTANCE_ROWS
from wrong_int4 import ROWS as INT4_ROWS
from wrong_kernels import CONV, conv
from wrong_linear import ROWS as LINEAR_ROWS
from wrong_sums import ROWS as SUM_ROWS
from wrong_windows import ROWS as WINDOW_ROWS
from wrong_words import ROWS as WORD_ROWS

from refsim.bytediff.invocations import writer
from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.core.qmath import CANONICAL, LAVAPIPE, Profile
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target

BOUND = bind(CONV)
TIES = bind(replace(CONV, style="ties", params={**CONV.params, "activation": "none"}))
NEAR = bind(
    replace(
        CONV,
        style="near_ties",
        params={**CONV.params, "in_scale": 0.3, "out_scale": 0.07, "out_zp": -100},
        seed=23,
    )
)
ADD = bind(
    Case(
        "q8ta_add",
        dict(a_scale=0.02, a_zp=3, b_scale=0.05, b_zp=-7, out_scale=0.03, out_zp=21, alpha=0.5),
        {"a": ((2, 5, 3, 7), "4W4C"), "b": ((2, 5, 3, 7), "4C1W")},
        "4C",
        seed=3,
        poison=True,
    )
)
QUANTIZE = bind(Case("q8ta_quantize", dict(scale=0.25, zp=5), {"x": ((2, 5, 3, 7), "W")}, "4W4C", seed=1))
IM2COL = bind(replace(CONV, op="q8ta_conv2d_im2col", inputs={"x": ((2, 8, 9, 7), "4W4C")}))

IM2COL_LARGE = bind(
    replace(CONV, op="q8ta_conv2d_im2col", inputs={"x": ((1, 8, 5, 23), "4W4C")}, out_layout="4W4C")
)
HEAD = bind(
    Case(
        "linear_q8ta_q8csw",
        dict(in_scale=0.02, in_zp=3),
        {"x": ((2, 3, 16), "W")},
        "W",
        seed=6,
        features={"out_channels": 18, "bias": True},
        style="position",
    )
)
GEMV = bind(
    Case(
        "q8ta_linear_gemv",
        dict(in_scale=0.02, in_zp=3, out_scale=0.4, out_zp=-5),
        {"x": ((1, 1200), "4W")},
        "4W",
        seed=6,
        features={"out_channels": 30, "bias": False},
    )
)

Wrong = Callable[[], tuple[BoundCase, Any]]
Row = tuple[str, str, Wrong]


def _conv(bound: BoundCase = BOUND, **bug: Any) -> Wrong:
    return lambda: (bound, conv(bound, **bug))


def _edited(bound: BoundCase, edit: Callable[[PackedBuffer], Any]) -> Wrong:
    def make() -> tuple[BoundCase, Any]:
        buffer = bound.call.expected(bound.inputs)
        changed = edit(buffer)
        return bound, buffer if changed is None else changed

    return make


def _apart(buffer: PackedBuffer) -> np.ndarray:
    """Rows of 18 floats, each stored as five texels of four."""
    rows = np.zeros((6, 20), np.float32)
    rows[:, :18] = buffer.unpack().reshape(6, 18)
    return rows.reshape(-1)[: buffer.desc.numel].copy().view(np.uint8)


def _first_plane(buffer: PackedBuffer) -> None:
    buffer.data[3 * 18 :] = 0


def _head(profile: Profile | None = None, **consts: np.ndarray) -> Wrong:
    """The whole head under another profile, or with other constants."""

    def make() -> tuple[BoundCase, PackedBuffer]:
        bound = bind(replace(HEAD.case, style="random", seed=3))
        call = replace(bound.call, consts={**bound.call.consts, **consts})
        call = replace(call, target=Target(profile or CANONICAL))
        return bound, call.expected(bound.inputs)

    return make


def _tail_zero(buffer: PackedBuffer) -> None:
    """Positions (batch, row, column) of a general convolution that a grid of 32s rounded down leaves out."""
    values = buffer.unpack()
    n, _, h, w = values.shape
    positions = np.arange(n * h * w).reshape(n, h, w)
    values.transpose(1, 0, 2, 3)[:, positions >= n * h * w // 32 * 32] = 0
    padded = PackedBuffer.pack(values, buffer.desc.layout)
    lanes = buffer.kinds() == ByteKind.LANE
    holds = (padded.raw.reshape(-1, 4) != 0).any(axis=1).repeat(4)
    padded.raw[lanes & holds] = buffer.raw[lanes & holds]
    buffer.raw[:] = padded.raw


def _batch0(buffer: PackedBuffer) -> PackedBuffer:
    values = buffer.unpack()
    values[:] = values[:1]
    return values


def _as(row: str) -> Callable[[PackedBuffer], np.ndarray]:
    """The elements laid out in another layout that takes as many bytes."""

    def edit(buffer: PackedBuffer) -> np.ndarray:
        raw = np.zeros(buffer.desc.nbytes, np.uint8)
        other = PackedBuffer.pack(buffer.unpack(), row).raw
        raw[: len(other)] = other[: len(raw)]
        return raw

    return edit


def _blocks_transposed() -> tuple[BoundCase, Any]:
    bound = bind(replace(ADD.case, out_layout="4W4C"))
    blocks = bound.call.expected(bound.inputs).raw.reshape(-1, 4, 4)
    return bound, np.ascontiguousarray(blocks.swapaxes(1, 2)).reshape(-1)


def _square_transposed() -> tuple[BoundCase, Any]:
    case = replace(ADD.case, inputs={name: ((2, 5, 6, 6), row) for name, (_, row) in ADD.case.inputs.items()})
    bound = bind(case)
    return bound, np.ascontiguousarray(bound.call.expected(bound.inputs).unpack().swapaxes(2, 3))


def _channels_as_rows() -> tuple[BoundCase, Any]:
    bound = bind(Case("q8ta_clone", {}, {"x": ((2, 6, 5, 8), "4W")}, "4W", style="position"))
    x = bound.inputs["x"].unpack()
    n, c, h, w = x.shape
    out = np.zeros(n * c * h * w, np.int8)
    for i, k, j in np.ndindex(n, c, h):  # the strides of C and H exchanged
        at = i * c * h * w + k * w + j * h * w
        row = x[i, k, j]
        out[at : at + w] = row[: max(0, len(out) - at)]
    return bound, out.view(np.uint8)


def _add(**bug: Any) -> Wrong:
    def make() -> tuple[BoundCase, Any]:
        p = ADD.call.params
        a, b = (ADD.inputs[name].unpack().astype(np.float32) for name in "ab")
        if bug.get("twice"):
            b = a
        real_a = (a - np.float32(bug.get("a_zp", p.a_zp))) * np.float32(bug.get("a_scale", p.a_scale))
        real_b = (b - np.float32(p.b_zp)) * np.float32(p.b_scale)
        y = real_a + np.float32(bug.get("alpha", p.alpha)) * real_b
        q = np.rint(y * (np.float32(1) / np.float32(p.out_scale)))
        return ADD, np.clip(q + bug.get("out_zp", p.out_zp), *bug.get("clamp", (-128, 127))).astype(np.int8)

    return make


def _converted() -> tuple[BoundCase, Any]:
    """Out-of-range values become -2**31 before the zero point is added."""
    x, p = QUANTIZE.inputs["x"].unpack(), QUANTIZE.call.params
    with np.errstate(all="ignore"):
        y = np.rint(x * (np.float32(1) / np.float32(p.scale))).astype(np.float64)
    whole = np.where(np.abs(y) < 2.0**31, y, -(2.0**31))
    wrapped = (whole + p.zp + 2**31) % 2**32 - 2**31
    return QUANTIZE, np.clip(wrapped, -128, 127).astype(np.int8)


def _sums_of_input_channels() -> np.ndarray:
    """Weight sums over output channels instead of over each one's own weights."""
    weight = np.asarray(BOUND.call.consts["weight"]).astype(np.int64)
    return np.resize(weight.sum(0), len(weight)).astype(np.int32)


def _scratch_unread() -> tuple[BoundCase, Any]:
    """The second dispatch ran before the first had written: all products with 0."""
    call, p = IM2COL.call, IM2COL.call.params
    adj = -np.int64(p.in_zp) * np.asarray(call.consts["weight_sums"]).astype(np.int64)
    t = np.float32(adj) * (np.asarray(call.consts["weight_scales"]) * np.float32(p.in_scale))
    t = np.maximum(t + np.asarray(call.consts["bias"]), np.float32(0))
    q = np.rint(t * (np.float32(1) / np.float32(p.out_scale)))
    q = np.clip(q, -128 - p.out_zp, 127 - p.out_zp) + p.out_zp
    return IM2COL, np.broadcast_to(q[:, None, None], call.out.shape).astype(np.int8)


def _words_of_blocks() -> tuple[BoundCase, Any]:
    """A clone that finds every word of a source block where its first one lies."""
    bound = bind(Case("q8ta_clone", {}, {"x": ((2, 8, 5, 12), "4W4C")}, "4C1W", style="position"))
    source = PackedBuffer(bound.inputs["x"].desc)
    source.raw[:] = np.repeat(bound.inputs["x"].raw.reshape(-1, 4, 4)[:, :1], 4, 1).reshape(-1)
    return bound, source.unpack()


def _squares_turned() -> tuple[BoundCase, Any]:
    """A clone that turns each square of four columns by four words of channels."""
    bound = bind(Case("q8ta_clone", {}, {"x": ((2, 32, 5, 12), "4C")}, "4W4C", style="position"))
    x = (
        bound.inputs["x"].unpack().reshape(2, 2, 4, 4, 5, 3, 4)
    )  # n, words / 4, word, lane, h, columns / 4, column
    return bound, np.ascontiguousarray(x.swapaxes(2, 6)).reshape(2, 32, 5, 12)


def _gemv(heard: Callable[[np.ndarray], np.ndarray], offset: int = 0) -> Wrong:
    """Sums over those input words alone whose number ``heard`` allows; the input is made unsigned by an offset."""

    def make() -> tuple[BoundCase, Any]:
        call, p = GEMV.call, GEMV.call.params
        weight, wsum, scale = (np.asarray(call.consts[n]) for n in ("weight", "weight_sums", "weight_scales"))
        x = GEMV.inputs["x"].unpack().astype(np.int64)
        x = (x + offset) * heard(np.arange(x.shape[-1]) // 4) - offset
        t = np.float32(x @ weight.astype(np.int64).T - p.in_zp * wsum.astype(np.int64))
        y = np.rint(t * (scale * np.float32(p.in_scale)) * (np.float32(1) / np.float32(p.out_scale)))
        q = (np.clip(y, -128 - p.out_zp, 127 - p.out_zp) + p.out_zp).astype(np.int8)
        return GEMV, q.reshape(1, 1, 1, -1)

    return make


def _grids_floored(axes: str) -> Wrong:
    """Both dispatches of an im2col convolution, or the second, without their last partial groups."""

    def make() -> tuple[BoundCase, Any]:
        first, second = IM2COL_LARGE.call.dispatches()
        assert first.launch.shader == "q8ta_im2col"
        windows = OPS["q8ta_conv2d_im2col"].expand(IM2COL_LARGE.call)  # type: ignore[misc]
        scratch = PackedBuffer.pack(
            windows[0].call.define({"x": IM2COL_LARGE.inputs["x"].unpack()}), first.launch.out.layout
        )
        if axes == "both":
            _cut(first.launch, scratch)
        out = PackedBuffer.pack(windows[1].call.define({"x": scratch.unpack()}), second.launch.out.layout)
        values = out.unpack()[..., : IM2COL_LARGE.call.out.shape[-1]]
        fresh = PackedBuffer.pack(values, IM2COL_LARGE.call.out.layout)
        _cut(second.launch, fresh)
        return IM2COL_LARGE, fresh.unpack()

    return make


def _cut(launch: Any, buffer: PackedBuffer) -> None:
    """Zero the words that whole workgroups alone do not reach."""
    for word in range(launch.out.words):
        point = writer(launch, word).work_item
        groups = (e // (n * t) for e, n, t in zip(launch.global_size, launch.local, launch.tile, strict=True))
        reached = [max(1, g) * n * t for g, n, t in zip(groups, launch.local, launch.tile, strict=True)]
        if any(p >= r for p, r in zip(point, reached, strict=True)):
            buffer.words[word] = 0


def _pads_computed(buffer: PackedBuffer) -> None:
    """Lanes beyond the channels hold a computed sum instead of 0."""
    buffer.raw[buffer.kinds() == ByteKind.LANE] = 0x4D


def _overrun(buffer: PackedBuffer) -> None:
    """A block of words written again, elsewhere."""
    buffer.words[20:26] = buffer.words[4:10]


ROWS: tuple[Row, ...] = (
    *CHANNEL_ROWS,
    *INT4_ROWS,
    *SUM_ROWS,
    *WINDOW_ROWS,
    *LINEAR_ROWS,
    *WORD_ROWS,
    *DISTANCE_ROWS,
    ("nothing written", "0x00 is left there", _edited(BOUND, lambda b: np.zeros_like(b.raw))),
    ("last tile missing", "x >= 64", _edited(BOUND, _tail_zero)),
    ("last tile missing", "all dispatches rounded down", _grids_floored("both")),
    ("last tile missing", "rounded down", _grids_floored("second")),
    ("batch ignored", "computed from batch 0", _edited(BOUND, _batch0)),
    (
        "lanes rotated",
        "rotated by 1",
        _edited(ADD, lambda b: np.roll(b.raw.reshape(-1, 4), 1, 1).reshape(-1)),
    ),
    ("byte order", "reversed", _edited(ADD, lambda b: b.words.byteswap().view(np.uint8))),
    ("block transposed", "with blocks transposed", _blocks_transposed),
    ("block transposed", "words of blocks", _words_of_blocks),
    ("block transposed", "squares of 4 x 4 words", _squares_turned),
    ("another layout's strides", "written as 4C1W", _edited(ADD, _as("4C1W"))),
    ("H and W exchanged", "row", _square_transposed),
    ("H and W exchanged", "kernel_size and stride", _conv(exchange=True)),
    ("H and W exchanged", "stride exchanged", _conv(pairs={"stride": (1, 2)})),
    ("C and another dim exchanged", "C and H", _channels_as_rows),
    ("zero point not folded", "not subtracted", _conv(fold=0)),
    ("zero point not folded", "out_zp", _add(out_zp=0)),
    ("zero point folded twice", "subtracted twice", _conv(fold=2)),
    ("border padded with 0", "read 0", _conv(border=0)),
    ("tie rule", "away", _conv(TIES, relu="none", rounding=lambda y: np.trunc(y + np.copysign(F05, y)))),
    ("tie rule", "up", _conv(TIES, relu="none", rounding=lambda y: np.floor(y + F05))),
    ("truncation", "cut off", _conv(rounding=np.trunc)),
    ("fused multiply-add", "rounded once", _conv(NEAR, fused=True)),
    ("conversion out of range", "-2**31", _converted),
    ("clamp order", "wraps", _conv(clamp_first=True)),
    ("relu bound", "max(q, 0)", _conv(relu="quantized")),
    ("relu dropped or added", "left out", _conv(relu="none")),
    ("clamp bounds", "[-127, 127]", _add(clamp=(-127, 127))),
    ("unsigned lanes", "x read", _conv(unsigned_x=True)),
    ("unsigned lanes", "weights read", _conv(unsigned_w=True)),
    ("stride or dilation", "exchanged", _conv(pairs={"stride": (1, 2), "dilation": (2, 1)})),
    ("stride or dilation", "dilation taken as 1", _conv(pairs={"dilation": (1, 1)})),
    ("padding offset", "padding taken as 0", _conv(pairs={"padding": (0, 0)})),
    ("reduction too short", "last channel", _conv(channels=5)),
    ("reduction too short", "every stage of 8", _gemv(lambda word: word % 8 != 7)),
    ("reduction too short", "of unsigned bytes", _gemv(lambda word: word != 299, 128)),
    ("reduction too short", "first 8 of 64", _gemv(lambda word: word % 64 < 8)),
    (
        "reduction too short",
        "last of 8 partial sums",
        _gemv(lambda word: (word % 64 // 8 != 7) & (word % 8 != 7)),
    ),
    ("alpha ignored", "taken as 1", _add(alpha=1.0)),
    ("operands exchanged", "a read twice", _add(twice=True)),
    ("weight sums over the wrong dimension", "summed", _conv(sums=_sums_of_input_channels())),
    ("channel constants misplaced", "bias", _conv(bias_at=-1)),
    ("weights in another order", "taps flipped", _conv(flip=True)),
    (
        "stale or foreign buffer",
        "the bytes of input a",
        _edited(ADD, lambda b: ADD.inputs["a"].raw[: b.desc.nbytes]),
    ),
    ("stale or foreign buffer", "read before it was written", _scratch_unread),
    ("another tensor's quantization", "a_scale and a_zp taken from b", _add(a_scale=0.05, a_zp=-7)),
    ("padding leaked", "lane padding holds 0x4D", _edited(BOUND, _pads_computed)),
    ("write out of bounds", "belong at word 4", _edited(ADD, _overrun)),
    ("rows apart", "18 floats written 20 floats apart", _edited(HEAD, _apart)),
    ("batch ignored", "first plane alone", _edited(HEAD, _first_plane)),
    ("conversion out of range", "-2**31", _head(LAVAPIPE)),
    ("fused multiply-add", "rounded once", _head(Profile("fused", contract=True))),
    ("zero point not folded", "not subtracted", _head(weight_sums=np.zeros(18, np.int32))),
    *ADDRESS_ROWS,
)
F05 = np.float32(0.5)
