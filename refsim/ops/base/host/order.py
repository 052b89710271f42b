"""Weights in any order of their axes: how kernels that are not upstream's want them.

An order is a row of axes, the slowest first: ``o i/4 i%4``. The axes are o (output channels), h and w (the window) and
i (input channels of a group, or K). ``i/4`` counts fours of an axis, ``i%4`` is the place in a four; an axis that is
cut is padded with zeros. A ``|`` ends what makes a row of an image: ``h i/4 | o/4 w o%4 i%4``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

import numpy as np

from refsim.core.errors import ParameterError
from refsim.ops.base.host.weights import DEPTHWISE, MATRIX, WINDOW, Packing, add_offset

_AXIS = re.compile(r"([ohwi])(?:([/%])([1-9]\d{0,2}))?")
_TEXEL = 16  # bytes


def _window(weight: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    channels, height, width, depth = sizes
    return weight[:channels, : height * width * depth].reshape(channels, height, width, depth)


def _matrix(weight: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    return weight[:, None, None, :]


def _depthwise(weight: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    return weight.transpose(2, 0, 1)[..., None]


#: Upstream's packing of an operator -> its weight as (o, h, w, i).
_LOGICAL: Mapping[str, Callable[[np.ndarray, tuple[int, ...]], np.ndarray]] = {
    WINDOW.shader: _window, MATRIX.shader: _matrix, DEPTHWISE.shader: _depthwise,
}  # fmt: skip


def ordered(text: str, base: Packing, offset: bool = False) -> Packing:
    """A packing in another order of axes. ``base`` is upstream's for the same operator.

    ``offset`` adds 128 to all bytes. The bytes are padded to whole texels of 16. ParameterError for what is no order.
    """
    rows_text, bar, _ = text.partition("|")
    axes = [_axis(text, one) for one in text.replace("|", " ").split()]
    leading = len(rows_text.split()) if bar else 0
    _check(text, axes, "ohw" if base.shader == DEPTHWISE.shader else "oi")

    def texels(weight: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
        array = _split(_LOGICAL[base.shader](weight, sizes), axes)
        rows = prod(array.shape[:leading])
        flat = np.ascontiguousarray(array).reshape(rows, -1)
        padded = np.zeros((rows, -(-flat.shape[1] // _TEXEL) * _TEXEL), np.int8)
        padded[:, : flat.shape[1]] = flat
        found = padded.view("<i4").reshape(rows, -1, 4)
        return add_offset(found) if offset else found

    def extent(sizes: tuple[int, ...]) -> tuple[int, int]:
        return (1, 1)  # how large it is as an image is known when it is packed

    return replace(base, shader="", texels=texels, extent=extent, texel=text)


def _axis(text: str, one: str) -> tuple[str, str, int]:
    found = _AXIS.fullmatch(one)
    if found is None:
        need = "o, h, w and i, with /N and %N: o i/4 i%4"
        raise ParameterError(repr(text), "unknown axis", got=one, need=need)
    return found[1], found[2] or "", int(found[3] or 1)


def _check(text: str, axes: list[tuple[str, str, int]], needed: str) -> None:
    """Each axis stands there once: whole, or as /N and %N with the same N. Those that are needed stand there."""
    for name in dict.fromkeys([*needed, *(axis for axis, _, _ in axes)]):
        parts = sorted((how, by) for axis, how, by in axes if axis == name)
        whole = [how for how, _ in parts] == [""]
        cut = [how for how, _ in parts] == ["%", "/"] and parts[0][1] == parts[1][1]
        if not whole and not cut:
            got = " ".join(f"{name}{how}{by if how else ''}" for how, by in parts) or "nothing"
            raise ParameterError(
                repr(text), f"axis {name}", got=got, need=f"{name}, or {name}/4 and {name}%4"
            )


def _split(logical: np.ndarray, axes: list[tuple[str, str, int]]) -> np.ndarray:
    """The bytes in the order of the axes. An axis that is not named must have size 1."""
    cuts = {name: by for name, how, by in axes if how == "%"}
    named = {name for name, _, _ in axes}
    shape: list[int] = []
    places: list[tuple[str, str]] = []
    pad = []
    for name, size in zip("ohwi", logical.shape, strict=True):
        if name not in named and size != 1:
            raise ParameterError("weight", f"axis {name} is not in the order", got=size, need=1)
        by = cuts.get(name, 0)
        pad.append((0, -size % by if by else 0))
        shape += [-(-size // by), by] if by else [size]
        places += [(name, "/"), (name, "%")] if by else [(name, "")]
    split = np.pad(logical, pad).reshape(shape)
    wanted = [places.index((name, how)) for name, how, _ in axes]
    spare = [at for at, (name, _) in enumerate(places) if name not in named]
    turned = split.transpose(*spare, *wanted)
    return turned.reshape(turned.shape[len(spare) :])
