"""Bytes between two layouts that pack the same dim, in cells of four pixels by four words."""

from __future__ import annotations

from refsim.exec.cpu import tile4x4
from refsim.exec.cpu.args import KERNEL_PARAMS, ArgLayout
from refsim.exec.cpu.ir import I8, I32, Module, Value, vec
from refsim.exec.cpu.strides import BLOCKS, PLANES, ROWS
from refsim.exec.cpu.tile4x4 import Side, join, pieces, zipped

#: Strides as in `View`. `mask` keeps the lanes of the last channel word that are channels.
REPACK = ArgLayout(
    "x", "x_image", "x_row", "x_quad", "x_pixel", "x_word",
    "out", "out_image", "out_row", "out_quad", "out_pixel", "out_word",
    "height", "width", "words", "mask",
)  # fmt: skip


def repack(module: Module, name: str, *, source: str, to: str, at_once: int) -> None:
    """Write the kernel for two kinds of layout; tasks are rows.

    So many cells are done at once as lie side by side in the output, in pixels or words. The last ones of a row or of
    the channels may begin within those before; what is left is done in parts of cells.
    """
    with module.function(name, KERNEL_PARAMS) as fn:
        block, begin, end, _ = fn.params
        a = REPACK.read(fn, block)
        x = Side(source, a.x_quad, a.x_pixel, a.x_word, a.width, a.words)
        out = Side(to, a.out_quad, a.out_pixel, a.out_word, a.width, a.words)
        whole_quads = a.width // 4
        whole_words = a.words - a.mask.eq(-1).select(fn.i64(0), 1)
        quads = at_once if to == PLANES else 1
        words = 4 * at_once if to == ROWS else 4
        quads_end = (whole_quads >= quads).select(whole_quads, 0)
        words_end = (whole_words >= words).select(whole_words, 0)
        position = fn.vector([k // 4 for k in range(16)], I32)

        def task(t: Value) -> None:
            image, row = t // a.height, t % a.height
            at = a.pointer("x") + (image * a.x_image + row * a.x_row)
            place = a.pointer("out") + (image * a.out_image + row * a.out_row)

            def whole(quad: Value, word: Value) -> None:
                if to == BLOCKS:
                    tile4x4.store(fn, out, tile4x4.load(fn, x, at, quad, word), place, quad, word)
                    return
                if source == to:
                    lines = [fn.load(piece, vec(I8, 4 * words)) for piece in pieces(x, at, quad, word)]
                else:
                    steps = [
                        (quad + k, word) if to == PLANES else (quad, word + 4 * k) for k in range(at_once)
                    ]
                    places = zip(*(pieces(x, at, *step) for step in steps), strict=True)
                    lines = [join([fn.load(piece, vec(I8, 16)) for piece in four]) for four in places]
                    if ROWS in (source, to):
                        lines = zipped(lines, 2, size=4)
                for line, to_place in zip(lines, pieces(out, place, quad, word), strict=True):
                    fn.store(line, to_place)

            def part(quad: Value, word: Value) -> None:
                found = tile4x4.load_clamped(fn, x, at, quad, word)
                last = position.eq((a.words - 1 - word).trunc(I32).splat(16))
                found = last.select(found & a.i32("mask").splat(16), found)
                tile4x4.store_inside(fn, out, found, place, quad, word)

            def several(quad: Value) -> None:
                quad = quad.min(whole_quads - quads)
                if to == BLOCKS:  # whose loop is so short that the smaller of two words would cost 5 %
                    fn.loop(words_end // words * words, lambda word: whole(quad, word), step=words)
                    fn.when(words_end % words > 0, lambda: whole(quad, words_end - words))
                else:
                    fn.loop(words_end, lambda word: whole(quad, word.min(words_end - words)), step=words)
                fn.loop(quad + quads, lambda q: parts(q, words_end), start=quad)

            def parts(quad: Value, word: Value) -> None:
                fn.loop(a.words, lambda word: part(quad, word), start=word, step=4)

            fn.loop(quads_end, several, step=quads)
            fn.loop((a.width + 3) // 4, lambda quad: parts(quad, fn.i64(0)), start=quads_end)

        fn.loop(end, task, start=begin)
