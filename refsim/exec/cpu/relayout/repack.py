"""Bytes between two layouts that pack the same dim, in tiles of four pixels by four words."""

from __future__ import annotations

from refsim.exec.cpu import tile4x4
from refsim.exec.cpu.args import ArgLayout
from refsim.exec.cpu.ir import I8, I32, ModuleText, Value, vec
from refsim.exec.cpu.strides import NHWC, PLANAR, TILED
from refsim.exec.cpu.tile4x4 import Side, concat, pieces, zipped

#: Strides as in `PackedStrides`. `mask` keeps the lanes of the last channel word that are channels.
REPACK = ArgLayout(
    "x", "x_image", "x_row", "x_pixel4", "x_pixel", "x_word",
    "out", "out_image", "out_row", "out_pixel4", "out_pixel", "out_word",
    "height", "width", "words", "mask",
)  # fmt: skip


def repack(module: ModuleText, name: str, *, source: str, to: str, at_once: int) -> None:
    """Write the kernel for two kinds of layout; tasks are rows.

    ``at_once`` tiles that lie side by side in the output, in pixels or words, are done together. The last ones of a row
    or of the channels may begin within those before. What is left is done in parts of tiles.
    """
    with REPACK.kernel(module, name) as (fn, a, _, tasks):
        x = Side(source, a.x_pixel4, a.x_pixel, a.x_word, a.width, a.words)
        out = Side(to, a.out_pixel4, a.out_pixel, a.out_word, a.width, a.words)
        whole_pixel4s = a.width // 4
        whole_words = a.words - a.mask.eq(-1).select(fn.i64(0), 1)
        pixel4s = at_once if to == PLANAR else 1
        words = 4 * at_once if to == NHWC else 4
        pixel4s_end = (whole_pixel4s >= pixel4s).select(whole_pixel4s, 0)
        words_end = (whole_words >= words).select(whole_words, 0)
        position = fn.vector([k // 4 for k in range(16)], I32)

        def task(t: Value) -> None:
            image, row = t // a.height, t % a.height
            at = a.pointer("x") + (image * a.x_image + row * a.x_row)
            place = a.pointer("out") + (image * a.out_image + row * a.out_row)

            def whole(pixel4: Value, word: Value) -> None:
                if to == TILED:
                    tile4x4.store(fn, out, tile4x4.load(fn, x, at, pixel4, word), place, pixel4, word)
                    return
                if source == to:
                    lines = [fn.load(piece, vec(I8, 4 * words)) for piece in pieces(x, at, pixel4, word)]
                else:
                    steps = [
                        (pixel4 + k, word) if to == PLANAR else (pixel4, word + 4 * k) for k in range(at_once)
                    ]
                    places = zip(*(pieces(x, at, *step) for step in steps), strict=True)
                    lines = [concat([fn.load(piece, vec(I8, 16)) for piece in four]) for four in places]
                    if NHWC in (source, to):
                        lines = zipped(lines, 2, size=4)
                for line, to_place in zip(lines, pieces(out, place, pixel4, word), strict=True):
                    fn.store(line, to_place)

            def part(pixel4: Value, word: Value) -> None:
                found = tile4x4.load_clamped(fn, x, at, pixel4, word)
                last = position.eq((a.words - 1 - word).trunc(I32).splat(16))
                found = last.select(found & a.i32("mask").splat(16), found)
                tile4x4.store_inside(fn, out, found, place, pixel4, word)

            def several(pixel4: Value) -> None:
                pixel4 = pixel4.min(whole_pixel4s - pixel4s)
                if to == TILED:  # whose loop is so short that the smaller of two words would cost 5 %
                    fn.loop(words_end // words * words, lambda word: whole(pixel4, word), step=words)
                    fn.when(words_end % words > 0, lambda: whole(pixel4, words_end - words))
                else:
                    fn.loop(words_end, lambda word: whole(pixel4, word.min(words_end - words)), step=words)
                fn.loop(pixel4 + pixel4s, lambda q: parts(q, words_end), start=pixel4)

            def parts(pixel4: Value, word: Value) -> None:
                fn.loop(a.words, lambda word: part(pixel4, word), start=word, step=4)

            fn.loop(pixel4s_end, several, step=pixel4s)
            fn.loop((a.width + 3) // 4, lambda pixel4: parts(pixel4, fn.i64(0)), start=pixel4s_end)

        tasks.each(task)
