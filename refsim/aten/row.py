"""What a float operator is: a row of the table, with its meaning outside and inside a delegate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from math import prod
from typing import Any

import numpy as np

from refsim.aten.within import Within
from refsim.core import size_limit
from refsim.core.layout import W
from refsim.core.qmath import CANONICAL, Profile, mul_add
from refsim.core.resize import Resize


class Exact(Enum):
    """How far two devices must agree on a delegate's result. Vulkan sets the bounds of the last two."""

    BITS = "bits"  # moves, comparisons, sums and products in a known order
    ORDER = "bits if products keep this order"  # a driver may multiply three numbers in any order
    DIVISION = "bits if division rounds correctly"  # Vulkan allows 2.5 ulp
    FUNCTION = "bound"  # the device's own exp, pow, sqrt: see `Float.bound`


@dataclass(frozen=True)
class Place:
    """How a delegate holds a node's first tensor, and how its device computes.

    ``packed`` is the WHCN dim of which a texel holds four elements. ``buffer``: in a buffer, not in a texture.
    ``flat``: the runtime keeps every tensor as one flat buffer, and has shaders of its own for that.
    """

    packed: int = W
    buffer: bool = False
    profile: Profile = CANONICAL
    mali: bool = False
    flat: bool = False

    def fma(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        """GLSL's fma(): one rounding on a device that contracts, else two."""
        result: np.ndarray = mul_add(a, b, c, self.profile.flags)
        return result


@dataclass(frozen=True)
class FloatDefect:
    """What ET-VK gets wrong for some arguments: a name, and a sentence for people.

    ``applies`` says whether arguments show it. It takes them in ATen's order, with its shape for each tensor.
    """

    name: str
    note: str
    applies: Callable[..., bool]


@dataclass(frozen=True)
class Float:
    """One float operator. Its functions take arguments in ATen's order, tensors as arrays, without outputs.

    ``names`` are ATen's, with an overload where only that one is meant; blanks part them. ``portable`` computes as
    ExecuTorch's portable kernels do, one binary32 operation after another. ``delegate`` computes as ET-VK's shader does
    and takes a `Place` first; without it both are the same. ``flat`` computes as the shader of a runtime with flat
    storage does, again only where that is something else than ``portable``. ``order`` says in a few words what the
    shader does; ``bound`` how far the device's own functions may be off; ``within`` the same in numbers for the first
    result, see `refsim.aten.within`, None where nobody has said them; ``note`` where the shader is not what ATen means;
    ``defects`` for which arguments it is wrong.
    ``outline``: arguments with which the same function finds a result of the same shape sooner.
    ``resize``: what ET-VK gets wrong about the result's shape where a run has another shape than the bound.
    ``prefix``: the result is the first elements of the first tensor, as many as its own shape has.
    ``pointwise``: an element of the result follows from the elements at the same place of tensors of one shape.
    """

    names: str
    portable: Callable[..., Any]
    delegate: Callable[..., Any] | None = None
    exact: Exact = Exact.BITS
    order: str = ""
    bound: str = ""
    within: Within | None = None
    note: str = ""
    pointwise: bool = False
    outline: Callable[..., tuple[Any, ...]] | None = None
    resize: Resize | None = None
    prefix: bool = False
    defects: tuple[FloatDefect, ...] = ()
    flat: Callable[..., Any] | None = None

    def function(self, place: Place | None) -> Callable[..., Any]:
        """What runs: outside a delegate for None."""
        if place is not None and place.flat:
            return self.flat or self.portable
        if place is None or self.delegate is None:
            return self.portable
        given, run = place, self.delegate
        return lambda *args: run(given, *args)


def pointwise(*rows: Float) -> tuple[Float, ...]:
    """These rows, marked as such."""
    return tuple(replace(row, pointwise=True) for row in rows)


def axis(dim: int, rank: int) -> int:
    """A dim of a tensor, counted from the front; a tensor without dims has dim 0 and -1."""
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise IndexError(f"dim {dim} of a tensor with {rank}")
    return dim % max(rank, 1)


def sized(*shape: int) -> tuple[int, ...]:
    """The shape of a result whose size an argument says; LimitError, before it is made, if that is too large."""
    size_limit.check("its result", 8 * prod(int(size) for size in shape))
    return tuple(shape)


def contiguous(x: np.ndarray) -> np.ndarray:
    """A copy in logical order; NumPy's own function would make a tensor without dims one with a dim."""
    return np.array(x, order="C")
