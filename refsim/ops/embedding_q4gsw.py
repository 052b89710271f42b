"""embedding_q4gsw: rows of a table of 4-bit weights, each times the scale of its group.

    out[.., d] = f32(w[index][d]) * scales[index][d // group_size]

One product, rounded once, so no profile changes it. An index outside the table gives a row of zeros here; upstream does
not check it. Source: ET-VK's embedding_q4gsw. Its defects are in `DEFECTS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from refsim.core.errors import LayoutError, ParameterError, ShapeError
from refsim.core.jit import emulated_kernel
from refsim.core.lanes import as_f32, f32_bits
from refsim.core.launch import PLANE_ROW, Launch
from refsim.core.layout import WIDTH_PACKED, W
from refsim.core.push import PushWords, SpecWords, hashed, int32, tensor
from refsim.core.qmath import f32
from refsim.core.rng import Rng
from refsim.core.tensor import TensorDesc
from refsim.ops.base import grouped, int4
from refsim.ops.base.arg import Arg, Arrays, Kind, Shapes
from refsim.ops.base.case import Case
from refsim.ops.base.case_rule import MANY, CaseSlot, Hard, Made, twins
from refsim.ops.base.defect import Defect
from refsim.ops.base.spec import Call, KernelSpec, Upstream
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family

STEP = 32  # the width of the table is a multiple of it: upstream's invocations write so many values each


@dataclass(frozen=True)
class Params:
    """``is_linear_weight``: the even element of a byte is the low nibble, as in linear operators; else the high one."""

    where: ClassVar[str] = "embedding_q4gsw"

    group_size: int
    is_linear_weight: bool = False


def table(params: Params, weight: np.ndarray) -> np.ndarray:
    """The signed values of the table, int8 [V, D]."""
    return int4.unpacked(weight if params.is_linear_weight else weight >> 4 | weight << 4)


def define(
    params: Params, target: Target, indices: np.ndarray, weight: np.ndarray, scales: np.ndarray
) -> np.ndarray:
    return looked_up(indices, int4.dequantized(table(params, weight), scales))


def looked_up(indices: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The rows of a table, zeros for an index outside."""
    known = (indices >= 0) & (indices < len(rows))
    return np.where(known[..., None], rows[np.where(known, indices, 0)], np.float32(0.0))


def out_shape(params: Params, shapes: Shapes, consts: Mapping[str, Any], declared: Any) -> tuple[int, ...]:
    shape = shapes["indices"]
    if declared is not None and len(declared) == 1 and shape == (1,):
        shape = ()  # one index without dims is stored as one in a row
    return (*shape, 2 * consts["weight"].shape[-1])


def check(call: Call) -> None:
    weight, scales = call.given("weight", "scales")
    where = call.params.where
    if weight.ndim != 2 or 2 * weight.shape[1] % STEP:
        raise ShapeError(
            where, "weight has the wrong shape", got=weight.shape, need=f"(V, D / 2), D % {STEP} == 0"
        )
    rows, width = len(weight), 2 * weight.shape[1]
    need = (rows, int4.check_groups(where, width, call.params.group_size))
    int4.check_scales(where, scales, need)


PUSH = PushWords(tensor("OUT"), int32("ROWS"), int32("GROUP"), int32("TABLE_ROWS"))
SPEC = SpecWords(hashed("OUT"))
OUT, ROWS, GROUP, TABLE_ROWS = PUSH.offsets


