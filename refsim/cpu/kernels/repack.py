"""Bytes from one layout to another, in cells of four pixels by four words.

`repack`: both layouts pack the same dim. `cross`: one packs channels, the other columns; sixteen channels by four
columns are then one vector with a word a channel, and four such vectors, of four quads of columns or of four rows,
transposed word by word, are what the layout that packs columns holds contiguously.
"""

from __future__ import annotations

from functools import partial

from refsim.cpu.ir import I8, I32, Function, Module, Value, vec
from refsim.cpu.kernels import cells
from refsim.cpu.kernels.args import KERNEL_PARAMS, Fields, Loaded
from refsim.cpu.kernels.cells import Side, join, quarters

#: Strides as in `View`. `mask` keeps the lanes of the last channel word that are channels.
REPACK = Fields(
    "x", "x_image", "x_row", "x_quad", "x_pixel", "x_word",
    "out", "out_image", "out_row", "out_quad", "out_pixel", "out_word",
    "height", "width", "words", "mask",
)  # fmt: skip

#: `c_*` is the side that packs channels. `w_*` the other: strides of an image, a channel, a row (of four rows where
#: blocks hold four), and a quad of columns. `row_bytes`: bytes of one of its rows that are written. `fill` is a word
#: for padding, `fills` points at 16 such bytes.
CROSS = Fields(
    "c_side", "c_image", "c_row", "c_quad", "c_pixel", "c_word",
    "w_side", "w_image", "w_channel", "w_row", "w_quad",
    "height", "width", "channels", "words", "row_bytes", "fill", "fills",
)  # fmt: skip

#: Rows, or fours of rows, of a task of `cross`; channel words that it finishes before the next ones.
CROSS_ROWS = 8
LINE_WORDS = 16

