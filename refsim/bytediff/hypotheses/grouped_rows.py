"""Rows that are quantized and multiplied by 4-bit weights in groups, with one part of them wrong.

A row of outputs needs no other row. So a wrong part is tried on the rows with most wrong elements, in binary64, and
computed bit by bit on all rows only if it comes close to some of these elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, once
from refsim.bytediff.hypotheses import grouped_places, quantizing, quotients
from refsim.core.qmath import flush
from refsim.ops.base import group_linear, group_weights
from refsim.ops.base.epilogue import align4
from refsim.ops.base.traits import Family

F = np.float32
#: The rows with most wrong elements that are tried first, the share of these that must be explained, and how closely:
#: the share of the sum of the magnitudes of all terms that rounding may make up.
TRIED, LEAST_SHARE, CLOSE = 3, 0.2, 2e-5
#: Calls with more products are left alone.
MOST_PRODUCTS = 1 << 24

Parts = Mapping[str, Any]
#: The parts that have a row for each row of the output.
_OF_ROWS = ("q", "zp", "step", "more")


def many_rows(ev: Evidence) -> bool:
    """Whether the call quantizes its rows before it multiplies them."""
    return ev.bound is not None and ev.call.op.family is Family.GROUP_LINEAR and ev.call.out.shape[-2] > 1


class Rows:
    """The parts of such a call, each of which may be another one; what comes of them."""

    def __init__(self, ev: Evidence) -> None:
        call = ev.call
        self.ev, self.flags, self.group = ev, call.target.profile.flags, call.params.group
        k = call.descs["x"].shape[-1]
        self.x = flush(ev.arrays["x"], self.flags).reshape(-1, k)
        values, scales = group_weights.weights_of(call)
        with np.errstate(all="ignore"):
            self.inv = F(1) / ev.arrays["scale"].reshape(-1)
        self.right: dict[str, Any] = {
            "q": group_weights.quantized(call, ev.arrays).reshape(-1, k),
            "zp": ev.arrays["zp"].reshape(-1).astype(np.int64),
            "step": ev.arrays["scale"].reshape(-1),
            "values": values, "scales": scales.T, "sums": group_weights.own_sums(call).astype(np.int64),
            "bias": call.consts["bias"], "more": np.zeros((len(self.x), 1), np.int64),
        }  # fmt: skip
        self.small = len(self.x) * values.size <= MOST_PRODUCTS
        outputs = call.out.shape[-1]
        wrong = ev.differing[ev.places].reshape(-1, outputs)
        chosen = np.argsort(-wrong.sum(axis=1), kind="stable")[:TRIED]
        self.chosen, self.wrong = chosen, wrong[chosen]
        self.got = floats(ev)[chosen]
        self.by_group = self._grouped(values)

    def _grouped(self, values: np.ndarray) -> np.ndarray:
        """float64 (groups, of a group, outputs)."""
        return np.ascontiguousarray(values.T.reshape(-1, self.group, len(values)), np.float64)

    @staticmethod
    @once
    def of(ev: Evidence) -> Rows:
        return Rows(ev)

    def made(self, changed: Parts) -> np.ndarray:
        """float32 (rows, outputs) with some parts changed."""
        parts = {**self.right, **changed}
        q, zp, step, more = (parts[name][:] for name in _OF_ROWS)
        with np.errstate(all="ignore"):
            adj = group_linear.adjusted(q, zp, parts["values"], parts["sums"], self.group) + more
            wide = np.clip(adj, -(1 << 62), 1 << 62)
            return group_linear.scaled(wide, step, parts["scales"], parts["bias"], self.flags)

    def tried(self, tries: Iterable[tuple[str, Parts]]) -> Iterator[Prediction]:
        """A prediction for each change that explains some of the rows with most wrong elements."""
        for what, changed in tries if self.small else ():
            if self.told(changed):
                yield Prediction(what, self.ev.with_values(self.made(changed)))

    def told(self, changed: Parts) -> bool:
        """Whether the rows with most wrong elements may speak for a change."""
        parts = {**self.right, **changed}
        q, zp, step, more = (parts[name][self.chosen] for name in _OF_ROWS)
        by_group = np.moveaxis(q.reshape(len(q), -1, self.group), 1, 0).astype(np.float64)
        weights = self._grouped(parts["values"]) if "values" in changed else self.by_group
        with np.errstate(all="ignore"):
            adj = by_group @ weights - zp[:, None].astype(np.float64) * parts["sums"][:, None, :] + more
            terms = adj * (step[:, None] * parts["scales"][:, None, :])
            bias = 0 if parts["bias"] is None else parts["bias"]
            return close(
                terms.sum(axis=0) + bias, np.abs(terms).sum(axis=0) + np.abs(bias), self.got, self.wrong
            )


def floats(ev: Evidence) -> np.ndarray:
    """What a buffer of floats holds: (rows, outputs)."""
    return np.ascontiguousarray(ev.got[ev.places]).view(F).reshape(-1, ev.call.out.shape[-1])


def close(made: np.ndarray, magnitude: np.ndarray, got: np.ndarray, wrong: np.ndarray) -> bool:
    """Whether sums come close to enough of the wrong elements: as close as rounding lets them."""
    with np.errstate(all="ignore"):
        near = (np.abs(made - got) <= CLOSE * magnitude) | ~np.isfinite(made) & ~np.isfinite(got)
    return bool(np.count_nonzero(near & wrong) >= LEAST_SHARE * np.count_nonzero(wrong))


def bounds(ev: Evidence) -> Iterator[Prediction]:
    """Rows that are quantized with other bounds."""
    if many_rows(ev):
        rows = Rows.of(ev)
        found = quantizing.bounded(rows.x, rows.inv[:, None], rows.right["zp"][:, None])
        yield from rows.tried((f"rows are quantized: {what}", {"q": q}) for what, q in found)


def steps(ev: Evidence) -> Iterator[Prediction]:
    """Rows that are quantized by another rounding or another step."""
    if many_rows(ev):
        rows = Rows.of(ev)
        found = quantizing.stepped(rows.x, rows.inv[:, None], rows.right["zp"][:, None])
        yield from rows.tried((what, {"q": q}) for what, q in found)


def zero_points(ev: Evidence) -> Iterator[Prediction]:
    """The zero points of other rows; or in only one of the two places that use it."""
    if not many_rows(ev):
        return
    rows = Rows.of(ev)
    held = ev.inputs["zp"].words
    length = ev.call.out.shape[-2]
    own = rows.right["zp"]
    found = {}
    for what, word, lane in grouped_places.lane_places(len(own), length, -(-length // 4)):
        raw = grouped_places.taken(held, word).astype(np.int64)
        found[what] = ((raw >> np.clip(8 * lane, 0, 63) & 255) ^ 128) - 128
    for what, read in quantizing.lanes_read(held):
        word = np.arange(len(own)) // length * -(-length // 4) + np.arange(len(own)) % length // 4
        found[f"lanes {what}"] = read[word, np.arange(len(own)) % length % 4]
    for what, zp in found.items():
        if not np.array_equal(zp, own):
            yield from rows.tried(iter([(f"read by {what}", {"zp": zp, "q": requantized(rows, zp)})]))
    yield from rows.tried(
        iter([("added to the activations, not subtracted by the weight sums", {"zp": 0 * own}),
              ("not added to the activations", {"q": requantized(rows, 0 * own)}),
              ("added twice to the activations", {"q": requantized(rows, 2 * own)})])
    )  # fmt: skip


def requantized(
    rows: Rows, zp: np.ndarray, inv: np.ndarray | None = None, x: np.ndarray | None = None
) -> np.ndarray:
    """The rows quantized with other zero points, other inverse scales, or other elements."""
    with np.errstate(all="ignore"):
        given = (rows.x if x is None else x) * (rows.inv if inv is None else inv)[:, None]
    return quantizing.clamped(quantizing.whole(given), zp[:, None])


def scales(ev: Evidence) -> Iterator[Prediction]:
    """The scales of other rows, for both uses or for one of them."""
    if not many_rows(ev):
        return
    rows = Rows.of(ev)
    own, length = rows.right["step"], ev.call.out.shape[-2]
    row = np.arange(len(own))
    for what, at in {
        "the place in a line": row % length, "the line": row // length, "row + 1": row + 1, "row - 1": row - 1,
        "2 * row": 2 * row, "row // 2": row // 2, "4 * row": 4 * row, "row // 4": row // 4, "row 0": 0 * row,
        "row 1": 0 * row + 1, "row * rows of a line": row * length, "-row": -row,
    }.items():  # fmt: skip
        step = grouped_places.taken(own, at)
        if np.array_equal(step, own):
            continue
        with np.errstate(all="ignore"):
            q = requantized(rows, rows.right["zp"], F(1) / step)
        both, first, second = {"step": step, "q": q}, {"q": q}, {"step": step}
        yield from rows.tried(
            iter([(f"of {what}", both), (f"of {what}, for the quantizing", first),
                  (f"of {what}, for the outputs", second)])
        )  # fmt: skip
    for what, step in (
        ("twice the scale", own * F(2)),
        ("half the scale", own / F(2)),
        ("its inverse", rows.inv),
    ):
        yield from rows.tried(iter([(f"{what}, for the outputs", {"step": step})]))


def divisions(ev: Evidence) -> Iterator[Prediction]:
    """The inverse of a row's scale by a wrong division."""
    if not many_rows(ev) or not Rows.of(ev).small:
        return
    rows = Rows.of(ev)
    with np.errstate(all="ignore"):
        inverses = quotients.divided(np.ones_like(rows.inv), rows.right["step"])
    for what, inv in zip(quotients.names(), inverses, strict=True):
        if not np.array_equal(inv, rows.inv):
            yield from rows.tried([(f"1 / scale: {what}", {"q": requantized(rows, rows.right["zp"], inv)})])


