"""q8ta_clone (serialized as aten.clone): bytes to another layout; values never change.

Between equal layouts the buffer is copied, padding included; between different ones the padding is 0
(upstream leaves it to the pair: copied, zeroed or untouched). Source: ET-VK's q8ta_clone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from refsim import index
from refsim.draw import Draw
from refsim.errors import LayoutError
from refsim.jit import model_kernel
from refsim.lanes import insert, lane
from refsim.launch import Launch, column_local, offsets, words
from refsim.layout import INT8_LAYOUTS, C, H, W
from refsim.op import Call, Case, ErrorCase, Kind, OpSpec, Pad, Padding, Target
from refsim.ops import _elementwise as elementwise


@dataclass(frozen=True)
class Params:
    """None."""


def define(params: Params, target: Target, x: np.ndarray) -> np.ndarray:
    return x.copy()


def padding(call: Call) -> Padding:
    if call.out.layout == call.descs["x"].layout:
        return Padding(Pad(0), Pad(0), copied=True)
    return elementwise.UNSPECIFIED


OUT, X, ROWS = offsets(8, 8, 1)
TILE = 4  # elements along W, H and C: whole words of either kind of layout, and whole blocks


def launch(call: Call) -> Launch:
    """An invocation moves 4 x 4 x 4 elements. Domain: words along C x words along W x (batch, rows padded to 4)."""
    x, out = call.descs["x"], call.out
    w, h, c, n = out.sizes_whcn
    rows = -(-h // TILE) * TILE
    if out.layout.inner == C:
        width, tile = out.blocks_whcn[W] * out.layout.block_extent(W), (1, TILE, TILE)
        domain = (-(-c // TILE), width, n * rows)
    else:
        tile = (TILE, 1, TILE)
        domain = (c, -(-w // TILE), n * rows)
    same_way = x.layout.dim_order[-1] == out.layout.dim_order[-1]
    return Launch(
        shader=call.op.name,
        out=out,
        spec=(out.hashed, x.hashed, int(out.columns_adjoin), int(x.columns_adjoin)),
        push=words(out.meta, x.meta, rows),
        domain=domain,
        local=column_local(out, TILE) if same_way else (8, 8, 1),
        tile=tile,
    )


def point(launch: Launch, word: Any, w: Any, h: Any, c: Any, n: Any) -> tuple[Any, Any, Any]:
    """The domain point that writes the word at a coordinate."""
    row = n * launch.push[ROWS] + h
    return (c // TILE, w, row) if launch.out.layout.inner == C else (c, w // TILE, row)


@model_kernel
def kernel(covered, spec, push, x_words, out):  # type: ignore[no-untyped-def]
    out_hash, x_hash = spec[0], spec[1]
    by_channels = index.inner_dim(out_hash) == C
    tall = index.block_extent(out_hash, H)
    height = (push[OUT + 1] + tall - 1) // tall * tall  # padding rows of a block are copied too
    for z, y, x in np.ndindex(covered):
        h, n = z % push[ROWS], z // push[ROWS]
        if h >= height:
            continue
        w, c = (y, TILE * x) if by_channels else (TILE * y, x)
        i = index.word_idx(push, OUT, out_hash, w, h, c, n)
        if out_hash == x_hash:
            out[i] = x_words[i]
            continue
        word = 0
        for k in range(index.lanes_inside(push, OUT, out_hash, w, h, c, n)):
            kw, kh, kc = index.lane_coord(out_hash, k, w, h, c)
            at = index.buf_idx(push, X, x_hash, kw, kh, kc, n)
            word = insert(word, k, lane(x_words[at // 4], at % 4))
        out[i] = word


def sample(draw: Draw) -> Case:
    x, out = draw.choice(INT8_LAYOUTS), draw.choice(INT8_LAYOUTS)
    return Case(
        "q8ta_clone", {}, {"x": (elementwise.random_shape(draw), str(x))}, str(out), draw.integer(0, 2**31)
    )


_SHAPES = {"x": ((2, 5, 3, 7), "4W4C")}

CASES = (
    Case("q8ta_clone", {}, _SHAPES, "4H4W", note="C-packed to W-packed"),
    Case("q8ta_clone", {}, _SHAPES, "4W4C", note="same layout: padding is copied"),
    ErrorCase(Case("q8ta_clone", {}, _SHAPES, "WIDTH_PACKED"), LayoutError, "out has a layout"),
)

OP = OpSpec(
    name="q8ta_clone",
    serialized="aten.clone.default",
    args=(elementwise.tensor("x", INT8_LAYOUTS), elementwise.tensor("out", INT8_LAYOUTS, Kind.OUTPUT)),
    params=Params,
    define=define,
    out_shape=elementwise.same_shape,
    padding=padding,
    launch=launch,
    kernel=kernel,
    point=point,
    sample=sample,
    cases=CASES,
)
