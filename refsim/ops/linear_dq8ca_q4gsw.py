"""linear_dq8ca_q4gsw: activations quantized row by row, times 4-bit weights in groups, to float.

    out = sum over the groups g of f32(sum of (q - zp) * w) * (s * ws[g]), then + b

With a single row (M == 1) the activation stays float: out = sum of x * (w * ws[g]), in the order of 64 lanes. Both are
spelled out in refsim/ops/base/group_linear.py. A file says scale and zero point of each row: choose_qparams_affine.

Source: ET-VK's linear_dq8ca_q4gsw, which picks its kernel by the number of rows too. Known defects there: sums of
groups with more blocks of four than its workers double, and weight sums are stored in rows of 8 but read in rows of 4
outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from refsim.core.errors import ParameterError, ShapeError
from refsim.core.jit import emulated_kernel
from refsim.core.lanes import as_f32, f32_bits, lane
from refsim.core.launch import Launch
from refsim.core.layout import PACKED_4W, WIDTH_PACKED
from refsim.core.push import PushWords, SpecWords, flags, int32
from refsim.core.qmath import check_k, f32, flush, mul_add, to_int8_added
from refsim.core.resize import FOUR_DIMS_STOP
from refsim.core.rng import Rng
from refsim.core.tensor import TensorDesc
from refsim.ops.base import group_linear, grouped, int4, linear
from refsim.ops.base.arg import Arg, Arrays, Kind, Shapes
from refsim.ops.base.case import Case
from refsim.ops.base.case_rule import TAILS, CaseSlot, Hard, Made, twins
from refsim.ops.base.defect import Defect
from refsim.ops.base.epilogue import HAS_BIAS, align4, pad_rows
from refsim.ops.base.group_linear import BLOCK, LANES, tree_sum
from refsim.ops.base.int4 import halves_place, nibble
from refsim.ops.base.spec import Call, KernelSpec, Upstream
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family

NAME = "linear_dq8ca_q4gsw"


@dataclass(frozen=True)
class Params:
    """``group`` neighbours along K share a scale."""

    where: ClassVar[str] = NAME

    group: int

    def __post_init__(self) -> None:
        if self.group < 4 or self.group % 4:
            raise ParameterError(
                NAME, "group does not consist of blocks of 4", got=self.group, need="a multiple of 4"
            )


# --- meaning ---------------------------------------------------------------------------------------------


def define(
    params: Params, target: Target, x: np.ndarray, scale: np.ndarray, zp: np.ndarray, **consts: Any
) -> np.ndarray:
    bits, values = target.profile.flags, int4.unpacked(consts["weight"])
    scales, bias = consts["weight_scales"], consts["bias"]
    given = flush(x, bits)
    if x.shape[-2] == 1:
        real = int4.dequantized(values, scales.T)
        return group_linear.cooperative(given, real, bias, bits)
    q = group_linear.quantized_rows(given, scale, zp, bits)
    sums = consts["weight_sums"][:, : len(values)]
    return group_linear.scaled(
        group_linear.adjusted(q, zp, values, sums, params.group), scale, scales, bias, bits
    )


def check(call: Call) -> None:
    """Sizes of K, of the groups and of the constants; a scale and a zero point for each row."""
    shape, out, group = call.descs["x"].shape, call.out.shape[-1], call.params.group
    k = shape[-1]
    check_k(NAME, k)
    if k % 8:
        raise ShapeError(NAME, "K does not fill words of weights", got=f"K = {k}", need="a multiple of 8")
    groups = int4.check_groups(NAME, k, group)
    for name in ("scale", "zp"):
        if call.descs[name].shape != shape[:-1]:
            raise ShapeError(
                NAME, f"{name} does not fit the rows", got=list(call.descs[name].shape), need=list(shape[:-1])
            )
    weight, sums, scales = call.given("weight", "weight_sums", "weight_scales")
    int4.check_weight(NAME, weight, out, k)
    if sums.ndim != 2 or sums.shape[0] != groups or sums.shape[1] < out:
        raise ShapeError(NAME, "weight_sums has the wrong shape", got=sums.shape, need=f"({groups}, {out})")
    if scales.shape != (groups, out):
        raise ShapeError(
            NAME, "weight_scales has the wrong shape", got=scales.shape, need=f"({groups}, {out})"
        )
    if not np.isfinite(scales).all():
        raise ParameterError(NAME, "a weight scale is not finite", need="finite scales")
    int4.check_bias(NAME, call.consts["bias"], out)


# --- what upstream does wrong ----------------------------------------------------------------------------


def _has_more_blocks_than_workers(call: Call) -> bool:
    group = call.params.group
    return call.out.shape[-2] > 1 and group // 4 > group_linear.workers_of(group)


def _with_doubled_sums(call: Call, arrays: Arrays) -> np.ndarray:
    q, group = group_linear.quantized(call, arrays), call.params.group
    wrong = group_linear.doubled_sums(q, group, group_linear.workers_of(group))
    more = int4.ZERO * (group_linear.group_sums(q, group) - wrong)
    return group_linear.of_many(
        call,
        arrays,
        group_linear.weights_of(call),
        group_linear.own_sums(call),
        np.moveaxis(more, -1, 0)[..., None],
    )


def _reads_other_sums(call: Call) -> bool:
    rows, out = call.out.shape[-2:]
    return rows > 1 and len(group_linear.own_sums(call)) > 1 and bool(-(-out // 4) % 2)


def _with_other_sums(call: Call, arrays: Arrays) -> np.ndarray:
    own, out = group_linear.own_sums(call), call.out.shape[-1]
    stored = np.zeros((len(own), -(-out // 8) * 8), np.int32)
    stored[:, :out] = own
    step = align4(out)
    wrong = np.stack([stored.reshape(-1)[g * step : g * step + out] for g in range(len(own))])
    return group_linear.of_many(call, arrays, group_linear.weights_of(call), wrong)


DEFECTS = (
    Defect(
        "doubled-sums",
        "upstream doubles the sums of a group's activations once for each further block of a worker",
        _has_more_blocks_than_workers,
        _with_doubled_sums,
    ),
    Defect(
        "sums-of-others",
        "upstream reads the weight sums of other outputs: they are stored in rows of 8 and read in rows of 4",
        _reads_other_sums,
        _with_other_sums,
    ),
)


# --- kernel ----------------------------------------------------------------------------------------------

#: ``M`` rows stand in a line of scales and zero points. ``OUTPUTS`` are those of the operator, ``K4`` and ``GROUP4``
#: count blocks of four.
PUSH = PushWords(
    int32("M"), int32("OUTPUTS"), int32("K4"), int32("GROUP4"), flags("FLAGS", HAS_BIAS=HAS_BIAS)
)
SPEC = SpecWords()
M, OUTPUTS, K4, GROUP4, FLAGS = PUSH.offsets


def launch(call: Call) -> Launch:
    """Global size: outputs x rows, leading dims folded into them. For a single row, lanes along z share K."""
    out, k = call.out.shape, call.descs["x"].shape[-1]
    bits = call.target.profile.flags | HAS_BIAS * (call.consts["bias"] is not None)
    single = out[-2] == 1
    return call.launched(
        (out[-1], prod(out[:-1]), 1),
        (1, 1, LANES) if single else (64, 1, 1),
        (4, 1, 1) if single else (1, 1, 1),
        M=out[-2],
        OUTPUTS=out[-1],
        K4=k // 4,
        GROUP4=call.params.group // 4,
        FLAGS=bits,
    )


@emulated_kernel
def kernel(reached, spec, push, x, scale, zp, weight, sums, weight_scales, bias, out):  # type: ignore[no-untyped-def]
    m, outputs, k4, group4, flags = push[M], push[OUTPUTS], push[K4], push[GROUP4], push[FLAGS]
    padded = (outputs + 3) // 4 * 4
    for _, row, n in np.ndindex(reached):
        at = row * k4 * BLOCK
        total = np.float32(0.0)
        if m == 1:
            lanes = np.zeros(LANES, np.float32)
            for i in range(k4):
                factor = as_f32(weight_scales[i // group4 * padded + n])
                for k in range(4 * i, 4 * i + 4):
                    place, shift = halves_place(n, k, k4)
                    real = f32(nibble(weight[place], shift)) * factor
                    given = flush(as_f32(x[at + k]), flags)
                    lanes[i % LANES] = mul_add(given, real, lanes[i % LANES], flags)
            total = tree_sum(lanes, LANES)
        else:
            line, place_in_line = row // m, row % m
            zero = lane(zp[line * ((m + 3) // 4) + place_in_line // 4], place_in_line % 4)
            step = as_f32(scale[row])
            inv = np.float32(1.0) / step
            for g in range(k4 // group4):
                acc = 0
                for k in range(4 * g * group4, 4 * (g + 1) * group4):
                    place, shift = halves_place(n, k, k4)
                    given = flush(as_f32(x[at + k]), flags)
                    acc += to_int8_added(given * inv, zero, flags) * nibble(weight[place], shift)
                acc -= zero * sums[g * padded + n]
                total = mul_add(f32(acc), step * as_f32(weight_scales[g * padded + n]), total, flags)
        if flags & HAS_BIAS:
            total = total + as_f32(bias[n])
        out[row * outputs + n] = f32_bits(total)


def work_item(launch: Launch, word: Any, w: Any, h: Any, c: Any, n: Any) -> tuple[Any, Any, Any]:
    """The work item that writes a word."""
    outputs = launch.out.shape[-1]
    return word % outputs, word // outputs, 0 * word


def prepack(call: Call, name: str, value: np.ndarray) -> np.ndarray:
    """weight: `int4.HALVES`; sums and scales: rows of the outputs, padded to 4; the bias padded to 4."""
    if name == "weight":
        return int4.HALVES.words(int4.unpacked(value))
    out = call.out.shape[-1]
    if name == "bias":
        return pad_rows(value, align4(out)).view(np.int32)
    rows = np.zeros((len(value), align4(out)), value.dtype)
    rows[:, :out] = value[:, :out]
    return rows.reshape(-1).view(np.int32)


# --- cases -----------------------------------------------------------------------------------------------


def constants(params: Params, shapes: Shapes, features: Mapping[str, Any], rng: Rng) -> dict[str, Any]:
    """Weights in the case's style, with sums padded to 8 outputs and scales and bias padded to 4, as in a file."""
    out, k = int(features["out_channels"]), shapes["x"][-1]
    style = str(features.get("style", "random"))
    values = int4.random_values(style, rng, (out, k), bool(features.get("negated")))
    group = params.group if k % params.group == 0 else k  # which is refused later
    groups = k // group
    sums = np.zeros((groups, -(-out // 8) * 8), np.int32)
    sums[:, :out] = values.reshape(out, groups, group).sum(-1).T
    scales = np.zeros((groups, align4(out)), np.float32)
    powers = 2.0 ** rng.ints(-6, -3, (groups, out)) if style == "ties" else None
    scales[:, :out] = rng.uniform(0.005, 0.1, (groups, out)) if powers is None else powers
    bias = pad_rows(rng.uniform(-2.0, 2.0, (out,)).astype(np.float32), align4(out))
    return {
        "weight": int4.packed(values),
        "weight_sums": sums,
        "weight_scales": scales,
        "bias": bias if features.get("bias") else None,
    }


def data(case: Case, name: str, desc: TensorDesc, rng: Rng) -> np.ndarray | None:
    """Scales that a row may have, and finite activations of their size, some of them on ties and some out of range."""
    count = prod(desc.shape)
    if name == "scale":
        found = (
            2.0 ** rng.ints(-7, -4, (count,)) if case.style == "ties" else rng.uniform(0.004, 0.06, (count,))
        )
        return np.asarray(found, np.float32).reshape(desc.shape)
    if name == "x" and case.style == "random":
        steps = rng.uniform(-160.0, 160.0, (count,))
        kind = rng.ints(0, 63, (count,))
        found = np.select([kind < 4, kind == 4, kind == 5], [1e-40, 3e9, -3e9], steps * 0.03125)
        return found.astype(np.float32).reshape(desc.shape)
    return None


def golden(slot: CaseSlot) -> Made:
    rng = slot.rng
    group = (4, 8, 16, 32, 64, 96, 128, 160)[slot.number // 3 % 8]
    k = group * rng.integer(1, 3)
    k += group * (k % 8 != 0)
    rows = 1 if slot.number % 3 == 0 else slot.size(1, 8)
    lead = rng.choice([(), (), (2,), (2, 3)])
    out = slot.size(0, 20)
    if slot.large:
        rows, out, lead = 33 + slot.residue(1), 65 + slot.residue(0), ()
    if slot.huge:
        group, rows, k, out, lead = (4, 16411, 8, 5, ()) if slot.number == 43 else (32, 2, 104960, 3, ())
    return _made((*lead, rows, k), group, out, slot.bias)


def _made(shape: tuple[int, ...], group: int, out: int, bias: bool) -> Made:
    features = {"out_channels": out, "bias": bias, "scale": 0.03125}
    return {"group": group}, {"x": shape, "scale": shape[:-1], "zp": shape[:-1]}, features


def _tails(slot: CaseSlot) -> Made:
    """Strips of outputs that are not full, and every rest of the rows that a kernel takes at once."""
    at = slot.number
    group = (4, 8, 96, 32, 4, 160, 24, 8)[at]
    return _made(((2, 3, 4, 5, 1, 7, 1, 9)[at], group * 2), group, TAILS[at], slot.bias)


def _wide(slot: CaseSlot) -> Made:
    """Groups whose sums floats just hold, and just do not."""
    group = (8224, 8232, 16448)[slot.number]
    return _made((2 + slot.number, group), group, 5, False)


HARD = (
    twins(golden),
    Hard("tails", len(TAILS), _tails, "random"),
    Hard("wide groups", 3, _wide, "saturation"),
)

EXAMPLE = Case(
    NAME,
    {"group": 32},
    {"x": ((6, 64), "WIDTH_PACKED"), "scale": ((6,), "WIDTH_PACKED"), "zp": ((6,), "4W")},
    "WIDTH_PACKED",
    features={"out_channels": 16, "bias": True, "scale": 0.03125},
)

OP = grouped.operator(
    Params,
    define,
    group_linear.GROUPED,
    serialized="et_vk.linear_dq8ca_q4gsw.default",
    family=Family.GROUP_LINEAR,
    args=(
        Arg("x", Kind.INPUT, (WIDTH_PACKED,)),
        Arg("scale", Kind.INPUT, (WIDTH_PACKED,)),
        Arg("zp", Kind.INPUT, (PACKED_4W,), plain=True),
        Arg("weight", Kind.CONST, dtype=np.uint8, channels=0),
        Arg("weight_sums", Kind.CONST, dtype=np.int32),
        Arg("weight_scales", Kind.CONST, dtype=np.float32, channels=1),
        Arg("group"),
        Arg("bias", Kind.CONST, dtype=np.float32, optional=True, channels=0),
    ),
    out_shape=linear.out_shape,
    kernel=KernelSpec(kernel, launch, PUSH, SPEC, work_item),
    prepack=prepack,
    check=check,
    cases=grouped.rule(
        EXAMPLE,
        dict(x=(32, 1024), scale=(32,), zp=(32,), out_channels=1024),
        EXAMPLE.refused(ParameterError, "group_size does not divide K", group=24),
        EXAMPLE.refused(ShapeError, "does not fill words", x=(6, 12), group=12),
        EXAMPLE.refused(ParameterError, "blocks of 4", group=6),
        make=golden,
        hard=HARD,
        constants=constants,
        data=data,
    ),
    upstream=Upstream(defects=DEFECTS, resize=FOUR_DIMS_STOP),
)
