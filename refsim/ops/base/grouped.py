"""What the operators with a 4-bit weight in groups have in common: their cases, how kernels read it, the operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from refsim.core.layout import WIDTH_PACKED
from refsim.ops.base import case_rule, int4
from refsim.ops.base.arg import Arg, Kind
from refsim.ops.base.case import Case, ErrorCase
from refsim.ops.base.case_rule import CaseRule
from refsim.ops.base.int4 import GroupedWeight
from refsim.ops.base.padding import no_padding
from refsim.ops.base.spec import Call, OpSpec


def prepack(call: Call, name: str, value: np.ndarray) -> np.ndarray:
    """weight: its values in blocks of 8 rows and 4 columns; the others as they are."""
    grouped = call.op.int4
    if name != "weight" or grouped is None:
        return np.ascontiguousarray(value).reshape(-1).view(np.int32)
    values, _ = grouped.values(call)
    return int4.NibbleBlocks.words(grouped.blocks, values)  # a name that the search for an edit can follow


def rule(example: Case, bench: Mapping[str, Any], *refused: ErrorCase, **more: Any) -> CaseRule:
    """Their cases; ``bench`` changes the example, ``more`` are the rule's other fields."""
    return case_rule.rule(example, bench, *refused, spread=480, **more)


def operator(
    params: Any, define: Callable[..., np.ndarray], weight: GroupedWeight, args: tuple[Arg, ...], **own: Any
) -> OpSpec:
    """An operator from such a weight to rows of floats; ``args`` without the output."""
    shared: dict[str, Any] = {
        "name": params.where,
        "params": params,
        "define": define,
        "args": (*args, Arg("out", Kind.OUTPUT, (WIDTH_PACKED,))),
        "padding": no_padding,
        "prepack": prepack,
        "channel_dim": -1,
        "int4": weight,
    }
    return OpSpec(**shared | own)
