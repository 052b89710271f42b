"""TensorDesc: a tensor's shape and memory layout, and the sizes, strides and bytes that follow from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from operator import index

from refsim.core.counted import counted
from refsim.core.errors import LayoutError, LimitError, ShapeError
from refsim.core.layout import C, H, Layout, N, W, layout

MAX_RANK = 8
MAX_BYTES = 1 << 31  # indices are int32 on a device


@dataclass(frozen=True)
class TensorDesc:
    """Shape (NCHW, 1 to 8 dims), layout and dtype of one tensor: int8 if the layout is packed, else float32 or int32.

    A tensor with more than four dims is stored as one with four: the dims before C fold into N. No byte moves,
    because no layout blocks these dims and they are the slowest.
    """

    shape: tuple[int, ...]
    layout: Layout = field()
    dtype: str = ""  # "" stands for int8 or float32, whichever the layout holds

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", layout(self.layout))
        where = f"tensor in {self.layout}"
        try:
            object.__setattr__(self, "shape", tuple(index(s) for s in self.shape))
        except TypeError:
            raise ShapeError(
                where, "a size is no integer", got=repr(self.shape)[:80], need="integers"
            ) from None
        if not 1 <= len(self.shape) <= MAX_RANK:
            raise ShapeError(where, "unsupported rank", got=list(self.shape), need=f"1 to {MAX_RANK} dims")
        if min(self.shape) < 1:
            raise ShapeError(where, "a size is below 1", got=list(self.shape), need="sizes >= 1")
        if self.layout.is_dynamic:
            raise LayoutError(where, "no addresses before the layout is resolved", need="4C1W, 4W4C or 4C")
        allowed = ("int8",) if self.layout.packed_int8 else ("float32", "int32")
        object.__setattr__(self, "dtype", self.dtype or allowed[0])
        if self.dtype not in allowed:
            raise LayoutError(where, "cannot hold this dtype", got=self.dtype, need=" or ".join(allowed))
        if self.nbytes > MAX_BYTES:
            raise LimitError(
                where, "buffer too large", got=counted(self.nbytes, "byte"), need=f"<= {MAX_BYTES}"
            )

    @cached_property
    def sizes_whcn(self) -> tuple[int, int, int, int]:
        """Sizes in WHCN order, outer dims folded into N."""
        reverse = list(reversed(self.shape)) + [1] * 4
        return (reverse[0], reverse[1], reverse[2], prod(reverse[N:]))

    @cached_property
    def blocks_whcn(self) -> tuple[int, int, int, int]:
        """Blocks along each dim."""
        w, h, c, n = (self.layout.blocks(dim, size) for dim, size in enumerate(self.sizes_whcn))
        return (w, h, c, n)

    @cached_property
    def strides_whcn(self) -> tuple[int, int, int, int]:
        """Stride of each dim, in blocks."""
        strides = [0, 0, 0, 0]
        step = 1
        for dim in reversed(self.layout.dim_order):
            step = self.layout.stride(dim, step)
            strides[dim] = step
            step *= self.blocks_whcn[dim]
        return (strides[0], strides[1], strides[2], strides[3])

    @cached_property
    def meta(self) -> tuple[int, ...]:
        """Sizes then strides, WHCN: the eight words that index.py and the kernels read."""
        return self.sizes_whcn + self.strides_whcn

    @property
    def vectors(self) -> bool:
        """Whether a kernel can move four neighbours as one vector: they are contiguous and begin at a multiple of four
        words. Neighbours are columns if channels are packed, rows if columns are, and floats along the packed dim."""
        inner, fastest = self.layout.inner, self.layout.dim_order[-1]
        if not self.is_int8:
            return inner == fastest != H and self.sizes_whcn[inner] % 4 == 0
        if self.layout.outer_block == 4:
            return True
        return inner == C and fastest == W and self.sizes_whcn[W] % 4 == 0

    @property
    def is_int8(self) -> bool:
        return self.layout.packed_int8

    @property
    def hashed(self) -> int:
        return self.layout.hashed

    @cached_property
    def numel(self) -> int:
        """Logical elements."""
        return prod(self.shape)

    @cached_property
    def buffer_numel(self) -> int:
        """Elements of the buffer, padding included."""
        slowest = self.layout.dim_order[0]
        return self.strides_whcn[slowest] * self.blocks_whcn[slowest] * self.layout.block_numel

    @cached_property
    def nbytes(self) -> int:
        return self.buffer_numel * (1 if self.is_int8 else 4)

    @property
    def words(self) -> int:
        """32-bit words of the buffer; the last may not be full if the layout is not ExecuTorch's."""
        return -(-self.nbytes // 4)

    def __str__(self) -> str:
        kind = " int32" if self.dtype == "int32" else ""
        return f"{'x'.join(map(str, self.shape))} {self.layout}{kind}"
