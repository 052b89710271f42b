"""Exact Winograd convolution for 3x3 windows of stride 1, in integers modulo 2**32.

F(m x m, 3 x 3) with m = 4 or 2. An integer transform of each (m+2) x (m+2) tile of the input fits 16 bits. Its
elements are multiplied by transformed weights and summed over the channels. A second integer transform gives m x m
outputs, times a known constant: a power of two times an odd number. The odd number is taken out exactly, by its
inverse modulo 2**32, as long as the true sum times the power of two fits 32 bits. The power of two is taken out of the
scale, which changes no rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from refsim.exec.cpu.args import ArgLayout, LoadedArgs
from refsim.exec.cpu.dot import MADDWD
from refsim.exec.cpu.epilogue import CONST_ROWS, NOTHING, Requant
from refsim.exec.cpu.gemm.kernel import product
from refsim.exec.cpu.ir import I8, I16, I32, Function, ModuleText, Value, vec
from refsim.exec.cpu.job import LINE_BYTES

#: Tasks: images x blocks of tiles x parts. `tile_*`: rows and columns of tiles in all and of a block. `row_bytes`: of
#: packed pixels; `v_pitch`: of the transformed channels of a tile. `direct` tells that full panels of blocks that no
#: edge cuts go straight to `out` at `out_*` strides.
WINOGRAD = ArgLayout(
    "pack", "pack_args", "unpack", "unpack_args", "weight", "consts", "out",
    "row_blocks", "column_blocks", "parts", "panels", "panel_bytes",
    "out_h", "out_w", "tile_rows", "tile_columns", "block_rows", "block_columns", "pad_h", "pad_w",
    "in_words", "pixel_bytes", "pitch", "v_pitch", "k4s",
    "out_words", "direct", "out_image", "out_row", "out_pixel",
    "at_pixels", "at_v", "at_m", "at_bytes",
    "inv", "low", "high", "zp", "then",
)  # fmt: skip


@dataclass(frozen=True)
class WinogradTransform:
    """One dimension: ``weights`` (m + 2, 3) integers, `inputs` and `outputs` as code; see `scale`.

    A convolution through them gives ``scale`` times the result in each dimension.
    """

    m: int
    weights: tuple[tuple[int, int, int], ...]
    inputs: Callable[[Sequence[Value]], list[Value]]
    outputs: Callable[[Sequence[Value]], list[Value]]
    scale: int

    @property
    def size(self) -> int:
        return self.m + 2

    @property
    def shift(self) -> int:
        """The power of two in the constant of both dimensions."""
        constant = self.scale**2
        return (constant & -constant).bit_length() - 1

    @property
    def inverse(self) -> int:
        """The inverse of the constant's odd part modulo 2**32."""
        return pow(self.scale**2 >> self.shift, -1, 1 << 32)


def _inputs4(d: Sequence[Value]) -> list[Value]:
    c, e = d[4] - d[2], d[3] - d[1]
    a, b = d[4] - (d[2] << 2), d[3] - (d[1] << 2)
    e2 = e << 1
    return [((d[0] - d[2]) << 2) + c, a + b, a - b, c + e2, c - e2, (d[5] - d[3]) - (e2 << 1)]


def _outputs4(m: Sequence[Value]) -> list[Value]:
    s, d, t, u = m[1] + m[2], m[1] - m[2], m[3] + m[4], (m[3] - m[4]) << 1
    return [(m[0] + s) + t, d + u, s + (t << 2), d + ((m[5] + u) << 2)]


def _inputs2(d: Sequence[Value]) -> list[Value]:
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def _outputs2(m: Sequence[Value]) -> list[Value]:
    return [m[0] + (m[1] + m[2]), (m[1] - m[2]) + m[3]]


#: Of the weights' multiples that give the same scale these leave the outputs the fewest operations; all fit 16 bits.
TRANSFORMS = {
    4: WinogradTransform(
        4,
        ((6, 0, 0), (-4, -4, -4), (-4, 4, -4), (1, 2, 4), (1, -2, 4), (0, 0, 6)),
        _inputs4,
        _outputs4,
        24,
    ),
    2: WinogradTransform(2, ((2, 0, 0), (1, 1, 1), (1, -1, 1), (0, 0, -2)), _inputs2, _outputs2, 2),
}


def transformed_weights(transform: WinogradTransform, weight: np.ndarray) -> np.ndarray:
    """int8 (channels out, 3, 3, channels in) to int16 (size * size, channels out, channels in)."""
    g = np.array(transform.weights, np.int32)
    both = np.einsum("ai,oijc,bj->aboc", g, weight.astype(np.int32), g)
    return both.reshape(-1, *both.shape[2:]).astype(np.int16)


