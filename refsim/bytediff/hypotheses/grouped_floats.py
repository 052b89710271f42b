"""Rows of floats times 4-bit weights with a scale for each group: other scales, and lanes that are added up otherwise.

As in `grouped_rows`, what is wrong is tried first on the rows with most wrong elements.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, once
from refsim.bytediff.hypotheses import grouped_places
from refsim.bytediff.hypotheses.grouped_rows import (
    LEAST_SHARE,
    MOST_PRODUCTS,
    TRIED,
    Rows,
    close,
    floats,
    many_rows,
)
from refsim.core.qmath import flush, mul_add
from refsim.ops.base.int4 import COLUMNS
from refsim.ops.base.traits import Family

F = np.float32


def float_rows(ev: Evidence) -> bool:
    """Whether the call adds up floats times real weights, in a stated order."""
    grouped = None if ev.bound is None else ev.call.op.int4
    return grouped is not None and grouped.orders is not None and not many_rows(ev)


class Floats:
    """The rows with most wrong elements of such a call, and what other weights or sums make of them."""

    def __init__(self, ev: Evidence) -> None:
        call = ev.call
        grouped = call.op.int4
        assert grouped is not None
        self.ev, self.flags = ev, call.target.profile.flags
        self.values, self.scales = grouped.values(call)
        self.lanes = 1 if grouped.lanes is None else grouped.lanes(call)
        self.x = flush(ev.arrays["x"], self.flags).reshape(-1, self.values.shape[1])
        self.bias = call.consts.get("bias")
        outputs = call.out.shape[-1]
        wrong = ev.differing[ev.places].reshape(-1, outputs)
        chosen = np.argsort(-wrong.sum(axis=1), kind="stable")[:TRIED]
        self.chosen, self.wrong, self.got = chosen, wrong[chosen], floats(ev)[chosen]
        self.small = len(self.x) * self.values.size <= MOST_PRODUCTS

    @staticmethod
    @once
    def of(ev: Evidence) -> Floats:
        return Floats(ev)

    def real(self, scales: np.ndarray) -> np.ndarray:
        """The weights [N, K] of scales [N, any part of K]."""
        spread = np.repeat(scales, self.values.shape[1] // scales.shape[1], axis=1)
        found: np.ndarray = self.values.astype(F) * spread
        return found

    def sums(self, x: np.ndarray, real: np.ndarray, wide: bool = False, narrowed: bool = False) -> np.ndarray:
        """The sum of each lane, (lanes, rows, N); in binary64 if ``wide``, and ``narrowed`` after each block."""
        kind = np.float64 if wide else F
        total = np.zeros((self.lanes, len(x), len(real)), kind)
        rows, columns, step = x.T, real.T, COLUMNS * self.lanes
        for first in range(0, x.shape[1], step):
            for j in range(COLUMNS):
                at = np.arange(first + j, min(first + step, x.shape[1]), COLUMNS)
                a, b = rows[at][:, :, None], columns[at][:, None, :]
                held = total[: len(at)]
                total[: len(at)] = held + (a * b).astype(kind) if wide else mul_add(a, b, held, self.flags)
            if narrowed:
                total = total.astype(F).astype(kind)
        return total

    def finished(self, total: np.ndarray) -> np.ndarray:
        """float32 (rows, N): with the bias."""
        narrow = total.astype(F)
        return narrow if self.bias is None else narrow + self.bias

    def explains(self, values: np.ndarray) -> bool:
        """Whether the rows with most wrong elements speak for values (rows, N) of them."""
        same = (values == self.got) | (values != values) & (self.got != self.got)
        return bool(np.count_nonzero(same & self.wrong) >= LEAST_SHARE * np.count_nonzero(self.wrong))

    def told(self, real: np.ndarray, given: np.ndarray | None = None) -> bool:
        """Whether they may speak for other weights [N, K], or another x: the order of the sums is left open."""
        given = self.x if given is None else given
        x, by = given[self.chosen].astype(np.float64), real.T.astype(np.float64)
        bias = 0 if self.bias is None else self.bias
        return close(x @ by + bias, np.abs(x) @ np.abs(by) + np.abs(bias), self.got, self.wrong)


def telling(ev: Evidence, values: np.ndarray, scales: np.ndarray) -> bool:
    """Whether a call with other weights and scales may come close to some of the rows with most wrong elements."""
    if many_rows(ev):
        per_group = scales.shape[1] // (values.shape[1] // ev.call.params.group)
        return Rows.of(ev).told({"values": values, "scales": scales[:, ::per_group].T})
    if not float_rows(ev):
        return True
    rows = Floats.of(ev)
    spread = np.repeat(scales, values.shape[1] // scales.shape[1], axis=1)
    with np.errstate(all="ignore"):
        return rows.told(values.astype(F) * spread)


def added(lanes: np.ndarray) -> np.ndarray:
    """The sums of lanes added up as a tree."""
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = lanes[:half] + lanes[half:]
    found: np.ndarray = lanes[0]
    return found


def _trees(lanes: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """(how, sum) of lanes that are added up in another way, or not at all."""
    count = len(lanes)
    yield "the lanes are not added up: the sum of the first alone", lanes[0]
    for left in (1, 2, 4, 8):
        if left < count:
            kept = lanes
            while len(kept) > 2 * left:
                half = len(kept) // 2
                kept = kept[:half] + kept[half:]
            yield (
                f"the last steps left out: lanes are added up to {2 * left} sums, of which the first counts",
                kept[0],
            )
            yield f"the first steps left out: the first {2 * left} lanes alone", added(lanes[: 2 * left])
    half = count // 2
    yield "the second half of the lanes subtracted", added(lanes[:half] - lanes[half:])
    yield "the first half of the lanes counted twice", added(lanes[:half] + lanes[:half])
    yield "the second half of the lanes counted twice", added(lanes[half:] + lanes[half:])
    yield "the second half of the lanes alone", added(lanes[half:])
    yield "the lanes multiplied", np.multiply.reduce(lanes)
    for name, kept in (("even", lanes[::2]), ("odd", lanes[1::2])):
        yield f"the {name} lanes alone", added(kept)
    yield "the last lane alone", lanes[-1]


def trees(ev: Evidence) -> Iterator[Prediction]:
    """Lanes that are added up in another way."""
    if not float_rows(ev):
        return
    rows = Floats.of(ev)
    if rows.lanes < 2 or not rows.small:
        return
    real = rows.real(rows.scales)
    with np.errstate(all="ignore"):
        tried = dict(_trees(rows.sums(rows.x[rows.chosen], real)))
        if any(rows.explains(rows.finished(total)) for total in tried.values()):
            for what, total in _trees(rows.sums(rows.x, real)):
                yield Prediction(what, ev.with_values(rows.finished(total)))


def precisions(ev: Evidence) -> Iterator[Prediction]:
    """Sums that are held in binary64, or that begin elsewhere than at 0."""
    if not float_rows(ev) or not Floats.of(ev).small:
        return
    rows = Floats.of(ev)
    real = rows.real(rows.scales)
    x = rows.x[rows.chosen]
    with np.errstate(all="ignore"):
        for narrowed, what in ((False, "added up"), (True, "each block of four added up")):
            if rows.explains(rows.finished(added(rows.sums(x, real, True, narrowed)))):
                made = rows.finished(added(rows.sums(rows.x, real, True, narrowed)))
                yield Prediction(f"{what} in binary64", ev.with_values(made))


def scales(ev: Evidence) -> Iterator[Prediction]:
    """Scales read elsewhere: one number of their address is another one."""
    grouped = None if ev.bound is None else ev.call.op.int4
    if grouped is None or many_rows(ev):
        return
    looked_up = ev.call.op.family is Family.LOOKUP
    if looked_up:
        values, own = grouped.values(ev.call)
    else:
        rows = Floats.of(ev)
        if not rows.small:
            return
        values, own = rows.values, rows.scales
    outputs, count = own.shape
    size = values.shape[1] // count
    if size % COLUMNS:
        return
    blocks = values.shape[1] // COLUMNS
    g, n = (np.arange(blocks) * COLUMNS // size)[None, :], np.arange(outputs)[:, None]
    line = count if looked_up else -(-outputs // COLUMNS) * COLUMNS
    flat = np.zeros(outputs * line if looked_up else count * line, F)
    flat.reshape((outputs, line) if looked_up else (count, line))[:] = (
        own if looked_up else np.pad(own.T, ((0, 0), (0, line - outputs)))
    )
    slow, fast = (n, g) if looked_up else (g, n)
    places = dict(grouped_places.lines(slow, fast, line, outputs))
    for how, group in grouped_places.groups(blocks, size // COLUMNS):
        places[f"group {how}"] = n * line + group[None, :] if looked_up else group[None, :] * line + n
    seen = {np.repeat(own, size // COLUMNS, axis=1).tobytes()}
    for how, at in places.items():
        read = grouped_places.taken(flat, at + 0 * g + 0 * n)
        if read.tobytes() in seen:
            continue
        seen.add(read.tobytes())
        with np.errstate(all="ignore"):
            if looked_up or rows.told(rows.real(read)):
                made = grouped.compute(ev.call, ev.arrays, values, read)
                yield Prediction(f"scales read at {how}", ev.with_values(made))
