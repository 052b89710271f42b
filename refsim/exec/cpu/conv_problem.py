"""ConvProblem: what a convolution or a linear operator computes, in one form for all kernels.

A linear operator is a 1x1 convolution whose pixels are the rows of its input. A transposed convolution is one over a
dilated input, with flipped weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from refsim.core.errors import ParameterError
from refsim.core.qmath import inv_scale
from refsim.exec.cpu.compiled import Variant
from refsim.exec.cpu.epilogue import CLAMPED, CONST_ROWS, bounds_word, clamp_for, shared_fields, then_for
from refsim.exec.cpu.isa import Isa
from refsim.exec.cpu.job import Arguments
from refsim.exec.cpu.nhwc.prepack import pack_fields, unpack_fields
from refsim.exec.cpu.strides import NHWC, TO_PIXEL, PackedStrides, strides_of
from refsim.ops.base.conv import ConvParams, logical_weight
from refsim.ops.base.spec import Call
from refsim.ops.base.traits import Epilogue, Family


@dataclass(frozen=True)
class ConvProblem:
    """``weight``: int8 (groups, output channels of a group, KH, KW, input channels of a group).

    Pairs are (height, width). ``input_dilation``: the distance of the image's rows and columns, between which there are
    zero points; more than 1 for transposed convolutions. ``sums``, ``scales``, ``bias``: per output channel; scales are
    those of the integer sums. ``float_zp``: the epilogue takes the zero point out in binary32. ``float_out``: it ends
    there, so that ``inv``, ``out_zp`` and ``relu`` mean nothing. ``table``: what each byte becomes at the end, int8
    (256).
    """

    x: PackedStrides
    out: PackedStrides
    weight: np.ndarray
    sums: np.ndarray
    scales: np.ndarray
    bias: np.ndarray | None
    in_zp: int
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    input_dilation: tuple[int, int]
    float_zp: bool
    inv: np.float32
    out_zp: int
    relu: bool
    float_out: bool = False
    table: np.ndarray | None = None

    def __post_init__(self) -> None:
        """ParameterError if a window cannot be one: told here, where it was made, and not where it is used."""
        for name in ("stride", "dilation", "input_dilation"):
            if min(getattr(self, name)) < 1:
                raise ParameterError(
                    "convolution problem", f"{name} is no distance", got=getattr(self, name), need="1 or more"
                )
        if self.weight.ndim != 5 or len(self.sums) != self.weight.shape[0] * self.weight.shape[1]:
            what = f"weights of {self.weight.shape} and {len(self.sums)} sums"
            raise ParameterError("convolution problem", "no sum for each output channel", got=what)

    @property
    def groups(self) -> int:
        return len(self.weight)

    @property
    def kernel(self) -> tuple[int, int]:
        return (self.weight.shape[2], self.weight.shape[3])

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns from the first tap of a window to its last, both included."""
        h, w = (d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True))
        return (h, w)

    @property
    def macs(self) -> int:
        """Products of all outputs."""
        return self.out.images * self.out.rows * self.out.pixels * self.weight.size

    @cached_property
    def weight_sums(self) -> np.ndarray:
        """Sums of weights per output channel, int64. Large layers have tens of MB: none is copied to wider elements."""
        return self.weight.sum((2, 3, 4), dtype=np.int64).reshape(-1)

    @cached_property
    def _bounds(self) -> np.ndarray:
        """Per output channel: bound of the absolute value of a sum of products."""
        above = np.maximum(self.weight, 0).sum((2, 3, 4), dtype=np.int64).reshape(-1)
        return 128 * (2 * above - self.weight_sums)

    @property
    def largest_sum(self) -> int:
        return int(self._bounds.max())

    @property
    def _totals(self) -> np.ndarray:
        """The same for sums whose zero point is taken out, and for every sum on the way there."""
        return self._bounds + np.abs(self.in_zp * self.sums.astype(np.int64))

    @property
    def largest_total(self) -> int:
        return int(self._totals.max())

    @property
    def zp_is_exact(self) -> bool:
        """Whether taking the zero point out in binary32 is exact up to its last rounding.

        Then it equals the conversion of the integer difference, which is what the other epilogue computes.
        """
        limit = 1 << 24
        taken = int(np.abs(self.sums.astype(np.int64)).max(initial=0))
        return self.largest_sum <= limit and taken <= limit and taken * abs(self.in_zp) <= limit

    @property
    def clamp(self) -> str:
        """The clamp that the outputs need, from bounds of the sums."""
        bias = 0.0 if self.bias is None else np.abs(self.bias.astype(np.float64))
        bound = float(((self._totals * self.scales.astype(np.float64) + bias) * float(self.inv)).max())
        return clamp_for(bound, self.out_zp, self.relu)

    @property
    def zp_in_float(self) -> bool:
        """Whether the epilogue must take the zero point out in binary32."""
        return self.float_zp and not self.zp_is_exact

    def side_fields(self, args: Arguments, isa: Isa, element: str, words: int = 0) -> dict[str, int]:
        """How pixels are packed as ``element``, and the output's bytes unpacked: of any number of words if not said."""
        packs = pack_fields(
            args, self.x, isa, element=element, words=words, zp=self.in_zp, input_dilation=self.input_dilation
        )
        return packs | unpack_fields(args, self.out, words=words)

    def epilogue_variant(self, **own: Variant) -> dict[str, Variant]:
        """What all epilogues are specialized for; ``own``: a kernel's, in the order of its parameters."""
        return {"clamp": self.clamp, "float_zp": self.zp_in_float, **own, "then": then_for(self.table)}

    def epilogue_fields(self, args: Arguments) -> dict[str, float | np.floating | int]:
        """What the epilogues of all kernels read."""
        fields = shared_fields(self.inv, self.out_zp, self.relu)
        if self.table is None:
            return {**fields, "then": 0}
        clamps = then_for(self.table) == CLAMPED
        return {**fields, "then": bounds_word(self.table) if clamps else args.address(self.table)}

    def block_fields(self, out: tuple[int, int], block: tuple[int, int], per_group: int) -> dict[str, int]:
        """What kernels read that compute blocks of an output of those rows and columns, one window to a pixel.

        ``per_group``: into how many parts the channels of a group are divided.
        """
        fields = {
            "out": out,
            "block": block,
            "stride": self.stride,
            "pad": self.padding,
            "extent": self.extent,
        }
        pairs = {
            f"{name}_{dim}": size
            for name, sizes in fields.items()
            for dim, size in zip("hw", sizes, strict=True)
        }
        row_blocks, column_blocks = (-(-size // part) for size, part in zip(out, block, strict=True))
        divided = {
            "row_blocks": row_blocks,
            "column_blocks": column_blocks,
            "parts": self.groups * per_group,
            "parts_per_group": per_group,
        }
        return {**pairs, **divided, **self.out_fields()}

    def out_fields(self) -> dict[str, int]:
        """Whether the bytes go where they belong at once, and the output's strides."""
        return {"direct": int(self.out.kind == NHWC), **self.out.fields("out_{}", TO_PIXEL)}


def conv_problem(call: Call) -> ConvProblem:
    """The problem of a convolution or linear call, whose operator says where the zero point is taken out."""
    p, float_out = call.params, not call.out.is_int8
    x, out = strides_of(call.descs["x"]), strides_of(call.out)
    weight = call.consts["weight"]
    sums, scales = call.consts["weight_sums"], call.consts["weight_scales"]
    assert weight is not None and sums is not None and scales is not None
    stride = padding = (0, 0)
    dilation = input_dilation = stride = (1, 1)
    if isinstance(p, ConvParams):
        stride, padding, dilation, groups = p.stride, p.padding, p.dilation, p.groups
        if call.op.family is Family.DEPTHWISE:
            taps = np.moveaxis(weight, -1, 0)[..., None]
        else:
            taps = logical_weight(p, weight, x.channels // groups)
        if call.op.transposed:
            input_dilation, stride = p.stride, (1, 1)
            kh, kw = p.kernel_size
            padding = (kh - 1 - p.padding[0], kw - 1 - p.padding[1])
            taps = taps[:, ::-1, ::-1]
    else:
        groups = 1
        taps = weight.reshape(len(weight), 1, 1, -1)
    return ConvProblem(
        x=x,
        out=out,
        weight=taps.reshape(groups, -1, *taps.shape[1:]),
        sums=sums,
        scales=scales * np.float32(p.in_scale),
        bias=call.consts["bias"],
        in_zp=p.in_zp,
        stride=stride,
        padding=padding,
        dilation=dilation,
        input_dilation=input_dilation,
        float_zp=call.op.epilogue is Epilogue.FLOAT_ZP,
        inv=inv_scale(1.0 if float_out else p.out_scale),
        out_zp=0 if float_out else p.out_zp,
        relu=not float_out and p.activation == "relu",
        float_out=float_out,
    )


def constant_rows(conv: ConvProblem, offset: int, factor: int = 1) -> np.ndarray:
    """Constants of the epilogue, int32 (4, output channels): first sum, scale, bias, zp_term; floats as their bits.

    ``offset`` is what the packed elements have added to them. The first sum is multiplied by ``factor``.
    """
    sums = conv.sums.astype(np.int64)
    first = -offset * conv.weight_sums
    rows = np.zeros((CONST_ROWS, len(first)), np.int32)
    if conv.zp_in_float:
        rows[3] = (-sums.astype(np.float32) * np.float32(conv.in_zp)).view(np.int32)
    else:
        first = first - conv.in_zp * sums
    rows[0] = (first * factor).astype(np.uint64).astype(np.uint32).view(np.int32)
    rows[1] = conv.scales.view(np.int32)
    if conv.bias is not None:
        rows[2] = conv.bias.view(np.int32)
    return rows


def in_panels(rows: np.ndarray, groups: int, panel: int) -> np.ndarray:
    """Constants by group and panel of that many channels, zero-padded: group, panel, row, channel."""
    channels = rows.shape[1] // groups
    panels = -(-channels // panel)
    padded = np.zeros((len(rows), groups, panels * panel), np.int32)
    padded[:, :, :channels] = rows.reshape(len(rows), groups, channels)
    return np.ascontiguousarray(
        padded.reshape(len(rows), groups, panels, panel).transpose(1, 2, 0, 3)
    ).reshape(-1)