def winograd(
    module: ModuleText,
    name: str,
    *,
    m: int,
    lanes: int,
    rows: int,
    vectors: int,
    clamp: str,
    float_zp: bool,
    then: str = NOTHING,
) -> None:
    """Write the kernel for register tiles of `rows` tiles by `vectors` vectors of output channels."""
    transform, panel = TRANSFORMS[m], lanes * vectors
    tile_bytes = 4 * panel * transform.size**2  # sums of products of a tile
    with WINOGRAD.kernel(module, name) as (fn, a, scratch, tasks):
        requant = Requant(fn, a, lanes, clamp, float_zp, then)
        pixels, v_at, m_at, bytes_at = (
            scratch + place for place in (a.at_pixels, a.at_v, a.at_m, a.at_bytes)
        )

        def task(t: Value) -> None:
            part, rest = t % a.parts, t // a.parts
            column_block, rest = rest % a.column_blocks, rest // a.column_blocks
            row_block, image = rest % a.row_blocks, rest // a.row_blocks
            row0, column0 = row_block * a.block_rows, column_block * a.block_columns
            height, width = (
                a.block_rows.min(a.tile_rows - row0),
                a.block_columns.min(a.tile_columns - column0),
            )
            fn.call_pointer(
                a.pointer("pack"), a.pointer("pack_args"), image, row0 * m - a.pad_h, height * m + 2,
                column0 * m - a.pad_w, width * m + 2, fn.i64(0), a.in_words, pixels, a.pitch,
            )  # fmt: skip
            count = height * width
            plane = count.max(rows) * a.v_pitch + LINE_BYTES  # one element of all tiles

            def tile_in(r: Value, c: Value) -> None:
                corner = pixels + (r * m * a.pitch + c * m * a.pixel_bytes)
                to = v_at + (r * width + c) * a.v_pitch
                fn.loop(
                    a.in_words * 4,
                    lambda k: _transform_in(fn, a, transform, 2 * lanes, corner + k, to + k * 2, plane),
                    step=2 * lanes,
                )

            fn.loop(height, lambda r: fn.loop(width, lambda c: tile_in(r, c)))

            def each_panel(j: Value) -> None:
                weight = a.pointer("weight") + j * a.panel_bytes
                consts = a.pointer("consts") + j * (CONST_ROWS * 4 * panel)
                element_bytes = a.k4s * (MADDWD.weight_bytes * panel)

                def element(x: Value) -> None:
                    here = weight + x * element_bytes

                    def group(i: Value) -> None:
                        first = (i * rows).min(count - rows).max(0)
                        bases = [v_at + (x * plane + (first + k) * a.v_pitch) for k in range(rows)]
                        zero = fn.const(0, vec(I32, lanes))
                        ahead = element_bytes + i % vectors * LINE_BYTES  # each group asks for a share
                        sums = product(
                            fn, MADDWD, bases, here, fn.i64(0), a.k4s, [[zero] * vectors] * rows, ahead
                        )[0]
                        for k in range(rows):
                            to = m_at + ((first + k) * tile_bytes + x * (4 * panel))
                            for v in range(vectors):
                                fn.store(sums[k][v], to + 4 * lanes * v)

                    fn.loop((count + (rows - 1)) // rows, group)

                fn.loop(fn.i64(transform.size**2), element)
                word0 = j * (panel // 4)
                direct = a.direct.eq(1)
                for end_of, limit in (
                    ((row0 + height) * m, a.out_h),
                    ((column0 + width) * m, a.out_w),
                    (word0 + panel // 4, a.out_words),
                ):
                    direct = direct.select(end_of <= limit, 0)
                corner = image * a.out_image + row0 * m * a.out_row + column0 * m * a.out_pixel + word0 * 4
                outs = direct.select(a.pointer("out") + corner, bytes_at)
                line = direct.select(a.out_row, width * (m * panel))
                pixel = direct.select(a.out_pixel, panel)

                def tile_out(r: Value, c: Value, v: Value) -> None:
                    at = m_at + ((r * width + c) * tile_bytes + v * 4)
                    to = outs + (r * m * line + c * m * pixel + v)
                    _transform_out(fn, transform, requant, at, consts + v * 4, 4 * panel, to, line, pixel)

                fn.loop(
                    height,
                    lambda r: fn.loop(
                        width, lambda c: fn.loop(fn.i64(panel), lambda v: tile_out(r, c, v), step=lanes)
                    ),
                )

                def spill() -> None:
                    fn.call_pointer(
                        a.pointer("unpack"), a.pointer("unpack_args"), image,
                        row0 * m, (height * m).min(a.out_h - row0 * m),
                        column0 * m, (width * m).min(a.out_w - column0 * m),
                        word0, (a.out_words - word0).min(panel // 4), bytes_at, fn.i64(panel), line,
                    )  # fmt: skip

                fn.when(direct, lambda: None, spill)

            fn.loop(a.panels * (part + 1) // a.parts, each_panel, start=a.panels * part // a.parts)

        tasks.each(task)


def _transform_in(
    fn: Function,
    a: LoadedArgs,
    transform: WinogradTransform,
    channels: int,
    corner: Value,
    to: Value,
    plane: Value,
) -> None:
    """One tile of `channels` channels: bytes in, 16-bit integers out, one plane per element."""
    size = transform.size
    rows = []
    for i in range(size):
        line = [
            fn.load(corner + a.pitch * i + a.pixel_bytes * j, vec(I8, channels)).sext(I16)
            for j in range(size)
        ]
        rows.append(transform.inputs(line))
    for j in range(size):
        for i, value in enumerate(transform.inputs([rows[i][j] for i in range(size)])):
            fn.store(value, to + plane * (i * size + j))


def _transform_out(
    fn: Function,
    transform: WinogradTransform,
    requant: Requant,
    at: Value,
    consts: Value,
    row_bytes: int,
    to: Value,
    line: Value,
    pixel: Value,
) -> None:
    """One tile of one vector of output channels: sums in, bytes out."""
    size, m = transform.size, transform.m
    columns = []
    for j in range(size):
        places = [at + row_bytes * (i * size + j) for i in range(size)]
        column = [fn.load(place, vec(I32, requant.lanes)) for place in places]
        if j == 1:  # element (1, 1) adds to every output
            column[1] = column[1] + requant.first(consts, 0)
        columns.append(transform.outputs(column))
    terms = requant.terms(consts, row_bytes, 0)
    for i in range(m):
        totals = transform.outputs([columns[k][i] for k in range(size)])
        if transform.inverse != 1:
            totals = [total * transform.inverse for total in totals]
        (made,) = requant.in_rows([[requant.real(total, terms) for total in totals]], False)
        for j in range(m):
            part = range(j * requant.lanes, (j + 1) * requant.lanes)
            fn.store(made.shuffle(part), to + line * i + pixel * j)
