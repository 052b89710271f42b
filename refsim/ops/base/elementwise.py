"""Operators that compute every output word by itself: launch, walk over words, and what follows from the family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from refsim.core.index import W_STRIDE, block_extent, block_numel, buf_idx, inner_dim, word_idx
from refsim.core.jit import jitable
from refsim.core.launch import PLANE_ROW, Launch, Triple, check_counts, column_local, plane_global_size
from refsim.core.layout import INT8_LAYOUTS, PACKED_4W, C, H, Layout, W
from refsim.core.push import FLOAT, PushWords, SpecWords, float32, hashed, int32, vectors
from refsim.core.qmath import bounds_bits, inv_scale
from refsim.core.tensor import MAX_RANK, TensorDesc
from refsim.ops.base.arg import Arg, Kind
from refsim.ops.base.case import Case
from refsim.ops.base.host.row import ModuleCall, Shader, plain
from refsim.ops.base.padding import OnDevice, Pad, Padding
from refsim.ops.base.spec import Call, KernelSpec, OpSpec, Upstream
from refsim.ops.base.traits import Family

UNSPECIFIED = Padding(Pad(0, OnDevice.UNSPECIFIED), Pad(0, OnDevice.UNSPECIFIED))
#: The input's padding bytes; the values say nothing.
COPIED = Padding(Pad(0), Pad(0), copied=True)


def padding_unspecified(call: Call) -> Padding:
    """Padding is 0 here. Upstream computes it from its inputs' padding, or leaves it undefined."""
    return UNSPECIFIED


def launch(call: Call) -> Launch:
    """A launch that computes each output word by itself. Its push words are only those of the tensors."""
    return call.launched(plane_global_size(call.out), (256, 1, 1), (4, 1, 1))


def work_item(launch: Launch, word: Any, w: Any, h: Any, c: Any, n: Any) -> tuple[Any, Any, Any]:
    """The work item that writes a word, the inverse of `word_number`."""
    each = launch.global_size[0]
    plane = word // each
    return word % each, plane // PLANE_ROW, plane % PLANE_ROW


@jitable
def word_number(x: Any, y: Any, z: Any, meta: Any, at: Any, hashed: Any) -> Any:
    """The index of the output word (int8) of a work item of `launch`; at least the number of words if none is its."""
    second_slowest = (hashed >> 8) & 15
    words = meta[at + W_STRIDE + second_slowest] * block_numel(hashed) // 4
    return (y * PLANE_ROW + z) * words + x


def column_work_item(launch: Launch, word: Any, w: Any, h: Any, c: Any, n: Any) -> tuple[Any, Any, Any]:
    """The work item of a kernel with words of channels along x, columns along y, rows of all images along z."""
    return c // 4, w, n * launch.out.sizes_whcn[H] + h


TILE = 4  # elements along W, H and C: whole words and whole blocks of every layout


def launch_tiles(call: Call) -> Launch:
    """A launch whose invocations compute 4 x 4 x 4 elements each.

    A push word is the parameter of its name. ``ZP`` and ``INV``, the inverse of the scale, are those of the output.
    """
    kernel, inputs = call.op.kernel, [call.descs[a.name] for a in call.op.args if a.kind is Kind.INPUT]
    assert kernel is not None
    given = {name.removeprefix("out_").upper(): value for name, value in vars(call.params).items()}
    given["FLAGS"] = call.target.profile.flags | bounds_bits(call.bounds)
    if "INV" in kernel.push.at:
        given["INV"] = inv_scale(given["SCALE"])
    words = [each for each in kernel.push.fields if not each.argument]
    values = {
        each.name: np.float32(given[each.name]) if each.type is FLOAT else given[each.name] for each in words
    }
    size, local, tile = tiled(call.out, inputs)
    return call.launched(size, local, tile, **values)


