"""What wrong elements have in common: where they are, what they hold, how far off. No cause is needed to say it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from refsim.bytediff import within
from refsim.bytediff.evidence import Evidence, distinct

#: Fewer differing elements than this say nothing together.
FEW = 4
#: How many values are listed.
MOST_VALUES = 3
PADDING_ONLY = "padding only: every element is right"


def summary(ev: Evidence) -> list[str]:
    """Sentences that hold for all differing elements; one about the padding if no element differs."""
    if not ev.differing.any():
        return []
    at = np.flatnonzero(ev.wrong)
    return [line for rule in PATTERNS for line in rule(ev, at)] if len(at) else [PADDING_ONLY]


def facts(ev: Evidence) -> list[str]:
    """Sentences for where no cause is known; none if only a few elements differ."""
    at = np.flatnonzero(ev.wrong)
    return [line for rule in FACTS for line in rule(ev, at)] if len(at) >= FEW else []


def _extent(ev: Evidence, at: np.ndarray) -> Iterator[str]:
    """All elements, or a single one."""
    if len(at) == np.count_nonzero(ev.values):
        yield "every element differs"
    elif len(at) == 1:
        yield "one element differs"


def _regions(ev: Evidence, at: np.ndarray) -> Iterator[str]:
    """The smallest region that holds all of them, if they do not lie there by chance."""
    smallest = within.tightest(ev)
    if smallest is not None and not smallest.by_chance:
        yield from smallest.names


def _steps(ev: Evidence, at: np.ndarray) -> Iterator[str]:
    """How far the values are off."""
    if not ev.desc.is_int8:
        return
    step, got = ev.got[at].astype(np.int64) - ev.want[at], distinct(ev.got[at])
    low, high = int(step.min()), int(step.max())
    if low >= -1 and high <= 1:
        yield "off by one step only: rounding"
    elif len(got) == 1 and len(at) > 1:
        yield f"every differing element is {got[0]}"
    elif low == high and len(at) > 1:
        yield f"every differing element is off by {low:+d}"
    elif high < 0 and len(at) >= FEW:
        yield f"always too small, by {-high} to {-low}"
    elif low > 0 and len(at) >= FEW:
        yield f"always too large, by {low} to {high}"


def _where(ev: Evidence, at: np.ndarray) -> Iterator[str]:
    """How full the smallest region is that holds all of them, if it says where the error is."""
    smallest = within.tightest(ev)
    if smallest is not None and smallest.tight:
        yield str(smallest)


def _held(ev: Evidence, at: np.ndarray) -> Iterator[str]:
    """The values that wrong elements hold."""
    values, first, counts = np.unique(ev.got[at], return_index=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MOST_VALUES]
    share = int(counts[order].sum())
    if 2 * share >= len(at):
        listed = ", ".join(f"{held.item():g}" for held in ev.actual.data[at[first[order]]])
        yield f"{share} of {len(at)} wrong elements hold {listed}"
    else:
        yield f"{len(values)} different values among {len(at)} wrong elements"


def _off(ev: Evidence, at: np.ndarray) -> Iterator[str]:
    """Direction and size of the errors."""
    if ev.desc.is_int8:
        step = ev.got[at].astype(np.int64) - ev.want[at]
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
    if np.count_nonzero(np.isin(ev.want[ev.values], known)) > len(at):  # the same values are right elsewhere
        yield "where it is wrong, the value depends on the right one alone"
    else:
        yield "the wrong value depends on the right one alone: the epilogue or a constant, not an address"


def _known_values(ev: Evidence, at: np.ndarray) -> Iterator[str]:
    """Whether the wrong values occur elsewhere: then they were moved."""
    if len(distinct(ev.got[at])) < FEW:
        return
    for name, source in {"the right output": ev.want[ev.values], **ev.foreign}.items():
        if len(distinct(source)) > (128 if ev.desc.is_int8 else len(source)):
            continue  # any byte occurs there
        if np.isin(ev.got[at], source).all():
            yield f"every wrong value occurs in {name}"


Rule = Callable[[Evidence, np.ndarray], Iterator[str]]
PATTERNS: tuple[Rule, ...] = (_extent, _regions, _steps)
FACTS: tuple[Rule, ...] = (_where, _held, _off, _function, _known_values)
