"""Take each tensor at its bound: sizes become numbers, the largest that they may be. Nodes that compute sizes stay.

ExecuTorch too decides everything at the bound; its files say it in sizes, and SymInts are computed anew in each run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy
import torch
from torch import fx
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from refsim.core.errors import GraphError
from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import DYNAMIC, is_tensor, target_name, tensors_of

#: They check sizes while a program is traced, and compute nothing.
_CHECKS = ("aten._assert_scalar.default", "aten.sym_constrain_range_for_size.default",
           "aten.sym_constrain_range.default", "aten._assert_tensor_metadata.default")  # fmt: skip


def run(program: FxProgram, ranges: Mapping[Any, Any], where: str = "program") -> FxProgram:
    """``ranges``: the least and the largest number of each symbol, as torch.export keeps them.

    GraphError for a size without a bound.
    """
    program, ranges = program.copy(), _of_symbols(ranges)
    for node in reversed(list(program.calls())):
        if target_name(node) in _CHECKS:
            program.graph.erase_node(node)
    for node in program.graph.nodes:
        if "val" in node.meta:
            node.meta[DYNAMIC] = _changes(node.meta["val"])
            node.meta["val"] = _at_bound(node.meta["val"], ranges, f"{where}: {node}")
    return program.clean()


def only_symbols(graph: fx.Graph) -> None:
    """Make torch forget the ranges of sums and products: it finds them in a file, and then stops at them."""
    sizes = [
        s for node in graph.nodes for t in tensors_of(node) for s in t.shape if isinstance(s, torch.SymInt)
    ]
    known = {id(env): env for env in (size.node.shape_env for size in sizes) if env is not None}
    for env in known.values():
        for key in [key for key in env.var_to_range if not isinstance(key, sympy.Symbol)]:
            del env.var_to_range[key]


def _of_symbols(ranges: Mapping[Any, Any]) -> dict[Any, Any]:
    """The ranges of symbols alone: of ``2*s`` a file says the range of the product, and not that of ``s``."""
    found = {key: held for key, held in ranges.items() if isinstance(key, sympy.Symbol)}
    for key, held in ranges.items():
        if isinstance(key, sympy.Symbol) or len(key.free_symbols) != 1:
            continue
        (symbol,) = key.free_symbols
        factor, rest = key.coeff(symbol), key.subs(symbol, 0)
        if factor.is_Integer and factor > 0 and sympy.expand(factor * symbol + rest - key) == 0:
            own = ValueRanges(-((rest - held.lower) // factor), (held.upper - rest) // factor)
            found[symbol] = own & found[symbol] if symbol in found else own
    return found


def _changes(val: Any) -> bool:
    """Whether a run may have another shape, or another number."""
    if isinstance(val, torch.SymInt):
        return True
    if isinstance(val, list | tuple):
        return any(map(_changes, val))
    return is_tensor(val) and any(isinstance(size, torch.SymInt) for size in val.shape)


def _at_bound(val: Any, ranges: Mapping[Any, Any], where: str) -> Any:
    if isinstance(val, torch.SymInt):
        return _number(val, ranges, where)
    if isinstance(val, list | tuple):
        return type(val)(_at_bound(item, ranges, where) for item in val)
    if not _changes(val):
        return val
    return val.new_empty([_number(size, ranges, where) for size in val.shape])


def _number(size: Any, ranges: Mapping[Any, Any], where: str) -> int:
    if not isinstance(size, torch.SymInt):
        return int(size)
    upper = bound_sympy(size.node.expr, dict(ranges)).upper
    if not getattr(upper, "is_Integer", False) or int(upper) >= 2**31:
        need = "a largest number for each Dim, such as Dim('s', max=128)"
        raise GraphError(where, "a size has no bound", got=size.node.expr, need=need)
    return int(upper)
