"""What is certain about wrong bytes that no cause predicts: where they are, what they hold, how far off."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from refsim.bytediff import within
from refsim.bytediff.evidence import Evidence, distinct
from refsim.core.buffer import ByteKind

#: Fewer differing elements than this say nothing together.
FEW = 4
#: How many values are listed, and how many regions.
MOST_VALUES, MOST_REGIONS = 3, 3


def facts(ev: Evidence) -> list[str]:
    """Sentences about the differing elements; none if there are only a few."""
    at = np.flatnonzero(ev.differing & (ev.kinds == ByteKind.VALUE))
    if len(at) < FEW:
        return []
    return [line for rule in RULES for line in rule(ev, at)]


def _where(ev: Evidence, at: np.ndarray) -> Iterator[str]:
    """The smallest region that holds all of them, if it says where the error is; the narrowest simple ones."""
    smallest = within.tightest(ev)
    if smallest is not None and smallest.tight:
        yield str(smallest)
    values = ev.kinds == ByteKind.VALUE
    said = smallest.name if smallest is not None and smallest.tight else ""
    for region in within.regions(ev)[::-1][:MOST_REGIONS]:
        if region.name == said:
            continue
        inside = int(np.count_nonzero(region.mask & values))
        yield f"{region.name}: {len(at)} of the {inside} elements there are wrong"


def _held(ev: Evidence, at: np.ndarray) -> Iterator[str]:
    """The values that wrong elements hold."""
    got = ev.actual.data[at] if not ev.desc.is_int8 else ev.got[at]
    values, first, counts = np.unique(ev.got[at], return_index=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MOST_VALUES]
    share = int(counts[order].sum())
    if 2 * share >= len(at):
        listed = ", ".join(f"{got[first[k]].item():g}" for k in order)
        yield f"{share} of {len(at)} wrong elements hold {listed}"
    else:
        yield f"{len(values)} different values among {len(at)} wrong elements"


def _off(ev: Evidence, at: np.ndarray) -> Iterator[str]:
    """Direction and size of the errors."""
    if ev.desc.is_int8:
        step = ev.got[at].astype(np.int64) - ev.want[at].astype(np.int64)
        above, below = int((step > 0).sum()), int((step < 0).sum())
        middle = int(np.median(np.abs(step)))
        yield f"{above} too large, {below} too small, by {middle} steps in the middle, {np.abs(step).max()} at most"
        return
    with np.errstate(all="ignore"):
        want, got = ev.expected.data[at].astype(np.float64), ev.actual.data[at].astype(np.float64)
        ratio = got / want
    kept = ratio[np.isfinite(ratio)]
    if len(kept):
        low, middle, high = np.quantile(kept, (0.1, 0.5, 0.9))
        yield f"actual / expected: {middle:.4g} in the middle, {low:.4g} to {high:.4g} for most"


def _function(ev: Evidence, at: np.ndarray) -> Iterator[str]:
    """Whether equal right values became equal wrong ones: then addresses and inputs are right, arithmetic is not."""
    want, got = ev.want[at], ev.got[at]
    pairs = len(distinct(want.astype(np.int64) << 32 | got.astype(np.int64) & 0xFFFFFFFF))
    known = distinct(want)
    if pairs != len(known) or 4 * len(known) > 3 * len(at) or len(known) < 2:
        return
    values = ev.want[ev.kinds == ByteKind.VALUE]
    if np.count_nonzero(np.isin(values, known)) > len(at):  # the same values are right elsewhere
        yield "where it is wrong, the value depends on the right one alone"
    else:
        yield "the wrong value depends on the right one alone: the epilogue or a constant, not an address"


def _known_values(ev: Evidence, at: np.ndarray) -> Iterator[str]:
    """Whether the wrong values occur elsewhere: then they were moved."""
    if len(distinct(ev.got[at])) < FEW:
        return
    sources = {"the right output": ev.want[ev.kinds == ByteKind.VALUE]}
    sources |= {
        name: np.frombuffer(np.ascontiguousarray(raw).tobytes(), ev.want.dtype)
        for name, raw in ev.others.items()
        if np.asarray(raw).nbytes % ev.want.dtype.itemsize == 0
    }
    for name, source in sources.items():
        if len(distinct(source)) > (128 if ev.desc.is_int8 else len(source)):
            continue  # any byte occurs there
        if np.isin(ev.got[at], source).all():
            yield f"every wrong value occurs in {name}"


RULES: tuple[Callable[[Evidence, np.ndarray], Iterator[str]], ...] = (
    _where, _held, _off, _function, _known_values,
)  # fmt: skip
