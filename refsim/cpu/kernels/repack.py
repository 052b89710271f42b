"""Bytes between two layouts that pack the same dim, in cells of four pixels by four words."""

from __future__ import annotations

from refsim.cpu.ir import I32, Module, Value
from refsim.cpu.kernels import cells
from refsim.cpu.kernels.args import KERNEL_PARAMS, Fields
from refsim.cpu.kernels.cells import Side

#: Strides as in `View`. `mask` keeps the lanes of the last channel word that are channels.
REPACK = Fields(
    "x", "x_image", "x_row", "x_quad", "x_pixel", "x_word",
    "out", "out_image", "out_row", "out_quad", "out_pixel", "out_word",
    "height", "width", "words", "mask",
)  # fmt: skip


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
                cells.store_inside(fn, out, found, place, quad, word)

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
