"""The table: every operator with a flat meaning of its own, by its name in serialized graphs."""

from __future__ import annotations

from refsim.ops.flat import elementwise, rows, sums
from refsim.ops.flat.base import FlatOp

FLAT: dict[str, FlatOp] = {row.name: row for module in (elementwise, sums, rows) for row in module.ROWS}
