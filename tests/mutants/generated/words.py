"""Names that are easily exchanged, in kernels of any language: of dims, axes, tensors and types."""

from __future__ import annotations

import re
from collections.abc import Iterator

#: The dim of number 0: adding it and taking it away are the same.
NOTHING = "W"

#: Functions whose first two arguments may stand in any order: the same value, by what the function means.
#: `swapaxes` is one as a method.
COMMUTE = frozenset(
    ("min", "max", "minimum", "maximum", "dot", "dot4", "mul_add", "mul_add4", "fma", "umulExtended", "equal")
) | {"swapaxes"}

#: Words within a name, parted by `_` or a digit, and what may stand there by mistake.
EXCHANGED = {
    "w": ("h", "c"), "h": ("w",), "c": ("w", "n"), "n": ("c",),
    "W": ("H", "C"), "H": ("W",), "C": ("W", "N"), "N": ("C",),
    "iw": ("ih",), "ih": ("iw",), "ow": ("oh",), "oh": ("ow",), "kw": ("kh",), "kh": ("kw",),
    "x": ("y",), "y": ("x", "z"), "z": ("y",),
    "row": ("pixel", "column"), "column": ("row",), "pixel": ("row",), "image": ("row",),
    "rows": ("pixels",), "pixels": ("rows",), "images": ("rows",), "width": ("height",), "height": ("width",),
    "IN": ("OUT",), "OUT": ("IN",), "STRIDE": ("DILATION", "PADDING"), "DILATION": ("STRIDE",),
    "PADDING": ("STRIDE",), "KERNEL": ("STRIDE",), "stride": ("dilation", "pad"), "dilation": ("stride",),
    "padding": ("stride",), "X": ("OUT",), "A": ("B",), "B": ("A",), "a": ("b",), "b": ("a",),
    "begin": ("end",), "end": ("begin",), "low": ("high",), "high": ("low",), "i": ("j",), "j": ("i",),
    "scales": ("sums", "bias"), "sums": ("scales",), "bias": ("scales",),
}  # fmt: skip

_PARTS = re.compile(r"[A-Za-z]+|[^A-Za-z]+")


def exchanged(name: str) -> Iterator[str]:
    """Names that one may write instead: one word of the name exchanged."""
    parts = _PARTS.findall(name)
    for at, part in enumerate(parts):
        for other in EXCHANGED.get(part, ()):
            yield "".join((*parts[:at], other, *parts[at + 1 :]))


def other_numbers(value: int) -> Iterator[int]:
    """Off by one, 0, negated, and the neighbouring powers of two."""
    found = {value + 1, value - 1}
    if value > 1:
        found |= {0, -value, 2 * value, value // 2}
    found.discard(value)
    yield from sorted(found)
