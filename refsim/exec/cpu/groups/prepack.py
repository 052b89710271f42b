"""Jobs for linear operators with 4-bit weights in groups, and for the scales and zero points of rows."""

from __future__ import annotations

from math import prod

import numpy as np

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
    weight, sums = call.consts["weight"], call.consts["weight_sums"]
    assert weight is not None and sums is not None
    values = int4.unpacked(weight)
    own = values.reshape(len(values), -1, group).sum(2, dtype=np.int32).T
    return (
        None
        if np.array_equal(own, sums[:, : len(values)])
        else "weight sums that are not those of the weights"
    )


def lower(call: Call, isa: Isa) -> tuple[Job, ...]:
    """The jobs: quantized rows and then their products, or the products of rows that stand alone."""
    shape, out, lanes = call.descs["x"].shape, call.out.shape[-1], isa.lanes
    rows, k = prod(shape[:-1]), shape[-1]
    weight, scales, bias = (call.consts[name] for name in ("weight", "weight_scales", "bias"))
    assert weight is not None and scales is not None
    padded = -(-out // lanes) * lanes
    args = Arguments()
    held = {
        "weight": args.address(_strips(weight, padded, lanes)),
        "weight_scales": args.address(_wide(scales, padded)),
        "bias": args.address(_wide(np.zeros(1, np.float32) if bias is None else bias, padded)),
    }
    single = _single(call)
    block = args.block(
        kernel.SUMS,
        {"x": "x" if single else "values", "scale": "scale", "out": "out"},
        **held,
        rows=rows,
        k=k,
        outputs=out,
        padded=padded,
        groups=k // call.params.group,
        group_pairs=call.params.group // 2,
    )
    build = kernel.single_row if single else kernel.many_rows
    products = args.job(
        name=call.op.name,
        kernel=compiled.address(build, lanes=lanes, bias=bias is not None),
        block=block,
        tasks=padded // lanes,
        scratch=LANES * 4 * lanes,
    )
    return (products,) if single else (_differences(call, isa, rows, k), products)


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
