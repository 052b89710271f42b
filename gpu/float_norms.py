"""Layer and group norms on a device, summed as refsim.aten.norm says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from refsim.aten.norm import lanes_of
from refsim.aten.reduce import ROW_WORKERS
from refsim_gpu.float_site import Launched, Row, Site
from refsim_gpu.float_words import REDUCE_DIMS
from refsim_gpu.strided import LOCAL, Operand, Unfit, a_group_each, image_strides, laid


def layer_norm(site: Site) -> Iterator[Launched]:
    """A row for each workgroup."""
    _, weight_arg, bias_arg, eps = site.args
    x, place = site.x, site.graph.place(site.node)
    shape = x.view.shape
    if len(shape) < 2:
        raise Unfit(f"{len(shape)} dims")
    weight, bias = (_vector(site, arg, shape[-1]) for arg in (weight_arg, bias_arg))
    lanes = ROW_WORKERS if place.buffer else lanes_of(place, shape)
    if lanes & (lanes - 1) or lanes > LOCAL:
        raise Unfit(f"{lanes} lanes")
    for number in _wanted(site):
        out = site.out(number)
        words, rows = laid(REDUCE_DIMS, OUT=out.viewed(out.view[..., 0]), A=x.viewed(x.view[..., 0]))
        words |= {
            "LENGTH": shape[-1], "OUT_STEP": out.view.strides[-1] // 4, "A_STEP": x.view.strides[-1] // 4,
            "WEIGHT_STEP": _step(weight), "BIAS_STEP": _step(bias), "EPS": np.float32(eps),
        }  # fmt: skip
        yield site.launched(
            "layer_norm", out, (x, weight or x, bias or x), a_group_each(words["COUNT"]), words, WHAT=number,
            WEIGHT=weight is not None, BIAS=bias is not None, LANES=lanes, DIMS=rows,
            TEXELS=not place.buffer and not place.packed, HALVES=place.buffer, FROM_MEAN=place.buffer,
        )  # fmt: skip


def group_norm(site: Site) -> Iterator[Launched]:
    """A group of an image for each workgroup."""
    weight_arg, bias_arg, n, c, _, groups, eps = site.args
    x = site.x
    if x.view.ndim != 4 or x.view.shape[:2] != (n, c) or c % groups:
        raise Unfit(f"{list(x.view.shape)} in {groups} groups")
    weight, bias = (_vector(site, arg, c) for arg in (weight_arg, bias_arg))
    if any(_step(operand) > 1 for operand in (weight, bias)):
        raise Unfit("a weight whose elements lie apart")
    for number in _wanted(site):
        out = site.out(number)
        words: dict[str, Any] = image_strides(OUT=out.view, X=x.view)
        words |= {
            "WIDTH": x.view.shape[3],
            "HEIGHT": x.view.shape[2],
            "DEPTH": c // groups,
            "EPS": np.float32(eps),
        }
        yield site.launched(
            "group_norm", out, (x, weight or x, bias or x), (LOCAL * groups, n, 1), words, WHAT=number,
            WEIGHT=weight is not None, BIAS=bias is not None,
        )  # fmt: skip


def _wanted(site: Site) -> list[int]:
    """Which results somebody reads, by the output's number."""
    return [number for number, value in enumerate(site.node.outputs) if value in site.wanted]


def _vector(site: Site, arg: Any, length: int) -> Operand | None:
    if arg is None:
        return None
    found = site.real(arg)
    if found.view.shape != (length,):
        raise Unfit(f"a weight {list(found.view.shape)}")
    return found


def _step(operand: Operand | None) -> int:
    return 0 if operand is None else operand.view.strides[0] // 4


ROWS: dict[str, Row] = {"native_layer_norm": layer_norm, "native_group_norm": group_norm}
