"""Kernels with 4-bit weights as plain loops over the bytes of a file, each with one bug."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from refsim.ops.base import int4
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case

F = np.float32


def _linear(shape: tuple[int, ...], out: int = 24, group: int = 16) -> BoundCase:
    features = {"out_channels": out, "bias": True}
    return bind(Case("linear_q4gsw", {"group_size": group}, {"x": (shape, "W")}, "W", 3, features))


def _embedding(shape: tuple[int, ...], group: int = 16) -> BoundCase:
    params = {"group_size": group, "is_linear_weight": True}
    return bind(Case("embedding_q4gsw", params, {"indices": (shape, "W")}, "W", 5, {"table": (19, 64)}))


ROWS5, ONE_ROW, PLANES = _linear((5, 64)), _linear((1, 300), 20, 20), _linear((2, 3, 32))
WORDS, SENTENCES, SMALL_GROUPS = _embedding((9,)), _embedding((3, 5)), _embedding((7,), 2)


def unsigned(byte: int, k: int) -> int:
    return byte >> 4 * (k % 2) & 15


def swapped(byte: int, k: int) -> int:
    return (byte >> 4 * (1 - k % 2) & 15) - 8


def right(byte: int, k: int) -> int:
    return (byte >> 4 * (k % 2) & 15) - 8


def weights(bound: BoundCase, nibble: Callable[[int, int], int] = right) -> np.ndarray:
    """Every value of the weight, byte by byte."""
    weight = bound.call.consts["weight"]
    assert weight is not None
    values = [[nibble(int(row[k // 2]), k) for k in range(2 * len(row))] for row in weight]
    return np.array(values, np.int64)


def scales(bound: BoundCase) -> np.ndarray:
    """[rows, groups]."""
    found = bound.call.consts["scales"]
    assert found is not None
    return found if "indices" in bound.inputs else found.T


def result(bound: BoundCase, values: np.ndarray, scale: Callable[[int, int], np.float32]) -> np.ndarray:
    """The output for these values; ``scale(row, k)`` is that of an element. Lanes and their tree as they should be."""
    shape, consts = bound.call.out.shape, bound.call.consts
    real = np.array([[F(F(v) * scale(n, k)) for k, v in enumerate(row)] for n, row in enumerate(values)], F)
    if "indices" in bound.inputs:
        return real[bound.inputs["indices"].unpack()]
    x = bound.inputs["x"].unpack()
    return chained(x, real, consts["bias"], 64 if x.shape[-2] == 1 else 1).reshape(shape)


def chained(x: np.ndarray, real: np.ndarray, bias: Any, lanes: int, tree: bool = True) -> np.ndarray:
    """Products added up by lanes, element by element; without a ``tree`` at the end."""
    rows = x.reshape(-1, x.shape[-1])
    out = np.zeros((len(rows), len(real)), F)
    for m, n in np.ndindex(out.shape):
        sums = [F(0)] * lanes
        for k, value in enumerate(rows[m]):
            sums[k // 4 % lanes] = F(sums[k // 4 % lanes] + F(value * real[n, k]))
        while tree and len(sums) > 1:
            half = len(sums) // 2
            sums = [F(a + b) for a, b in zip(sums[:half], sums[half:], strict=True)]
        out[m, n] = sums[0] if bias is None else F(sums[0] + bias[n])
    return out


def _made(bound: BoundCase, **bug: Any) -> Callable[[], tuple[BoundCase, np.ndarray]]:
    """The output with another ``nibble(byte, k)``, another ``scale`` (row, group), or other ``values`` altogether."""

    def make() -> tuple[BoundCase, np.ndarray]:
        given = scales(bound)
        size = bound.call.params.group_size
        at = bug.get("at", lambda n, k: (n, k // size))
        values = bug["values"](bound) if "values" in bug else weights(bound, bug.get("nibble", right))
        return bound, result(bound, values, lambda n, k: given[at(n, k)])

    return make


def _read_as_pairs(bound: BoundCase) -> np.ndarray:
    """Words laid out for the embedding, read as the linear's kernel reads its own."""
    values = weights(bound)
    words, strips = int4.HALVES.words(values.astype(np.int8)), -(-len(values) // 8)
    read = np.zeros_like(values)
    for n, k in np.ndindex(values.shape):
        word = int(words[(k // 4 * strips + n // 8) * 4 + n % 8 // 2])
        read[n, k] = (word >> 8 * (k % 4) + 4 * (n % 2) & 15) - 8
    return read


def _rows_first(bound: BoundCase) -> np.ndarray:
    """Blocks of the embedding's table stored with the rows' blocks as neighbours."""
    values = weights(bound)
    words, columns, strips = (
        int4.HALVES.words(values.astype(np.int8)),
        values.shape[1] // 4,
        -(-len(values) // 8),
    )
    stored = words.reshape(strips, columns, 4).transpose(1, 0, 2).reshape(-1)
    read = np.zeros_like(values)
    for n, k in np.ndindex(values.shape):
        word = int(stored[(n // 8 * columns + k // 4) * 4 + n % 4])
        read[n, k] = (word >> 8 * (k % 4) + (n & 4) & 15) - 8
    return read


def _scales_bound_as_bias() -> tuple[BoundCase, np.ndarray]:
    """The first scales read as the bias."""
    words = np.asarray(ROWS5.call.consts["scales"]).reshape(-1)[:24]
    return ROWS5, chained(ROWS5.inputs["x"].unpack(), real_weights(ROWS5), words, 1)


def _short(bound: BoundCase) -> np.ndarray:
    values = weights(bound)
    values[:, -4:] = 0
    return values


def _without_last_lane(bound: BoundCase) -> np.ndarray:
    values = weights(bound)
    for k in range(values.shape[1]):
        if k // 4 % 64 == 63:
            values[:, k] = 0
    return values


def real_weights(bound: BoundCase) -> np.ndarray:
    """Every weight times its scale."""
    size, given = bound.call.params.group_size, scales(bound)
    rows = enumerate(weights(bound))
    return np.array([[F(F(v) * given[n, k // size]) for k, v in enumerate(row)] for n, row in rows], F)


def _one_chain() -> tuple[BoundCase, np.ndarray]:
    x, bias = ONE_ROW.inputs["x"].unpack(), ONE_ROW.call.consts["bias"]
    return ONE_ROW, chained(x, real_weights(ONE_ROW), bias, 1)


def _no_tree() -> tuple[BoundCase, np.ndarray]:
    """The first lane's sum alone."""
    x, bias = ONE_ROW.inputs["x"].unpack(), ONE_ROW.call.consts["bias"]
    return ONE_ROW, chained(x, real_weights(ONE_ROW), bias, 64, tree=False)


def _no_bias() -> tuple[BoundCase, np.ndarray]:
    return ROWS5, chained(ROWS5.inputs["x"].unpack(), real_weights(ROWS5), None, 1)


def _first_row_of_indices() -> tuple[BoundCase, np.ndarray]:
    read = [*SENTENCES.inputs["indices"].unpack()[0], *[0] * 10]
    return SENTENCES, real_weights(SENTENCES)[read].reshape(3, 5, -1)


def _first_plane() -> tuple[BoundCase, np.ndarray]:
    values = PLANES.call.expected(PLANES.inputs).unpack()
    values[1] = F(1e31)
    return PLANES, values


Wrong = Callable[[], tuple[BoundCase, Any]]
#: Name of the cause, the beginning of its detail, and who makes the wrong buffer.
ROWS: tuple[tuple[str, str, Wrong], ...] = (
    ("nibbles read wrong", "the two nibbles of a byte exchanged",
     _made(ROWS5, nibble=swapped)),
    ("nibbles read wrong", "the two nibbles of a byte exchanged",
     _made(WORDS, nibble=swapped)),
    ("nibbles read wrong", "8 not taken from a nibble", _made(ONE_ROW, nibble=unsigned)),
    ("nibbles read wrong", "8 not taken from a nibble", _made(WORDS, nibble=unsigned)),
    ("nibbles read wrong", "a nibble's highest bit taken for its sign",
     _made(ROWS5, nibble=lambda byte, k: ((byte >> 4 * (k % 2) & 15) + 8) % 16 - 8)),
    ("weights laid out for another kernel", "laid out in halves, read in pairs", _made(ROWS5, values=_read_as_pairs)),
    ("weights laid out for another kernel", "blocks stored with rows first", _made(WORDS, values=_rows_first)),
    ("scale of another group", "scale of the group before",
     _made(ROWS5, at=lambda n, k: (n, (k // 16 - 1) % 4))),
    ("scale of another group", "scale of the first group for all", _made(WORDS, at=lambda n, k: (n, 0))),
    ("scale of another group", "groups of 32 instead of 16", _made(WORDS, at=lambda n, k: (n, k // 32))),
    ("scale of another group", "scales of the row after", _made(ROWS5, at=lambda n, k: ((n + 1) % 24, k // 16))),
    ("order of float sums", "added up as one chain over K", _one_chain),
    ("order of float sums", "bias left out", _no_bias),
    ("order of float sums", "bias read from the words of scales", _scales_bound_as_bias),
    ("float sum too short", "all but the first 1 of 64 lanes left out", _no_tree),
    ("float sum too short", "the last block of four left out", _made(ROWS5, values=_short)),
    ("float sum too short", "the last of 64 lanes left out", _made(ONE_ROW, values=_without_last_lane)),
    ("known defect of upstream", "on textures upstream's kernel reads only the first row", _first_row_of_indices),
    ("known defect of upstream", "upstream's kernel takes one scale for four neighbours",
     _made(SMALL_GROUPS, at=lambda n, k: (n, k // 4 * 2))),
    ("known defect of upstream", "upstream's kernel computes the first plane", _first_plane),
)  # fmt: skip
