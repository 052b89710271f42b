"""Pooling between a dequantize and a quantize, in NHWC layouts.

`maxpool` takes the largest byte of a window: dequantizing keeps the order, so it is the largest real value too.
`mean` adds real values in the order of ET-VK's reduction over two dims, a channel a lane, divides and quantizes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from refsim.aten.reduce import WORKERS
from refsim.exec.cpu.args import ArgLayout
from refsim.exec.cpu.elementwise.kernel import real
from refsim.exec.cpu.epilogue import Requant
from refsim.exec.cpu.ir import F32, I8, Function, ModuleText, Value, vec

#: Tasks: images x output rows. `bytes` of a pixel; strides in bytes.
MAXPOOL = ArgLayout(
    "x", "out", "bytes", "height", "width", "out_h", "out_w",
    "kernel_h", "kernel_w", "stride_h", "stride_w", "pad_h", "pad_w", "dilation_h", "dilation_w",
    "x_image", "x_row", "x_pixel", "out_image", "out_row", "out_pixel",
)  # fmt: skip
#: Tasks: images x parts of `part` bytes of a pixel, parts fastest. The first dim of the reduction is the outer one;
#: `count` of pixels, as binary32.
MEAN = ArgLayout(
    "x", "out", "bytes", "part", "parts", "outer", "inner", "x_image", "x_outer", "x_inner", "out_image",
    "count", "a_scale", "a_zp", "least", "most", "inv", "low", "high", "zp",
)  # fmt: skip


def _chunks(
    fn: Function,
    nbytes: Value,
    size: int,
    each: Callable[[Value], None],
    begin: Value | int = 0,
    end: Value | None = None,
) -> None:
    """Call ``each`` with places that cover bytes from begin to end (of `nbytes`) by `size` at once."""
    fn.loop(end or nbytes, lambda k: each(k.min(nbytes - size)), start=begin, step=size)


def _taps(begin: Value, size: Value, taps: Value, dilation: Value) -> tuple[Value, Value]:
    """The first tap of a window inside the image, and the one after the last."""
    before = (begin * -1).max(0)
    first = (before + (dilation - 1)) // dilation
    return first, taps.min((size - begin + (dilation - 1)).max(0) // dilation)


#: The most taps of a window that are loaded without a loop.
MOST_TAPS = 16


def maxpool(module: ModuleText, name: str, *, size: int, taps_h: int, taps_w: int) -> None:
    """Write the kernel for `size` channels at once.

    ``taps_h``, ``taps_w``: of windows without gaps, of each of which some tap is in the image. A tap beside it may be
    the nearest one in the image then, which the window has too. Else 0, and taps in the image are found in loops.
    """
    with MAXPOOL.kernel(module, name) as (fn, a, _, tasks):
        least = fn.const(-128, vec(I8, size))

        def task(t: Value) -> None:
            image, row = t // a.out_h, t % a.out_h
            y = row * a.stride_h - a.pad_h
            source = a.pointer("x") + (image * a.x_image + y * a.x_row)
            to = a.pointer("out") + (image * a.out_image + row * a.out_row)
            rows = (y, y) if taps_h else _taps(y, a.height, a.kernel_h, a.dilation_h)
            image_at = a.pointer("x") + image * a.x_image
            lines = [image_at + (y + i).max(0).min(a.height - 1) * a.x_row for i in range(taps_h)]

            def whole(column: Value) -> None:
                x = column * a.stride_w - a.pad_w
                places = [(x + j).max(0).min(a.width - 1) * a.x_pixel for j in range(taps_w)]

                def chunk(k: Value) -> None:
                    taps = [fn.load(line + (at + k), least.type) for line in lines for at in places]
                    fn.store(reduce(Value.max, taps), to + (column * a.out_pixel + k))

                _chunks(fn, a.bytes, size, chunk)

            def pixel(column: Value) -> None:
                x = column * a.stride_w - a.pad_w
                corner = source + x * a.x_pixel
                columns = _taps(x, a.width, a.kernel_w, a.dilation_w)

                def chunk(k: Value) -> None:
                    def tap_row(i: Value, best: Value) -> tuple[Value, ...]:
                        line = corner + (i * a.dilation_h * a.x_row + k)

                        def tap(j: Value, best: Value) -> Value:
                            return best.max(fn.load(line + j * a.dilation_w * a.x_pixel, vec(I8, size)))

                        return fn.loop(columns[1], tap, [best], start=columns[0])

                    (best,) = fn.loop(rows[1], tap_row, [least], start=rows[0])
                    fn.store(best, to + (column * a.out_pixel + k))

                _chunks(fn, a.bytes, size, chunk)

            fn.loop(a.out_w, whole if taps_h else pixel)

        tasks.each(task)


def mean(module: ModuleText, name: str, *, lanes: int, vectors: int, bounded: bool, clamp: str) -> None:
    """Write the kernel for some vectors of `lanes` channels at once, whose sums do not wait for each other.

    ``bounded``: real values are clamped to [least, most] first.
    """
    with MEAN.kernel(module, name) as (fn, a, _, tasks):
        requant = Requant(fn, a, lanes, clamp)
        count, least, most = (a.f32(name).splat(lanes) for name in ("count", "least", "most"))

        def task(t: Value) -> None:
            image, first = t // a.parts, t % a.parts * a.part
            source = a.pointer("x") + image * a.x_image
            to = a.pointer("out") + image * a.out_image

            def chunk(k: Value) -> None:
                zeros = [fn.const(0, vec(F32, lanes))] * vectors

                def worker(w: Value, *totals: Value) -> list[Value]:
                    def outer(i: Value, *sums: Value) -> tuple[Value, ...]:
                        line = source + (i * a.x_outer + k)

                        def inner(j: Value, *before: Value) -> list[Value]:
                            at, after = line + j * a.x_inner, []
                            for v, total in enumerate(before):
                                value = real(a, "a", fn.load(at + v * lanes, vec(I8, lanes)))
                                after.append(total + (value.max(least).min(most) if bounded else value))
                            return after

                        return fn.loop(a.inner, inner, sums)

                    sums = fn.loop(a.outer, outer, zeros, start=w, step=WORKERS)
                    return [total + part for total, part in zip(totals, sums, strict=True)]

                for v, total in enumerate(fn.loop(WORKERS, worker, zeros)):
                    fn.store(requant.bytes(total / count), to + (k + v * lanes))

            _chunks(fn, a.bytes, lanes * vectors, chunk, first, (first + a.part).min(a.bytes))

        tasks.each(task)
