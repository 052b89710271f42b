"""What the Vulkan delegate's operators accept: representations, dtypes, dims, constants; one row per operator.

Source: ExecuTorch 1.5.x, backends/vulkan/op_registry.py. The rows of fused int8 operators follow from `OPS`. Operators
that only a caller of ExecuTorch's own libraries can write are left out (caches of language models, quantization of
tokens, training): their nodes stay outside of delegates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from refsim.core.dtypes import name_of
from refsim.graph.shapes import SYMBOLS
from refsim.ops.base.arg import Kind
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import OpSpec
from refsim.ops.base.traits import Family
from refsim.partition import constraints
from refsim.partition.nodes import (
    CHOOSE_QPARAMS,
    DEQUANTIZE,
    DEQUANTIZE_AFFINE,
    DEQUANTIZE_BY_TENSOR,
    DEQUANTIZE_PER_CHANNEL,
    GETITEM,
    QUANTIZE,
    QUANTIZE_AFFINE,
    QUANTIZE_BY_TENSOR,
    nodes_in,
    target_name,
    tensors_of,
)
from refsim.partition.refusal import RefusedNode, refuse
from refsim.partition.repset.op import OpRepSets
from refsim.partition.repset.sets import (
    ANY_BUFFER,
    ANY_STORAGE,
    ANY_STORAGE_INCL_PACKED_INT8,
    ANY_TEXTURE,
    CHANNELS_PACKED_TEXTURE,
    CHANNELS_PACKED_TEXTURE_OR_CONTIGUOUS_BUFFER,
    CONTIGUOUS_ANY,
    CONTIGUOUS_BUFFER,
    NO_STORAGE,
    PACKED_INT8_BUFFER,
    PACKED_INT8_CONV2D_BUFFER,
    WIDTH_PACKED_TEXTURE,
    Sets,
    TensorRepSet,
    int8_buffer,
)

Dtypes = frozenset[str]

FLOATS: Dtypes = frozenset({"float16", "float32"})
INTS: Dtypes = frozenset({"int32", "int64"})
BOOL: Dtypes = frozenset({"bool"})
NUMBERS = FLOATS | INTS
VALUES = NUMBERS | BOOL
#: Every dtype that a tensor of a delegate may have.
ALL: Dtypes = VALUES | {"uint8", "int8", "float64"}

_MAX_RANK = 4


@dataclass(frozen=True, eq=False)
class Features:
    """One operator.

    ``inputs`` and ``outputs`` are a list with a set for each tensor, or one set for all of them, which are then synced:
    they must pack the same dim in blocks of the same size. Dtypes likewise; an empty set of them allows any.

    ``prepacks``: the operator packs its constants itself; otherwise each goes through et_vk.prepack. ``resize``: its
    shapes may change between runs. ``high_dim``: tensors may have more than 4 dims. ``check(node)`` says what is wrong
    with the arguments, or None. ``pick(node)`` gives the sets where they depend on the node.
    """

    inputs: Sets
    outputs: Sets
    input_dtypes: Dtypes | tuple[Dtypes, ...] = ALL
    output_dtypes: Dtypes | tuple[Dtypes, ...] | None = None
    prepacks: bool = False
    resize: bool = True
    high_dim: bool = False
    check: Callable[[Any], str | None] | None = None
    pick: Callable[[Any], tuple[Sets, Sets]] | None = None
    primary: int = 0  # where ``prepacks``: the argument that must be a tensor even if it is a constant

    def op_repsets(self, node: Any) -> OpRepSets:
        """Fresh sets for a node that calls the operator."""
        inputs, outputs = self.pick(node) if self.pick else (self.inputs, self.outputs)
        return OpRepSets(inputs, outputs, node)

    def refusal(self, node: Any) -> RefusedNode | None:
        """Why the delegate cannot run the node, if so."""
        detail = self._wrong_dtype(node)
        if detail:
            return refuse("dtype", node, detail)
        detail = self.check(node) if self.check else None
        if detail:
            return refuse("arguments", node, detail)
        ranks = [len(t.shape) for n in (node, *nodes_in(node.args)) for t in tensors_of(n)]
        if not self.high_dim and max(ranks, default=0) > _MAX_RANK:
            return refuse("high-dim", node, f"got {max(ranks)}")
        if tensors_of(node) and self.op_repsets(node).any_is_empty():
            return refuse("no-representation", node)
        return None

    def _wrong_dtype(self, node: Any) -> str | None:
        outputs = self.output_dtypes
        if outputs is None:
            outputs = _at(self.input_dtypes, 0)
        for index, arg in enumerate(node.args):
            allowed = _at(self.input_dtypes, index)
            for source in nodes_in(arg):
                if allowed and tensors_of(source) and _dtype(tensors_of(source)[0]) not in allowed:
                    return f"argument {index}: {_wrong(tensors_of(source)[0], allowed)}"
        for index, tensor in enumerate(tensors_of(node)):
            allowed = _at(outputs, index)
            if allowed and _dtype(tensor) not in allowed:
                return f"output {index}: {_wrong(tensor, allowed)}"
        return None


def _at(dtypes: Dtypes | tuple[Dtypes, ...], index: int) -> Dtypes:
    if isinstance(dtypes, frozenset):
        return dtypes
    return dtypes[index] if index < len(dtypes) else frozenset()


def _dtype(tensor: Any) -> str:
    return name_of(tensor.dtype)


def _wrong(tensor: Any, allowed: Iterable[str]) -> str:
    return f"got {_dtype(tensor)}, need {', '.join(sorted(allowed))}"


def _same(sets: TensorRepSet, dtypes: Any = FLOATS, **more: Any) -> Features:
    """Inputs and outputs in the same set."""
    return Features(sets, sets, dtypes, **more)


#: Families of the int8 operators that patterns fuse nodes into.
_FUSED = (Family.ELEMENTWISE, Family.SHUFFLE, Family.CONVOLUTION, Family.DEPTHWISE, Family.LINEAR)
_CONVOLUTIONS = (Family.CONVOLUTION, Family.DEPTHWISE)


def _fused(op: OpSpec) -> Features:
    """The row of an int8 operator, from what it says of itself.

    Constants and scalars take no part in layouts. An operator without constants syncs all its tensors. A convolution
    that takes several layouts leaves the choice to the runtime, which knows the kernel that will run.
    """
    (first, *_), constants = op.of_kind(Kind.INPUT), op.of_kind(Kind.CONST)
    chosen_later = op.family in _CONVOLUTIONS and len(first.layouts) > 1
    inputs = PACKED_INT8_CONV2D_BUFFER if chosen_later else int8_buffer(first.layouts)
    outputs = int8_buffer(op.output.layouts)
    if not constants:
        return Features(inputs, outputs, resize=op.upstream.resizes)
    rest = len(constants) + len(op.of_kind(Kind.PARAM))
    return Features([inputs] + [NO_STORAGE] * rest, [outputs], prepacks=True, resize=op.upstream.resizes)


def _exported(op: OpSpec) -> bool:
    return bool(op.serialized) and op.upstream.exported


def _takes_only_x(op: OpSpec) -> bool:
    """Whether a graph can hold the operator, with a single tensor that is no constant."""
    return bool(op.serialized) and len(op.of_kind(Kind.INPUT)) == 1


def _grouped(op: OpSpec) -> Features:
    """The row of a linear operator with weights in groups: scales and zero points of rows lie in textures."""
    rows = op.of_kind(Kind.INPUT)[1:]
    rest = len(op.of_kind(Kind.CONST)) + len(op.of_kind(Kind.PARAM))
    inputs = [CONTIGUOUS_ANY, *(WIDTH_PACKED_TEXTURE for _ in rows)]
    return Features(inputs + [NO_STORAGE] * rest, [CONTIGUOUS_ANY], FLOATS, prepacks=True, resize=False)


_TO_INT8 = Features(
    [CHANNELS_PACKED_TEXTURE_OR_CONTIGUOUS_BUFFER], [PACKED_INT8_BUFFER], resize=False, high_dim=True
)
_FROM_INT8 = Features(
    [PACKED_INT8_BUFFER], [CHANNELS_PACKED_TEXTURE_OR_CONTIGUOUS_BUFFER], resize=False, high_dim=True
)
_RANGES = Features(CONTIGUOUS_ANY, [WIDTH_PACKED_TEXTURE] * 2)
_FLOAT_UNARY = _same(ANY_STORAGE)
_LOGICAL = _same(ANY_STORAGE, BOOL, high_dim=True)
_BINARY = _same(ANY_STORAGE, NUMBERS, high_dim=True)
_COMPARE = _same(ANY_STORAGE, NUMBERS, output_dtypes=BOOL, high_dim=True)
_MATMUL = _same(CONTIGUOUS_ANY, prepacks=True)
_FLOAT_LINEAR = _same(CONTIGUOUS_ANY, prepacks=True, resize=False)
_MOVE = _same(ANY_STORAGE, VALUES, high_dim=True)
_IDENTITY = _same(ANY_STORAGE_INCL_PACKED_INT8, VALUES, high_dim=True)
_REDUCE = _same(ANY_TEXTURE, high_dim=True, check=constraints.reduce_check, pick=constraints.reduce_sets)
_ARG_REDUCE = _same(
    ANY_STORAGE,
    output_dtypes=INTS,
    high_dim=True,
    check=constraints.reduce_check,
    pick=constraints.reduce_sets,
)
_POOL = _same(CHANNELS_PACKED_TEXTURE)
_CONVOLUTION = Features(
    [CHANNELS_PACKED_TEXTURE] + [NO_STORAGE] * 10,
    CHANNELS_PACKED_TEXTURE,
    FLOATS,
    prepacks=True,
    check=constraints.convolution_check,
    pick=constraints.convolution_sets,
)
_FILL = _same(ANY_STORAGE, VALUES, resize=False)

FEATURES: dict[str, Features] = {
    # quantize, dequantize, and the fused int8 operators
    QUANTIZE: _TO_INT8,
    QUANTIZE_BY_TENSOR: _TO_INT8,
    DEQUANTIZE: _FROM_INT8,
    DEQUANTIZE_BY_TENSOR: _FROM_INT8,
    CHOOSE_QPARAMS: _same(CONTIGUOUS_BUFFER, ALL),
    DEQUANTIZE_PER_CHANNEL: _same(CONTIGUOUS_BUFFER, ALL),
    "quantized_decomposed.quantize_per_channel.default": _same(CONTIGUOUS_BUFFER, ALL),
    **{op.serialized: _fused(op) for op in OPS.values() if _exported(op) and op.family in _FUSED},
    # linear operators that end in floats
    **{op.serialized: _FLOAT_LINEAR for op in OPS.of_family(Family.FLOAT_LINEAR) if _takes_only_x(op)},
    # scales made at run time, weights of 4 bits in groups
    **{op.serialized: _RANGES for op in OPS.of_family(Family.ROW_RANGE) if op.serialized},
    QUANTIZE_AFFINE: _same(CONTIGUOUS_BUFFER, ALL),
    DEQUANTIZE_AFFINE: _same(CONTIGUOUS_BUFFER, ALL),
    **{op.serialized: _grouped(op) for op in OPS.of_family(Family.GROUP_LINEAR)},
    # floats and weights of 4 bits
    **{op.serialized: _FLOAT_LINEAR for op in OPS.of_family(Family.WEIGHT_ONLY)},
    **{op.serialized: _same(CONTIGUOUS_ANY, ALL, prepacks=True, primary=3) for op in OPS.of_family(Family.LOOKUP)},
    # identities: int8 layouts flow through them
    "aten.clone.default": _IDENTITY,
    "aten.alias_copy.default": _IDENTITY,
    "aten.view_copy.default": _IDENTITY,
    "dim_order_ops._clone_dim_order.default": _IDENTITY,
    "dim_order_ops._to_dim_order_copy.default": _same(ANY_BUFFER, VALUES, high_dim=True),
    "aten._to_copy.default": _same(ANY_STORAGE, VALUES, pick=constraints.conversion_sets),
    "aten.copy.default": _same(ANY_STORAGE, ALL, check=constraints.copy_check),
    GETITEM: _same(ANY_STORAGE, ALL),
    # numbers: sizes, and what is computed from them
    **dict.fromkeys(SYMBOLS, _same(ANY_STORAGE, ALL)),
    # float matrix products, convolutions, norms
    "aten.mm.default": _MATMUL,
    "aten.bmm.default": _MATMUL,
    "aten.addmm.default": _MATMUL,
    "aten.linear.default": _MATMUL,
    "aten._weight_int8pack_mm.default": _MATMUL,
    "et_vk.rms_norm.default": _MATMUL,
    "aten.convolution.default": _CONVOLUTION,
    "et_vk.conv_with_clamp.default": _CONVOLUTION,
    "aten._native_batch_norm_legit_no_training.default": _same(CHANNELS_PACKED_TEXTURE, prepacks=True),
    "aten.native_layer_norm.default": _same(ANY_STORAGE, prepacks=True),
    "aten.native_group_norm.default": Features(
        CHANNELS_PACKED_TEXTURE,
        [CHANNELS_PACKED_TEXTURE, CONTIGUOUS_BUFFER, CONTIGUOUS_BUFFER],
        FLOATS,
        prepacks=True,
        resize=False,
    ),
    # pooling, reductions, resampling
    "aten.avg_pool2d.default": _POOL,
    "aten.max_pool2d.default": _POOL,
    "aten.max_pool2d_with_indices.default": _same(CHANNELS_PACKED_TEXTURE, output_dtypes=(FLOATS, INTS)),
    "aten.mean.dim": _REDUCE,
    "aten.sum.dim_IntList": _REDUCE,
    "aten.amax.default": _REDUCE,
    "aten.amin.default": _REDUCE,
    "aten.argmax.default": _ARG_REDUCE,
    "aten.argmin.default": _ARG_REDUCE,
    "aten.upsample_nearest2d.vec": _same(CHANNELS_PACKED_TEXTURE, resize=False),
    "aten.upsample_bilinear2d.vec": _same(CHANNELS_PACKED_TEXTURE, resize=False),
    "aten.pixel_shuffle.default": _same(ANY_STORAGE),
    # moving elements
    "aten.permute_copy.default": _MOVE,
    "aten.squeeze_copy.dims": _MOVE,
    "aten.unsqueeze_copy.default": _MOVE,
    "aten.select_copy.int": _MOVE,
    "aten.slice_copy.Tensor": _MOVE,
    "aten.split_with_sizes_copy.default": _MOVE,
    "aten.permute.default": _same(ANY_TEXTURE, VALUES),
    "aten.unfold_copy.default": _same(ANY_BUFFER, high_dim=True),
    "aten.gather.default": _MOVE,
    "aten.index.Tensor": _same(
        ANY_STORAGE, NUMBERS, check=constraints.index_check, pick=constraints.index_sets
    ),
    "aten.embedding.default": _same(
        ANY_STORAGE, (FLOATS, INTS), output_dtypes=FLOATS, prepacks=True, check=constraints.embedding_check, primary=1
    ),
    "aten.grid_sampler_2d.default": Features(
        [CHANNELS_PACKED_TEXTURE, CONTIGUOUS_BUFFER], CHANNELS_PACKED_TEXTURE, FLOATS, check=constraints.sampler_check
    ),
    "aten.expand_copy.default": _same(ANY_STORAGE, VALUES, resize=False, high_dim=True),
    "aten.cat.default": _same(ANY_STORAGE, NUMBERS),
    "aten.constant_pad_nd.default": _same(ANY_STORAGE, VALUES),
    "aten.repeat.default": _same(ANY_STORAGE, VALUES, resize=False),
    "aten.t_copy.default": _same(CHANNELS_PACKED_TEXTURE, VALUES, resize=False),
    "aten.flip.default": _same(CHANNELS_PACKED_TEXTURE, VALUES, resize=False),
    "aten.index_select.default": _same(CHANNELS_PACKED_TEXTURE, VALUES, resize=False),
    "aten.arange.start_step": _same(ANY_STORAGE, NUMBERS),
    **{
        f"aten.{name}.default": _FILL
        for name in ("full", "full_like", "ones", "ones_like", "zeros", "zeros_like")
    },
    # element by element
    "aten.clamp.default": _same(ANY_STORAGE, NUMBERS),
    "aten.pow.Tensor_Scalar": _same(ANY_STORAGE, high_dim=True),
    "aten.where.self": _same(ANY_STORAGE, (BOOL, FLOATS, FLOATS), output_dtypes=FLOATS),
    "aten._softmax.default": _FLOAT_UNARY,
    "aten._log_softmax.default": _FLOAT_UNARY,
    **{
        f"aten.{name}.default": _FLOAT_UNARY
        for name in (
            "abs", "cos", "exp", "gelu", "hardshrink", "hardswish", "hardtanh", "leaky_relu", "log10", "neg",
            "relu", "round", "rsqrt", "sigmoid", "sin", "sqrt", "tanh",
        )
    },
    **{
        f"aten.{name}": _BINARY
        for name in (
            "add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "div.Tensor_mode", "minimum.default",
            "pow.Tensor_Tensor",
        )
    },
    **{
        f"aten.{name}.{overload}": _COMPARE
        for name in ("eq", "lt", "le", "gt", "ge")
        for overload in ("Tensor", "Scalar")
    },
    "aten.ne.Scalar": _COMPARE,
    "aten.bitwise_and.Tensor": _LOGICAL,
    "aten.bitwise_or.Tensor": _LOGICAL,
    **{
        f"aten.{name}.default": _LOGICAL
        for name in ("bitwise_not", "logical_and", "logical_or", "logical_not")
    },
}  # fmt: skip


def features_of(node: Any) -> Features | None:
    """The row of the operator that a node calls."""
    return FEATURES.get(target_name(node))
