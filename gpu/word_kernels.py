"""Comparisons, choices, truth values and indices on a device: elements of int32 and bool, a word each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from refsim.aten.row import axis
from refsim.graph.graph import Ref
from refsim_gpu.float_site import WORDS, Launched, Row, Site
from refsim_gpu.float_words import CHOOSE_DIMS, MAP_DIMS
from refsim_gpu.strided import Unfit, counted, laid

BOOL, INT, FLOAT = (np.dtype(kind) for kind in (np.bool_, np.int32, np.float32))
#: How far two floats may be apart that ET-VK's shader takes for equal.
NEAR = 1e-5


def compared(op: str, whole: str = "", near: bool = False) -> Row:
    """A truth value for two floats, or, by operation ``whole``, two integers. ``near``: two tensors are compared so."""

    def row(site: Site) -> Iterator[Launched]:
        a, b = site.node.args
        out = site.out(dtype=BOOL)
        if whole and isinstance(b, Ref) and site.dtype(a.id) == site.dtype(b.id) != FLOAT:
            yield site.mapped(out, whole, site.tensor(a, INT, BOOL), site.tensor(b, INT, BOOL))
        else:
            both = near and isinstance(b, Ref)
            yield site.mapped(out, "NEAR" if both else op, site.real(a), site.real(b), NEAR)

    return row


def joint(op: str) -> Row:
    def row(site: Site) -> Iterator[Launched]:
        a, b = (site.tensor(arg, BOOL) for arg in site.node.args)
        yield site.mapped(site.out(dtype=BOOL), op, a, b)

    return row


def negated(site: Site) -> Iterator[Launched]:
    x = site.tensor(site.node.args[0], BOOL)
    yield site.mapped(site.out(dtype=BOOL), "WHOLE_EQUAL", x, site.real(0.0))


def added(site: Site, sign: int) -> Launched:
    """a + alpha * b of int32, or a - alpha * b."""
    a, b, *rest = site.node.args
    alpha = rest[0] if rest else 1
    if len(rest) > 1 or not isinstance(alpha, int) or abs(alpha) >> 24:
        raise Unfit(f"arguments {rest}")
    return site.mapped(
        site.out(dtype=INT), "WHOLE_ADD", site.tensor(a, INT), site.tensor(b, INT), float(sign * alpha)
    )


def converted(site: Site) -> Iterator[Launched]:
    """A copy, or the float32 of an integer."""
    x, out = site.tensor(site.node.args[0], *WORDS), site.tensor(Ref(site.node.outputs[0]), *WORDS)
    given, made = site.dtype(x.key), site.dtype(out.key)
    if made not in (given, FLOAT):
        raise Unfit(f"{given} as {made}")
    yield site.mapped(out, "COPY" if given == made else "NUMBER", x)


def chosen(site: Site) -> Iterator[Launched]:
    condition, *args = site.node.args
    out = site.tensor(Ref(site.node.outputs[0]), *WORDS)
    a, b = (site.tensor(arg, site.dtype(out.key)) for arg in args)
    c, shape = site.tensor(condition, BOOL), out.view.shape
    one, other, which = (operand.viewed(np.broadcast_to(operand.view, shape)) for operand in (a, b, c))
    words, rows = laid(CHOOSE_DIMS, OUT=out, A=one, B=other, C=which)
    yield site.launched("choose", out, (a, b, c), counted(words["COUNT"]), words, DIMS=rows)


# --- indices ----------------------------------------------------------------------------------------------


def gathered(site: Site, x_arg: Any, places_arg: Any, dim: int) -> Launched:
    """Of ``x`` the elements at places of one dim, whose own dims stand in its stead."""
    x, places = site.tensor(x_arg, *WORDS), site.tensor(places_arg, INT)
    out = site.tensor(Ref(site.node.outputs[0]), site.dtype(x.key))
    at = axis(dim, x.view.ndim)
    inner, before, after = places.view.ndim, x.view.shape[:at], x.view.shape[at + 1 :]
    shape = (*before, *places.view.shape, *after)
    if shape != out.view.shape:
        raise Unfit(f"{list(shape)} for {list(out.view.shape)}")
    steps = x.view.strides
    rest = as_strided(x.view, shape, (*steps[:at], *[0] * inner, *steps[at + 1 :]), writeable=False)
    along = as_strided(
        places.view, shape, (*[0] * at, *places.view.strides, *[0] * len(after)), writeable=False
    )
    held, length = site.constants.get(places.key), x.view.shape[at]
    if held is not None and ((held < -length) | (held >= length)).any():
        raise Unfit("an index is out of range")  # the host says which
    words, rows = laid(MAP_DIMS, OUT=out, A=x.viewed(rest), B=places.viewed(along))
    words |= {"LENGTH": length, "STEP": steps[at] // 4}
    return site.launched("gather", out, (x, places), counted(words["COUNT"]), words, DIMS=rows)


def index(site: Site) -> Iterator[Launched]:
    x, indices = site.node.args
    given = [(dim, places) for dim, places in enumerate(indices) if places is not None]
    if len(given) != 1:
        raise Unfit(f"indices of {len(given)} dims")
    ((dim, places),) = given
    yield gathered(site, x, places, dim)


def index_select(site: Site) -> Iterator[Launched]:
    x, dim, places = site.node.args
    yield gathered(site, x, places, dim)


def embedding(site: Site) -> Iterator[Launched]:
    weight, places, *_ = site.node.args
    yield gathered(site, weight, places, 0)


ROWS: dict[str, Row] = {
    "eq": compared("EQUAL", "WHOLE_EQUAL", near=True),
    "ne": compared("UNEQUAL", "WHOLE_UNEQUAL"),
    "lt": compared("BELOW"),
    "le": compared("UP_TO"),
    "gt": compared("ABOVE"),
    "ge": compared("FROM"),
    "logical_not": negated,
    "logical_and": joint("AND"),
    "logical_or": joint("OR"),
    "where.self": chosen,
    "index": index,
    "index_select": index_select,
    "embedding": embedding,
}
