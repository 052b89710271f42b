"""Graphs of one float operator, and numbers that arithmetic could get wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from refsim.core.layout import CHANNELS_PACKED, HEIGHT_PACKED, WIDTH_PACKED
from refsim.graph.graph import Graph, Node, Ref, Tensor
from refsim.ops.base.target import Target

LAYOUTS = (WIDTH_PACKED, CHANNELS_PACKED, HEIGHT_PACKED)
#: Numbers that rounding, division and comparisons could get wrong; the bits of a NaN are a device's own.
ODD = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    3.0,
    -3.0,
    6.0,
    1e-38,
    -3e-39,
    1e-45,
    3.4e38,
    -3.4e38,
    0.1,
    -2.9999998,
    math.pi,
    1e20,
)
SPECIAL = (*ODD, math.inf, -math.inf, math.nan)
IMAGE = (2, 5, 6, 7)
X, Y, THIRD = Ref(0), Ref(1), Ref(2)


def of_one_node(case: tuple[Any, ...], turn: int, buffer: bool) -> Graph:
    """A graph of the case's node, its tensors in layouts that follow each other from ``turn`` on."""
    name, shapes, args, results = case
    layouts = [LAYOUTS[(turn + n) % len(LAYOUTS)] for n in range(8)]
    tensors = {
        n: Tensor(n, shape, np.dtype(np.float32), layouts[n], buffer=buffer)
        for n, shape in enumerate((*shapes, *results))
    }
    outputs = tuple(range(len(shapes), len(tensors)))
    node = Node(0, 0, name, args, outputs)
    return Graph("one node", tensors, (node,), tuple(range(len(shapes))), outputs, Target())


def numbers(shape: tuple[int, ...], seed: int, odd: tuple[float, ...] = ODD) -> np.ndarray:
    rng = np.random.default_rng(seed)
    drawn = (rng.standard_normal(shape) * 3).astype(np.float32)
    return np.where(rng.random(shape) < 0.2, rng.choice(np.array(odd, np.float32), shape), drawn)


def unlike(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where two arrays of floats have other bits, in flat order; the bits of a NaN are a device's own."""
    return np.flatnonzero((a.view(np.uint32) != b.view(np.uint32)) & ~(np.isnan(a) & np.isnan(b)))
