"""Other inputs that a device's run may have had: those that people take for each other, tried one by one.

Nothing in them is read off the device's bytes, so that they do not fit just any bytes: for some input every output of
q8ta_quantize is right. An operator that is wrong, and whose inputs were not dumped, is right after all, and the inputs
are others, if these explain every byte of every such operator, and no cause does that by itself (`doubted`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np

from refsim.bytediff.evidence import cells
from refsim.bytediff.rank import Cause, explained
from refsim.bytediff.search import allowed
from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.core.qmath import PROFILES, QMAX, QMIN, Profile
from refsim.device import floats
from refsim.device.dumped import Buffers, Row, dumped_inputs
from refsim.exec.factory import executor_named
from refsim.exec.model import Model
from refsim.exec.trace import Traced, bound_of, trace
from refsim.ops.base.binding import BoundCase

Change = Callable[[np.ndarray], np.ndarray]

#: Seeds of ``--random`` that are tried.
SEEDS = 16
#: A prediction says something if at least so many of its elements are neither its commonest one nor a bound of int8.
LEAST_TELLING = 8


#: Of the colours of ImageNet, one behind the other.
_MEAN, _DEVIATION = (
    np.array(row, np.float32).reshape(3, 1, 1) for row in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
)


def _image(x: np.ndarray) -> bool:
    return x.ndim == 4


def _colours(x: np.ndarray) -> bool:
    return x.ndim == 4 and x.shape[1] == 3


def _any(x: np.ndarray) -> bool:
    return True


def _to_nhwc(x: np.ndarray) -> np.ndarray:
    return np.moveaxis(x, 1, -1)


def _from_nhwc(x: np.ndarray) -> np.ndarray:
    n, c, h, w = x.shape
    return np.moveaxis(x.reshape(n, h, w, c), -1, 1)


#: The order of the elements: in words, of which inputs, and what the device then had.
ORDERS: tuple[tuple[str, Callable[[np.ndarray], bool], Change], ...] = (
    ("", _any, lambda x: x),
    ("in NHWC", _image, _to_nhwc),
    ("in NCHW, if it is in NHWC here", _image, _from_nhwc),
    ("with H and W exchanged", _image, lambda x: np.swapaxes(x, 2, 3)),
    ("with its colours reversed", _colours, lambda x: x[:, ::-1]),
)
#: The range of the elements, likewise.
RANGES: tuple[tuple[str, Callable[[np.ndarray], bool], Change], ...] = (
    ("", _any, lambda x: x),
    ("divided by 255", _any, lambda x: x / 255),
    ("times 255", _any, lambda x: x * 255),
    ("from -1 to 1 and not from 0 to 1", _any, lambda x: x * 2 - 1),
    ("from 0 to 1 and not from -1 to 1", _any, lambda x: (x + 1) / 2),
    ("from -1 to 1 and not from 0 to 255", _any, lambda x: x / 127.5 - 1),
    ("from 0 to 255 and not from -1 to 1", _any, lambda x: (x + 1) * 127.5),
    ("normalized with the mean of ImageNet", _colours, lambda x: (x - _MEAN) / _DEVIATION),
    ("not normalized with the mean of ImageNet", _colours, lambda x: x * _DEVIATION + _MEAN),
)


@dataclass(frozen=True)
class Others:
    """Other inputs: what they are, in words, and all of them in order."""

    what: str
    inputs: tuple[np.ndarray, ...]


def others(model: Model, inputs: Sequence[np.ndarray]) -> Iterator[Others]:
    """Inputs that may be meant where these are given; each differs from them."""
    for found in (*_changed(inputs), *_exchanged(inputs)):
        if not _equal(found.inputs, inputs):
            yield found
    for seed in range(SEEDS):
        drawn = model.random_inputs(seed)
        if not _equal(drawn, inputs):
            yield Others(f"those of --random {seed}", tuple(drawn))


def _equal(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def _changed(inputs: Sequence[np.ndarray]) -> Iterator[Others]:
    """Float inputs in another order or range: all of them, and each alone."""
    which = [number for number, x in enumerate(inputs) if x.dtype == np.float32]
    groups = [which, *([number] for number in which)] if len(which) > 1 else [which]
    for order, ordered, reorder in ORDERS:
        for scale, scaled, rescale in RANGES:
            for group in groups:
                mine = [n for n in group if ordered(inputs[n]) and scaled(inputs[n])]
                if not (order or scale) or mine != group or not group:
                    continue
                new = list(inputs)
                for n in mine:
                    made = reorder(rescale(inputs[n].astype(np.float32)))
                    new[n] = np.ascontiguousarray(made, np.float32).reshape(inputs[n].shape)
                names = " and ".join(f"in{n}" for n in mine)
                yield Others(f"{names} {', '.join(filter(None, (order, scale)))}", tuple(new))


def _exchanged(inputs: Sequence[np.ndarray]) -> Iterator[Others]:
    for a, b in combinations(range(len(inputs)), 2):
        if (inputs[a].shape, inputs[a].dtype) == (inputs[b].shape, inputs[b].dtype):
            new = list(inputs)
            new[a], new[b] = new[b], new[a]
            yield Others(f"in{a} and in{b} exchanged", tuple(new))


#: What an operator gives for the inputs that it had in a run, if the device has exactly that; else None.
Judge = Callable[[Traced], PackedBuffer | None]


class _Enough(Exception):
    """The run need not go on."""


def explain(model: Model, other: Others, judges: Mapping[str, Judge]) -> bool:
    """Whether the operators that write these values are right with these inputs, and that says something."""
    found: dict[str, PackedBuffer | None] = {}

    def visit(traced: Traced) -> None:
        for name in traced.outputs.keys() & judges.keys():
            found[name] = judges[name](traced)
            if found[name] is None or len(found) == len(judges):
                raise _Enough

    with suppress(_Enough):
        trace(model, other.inputs, executor_named("cpu"), visit)
    right = [buffer for buffer in found.values() if buffer is not None]
    return len(right) == len(judges) and any(map(_telling, right))


def under(bound: BoundCase, name: str, recorded: Buffers, profile: Profile | None) -> PackedBuffer | None:
    """What a call gives under a profile, or any that is known, if that is what the device has; else None."""
    must = bound.call.device_defined()
    for one in PROFILES.values() if profile is None else (profile,):
        expected = bound.call.under(one).expected(bound.inputs)
        if np.array_equal(recorded.beside(name, expected)[must], expected.raw[must]):
            return expected
    return None


def _telling(predicted: PackedBuffer) -> bool:
    """Whether enough elements differ from each other: no inputs are known by a buffer of equal bytes."""
    values = (
        cells(predicted)[predicted.kinds() == ByteKind.VALUE] if predicted.desc.is_int8 else cells(predicted)
    )
    found, counts = np.unique(values, return_counts=True)
    bounds = np.isin(found, (QMIN, QMAX)) & predicted.desc.is_int8
    common = np.arange(len(found)) == counts.argmax()
    return int(counts[~(bounds | common)].sum()) >= LEAST_TELLING


#: The option that says that there is nothing to doubt.
SURE = "--inputs-are-right"


@dataclass(frozen=True)
class Doubt:
    """What there is to say about the inputs of an operator; ``excused``: they explain it, and nothing else does."""

    text: str
    excused: bool

    def of(self, row: Row) -> Row:
        """The row with the doubt."""
        if not self.excused:
            return replace(row, doubt=self.text)
        return replace(row, alone=None, own=None, wrong=False, cause="", doubt=self.text)


def doubted(
    model: Model,
    recorded: Buffers,
    inputs: Sequence[np.ndarray],
    rows: Sequence[Row],
    profile: Profile | None,
) -> dict[str, Doubt]:
    """The doubts about the inputs of each wrong operator that had some of the model's, by the name of its output."""
    given = [row for row in rows if row.given]
    wrong = [row for row in given if row.wrong and not _allowed(row, recorded, profile)]
    if not wrong:
        return {}
    judges = {row.value: partial(_right, model, recorded, profile, row.value) for row in given}
    other = next((one.what for one in others(model, inputs) if explain(model, one, judges)), "")
    best = {row.value: _cause(row) for row in wrong}
    named = any(cause is not None and not (cause.fitted or cause.inferred) for cause in best.values())
    excused = bool(other) and not named
    return {row.value: Doubt(_said(row, other, excused, best[row.value]), excused) for row in wrong}