def weight_sums(ev: Evidence) -> Iterator[Prediction]:
    """Weight sums of other groups or outputs, wherever one number of their address is wrong."""
    if many_rows(ev):
        yield from _constants(ev, "weight sums read at", "sums")
        yield from _constants(ev, "weight sums and scales read at", "sums", "scales")


def group_scales(ev: Evidence) -> Iterator[Prediction]:
    """Scales of other groups or outputs, wherever one number of their address is wrong."""
    if many_rows(ev):
        yield from _constants(ev, "scales read at", "scales")


def _constants(ev: Evidence, what: str, *parts: str) -> Iterator[Prediction]:
    """Parts of the constants, all read by one other rule."""
    rows = Rows.of(ev)
    count, outputs = rows.right[parts[0]].shape
    padded = align4(outputs)
    flat = {part: np.zeros((count, padded), rows.right[part].dtype) for part in parts}
    for part, lines in flat.items():
        lines[:, :outputs] = rows.right[part]
    seen = {rows.right[parts[0]].tobytes()}
    g, n = np.arange(count)[:, None], np.arange(outputs)[None, :]
    places = dict(grouped_places.lines(g, n, padded, outputs))
    k4 = ev.call.descs["x"].shape[-1] // 4
    for how, groups in grouped_places.groups(k4, rows.group // 4):
        places[f"group {how}"] = groups[rows.group // 4 - 1 :: rows.group // 4][:, None] * padded + n
    for how, at in places.items():
        read = {
            part: grouped_places.taken(lines.reshape(-1), at + 0 * g + 0 * n) for part, lines in flat.items()
        }
        if read[parts[0]].tobytes() not in seen:
            seen.add(read[parts[0]].tobytes())
            yield from rows.tried(iter([(f"{what} {how}", read)]))


def sums(ev: Evidence) -> Iterator[Prediction]:
    """Sums of a group's products that take in more, fewer or other products, or do not begin at 0."""
    if not many_rows(ev):
        return
    rows = Rows.of(ev)
    q, values, group = rows.right["q"], rows.right["values"], rows.group
    yield from rows.tried((f"each sum begins at {n}", {"more": rows.right["more"] + n}) for n in (1, -1, 2))
    ones = q.astype(np.int64).reshape(len(q), -1, group).sum(-1).T[..., None]  # groups, rows, 1
    for times, what in (
        (8, "not taken off"),
        (-8, "taken off twice"),
        (16, "added"),
        (4, "half of it taken off"),
    ):
        parts = [("8 times the activations", what, times)]
        yield from _more(rows, ((f"{name} {how}", n * ones) for name, how, n in parts))
    each = group_linear.adjusted(q, 0 * rows.right["zp"], values, 0 * rows.right["sums"], group)
    fold = rows.right["zp"][:, None] * rows.right["sums"][:, None, :]
    adj = each - fold
    whole = np.cumsum(adj, axis=0)
    products = np.cumsum(each, axis=0)
    before = np.concatenate([0 * adj[:1], adj[:-1]])
    yield from _more(
        rows,
        iter([("a sum goes on in the next group", whole - adj),
              ("a sum goes on in the next group, the zero point is taken off anew", products - each),
              ("the sum of the group before", before - adj),
              ("the sum of the first group for all", adj[:1] - adj),
              ("the sum of a group is taken off", -2 * adj), ("the sum of a group counts twice", adj)]),
    )  # fmt: skip
    blocks = (q.reshape(len(q), -1, 4)[:, :, None, :], values.reshape(len(values), -1, 4)[None])
    if blocks[0].shape[0] * values.size <= MOST_PRODUCTS >> 4:
        yield from _more(rows, _ranges(blocks, adj + fold, group // 4))


def _more(rows: Rows, found: Iterator[tuple[str, np.ndarray]]) -> Iterator[Prediction]:
    """``found`` is what is added to the sums: (groups, rows, outputs or 1)."""
    for what, more in found:
        yield from rows.tried(iter([(what, {"more": _Rowwise(more)})]))


class _Rowwise:
    """What is added to sums (groups, rows, ..), indexed by rows."""

    def __init__(self, more: np.ndarray) -> None:
        self.more = more

    def __getitem__(self, rows: Any) -> np.ndarray:
        return self.more[:, rows]


def _ranges(
    blocks: tuple[np.ndarray, np.ndarray], own: np.ndarray, size: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Other ranges of blocks for a group, as what they add."""
    product = np.einsum("rbxj,xnbj->rnb", blocks[0].astype(np.float64), blocks[1].astype(np.float64))
    count, total = product.shape[-1] // size, product.shape[-1]
    upto = np.concatenate([np.zeros((*product.shape[:2], 1)), np.cumsum(product, -1)], -1)
    g = np.arange(count)
    first, last = g * size, (g + 1) * size
    for what, begin, end in (
        ("one block longer", first, last + 1), ("one block shorter", first, last - 1),
        ("begins a block late", first + 1, last), ("begins a block early", first - 1, last),
        ("half as long", first, first + size // 2), ("twice as long", first, last + size),
        ("from the first block on", 0 * first, last), ("to the last block", first, 0 * last + total),
        ("begins at half its place", first // 2, last), ("ends at half its place", first, last // 2),
        ("begins at twice its place", 2 * first, last), ("ends at twice its place", first, 2 * last),
        ("the group before", first - size, first), ("the group behind", last, last + size),
    ):  # fmt: skip
        begin, end = (np.clip(at, 0, total) for at in (begin, end))
        end = np.maximum(begin, end)
        found = np.moveaxis(upto[..., end] - upto[..., begin], -1, 0).astype(np.int64)
        yield f"a group's sum: {what}", found - own
