"""linear_q4gsw: matrix product of floats with a 4-bit weight in groups; the order of the sums is part of the meaning.

    wf = f32(w[n][k]) * scales[k // group_size][n]
    several rows:  acc = acc + x[k] * wf, k ascending from acc = 0;  out = acc + b
    one row:       lane t of L adds up the blocks of four k t, t + L, .. in the same way;
                   then p[t] = p[t] + p[t + h] for h = L / 2, .., 1;  out = p[0] + b

L is 64 up to 1024 outputs, 16 up to 4096, and 8 beyond. A profile that contracts fuses x[k] * wf with the sum. The rows
are those of the last but one dim: each plane of the leading dims is computed in the same way. NaN and infinities give
what the sums give; the bits of a NaN are the device's. Source: ET-VK's linear_q4gsw. With leading dims it computes only
the first plane (`DEFECTS`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from refsim.core.errors import LayoutError, ParameterError, ShapeError
from refsim.core.jit import emulated_kernel
from refsim.core.lanes import as_f32, f32_bits
from refsim.core.launch import Launch
from refsim.core.layout import WIDTH_PACKED, W
from refsim.core.push import PushWords, SpecWords, flags, hashed, int32, tensor
from refsim.core.qmath import f32, flush, mul_add
from refsim.core.resize import FOUR_DIMS_STOP
from refsim.core.rng import Rng
from refsim.core.tensor import TensorDesc
from refsim.ops.base import group_linear, grouped, int4
from refsim.ops.base.arg import Arg, Arrays, Kind, Shapes
from refsim.ops.base.case import Case
from refsim.ops.base.case_rule import MANY, CaseSlot, Hard, Made, twins
from refsim.ops.base.defect import FIRST_PLANE
from refsim.ops.base.epilogue import HAS_BIAS
from refsim.ops.base.group_linear import tree_sum
from refsim.ops.base.spec import Call, KernelSpec, Upstream
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family

#: (most outputs, lanes) of the kernel for one row; 64 invocations make a workgroup, whatever the lanes.
TREES = ((1024, 64), (4096, 16), (1 << 31, 8))
COLUMNS, GROUP_LANES = 8, 64  # outputs that the lanes of the kernel for one row compute together


@dataclass(frozen=True)
class Params:
    """``group_size``: neighbours along K that share a scale."""

    where: ClassVar[str] = "linear_q4gsw"

    group_size: int


def rows_of(shape: tuple[int, ...]) -> int:
    """M, the rows of one plane."""
    return shape[-2] if len(shape) > 1 else 1


def lanes_of(rows: int, out: int) -> int:
    """How many partial sums an output has: 1 for several rows."""
    return 1 if rows > 1 else next(lanes for most, lanes in TREES if out <= most)


def define(
    params: Params,
    target: Target,
    x: np.ndarray,
    weight: np.ndarray,
    scales: np.ndarray,
    bias: np.ndarray | None,
) -> np.ndarray:
    wf = int4.dequantized(int4.unpacked(weight)[:, : x.shape[-1]], np.ascontiguousarray(scales.T))
    return product(x, wf, bias, lanes_of(rows_of(x.shape), len(wf)), target.profile.flags)


def product(x: np.ndarray, wf: np.ndarray, bias: np.ndarray | None, lanes: int, bits: int) -> np.ndarray:
    """x [.., K] times wf [N, K], in the stated order with so many lanes, plus the bias [N]."""
    return group_linear.cooperative(flush(x, bits), wf, bias, bits, lanes)


def out_shape(params: Params, shapes: Shapes, consts: Mapping[str, Any], declared: Any) -> tuple[int, ...]:
    return (*shapes["x"][:-1], len(consts["weight"]))


def check(call: Call) -> None:
    where, k, out = call.params.where, call.descs["x"].shape[-1], call.out.shape[-1]
    weight, scales = call.given("weight", "scales")
    for name, size in (("K", k), ("N", out)):
        if size % 4:
            raise ShapeError(
                where, f"{name} is no multiple of 4", got=f"{name} = {size}", need="a multiple of 4"
            )
    if weight.ndim != 2 or 2 * weight.shape[1] not in (k, -(-k // 8) * 8):
        raise ShapeError(
            where,
            "weight has the wrong shape",
            got=weight.shape,
            need=f"({out}, {k} / 2), K padded to 8 or not",
        )
    need = (int4.check_groups(where, k, call.params.group_size), out)
    if call.params.group_size % 4:
        raise ParameterError(
            where, "group_size is no multiple of 4", got=call.params.group_size, need="a multiple of 4"
        )
    int4.check_scales(where, scales, need)
    int4.check_bias(where, call.consts["bias"], out)


PUSH = PushWords(
    tensor("OUT"), int32("K4"), int32("ROWS"), int32("GROUP4"), flags("FLAGS", HAS_BIAS=HAS_BIAS)
)
SPEC = SpecWords(hashed("OUT"), int32("LANES"))
OUT, K4, ROWS, GROUP4, FLAGS = PUSH.offsets
OUT_HASH, LANES = SPEC.offsets


def launch(call: Call) -> Launch:
    """Global size: outputs x rows. For one row, the invocations along z are the lanes."""
    out, rows = call.out.shape[-1], prod(call.out.shape[:-1])
    lanes = lanes_of(rows_of(call.out.shape), out)
    return call.launched(
        (out, rows, 1),
        (8, 8, 1) if lanes == 1 else (GROUP_LANES // lanes, 1, lanes),
        (4, 4, 1) if lanes == 1 else (COLUMNS, 1, 1),
        spec={"LANES": lanes},
        K4=call.descs["x"].shape[-1] // 4,
        ROWS=rows,
        GROUP4=call.params.group_size // 4,
        FLAGS=call.target.profile.flags | HAS_BIAS * (call.consts["bias"] is not None),
    )


@emulated_kernel
def kernel(reached, spec, push, x_words, weight, scales, bias, out):  # type: ignore[no-untyped-def]
    lanes, columns, bits = spec[LANES], push[OUT + W], push[FLAGS]
    strips = (columns + 7) // 8
    sums = np.zeros(64, np.float32)
    for _, row, n in np.ndindex(reached):
        sums[:lanes] = np.float32(0.0)
        for k4 in range(push[K4]):
            at, shift = int4.pairs_place(n, 4 * k4, strips)
            word, scale = weight[at], as_f32(scales[k4 // push[GROUP4] * columns + n])
            acc = sums[k4 % lanes]
            for j in range(4):
                x = flush(as_f32(x_words[(row * push[K4] + k4) * 4 + j]), bits)
                acc = np.float32(mul_add(x, f32(int4.nibble(word, shift + 8 * j)) * scale, acc, bits))
            sums[k4 % lanes] = acc
        total = tree_sum(sums, lanes)
        if bits & HAS_BIAS:
            total = total + as_f32(bias[n])
        out[row * columns + n] = f32_bits(total)


def work_item(launch: Launch, word: Any, w: Any, h: Any, c: Any, n: Any) -> tuple[Any, Any, Any]:
    """The work item that writes the word at a coordinate."""
    _, height, channels, _ = launch.out.sizes_whcn
    return w, (n * channels + c) * height + h, 0 * n


def _values(call: Call) -> tuple[np.ndarray, np.ndarray]:
    weight, scales = call.given("weight", "scales")
    return int4.unpacked(weight)[:, : call.descs["x"].shape[-1]], np.ascontiguousarray(scales.T)


def _lanes(call: Call) -> int:
    return lanes_of(rows_of(call.out.shape), call.out.shape[-1])


def _compute(call: Call, arrays: Arrays, values: np.ndarray, scales: np.ndarray) -> np.ndarray:
    wf = int4.dequantized(values, scales)
    return product(arrays["x"], wf, call.consts["bias"], _lanes(call), call.target.profile.flags)


def _orders(call: Call, arrays: Arrays) -> Iterator[tuple[str, np.ndarray]]:
    wf, bits = int4.dequantized(*_values(call)), call.target.profile.flags
    x, bias = arrays["x"], call.consts["bias"]
    own = _lanes(call)
    for lanes in (1, 8, 16, 32, 64):
        if lanes != own:
            yield int4.order_name(lanes), product(x, wf, bias, lanes, bits)
    sums = np.zeros(call.out.shape, np.float32)  # a sum for each group, and the groups' sums after that
    for group in np.split(np.arange(wf.shape[1]), wf.shape[1] // call.params.group_size):
        sums = sums + product(x[..., group], wf[:, group], None, 1, bits)
    yield "a sum of its own for each group", sums if bias is None else sums + bias


# --- cases -------------------------------------------------------------------------------------------------


def constants(params: Params, shapes: Shapes, features: Mapping[str, Any], rng: Rng) -> dict[str, Any]:
    out, k = features["out_channels"], shapes["x"][-1]
    style = str(features.get("style", "random"))
    groups = int4.check_groups(Params.where, k, params.group_size)
    return {
        "weight": int4.packed(int4.random_values(style, rng, (out, k), bool(features.get("negated")))),
        "scales": int4.random_scales(style, rng, (groups, out)),
        "bias": int4.random_floats(style, rng, (out,)) if features.get("bias") else None,
    }


def data(case: Case, name: str, desc: TensorDesc, rng: Rng) -> np.ndarray | None:
    """Activations in the style of the case."""
    return int4.random_floats(case.style, rng, desc.shape)


def groups_of(k: int) -> list[int]:
    """The sizes of groups that K allows, up to 128, and K itself."""
    return [g for g in (4, 8, 16, 32, 64, 128) if k % g == 0 and g < k] + [k]


def golden(slot: CaseSlot) -> Made:
    rng = slot.rng
    k = 4 * rng.integer(1, 48) if slot.number % 11 != 3 else (512, 1024, 2048)[slot.number // 11 % 3]
    rows = 1 if slot.number % 3 == 1 else 2 + slot.residue(1) + 4 * rng.integer(0, 2)
    lead = rng.choice([(), (), (1,), (2,), (2, 3)])
    out = 4 * rng.integer(1, 12)
    if slot.large:
        k, lead, rows, out = 4 * rng.integer(1, 6), (), 70 + slot.residue(0), 132
    if slot.number % 40 in (7, 22):
        k, lead, rows, out = 4 * rng.integer(1, 30), (), 1, {7: 1028, 22: 4100}[slot.number % 40]
    groups = groups_of(k)
    features = {"out_channels": out, "bias": slot.bias}
    return {"group_size": groups[slot.number % len(groups)]}, {"x": (*lead, rows, k)}, features


def _tails(slot: CaseSlot) -> Made:
    """Strips of outputs that are not full, for every count of rows that a kernel takes at once, and each tree."""
    at = slot.number
    out = (4, 12, 20, 28, 36, 60, 68, 132, 1020, 1036, 4092, 4108)[at]
    rows = (2, 3, 5, 9, 1, 4, 7, 17, 1, 1, 1, 1)[at]
    k = (4, 12, 260, 36, 516, 68, 100, 44, 52, 20, 12, 28)[at]
    group = groups_of(k)[0 if at % 2 else -1]
    return {"group_size": group}, {"x": (rows, k)}, {"out_channels": out, "bias": at % 3 > 0}


def _many(slot: CaseSlot) -> Made:
    return {"group_size": 4}, {"x": (MANY, 8)}, {"out_channels": 4, "bias": True}


HARD = (twins(golden), Hard("many positions", 1, _many, "position"), Hard("tails", 12, _tails, "random"))

EXAMPLE = Case(
    "linear_q4gsw",
    {"group_size": 32},
    {"x": ((6, 64), "W")},
    "W",
    features={"out_channels": 12, "bias": True},
)

OP = grouped.operator(
    Params,
    define,
    int4.GroupedWeight(int4.PAIRS, _values, _compute, _orders, _lanes),
    serialized="et_vk.linear_q4gsw.default",
    family=Family.WEIGHT_ONLY,
    args=(
        Arg("x", Kind.INPUT, (WIDTH_PACKED,)),
        Arg("weight", Kind.CONST, dtype=np.uint8),
        Arg("scales", Kind.CONST, dtype=np.float32),
        Arg("group_size"),
        Arg("bias", Kind.CONST, dtype=np.float32, optional=True),
    ),
    out_shape=out_shape,
    kernel=KernelSpec(kernel, launch, PUSH, SPEC, work_item),
    check=check,
    cases=grouped.rule(
        EXAMPLE,
        dict(x=(64, 512), out_channels=512),
        EXAMPLE.refused(ShapeError, "K is no multiple of 4", x=(6, 62), group_size=62),
        EXAMPLE.refused(ShapeError, "N is no multiple of 4", out_channels=10),
        EXAMPLE.refused(ParameterError, "group_size", group_size=24),
        EXAMPLE.refused(ParameterError, "no multiple of 4", group_size=2),
        EXAMPLE.refused(LayoutError, "x has a layout", x="C"),
        make=golden,
        hard=HARD,
        constants=constants,
        data=data,
    ),
    aliases=("et_vk.q4gsw_linear.default",),
    upstream=Upstream(defects=(FIRST_PLANE,), resize=FOUR_DIMS_STOP),
)