def tiled(out: TensorDesc, inputs: Sequence[TensorDesc]) -> tuple[Triple, Triple, Triple]:
    """Global size, workgroup and tile of a kernel that makes 4 x 4 x 4 elements an invocation.

    Global size: words along C x words along W x (batch, rows padded to 4).
    """
    _, h, c, n = out.sizes_whcn
    along_w, along_c = word_extent(out, W), word_extent(out, C)
    width = out.blocks_whcn[W] * out.layout.block_extent(W)
    same_way = all(d.layout.dim_order[-1] == out.layout.dim_order[-1] for d in inputs)
    size = (-(-c // along_c), width // along_w, n * (-(-h // TILE) * TILE))
    check_counts(out, "global size", size)
    return (
        size,
        column_local(out, TILE) if same_way else (8, 8, 1),
        (TILE // along_c, TILE // along_w, TILE),
    )


def word_extent(out: TensorDesc, dim: int) -> int:
    """Elements of a word along a dim."""
    return 4 if out.is_int8 and dim == out.layout.inner else 1


def tile_work_item(launch: Launch, word: Any, w: Any, h: Any, c: Any, n: Any) -> tuple[Any, Any, Any]:
    """The work item of `launch_tiles` that writes the word at a coordinate."""
    out = launch.out
    rows = -(-out.sizes_whcn[H] // TILE) * TILE
    return c // word_extent(out, C), w // word_extent(out, W), n * rows + h


@jitable
def tile_word(x: Any, y: Any, z: Any, meta: Any, at: Any, hashed: Any) -> Any:
    """(number of the output word, or -1 if there is none; w, h, c, n of its first element) of a work item of
    `launch_tiles`."""
    rows = (meta[at + H] + TILE - 1) // TILE * TILE
    n, top, row = z // rows, z % rows // TILE * TILE, z % TILE
    h = top + row
    tall = block_extent(hashed, H)
    if h >= (meta[at + H] + tall - 1) // tall * tall:
        return -1, y, h, x, n
    if block_numel(hashed) == 1:
        return buf_idx(meta, at, hashed, y, h, x, n), y, h, x, n
    w, c = (y, 4 * x) if inner_dim(hashed) == C else (4 * y, x)
    return word_idx(meta, at, hashed, w, h, c, n), w, h, c, n


def same_shape(params: Any, shapes: Any, consts: Any, declared: Any) -> tuple[int, ...]:
    """The output has the shape of the first input."""
    return next(iter(shapes.values()))


# --- what an operator says -------------------------------------------------------------------------------

#: The specialization words of a kernel that makes ``out`` of ``x`` and finds its words by `tile_word`.
SPEC = SpecWords(hashed("OUT"), hashed("X"), vectors("OUT"), vectors("X"))
OUT_HASH, X_HASH, *_ = SPEC.offsets
#: The push words of a requantization; they stand in a kernel's row in this order, one behind the other.
REQUANT = (float32("INV"), int32("ZP"), int32("FLAGS"))


def args(params: Any, **layouts: Sequence[Layout]) -> tuple[Arg, ...]:
    """Inputs, parameters and output in serialized order; the layouts of each tensor by its name, the output's last."""
    *inputs, out = (Arg(name, Kind.INPUT, tuple(rows)) for name, rows in layouts.items())
    return (*inputs, *(Arg(field.name) for field in fields(params)), replace(out, kind=Kind.OUTPUT))


def tiles(run: Callable[..., None], push: PushWords, spec: SpecWords) -> KernelSpec:
    """A kernel that finds its words by `tile_word`."""
    return KernelSpec(run, launch_tiles, push, spec, tile_work_item)


def words(run: Callable[..., None], push: PushWords, spec: SpecWords) -> KernelSpec:
    """A kernel that finds its words by `word_number`."""
    return KernelSpec(run, launch, push, spec, work_item)


def module(shader: str, params: Any, *inputs: str) -> ModuleCall:
    """How upstream's host calls an operator from int8 to int8: it walks the blocks of the output."""
    tensors = ("out", *inputs)
    return ModuleCall(
        shaders=plain(shader),
        bindings=(*tensors, *(f"meta:{name}" for name in tensors)),
        push=tuple("inv_out_scale" if each.name == "out_scale" else each.name for each in fields(params)),
        spec=(*(f"layout:{name}" for name in tensors), "config:out"),
        global_size="blocks:out",
        local_size="blocked:out",
    )


def module_between(
    shaders: tuple[Shader, ...], push: tuple[str, ...] = (), order: str = "x/out"
) -> ModuleCall:
    """How it calls one between two layouts or dtypes: it walks the blocks of x beside those of the output."""
    first, second = order.split("/")
    return ModuleCall(
        shaders=shaders,
        bindings=("out", "x", "meta:out", "meta:x"),
        push=push,
        spec=(f"layout:{first}", f"layout:{second}", f"config:{first}/{second}", f"config:{second}/{first}"),
        global_size="blocks:x/out",
        local_size="blocked:x/out",
    )


def example(op: str) -> Case:
    """A small tensor, for an operator with one input and the parameters `quantized.InOutParams`."""
    params = dict(in_scale=0.02, in_zp=3, out_scale=0.05, out_zp=-4)
    return Case(op, params, {"x": ((2, 5, 3, 7), "4W4C")}, "4W4C")


def operator(params: Any, inputs: Sequence[str], **own: Any) -> OpSpec:
    """An operator from int8 to int8 at the same place: what follows from that, and what is its own."""
    tensors = (*inputs, "out")
    return OpSpec(
        name=params.where,
        family=Family.ELEMENTWISE,
        args=args(params, **dict.fromkeys(tensors, INT8_LAYOUTS)),
        params=params,
        out_shape=same_shape,
        padding=padding_unspecified,
        sync=tensors,
        max_rank=MAX_RANK,
        **own,
    )


def operator_between(
    name: str, params: Any, x: Sequence[Layout], out: Sequence[Layout], **own: Any
) -> OpSpec:
    """An operator between two layouts or dtypes at the same place."""
    return OpSpec(name=name, args=args(params, x=x, out=out), params=params, out_shape=same_shape, **own)


def staging(name: str, params: Any, packed: str, shader: str, walk: str, **own: Any) -> OpSpec:
    """A step between the tensor ``packed``, x or out, and its contiguous bytes (NCHW), which stand in one dim of 4W.

    ``walk``: what each invocation of upstream's ``shader`` takes of the packed tensor.
    """
    layouts: dict[str, Sequence[Layout]] = {"x": (PACKED_4W,), "out": (PACKED_4W,), packed: INT8_LAYOUTS}
    module = ModuleCall(
        shaders=plain(shader),
        bindings=("out", "x", f"meta:{packed}"),
        spec=(f"layout:{packed}",),
        global_size=f"{walk}:{packed}",
        local_size="default",
    )
    return OpSpec(
        name=name,
        serialized="",
        args=tuple(
            replace(arg, contiguous=arg.kind is not Kind.PARAM and arg.name != packed)
            for arg in args(params, **layouts)
        ),
        params=params,
        upstream=Upstream(module=module),
        **own,
    )