def _right(
    model: Model, recorded: Buffers, profile: Profile | None, name: str, traced: Traced
) -> PackedBuffer | None:
    """What an operator gives in a run with other inputs, if the device has that."""
    if traced.bound is None:
        return floats.right(model.graphs[traced.delegate], traced, recorded, name, profile)
    handed = dumped_inputs(traced, recorded)
    if handed is None:
        return None
    return under(bound_of(traced.bound.call, handed), traced.output, recorded, profile)


def _allowed(row: Row, recorded: Buffers, profile: Profile | None) -> bool:
    report = row.judged
    if report is not None and any(one.explains == report.differing for one in report.legal.values()):
        return True
    return row.own is not None and under(row.own, row.value, recorded, profile) is not None


def _cause(row: Row) -> Cause | None:
    """The likeliest cause, if it predicts every byte."""
    report = row.judged
    assert report is not None
    best = next(iter(report.causes or explained(report.evidence, allowed(), {})[1]), None)
    return best if best is not None and best.exact else None


def _said(row: Row, other: str, excused: bool, cause: Cause | None) -> str:
    node = f"node {row.node} {row.operator}"
    if excused:
        return f"{node} is right for other inputs: {other}. Give the inputs of the device's run, or {SURE}"
    if other:
        return f"{node} would be right for other inputs, too: {other}"
    if cause is not None:
        return ""
    return f"{node} was judged on the inputs that you gave, and they were not dumped: {SURE} if they are the device's"
