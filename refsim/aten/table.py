"""The table: every float operator that needs no torch, by its name in ATen."""

from __future__ import annotations

from refsim.aten import (
    arithmetic,
    convolution,
    elementwise,
    indexing,
    matrix,
    norm,
    pool,
    quantized,
    reduce,
    rotary,
    sampling,
    shape,
    upsample,
    weight_only,
)
from refsim.aten.row import Float

ROWS: tuple[Float, ...] = tuple(
    row
    for module in (
        elementwise, arithmetic, reduce, pool, matrix, weight_only, convolution, norm, upsample, sampling, shape,
        indexing, rotary, quantized,
    )
    for row in module.ROWS
)  # fmt: skip

#: By base name (``mean`` for aten.mean.dim and aten::mean.out), or by base name and overload.
TABLE: dict[str, Float] = {name: row for row in ROWS for name in row.names.split()}


def row_of(base: str, overload: str | None) -> Float | None:
    """The row of an overload, else of the operator."""
    return TABLE.get(f"{base}.{overload}", TABLE.get(base))
