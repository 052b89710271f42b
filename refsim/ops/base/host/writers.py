"""Which invocation of a kernel of another build writes a word: the way back from `ModuleCall.global_size`.

A kernel finds its place from its number along each axis. In a product of sizes the last factor runs fastest: in
``n * ceil(c / 4) * h * w`` neighbouring invocations write neighbouring columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from refsim.core import index
from refsim.core.errors import ParameterError
from refsim.ops.base.host import expression, tensor, words
from refsim.ops.base.host.row import ModuleCall
from refsim.ops.base.host.words import CallSite

#: The coordinates (w, h, c, n) of the first element of each word of the output.
Places = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def work_items(site: CallSite, row: ModuleCall) -> np.ndarray:
    """The number along x, y and z of the invocation that writes each word of the output: int64 (3, words).

    A word that is padding belongs to whoever writes the nearest element; one of a batch that the kernel does not
    compute, to whoever writes that element of the first one. ParameterError for a size that is no rule or product.
    """
    places, size = _places(site), row.global_size
    if isinstance(size, str):
        name, of = words.split(size)
        return np.stack(_RULES[name](site, of, places))
    products = [None] if row.own is not None and row.own.groups else [*map(expression.factors, size)]
    if None in products:
        raise ParameterError("module", "who writes a word is not known", got=size, need="products of sizes")
    return np.stack([_product(site, product or [], places) for product in products])


def _places(site: CallSite) -> Places:
    """Where each word begins in the output as the host sees it."""
    out, seen = site.call.out, site.tensor("out")
    first = np.arange(out.words, dtype=np.int64) * (4 if out.is_int8 else 1)
    sizes = out.sizes_whcn
    coordinates = index.coord(out.meta, 0, out.hashed, first)
    w, h, c, n = (np.minimum(at, size - 1) for at, size in zip(coordinates, sizes, strict=True))
    if seen.sizes_whcn[1] != sizes[1]:  # the rows of all images are those of one
        h, n = h + n * sizes[1], n * 0
    w, h, c, n = (np.broadcast_to(at, first.shape) for at in (w, h, c, n))
    return w, h, c, n


def _product(site: CallSite, product: Sequence[tuple[int, int]], places: Places) -> np.ndarray:
    found = np.zeros_like(places[0])
    for dim, by in product:
        found = found * -(-site.tensor("out").sizes_whcn[dim] // by) + places[dim] // by
    return found


def _extents(site: CallSite, pair: str, places: Places) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    out, dims = words.walked(site, pair)
    w, h, c, n = (at // tensor.BLOCK if dim in dims else at for dim, at in enumerate(places))
    channels = tensor.extents(out, dims)[2] // max(1, out.sizes_whcn[3])
    return w, h, c + channels * n


def _blocks(site: CallSite, pair: str, places: Places) -> tuple[np.ndarray, ...]:
    """Blocks in a row: along the inner dim, the outer one, then the others as they come."""
    if site.shader.textures:
        return _extents(site, pair, places)
    out, (inner, outer) = words.walked(site, pair)
    found, step = np.zeros_like(places[0]), 1
    for dim in (inner, outer, *(dim for dim in range(4) if dim not in (inner, outer))):
        by = tensor.BLOCK if dim in (inner, outer) else 1
        found = found + step * (places[dim] // by)
        step *= -(-out.sizes_whcn[dim] // by)
    return _along_x(found)


def _along_x(found: np.ndarray) -> tuple[np.ndarray, ...]:
    return found, np.zeros_like(found), np.zeros_like(found)


def _in_order(site: CallSite, of: str, places: Places) -> tuple[np.ndarray, ...]:
    return _along_x(np.arange(len(places[0]), dtype=np.int64))


def _words(site: CallSite, of: str, places: Places) -> tuple[np.ndarray, ...]:
    """One writes four elements, which may be four words."""
    each = 1 if site.call.out.is_int8 else 4
    return _along_x(np.arange(len(places[0]), dtype=np.int64) // each)


def _tiles(site: CallSite, of: str, places: Places) -> tuple[np.ndarray, ...]:
    """Tiles of 4 x 4 elements, those of a row of tiles first; rows are those of all outer dims."""
    (w, h, c, n), sizes = places, site.call.out.sizes_whcn
    row = (n * sizes[2] + c) * sizes[1] + h
    return _along_x(row // 4 * -(-sizes[0] // 4) + w // 4)


_RULES: Mapping[str, Callable[[CallSite, str, Places], tuple[np.ndarray, ...]]] = {
    "blocks": _blocks,
    "extents": _extents,
    "words": _words,
    "fours": _in_order,
    "tiles": _tiles,
}
