"""Layer and group norms on a device, summed as refsim.aten.norm says."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from refsim.aten.norm import lanes_of
from refsim.aten.reduce import ROW_WORKERS
from refsim.core.launch import Launch
from refsim_gpu.float_site import Launched, Row, Site
from refsim_gpu.float_words import GROUP_NORM, LAYER_NORM, REDUCE_DIMS
from refsim_gpu.strided import LOCAL, ROW_GROUPS, Operand, Unfit, dims, joined


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
    left, count = x.view[..., 0], prod(shape[:-1])
    push, spec = LAYER_NORM
    for what, number in _wanted(site):
        out = site.out(number)
        rows = joined(left.shape, [out.view[..., 0], left], REDUCE_DIMS)
        words = push.pack(
            {}, **dims(rows, ("SIZE", "OUT", "A"), REDUCE_DIMS), OUT_AT=out.first, A_AT=x.first, COUNT=count,
            LENGTH=shape[-1], OUT_STEP=out.view.strides[-1] // 4, A_STEP=x.view.strides[-1] // 4,
            WEIGHT_STEP=_step(weight), BIAS_STEP=_step(bias), EPS=np.float32(eps),
        )  # fmt: skip
        constants = spec.pack(
            {}, WHAT=what, WEIGHT=weight is not None, BIAS=bias is not None, LANES=lanes, DIMS=len(rows),
            TEXELS=not place.buffer and not place.packed, HALVES=place.buffer, FROM_MEAN=place.buffer,
        )  # fmt: skip
        size = (LOCAL * min(count, ROW_GROUPS), -(-count // ROW_GROUPS), 1)
        launch = Launch("float/layer_norm", site.desc(out.key), constants, words, size, (LOCAL, 1, 1))
        yield launch, (x, weight or x, bias or x), out


def group_norm(site: Site) -> Iterator[Launched]:
    """A group of an image for each workgroup."""
    weight_arg, bias_arg, n, c, _, groups, eps = site.args
    x = site.x
    if x.view.ndim != 4 or x.view.shape[:2] != (n, c) or c % groups:
        raise Unfit(f"{list(x.view.shape)} in {groups} groups")
    weight, bias = (_vector(site, arg, c) for arg in (weight_arg, bias_arg))
    if any(_step(operand) > 1 for operand in (weight, bias)):
        raise Unfit("a weight whose elements lie apart")
    push, spec = GROUP_NORM
    for what, number in _wanted(site):
        out = site.out(number)
        strides = {
            f"{name}_{dim}_STRIDE": step // 4
            for name, operand in (("OUT", out), ("X", x))
            for dim, step in zip("NCHW", (*operand.view.strides, 0, 0), strict=False)
        }
        words = push.pack(
            {},
            **strides,
            WIDTH=x.view.shape[3],
            HEIGHT=x.view.shape[2],
            DEPTH=c // groups,
            EPS=np.float32(eps),
        )
        constants = spec.pack({}, WHAT=what, WEIGHT=weight is not None, BIAS=bias is not None)
        launch = Launch(
            "float/group_norm", site.desc(out.key), constants, words, (LOCAL * groups, n, 1), (LOCAL, 1, 1)
        )
        yield launch, (x, weight or x, bias or x), out


def _wanted(site: Site) -> list[tuple[int, int]]:
    """Which results somebody reads: what a kernel gives, and the output's number."""
    return [(n, n) for n, value in enumerate(site.node.outputs) if value in site.wanted]


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
