"""Whether the inputs of a run are in doubt where an operator is wrong that read them, and they were not dumped.

For some input every output of q8ta_quantize is right, so bytes that differ are no sign of other inputs. The operator is
right, and the inputs are others, if inputs that people take for the given ones (`refsim.device.other_inputs`) explain
every byte of every such operator, and no cause does that by itself. All else is the operator's fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from refsim.bytediff.rank import Cause, explained
from refsim.bytediff.search import allowed
from refsim.core.buffer import PackedBuffer
from refsim.core.qmath import Profile
from refsim.device import floats
from refsim.device.dumped import Buffers, dumped_inputs
from refsim.device.other_inputs import explain, others, under
from refsim.device.row import Row
from refsim.exec.model import Model
from refsim.exec.trace import Traced, bound_of

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
    best = next(iter(report.causes or explained(report.evidence, allowed())[1]), None)
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
