"""A task of the kernels that compute blocks of output pixels: which block it is, and how its bytes come and go.

The words that it reads are those of `ConvProblem.block_fields` and `ConvProblem.side_fields`.
"""

from __future__ import annotations

from dataclasses import dataclass

from refsim.exec.cpu.args import LoadedArgs
from refsim.exec.cpu.ir import Function, Value


@dataclass(frozen=True)
class BlockTask:
    """``height`` rows of ``width`` pixels from ``row0`` and ``column0`` of an image on; a share of a group's panels."""

    fn: Function
    a: LoadedArgs
    image: Value
    row0: Value
    column0: Value
    height: Value
    width: Value
    group: Value
    share: Value

    @classmethod
    def of(cls, fn: Function, a: LoadedArgs, number: Value) -> BlockTask:
        """The task of a number: images x row blocks x column blocks x parts, parts fastest."""
        part, rest = number % a.parts, number // a.parts
        group, share = part // a.parts_per_group, part % a.parts_per_group
        column_block, rest = rest % a.column_blocks, rest // a.column_blocks
        row_block, image = rest % a.row_blocks, rest // a.row_blocks
        row0, column0 = row_block * a.block_h, column_block * a.block_w
        height, width = a.block_h.min(a.out_h - row0), a.block_w.min(a.out_w - column0)
        return cls(fn, a, image, row0, column0, height, width, group, share)

    def corner(self) -> Value:
        """Where the block's first pixel lies in the output, in bytes."""
        return self.image * self.a.out_image + self.row0 * self.a.out_row + self.column0 * self.a.out_pixel

    def panels(self) -> tuple[Value, Value]:
        """The first panel of the share, and the one after its last."""
        a = self.a
        return a.panels * self.share // a.parts_per_group, a.panels * (self.share + 1) // a.parts_per_group

    def pack(self, pixels: Value) -> None:
        """The input of the block to NHWC scratch."""
        a = self.a
        self.fn.call_pointer(
            a.pointer("pack"), a.pointer("pack_args"), self.image,
            self.row0 * a.stride_h - a.pad_h, (self.height - 1) * a.stride_h + a.extent_h,
            self.column0 * a.stride_w - a.pad_w, (self.width - 1) * a.stride_w + a.extent_w,
            self.group * a.in_words, a.in_words, pixels, a.pitch,
        )  # fmt: skip

    def unpack(self, spilled: Value, word0: Value, words: int, row_step: Value) -> None:
        """The bytes of a panel of that many words, from word ``word0`` of the group on, out of scratch."""
        a = self.a
        self.fn.call_pointer(
            a.pointer("unpack"), a.pointer("unpack_args"), self.image, self.row0, self.height, self.column0,
            self.width, self.group * a.out_words + word0, (a.out_words - word0).min(words), spilled,
            self.fn.i64(4 * words), row_step,
        )  # fmt: skip