#: In each 16 bytes: byte 4a + b comes from 4b + a.
BYTES4 = tuple(16 * (k // 16) + 4 * (k % 4) + k % 16 // 4 for k in range(64))


def repack(module: Module, name: str, *, source: str, to: str) -> None:
    """Write the kernel for two kinds of layout; tasks are rows."""
    with module.function(name, KERNEL_PARAMS) as fn:
        block, begin, end, _ = fn.params
        a = REPACK.read(fn, block)
        x = Side(source, a.x_quad, a.x_pixel, a.x_word, a.width, a.words)
        out = Side(to, a.out_quad, a.out_pixel, a.out_word, a.width, a.words)
        whole_quads = a.width // 4
        whole_words = (a.words - a.mask.eq(-1).select(fn.i64(0), 1)) & -4
        position = fn.vector([k // 4 for k in range(16)], I32)

        def task(t: Value) -> None:
            image, row = t // a.height, t % a.height
            at = a.pointer("x") + (image * a.x_image + row * a.x_row)
            place = a.pointer("out") + (image * a.out_image + row * a.out_row)

            def whole(quad: Value, word: Value) -> None:
                cells.store(fn, out, cells.load(fn, x, at, quad, word), place, quad, word)

            def part(quad: Value, word: Value) -> None:
                found = cells.load_clamped(fn, x, at, quad, word)
                last = position.eq((a.words - 1 - word).trunc(I32).splat(16))
                found = last.select(found & a.i32("mask").splat(16), found)
                cells.store_inside(fn, out, found, place, quad, word, None)

            def quad_row(quad: Value) -> None:
                fn.loop(whole_words, lambda word: whole(quad, word), step=4)
                fn.loop(a.words, lambda word: part(quad, word), start=whole_words, step=4)

            fn.loop(whole_quads, quad_row)
            last_quads = (a.width + 3) // 4
            fn.loop(
                last_quads,
                lambda quad: fn.loop(a.words, lambda word: part(quad, word), step=4),
                start=whole_quads,
            )

        fn.loop(end, task, start=begin)


def _bytes4(square: Value) -> Value:
    return square.bits(vec(I8, 64)).shuffle(BYTES4).bits(vec(I32, 16))


def _turn(four: list[Value]) -> list[Value]:
    """In each quarter of four vectors: the 4x4 square of words transposed."""

    def pairs(a: Value, b: Value, half: int) -> Value:
        return a.shuffle([4 * q + 2 * half + k + s for q in range(4) for k in range(2) for s in (0, 16)], b)

    def halves(a: Value, b: Value, half: int) -> Value:
        return a.shuffle([4 * q + 2 * half + k + s for q in range(4) for s in (0, 16) for k in range(2)], b)

    low, high = (pairs(four[0], four[1], h) for h in range(2))
    low2, high2 = (pairs(four[2], four[3], h) for h in range(2))
    return [halves(low, low2, 0), halves(low, low2, 1), halves(high, high2, 0), halves(high, high2, 1)]


def cross(module: Module, name: str, *, kind: str, to_columns: bool, blocked: bool) -> None:
    """Write the kernel for one kind of channel-packing layout; ``blocked``: the other side is blocks of 4 rows.

    Tasks: images x blocks of `CROSS_ROWS` rows, or fours of rows. Within one, a line of memory of channels is finished
    for all rows before the next, since the other side's rows of a channel are neighbours.
    """
    with module.function(name, KERNEL_PARAMS) as fn:
        block, begin, end, scratch = fn.params
        a = CROSS.read(fn, block)
        side = Side(kind, a.c_quad, a.c_pixel, a.c_word, a.width, a.words)
        rows = 4 if blocked else 1
        groups = (a.height + (rows - 1)) // rows

        blocks = (groups + (CROSS_ROWS - 1)) // CROSS_ROWS
        quads = (a.width + 3) // 4

        def task(t: Value) -> None:
            image, first = t // blocks, t % blocks * CROSS_ROWS
            c_side = a.pointer("c_side") + image * a.c_image
            last = (first + CROSS_ROWS).min(groups)

            def square(group: Value, word: Value, quad: Value) -> None:
                w_side = a.pointer("w_side") + (image * a.w_image + group * a.w_row)
                # the four vectors: of neighbouring rows, or of neighbouring quads
                places = [(group * 4 + j, quad) if blocked else (group, quad + j) for j in range(4)]
                inside = (word * 4 + 16 <= a.channels).select(places[-1][0] < a.height, 0)
                whole = inside.select(places[-1][1] * 4 + 4 <= a.width, 0)
                tile = _Tile(fn, a, side, c_side, w_side, places, word, quad, scratch, blocked)
                step = tile.to_columns if to_columns else tile.to_channels
                fn.when(whole, lambda: step(whole=True), lambda: step(whole=False))

            def row(group: Value, word0: Value) -> None:
                fn.loop(
                    (word0 + LINE_WORDS).min(a.words),
                    lambda word: fn.loop(quads, lambda q: square(group, word, q), step=1 if blocked else 4),
                    start=word0,
                    step=4,
                )

            fn.loop(
                a.words,
                lambda word0: fn.loop(last, lambda group: row(group, word0), start=first),
                step=LINE_WORDS,
            )

        fn.loop(end, task, start=begin)


class _Tile:
    """Sixteen channels from `word` on, and four (row, quad) places; the other side's bytes begin at `quad`."""

    def __init__(
        self,
        fn: Function,
        a: Loaded,
        side: Side,
        c_side: Value,
        w_side: Value,
        places: list[tuple[Value, Value]],
        word: Value,
        quad: Value,
        scratch: Value,
        blocked: bool,
    ) -> None:
        self.blocked = blocked
        self.fn, self.a, self.side, self.c_side, self.w_side = fn, a, side, c_side, w_side
        self.places, self.word, self.quad, self.scratch = places, word, quad, scratch

    def to_columns(self, whole: bool) -> None:
        fn, a = self.fn, self.a
        load = self._load_whole if whole else self._load_part
        turned = _turn([load(row, quad) for row, quad in self.places])
        for i, vector in enumerate(turned):
            for q, piece in enumerate(quarters(vector)):
                channel = self.word * 4 + (4 * q + i)
                at = self.w_side + (channel * a.w_channel + self.quad * a.w_quad)
                if whole:
                    fn.store(piece, at)
                else:
                    fn.when(channel < a.channels, partial(self._store_bytes, piece, at))

    def _load_whole(self, row: Value, quad: Value) -> Value:
        at = self.c_side + row * self.a.c_row
        return _bytes4(cells.load(self.fn, self.side, at, quad, self.word))

    def _load_part(self, row: Value, quad: Value) -> Value:
        """Word c: four columns of channel 4 * word + c; beyond width and height the fill word's bytes."""
        a = self.a
        at = self.c_side + row.min(a.height - 1) * a.c_row
        found = _bytes4(cells.load_clamped(self.fn, self.side, at, quad.min((a.width - 1) // 4), self.word))
        count = (row < a.height).select((a.width - quad * 4).max(0).min(4), 0)
        keep = ((self.fn.i64(1) << (count * 8)) - 1).trunc(I32)
        return (found & keep.splat(16)) | (a.i32("fill") & (keep ^ -1)).splat(16)

    def _store_bytes(self, piece: Value, at: Value) -> None:
        """16 bytes, or as many as the row still has."""
        fn = self.fn
        count = (self.a.row_bytes - self.quad * 4).min(16) if not self.blocked else fn.i64(16)

        def exactly() -> None:
            fn.store(piece, self.scratch)
            fn.loop(count, lambda i: fn.store(fn.load(self.scratch + i, I8), at + i))

        fn.when(count.eq(16), lambda: fn.store(piece, at), exactly)

    def to_channels(self, whole: bool) -> None:
        fn, a = self.fn, self.a
        pieces = []
        for k in range(16):
            channel = self.word * 4 + k
            at = self.w_side + (channel * a.w_channel + self.quad * a.w_quad)
            if not whole:
                at = (channel < a.channels).select(at, a.pointer("fills"))
            pieces.append(fn.load(at, vec(I32, 4)))
        turned = _turn([join([pieces[4 * q + i] for q in range(4)]) for i in range(4)])
        for (row, quad), vector in zip(self.places, turned, strict=True):
            found = _bytes4(vector)
            at = self.c_side + row * a.c_row
            if whole:
                cells.store(fn, self.side, found, at, quad, self.word)
            else:
                inside = (row < a.height).select(quad * 4 < a.width, 0)

                def put(found: Value = found, at: Value = at, quad: Value = quad) -> None:
                    cells.store_inside(fn, self.side, found, at, quad, self.word, a.i32("fill"))

                fn.when(inside, put)
