"""Name copies as ExecuTorch does: by the order of dims that they produce, not by a memory format."""

from __future__ import annotations

from typing import Any

import torch

from refsim.partition.fx_program import FxProgram, Operator
from refsim.partition.nodes import CLONE, CLONE_DIM_ORDER, target_name


def _copy(x: torch.Tensor, *, dtype: torch.dtype | None = None, **placement: Any) -> torch.Tensor:
    """What both do to a constant."""
    return x.to(dtype or x.dtype, copy=True).contiguous()


CLONED = Operator(CLONE_DIM_ORDER, ("self", "non_blocking", "dim_order"), (False, None), _copy)
CONVERTED = Operator(
    "dim_order_ops._to_dim_order_copy.default",
    ("self", "dtype", "layout", "device", "pin_memory", "non_blocking", "dim_order"),
    (None, None, None, None, False, None),
    _copy,
)
#: Outside of delegates: an uninitialized tensor, whose dtype is that of the tensor that its kernel is given.
EMPTY = Operator(
    "dim_order_ops._empty_dim_order.default",
    ("size", "dim_order"),
    compute=lambda size, *, dim_order, dtype=None, **placement: torch.empty(size, dtype=dtype),
)
_TARGETS = {CLONE: CLONED, "aten._to_copy.default": CONVERTED, "aten.empty.memory_format": EMPTY}


def run(program: FxProgram) -> FxProgram:
    program = program.copy()
    for node in program.calls():
        target = _TARGETS.get(target_name(node))
        if target is not None:
            kwargs: dict[str, Any] = dict(node.kwargs)
            kwargs.pop("memory_format", None)
            kwargs["dim_order"] = _dim_order(node.meta["val"])
            node.target = target
            node.kwargs = kwargs
    return program


def _dim_order(value: torch.Tensor) -> list[int]:
    """Dims from the one that varies slowest in memory to the one that varies fastest."""
    return [int(dim) for dim in value.dim_order()]
