"""Float operators on flat tensors as WGSL of refsim's own, so that a graph need not leave the device between kernels.

Only those are here that every device computes to the bit: clamps compare integers, sums and products round once, and
means and averages divide by a power of two. The host computes all others: exp, a root and a division are the device's
own, and a maximum has places, which are no floats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, prod
from typing import Any

import numpy as np

from refsim.aten.pool import each
from refsim.aten.reduce import FLAT_WORKERS
from refsim.formats import wgsl
from refsim.graph.graph import Graph, Node, Ref, Tensor

LOCAL = 64
_CLAMP = """fn key(bits: u32) -> i32 {{
    let size = i32(bits & 0x7fffffffu);
    return select(size, -size, (bits >> 31u) == 1u);
}}
fn result(i: u32) -> f32 {{
    var bits = bitcast<u32>(a[i]);
    if ((bits & 0x7fffffffu) <= 0x7f800000u) {{ // no NaN
        if (key(bits) <= key({low}u)) {{ bits = {low}u; }}
        if (key(bits) >= key({high}u)) {{ bits = {high}u; }}
    }}
    return bitcast<f32>(bits);
}}"""
_PAIR = "fn result(i: u32) -> f32 {{ return a[i] {sign} b[i]; }}"
_MEAN = """fn result(i: u32) -> f32 {{
    var total = 0.0;
    for (var worker = 0u; worker < min({workers}u, {count}u); worker++) {{
        var part = 0.0;
        for (var k = worker; k < {count}u; k += {workers}u) {{ part = part + a[i * {count}u + k]; }}
        total = total + part;
    }}
    return total * bitcast<f32>({inverse}u);
}}"""
_AVERAGE = """fn result(i: u32) -> f32 {{
    let begin = i / {out_area}u * {area}u + i % {out_area}u / {out_width}u * {step_y}u * {width}u
        + i % {out_width}u * {step_x}u;
    var total = 0.0;
    for (var y = 0u; y < {height}u; y++) {{
        for (var x = 0u; x < {taps}u; x++) {{ total = total + a[begin + y * {width}u + x]; }}
    }}
    return total * bitcast<f32>({inverse}u);
}}"""
_WHOLE = """override wg_size: u32 = 64;
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> a: array<f32>;
{more}
{result}
@compute @workgroup_size(wg_size)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {{
    let i = id.x + id.y * groups.x * wg_size;
    if (i < {total}u) {{ out[i] = result(i); }}
}}
"""
_SECOND = "@group(0) @binding(2) var<storage, read> b: array<f32>;"


@dataclass(frozen=True)
class FloatKernel:
    """A kernel for one node: its source, the values that it reads in the order of its bindings, its workgroups."""

    source: wgsl.Source
    reads: tuple[int, ...]
    groups: int


def kernel(graph: Graph, node: Node) -> FloatKernel | None:
    """None if only the host computes the node to the bit."""
    make = ROWS.get(node.name)
    tensors = [graph.tensors[value] for value in (*node.reads, *node.outputs)]
    if make is None or any(row.dtype != np.float32 or 0 in row.shape for row in tensors):
        return None
    *inputs, out = tensors
    result = make(node.args, inputs, out)
    if result is None:
        return None
    total = prod(out.shape)
    text = _WHOLE.format(more=_SECOND * (len(inputs) > 1), result=result, total=total)
    return FloatKernel(wgsl.parse(text.encode(), node.name), node.reads, -(-total // LOCAL))


def _bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def _clamp(args: tuple[Any, ...], inputs: list[Tensor], out: Tensor) -> str:
    low, high = (*args[1:], None, None)[:2]
    return _CLAMP.format(low=_bits(-inf if low is None else low), high=_bits(inf if high is None else high))


def _pair(sign: str) -> Callable[..., str | None]:
    """Of two tensors of one shape, and without a factor for the second."""

    def make(args: tuple[Any, ...], inputs: list[Tensor], out: Tensor) -> str | None:
        shapes = {row.shape for row in (*inputs, out)}
        two = len(inputs) == 2 and all(isinstance(arg, Ref) for arg in args[:2])
        return _PAIR.format(sign=sign) if two and len(shapes) == 1 and {*args[2:]} <= {1} else None

    return make


def _mean(args: tuple[Any, ...], inputs: list[Tensor], out: Tensor) -> str | None:
    """Over the last dims, of as many values as a power of two."""
    (x,), dims = inputs, args[1]
    if not isinstance(dims, tuple) or args[3:] not in ((), (None,)):
        return None
    rank = len(x.shape)
    if sorted(dim % rank for dim in dims) != list(range(rank - len(dims), rank)):
        return None
    count = prod(x.shape[rank - len(dims) :])
    if count & (count - 1):
        return None
    return _MEAN.format(count=count, workers=FLAT_WORKERS, inverse=_bits(1 / count))


def _average(args: tuple[Any, ...], inputs: list[Tensor], out: Tensor) -> str | None:
    """Windows inside the image, of as many values as a power of two."""
    (x,), kernel = inputs, each(args[1], 1, 2)
    step, padding, count = (
        each(args[2] if len(args) > 2 else None, kernel, 2),
        (*args[3:4], 0)[0],
        prod(kernel),
    )
    if any(each(padding, 0, 2)) or any(args[4:5]) or args[6:] not in ((), (None,)) or count & (count - 1):
        return None
    (height, width), shape = x.shape[-2:], out.shape[-2:]
    return _AVERAGE.format(
        out_area=prod(shape), out_width=shape[1], area=height * width, width=width, step_y=step[0], step_x=step[1],
        height=kernel[0], taps=kernel[1], inverse=_bits(1 / count),
    )  # fmt: skip


#: What a kernel computes, by the operator's name; None for arguments that it does not take.
ROWS: Mapping[str, Callable[[tuple[Any, ...], list[Tensor], Tensor], str | None]] = {
    "aten.relu.default": lambda args, inputs, out: _clamp((*args, 0.0), inputs, out),
    "aten.clamp.default": _clamp,
    "aten.hardtanh.default": lambda args, inputs, out: _clamp(
        (*args, -1.0, 1.0)[: max(len(args), 3)], inputs, out
    ),
    "aten.add.Tensor": _pair("+"),
    "aten.sub.Tensor": _pair("-"),
    "aten.mul.Tensor": _pair("*"),
    "aten.mean.dim": _mean,
    "aten.avg_pool2d.default": _average,
}