def launch(call: Call) -> Launch:
    """Global size: elements of a row x rows, folded into y and z."""
    (weight,) = call.given("weight")
    width, rows = call.out.shape[-1], prod(call.out.shape[:-1])
    return call.launched(
        (width, min(rows, PLANE_ROW), -(-rows // PLANE_ROW)),
        (8, 8, 1),
        (4, 1, 1),
        ROWS=rows,
        GROUP=call.params.group_size,
        TABLE_ROWS=len(weight),
    )


@emulated_kernel
def kernel(reached, spec, push, weight, scales, indices, out):  # type: ignore[no-untyped-def]
    width, group = push[OUT + W], push[GROUP]
    groups = width // group
    for z, y, d in np.ndindex(reached):
        number = z * PLANE_ROW + y
        if number >= push[ROWS]:
            continue
        row = indices[number]
        value = np.float32(0.0)
        if 0 <= row < push[TABLE_ROWS]:
            at, shift = int4.halves_place(row, d, width // 4)
            scale = as_f32(scales[row * groups + d // group])
            value = f32(int4.nibble(weight[at], shift)) * scale
        out[number * width + d] = f32_bits(value)


def work_item(launch: Launch, word: Any, w: Any, h: Any, c: Any, n: Any) -> tuple[Any, Any, Any]:
    """The work item that writes the word at a coordinate."""
    _, height, channels, _ = launch.out.sizes_whcn
    number = (n * channels + c) * height + h
    return w, number % PLANE_ROW, number // PLANE_ROW


# --- what upstream's kernel does ---------------------------------------------------------------------------


def _several_rows(call: Call) -> bool:
    return prod(call.descs["indices"].shape[:-1]) > 1


def _indices_of_first_row(call: Call, arrays: Arrays) -> np.ndarray:
    indices = arrays["indices"]
    first = indices.reshape(-1, indices.shape[-1])[0]
    read = np.zeros(indices.size, indices.dtype)
    read[: len(first)] = first
    return call.define({"indices": read.reshape(indices.shape)})


def _scales_of_blocks(call: Call, arrays: Arrays) -> np.ndarray:
    (scales,) = call.given("scales")
    params = call.params
    width = call.out.shape[-1]
    each = scales[:, np.arange(width) // 4 * 4 // params.group_size]
    changed = Params(1, params.is_linear_weight)
    return define(changed, call.target, arrays["indices"], call.consts["weight"], each)  # type: ignore[arg-type]


DEFECTS = (
    Defect(
        "first-row-of-indices",
        "on textures upstream's kernel reads only the first row of the indices; the rest count as 0",
        _several_rows,
        _indices_of_first_row,
        textures=True,
    ),
    Defect(
        "group-of-a-block",
        "upstream's kernel takes one scale for four neighbours, that of the first one's group",
        lambda call: call.params.group_size % 4 != 0,
        _scales_of_blocks,
    ),
    Defect(
        "five-dims",
        "upstream's runtime refuses an output with more than four dims",
        lambda call: len(call.out.shape) > 4,
    ),
)


def _values(call: Call) -> tuple[np.ndarray, np.ndarray]:
    weight, scales = call.given("weight", "scales")
    return table(call.params, weight), scales


def _compute(call: Call, arrays: Arrays, values: np.ndarray, scales: np.ndarray) -> np.ndarray:
    return looked_up(arrays["indices"], int4.dequantized(values, scales))


# --- cases -------------------------------------------------------------------------------------------------


def constants(params: Params, shapes: Shapes, features: Mapping[str, Any], rng: Rng) -> dict[str, Any]:
    rows, width = features["table"]
    style = str(features.get("style", "random"))
    groups = int4.check_groups(Params.where, width, params.group_size)
    values = int4.random_values(style, rng, (rows, width), bool(features.get("negated")))
    scales = int4.random_scales(style, rng, (rows, groups))
    stored = int4.packed(values)
    return {"weight": stored if params.is_linear_weight else stored >> 4 | stored << 4, "scales": scales}


def data(case: Case, name: str, desc: TensorDesc, rng: Rng) -> np.ndarray | None:
    """Indices of the table, sometimes one outside."""
    rows = case.features["table"][0]
    found = rng.ints(0, rows - 1, desc.shape)
    if case.features.get("outside"):
        found.reshape(-1)[-1] = rng.choice([-1, rows, -(2**31), 2**31 - 1])
    return found.astype(np.int32)


def golden(slot: CaseSlot) -> Made:
    rng = slot.rng
    width = STEP * (1 + slot.number % 5)
    groups = [g for g in (1, 2, 4, 8, 16, 32, 64) if width % g == 0]
    lead = rng.choice([(), (), (1,), (2,), (2, 3)])
    rows = 1 + slot.residue(1) + 4 * rng.integer(0, 5)
    if slot.large:
        lead, rows = (), 1031
    params = {"group_size": groups[slot.number % len(groups)], "is_linear_weight": slot.number % 5 != 2}
    features = {
        "table": [1 + slot.residue(0) + 4 * rng.integer(0, 12), width],
        "outside": slot.number % 9 == 4,
    }
    return params, {"indices": (*lead, rows)}, features


def _groups(slot: CaseSlot) -> Made:
    """Groups that no vector divides, and those that begin within a byte of the table."""
    at = slot.number
    width = (96, 160, 96, 160, 96, 96, 160, 96)[at]
    group = (3, 5, 6, 10, 12, 24, 20, 48)[at]
    features = {"table": [3 + 2 * at, width], "outside": at % 3 == 1}
    return {"group_size": group, "is_linear_weight": at % 4 < 2}, {"indices": (5 + at,)}, features


def _many(slot: CaseSlot) -> Made:
    return (
        {"group_size": 8, "is_linear_weight": True},
        {"indices": (MANY,)},
        {"table": [29, 32], "outside": True},
    )


HARD = (twins(golden), Hard("many positions", 1, _many, "position"), Hard("groups of any size", 8, _groups))

EXAMPLE = Case(
    "embedding_q4gsw",
    {"group_size": 32, "is_linear_weight": True},
    {"indices": ((5,), "W")},
    "W",
    features={"table": (11, 64)},
)

OP = grouped.operator(
    Params,
    define,
    int4.GroupedWeight(int4.HALVES, _values, _compute),
    serialized="et_vk.embedding_q4gsw.default",
    family=Family.LOOKUP,
    args=(
        Arg("weight", Kind.CONST, dtype=np.uint8),
        Arg("scales", Kind.CONST, dtype=np.float32),
        Arg("group_size"),
        Arg("indices", Kind.INPUT, (WIDTH_PACKED,), dtype=np.int32),
        Arg("is_linear_weight"),
    ),
    out_shape=out_shape,
    kernel=KernelSpec(kernel, launch, PUSH, SPEC, work_item),
    check=check,
    cases=grouped.rule(
        EXAMPLE,
        dict(indices=(128,), table=(4096, 512)),
        EXAMPLE.refused(ParameterError, "group_size", group_size=24),
        EXAMPLE.refused(ShapeError, "D % 32", table=(11, 48), group_size=16),
        EXAMPLE.refused(LayoutError, "indices has a layout", indices="C"),
        make=golden,
        hard=HARD,
        constants=constants,
        data=data,
    ),
    upstream=Upstream(defects=DEFECTS, resizes=True),
)
