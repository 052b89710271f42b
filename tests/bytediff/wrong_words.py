"""Words put together or taken apart wrongly, and lanes that come from a neighbour: plain loops with one bug."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wrong_sums import LINEAR

from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case

Made = tuple[BoundCase, Any]


def _odd_columns() -> Made:
    """In odd columns the first of each two rows holds what stands in the second."""
    bound = bind(Case("q8ta_clone", {}, {"x": ((1, 8, 6, 6), "4C1W")}, "4C1W", 2, style="random"))
    values = bound.inputs["x"].unpack().copy()
    values[..., ::2, 1::2] = values[..., 1::2, 1::2]
    return bound, values


def _scales_bound_as_sums() -> Made:
    """The words of the weight scales read as weight sums."""
    p, consts = LINEAR.call.params, LINEAR.call.consts
    scales = np.asarray(consts["weight_scales"])
    acc = LINEAR.inputs["x"].unpack().astype(np.int64) @ np.asarray(consts["weight"]).T.astype(np.int64)
    held = acc - p.in_zp * scales.view(np.int32).astype(np.int64)
    t = ((held + 2**31) % 2**32 - 2**31).astype(np.float32) * (scales * np.float32(p.in_scale))
    q = np.rint(t * (np.float32(1) / np.float32(p.out_scale)))
    return LINEAR, (np.clip(q, -128 - p.out_zp, 127 - p.out_zp) + p.out_zp).astype(np.int8)[None, None]


ROWS: tuple[tuple[str, str, Callable[[], Made]], ...] = (
    (
        "channel constants misplaced",
        "weight_sums read from the words of weight_scales",
        _scales_bound_as_sums,
    ),
    ("values moved", "where w % 2 is 1 and h % 2 is 0: those of h +1", _odd_columns),
)
