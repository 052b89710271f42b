"""Windows copied out of NHWC scratch, each to a place of its own and without the padding of its channels.

With few input channels most of a window's k4s would be padding: a 3x3 window over 3 channels has 9 k4s, but 27 bytes
fit in 7.
"""

from __future__ import annotations

from refsim.exec.cpu.ir import I8, I32, I64, PTR, ModuleText, Value, vec
from refsim.exec.cpu.nhwc.kernel import BYTES_PER_WORD, convert

#: NHWC scratch, destination, rows and columns of windows; bytes from a window to the one below and to the one beside
#: it; bytes from a row of pixels to the next; bytes from a window's place to the one below and to the one beside it.
GATHER_PARAMS = (PTR, PTR, I64, I64, I64, I64, I64, I64, I64)


def gather(
    module: ModuleText, name: str, *, element: str, lines: int, taps: int, words: int, channels: int
) -> None:
    """Write a function of `GATHER_PARAMS` for windows of `lines` rows of `taps` pixels (`S8`).

    A row of a window is one vector, loaded and stored whole: what is written behind it the next one overwrites.
    """
    given, wanted = taps * 4 * words, taps * channels
    order = [i // channels * 4 * words + i % channels for i in range(wanted)]
    # what lies behind stays where it is: LLVM 22 never ends with the shuffle that repeats a byte there
    order += range(wanted, _vector(wanted))
    with module.function(name, GATHER_PARAMS) as fn:
        source, to, rows, columns, from_row, from_column, pitch, to_row, to_column = fn.params

        def window(r: Value, c: Value) -> None:
            at, place = source + (r * from_row + c * from_column), to + (r * to_row + c * to_column)
            for i in range(lines):
                line = fn.load(at + pitch * i, vec(I8, _vector(given))).shuffle(order)
                dense = convert(element, line.bits(vec(I32, len(order) // 4)))
                fn.store(dense, place + i * wanted * (BYTES_PER_WORD[element] // 4))

        fn.loop(rows, lambda r: fn.loop(columns, lambda c: window(r, c)))


def _vector(size: int) -> int:
    """The power of two that holds so many bytes, at least 16."""
    return max(16, 1 << (size - 1).bit_length())
