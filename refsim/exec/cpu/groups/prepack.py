"""Jobs for operators with 4-bit weights in groups, and for the scales and zero points of rows."""

from __future__ import annotations

from math import prod

import numpy as np

from refsim.core.qmath import CONTRACT, FLUSH
from refsim.exec.cpu import compiled
from refsim.exec.cpu.groups import kernel
from refsim.exec.cpu.isa import Isa
from refsim.exec.cpu.job import Arguments, Job
from refsim.ops.base import int4
from refsim.ops.base.group_linear import LANES
from refsim.ops.base.spec import Call

#: The largest group whose sums of (q - zp) * w, at most 255 * 8 each, binary32 adds up exactly.
MOST = 2**24 // (255 * 8)


def _single(call: Call) -> bool:
    return call.out.shape[-2] == 1


def why_not(call: Call) -> str | None:
    """Why floats do not add up the products of a group exactly, or None."""
    if _single(call):
        return None
    group = call.params.group
    if group > MOST:
        return f"groups of {group} values, whose sums floats do not hold"
    weight, sums = call.given("weight", "weight_sums")
    values = int4.unpacked(weight)
    own = values.reshape(len(values), -1, group).sum(2, dtype=np.int32).T
    return (
        None
        if np.array_equal(own, sums[:, : len(values)])
        else "weight sums that are not those of the weights"
    )


def lower(call: Call, isa: Isa) -> tuple[Job, ...]:
    """The jobs: quantized rows and then their products, or the products of rows that stand alone."""
    rows, k = _rows(call)
    single, bias = _single(call), call.consts["bias"] is not None
    if single:
        entry = compiled.address(
            kernel.single_row, lanes=isa.lanes, bias=bias, tree=LANES, fused=False, flush=False
        )
    else:
        entry = compiled.address(kernel.many_rows, lanes=isa.lanes, bias=bias)
    buffers = {"x": "x" if single else "values", "scale": "scale", "out": "out"}
    (scales,) = call.given("weight_scales")
    group = call.params.group
    products = _products(call, isa, entry, buffers, scales, group, LANES)
    return (products,) if single else (_differences(call, isa, rows, k), products)


def _rows(call: Call) -> tuple[int, int]:
    """(rows, K) of the activations, all planes together."""
    shape = call.descs["x"].shape
    return prod(shape[:-1]), shape[-1]


def _products(
    call: Call,
    isa: Isa,
    entry: int,
    buffers: dict[str, str],
    scales: np.ndarray,
    group: int,
    vectors: int,
) -> Job:
    """The job that multiplies rows with strips of weights; scratch holds so many vectors."""
    (rows, k), out, lanes = _rows(call), call.out.shape[-1], isa.lanes
    (weight,) = call.given("weight")
    bias = call.consts["bias"]
    padded = -(-out // lanes) * lanes
    args = Arguments()
    held = {
        "weight": args.address(_strips(weight, padded, lanes)),
        "weight_scales": args.address(_wide(scales, padded)),
        "bias": args.address(_wide(np.zeros(1, np.float32) if bias is None else bias, padded)),
    }
    rest = {name: 0 for name in ("scale",) if name not in buffers}
    block = args.block(
        kernel.SUMS,
        buffers,
        **held,
        **rest,
        rows=rows,
        k=k,
        outputs=out,
        padded=padded,
        groups=k // group,
        group_pairs=group // 2,
    )
    return args.job(call.op.name, entry, block, padded // lanes, vectors * 4 * lanes)


def _differences(call: Call, isa: Isa, rows: int, k: int) -> Job:
    per_line = call.descs["x"].shape[-2]
    args = Arguments()
    block = args.block(
        kernel.DIFFERENCES,
        {"x": "x", "scale": "scale", "zp": "zp", "values": "values"},
        k=k,
        per_line=per_line,
        line_bytes=-(-per_line // 4) * 4,
    )
    entry = compiled.address(kernel.differences, lanes=isa.lanes)
    return args.job(call.op.name, entry, block, rows, temps=(("values", 4 * rows * k),))


def _strips(weight: np.ndarray, padded: int, lanes: int) -> np.ndarray:
    """The bytes of a file, uint8 [strips, K / 2, lanes]."""
    rows = np.zeros((padded, weight.shape[1]), np.uint8)
    rows[: len(weight)] = weight
    return np.ascontiguousarray(rows.reshape(-1, lanes, weight.shape[1]).transpose(0, 2, 1))


def _wide(values: np.ndarray, padded: int) -> np.ndarray:
    """The last dim filled up with zeros."""
    made = np.zeros((*values.shape[:-1], padded), np.float32)
    made[..., : values.shape[-1]] = values
    return made


# --- rows that stay floats ---------------------------------------------------------------------------------

#: Rows that are multiplied with a strip at a time; the last for all that are more.
_AT_A_TIME = (2, 4, 8)


def floats_why_not(call: Call, isa: Isa) -> str | None:
    """Why the sums cannot be rounded as the profile says, or None."""
    fused = call.target.profile.flags & CONTRACT
    return f"{isa.name} fuses nothing" if fused and not isa.fma else None


def floats(call: Call, isa: Isa) -> Job:
    """The job for rows of floats: one sum over K for each output, or a tree of partial sums for a single row."""
    (rows, _k), flags = _rows(call), call.target.profile.flags
    variant: dict[str, int | str | bool] = {
        "lanes": isa.lanes,
        "bias": call.consts["bias"] is not None,
        "fused": bool(flags & CONTRACT),
        "flush": bool(flags & FLUSH),
    }
    grouped = call.op.int4
    assert grouped is not None and grouped.lanes is not None
    tree = grouped.lanes(call)
    if tree > 1:
        entry = compiled.address(kernel.single_row, tree=tree, **variant)
    else:
        several = next((n for n in _AT_A_TIME if rows <= n), _AT_A_TIME[-1])
        entry = compiled.address(kernel.float_rows, rows=several, **variant)
    (scales,) = call.given("scales")
    return _products(call, isa, entry, {"x": "x", "out": "out"}, scales, call.params.group_size, tree)


def lookup(call: Call, isa: Isa) -> Job:
    """The job for rows of a table."""
    weight, scales = call.given("weight", "scales")
    group, width = call.params.group_size, call.out.shape[-1]
    args = Arguments()
    block = args.block(
        kernel.LOOKUP,
        {"indices": "indices", "out": "out"},
        table=args.address(
            np.ascontiguousarray(weight if call.params.is_linear_weight else weight << 4 | weight >> 4)
        ),
        scales=args.address(np.ascontiguousarray(scales)),
        rows=len(weight),
        width=width,
        groups=width // group,
        group=group,
    )
    entry = compiled.address(kernel.lookup, lanes=isa.lanes, even=group % 2 == 0)
    return args.job(call.op.name, entry, block, prod(call.out.shape[:-1]))


# --- scales and zero points --------------------------------------------------------------------------------


def ranges(call: Call, isa: Isa) -> Job:
    """The job for scales, or for zero points, of all rows."""
    shape, p = call.descs["x"].shape, call.params
    args = Arguments()
    block = args.block(
        kernel.RANGE,
        {"x": "x", "out": "out"},
        k=shape[-1],
        rows=prod(shape[:-1]),
        per_line=shape[-2],
        words=-(-shape[-2] // 4),
        qmin=p.qmin,
        qmax=p.qmax,
    )
    build = kernel.row_zero_points if call.out.is_int8 else kernel.row_scales
    return args.job(call.op.name, compiled.address(build, lanes=isa.lanes), block, call.out.words)
