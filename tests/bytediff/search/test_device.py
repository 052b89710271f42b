"""Right kernels that are launched with other words, or that read others: each class is named for what they write."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bytediff.wrong import bench_of, predicted_by

from refsim.bytediff import diff, search
from refsim.bytediff.evidence import Evidence
from refsim.bytediff.search import launched, loaded
from refsim.bytediff.search.candidate import Candidate
from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.golden.rules import case
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case

CONV = Case(
    "q8ta_conv2d_general",
    dict(
        in_scale=0.5, in_zp=11, out_scale=0.8, out_zp=-9, kernel_size=(3, 2), stride=(2, 1), padding=(1, 2),
        dilation=(1, 2), activation="relu",
    ),
    {"x": ((2, 6, 11, 8), "4W4C")}, "4C1W", 5, {"out_channels": 7, "bias": True}, poison=True,
)  # fmt: skip
GROUPED = Case(
    "linear_q4gsw", {"group_size": 16}, {"x": ((6, 64), "W")}, "W", 3, {"out_channels": 12, "bias": True}
)
#: Classes that the first edit of what is launched or read shows, by the case that shows them.
SHOWN = (
    (CONV, (
        "zero point not folded", "zero point one off", "another tensor's quantization", "scale changed",
        "stride or dilation", "padding offset", "H and W exchanged",
        "weight sums over the wrong dimension", "channel constants misplaced", "weights in another order",
        "input read at a neighbour",
    )),
    (GROUPED, (
        "nibbles read wrong", "weights laid out for another kernel", "scale of another group", "order of float sums",
    )),
)  # fmt: skip
#: So many elements are wrong at least.
ENOUGH = 12


def _evidence(bound: BoundCase, words: np.ndarray, previous: BoundCase | None = None) -> Evidence:
    """The words of an output beside the right ones."""
    expected = bound.call.expected(bound.inputs)
    actual = PackedBuffer(expected.desc)
    actual.words[:] = words
    return Evidence(expected, actual, np.ones(len(actual.data), bool), bound, previous)


def _first(bound: BoundCase, name: str) -> Evidence:
    """What the first edit of a class leaves that makes enough wrong."""
    bench, right = bench_of(bound), bound.call.expected(bound.inputs)
    for edit in (*launched.edits(bench.steps, None), *loaded.edits(bench.steps, bench.inputs, {}, None)):
        words = predicted_by(bench, Candidate(0, device=edit), right) if edit.name == name else None
        ev = None if words is None else _evidence(bound, words)
        if ev is not None and np.count_nonzero(ev.differing & (ev.kinds == ByteKind.VALUE)) >= ENOUGH:
            return ev
    raise AssertionError(f"no edit shows {name}")


@pytest.mark.few(4)
@pytest.mark.parametrize(("case", "name"), [(case, name) for case, names in SHOWN for name in names], ids=str)
def test_the_search_alone_names_the_class(case: Case, name: str) -> None:
    ev = _first(bind(case), name)
    found = list(search.edits(ev, 1.0))
    assert name in {row.name for row in found}
    assert any(np.array_equal(row.prediction.cells[ev.differing], ev.got[ev.differing]) for row in found)


@pytest.mark.long
def test_words_of_the_call_before() -> None:
    params = dict(in_scale=0.02, in_zp=3, out_scale=0.4, out_zp=-5)
    case = Case(
        "q8ta_linear", params, {"x": ((3, 64), "4H4W")}, "4H4W", 6, {"out_channels": 30, "bias": True}
    )
    bound, before = bind(case), bind(replace(case, seed=8, params={**params, "in_scale": 0.03, "in_zp": -11}))
    consts = {**before.call.consts, "weight": bound.call.consts["weight"]}
    for call in (replace(bound.call, params=before.call.params), replace(bound.call, consts=consts)):
        ev = _evidence(bound, call.expected(bound.inputs).words, before)
        assert "stale constant" in {row.name for row in search.edits(ev, 1.0)}


def test_one_wrong_byte_never_states_an_edit() -> None:
    ev = _first(bind(CONV), "zero point not folded")
    raw, at = ev.expected.raw.copy(), ev.differing.argmax()
    raw[at] = ev.actual.raw[at]
    report = diff(ev.expected, raw, call=ev.bound)
    assert report.differing == 1 and all(cause.weak for cause in report.causes)


@pytest.mark.parametrize("op", ["linear_q8ta_q8csw", "q8ta_conv2d_im2col"])
def test_words_that_are_kept_between_edits_are_those_that_are_made_anew(op: str) -> None:
    """What the steps before an edit write is kept; an edit of these steps themselves must not find it."""
    bench = bench_of(bind(case(op, 3)))
    last = len(bench.steps) - 1

    def written(every: bool) -> object:
        bench.forget(every)
        for step in bench.steps:
            step.schema.left[0] = 100_000
        try:
            with np.errstate(all="ignore"):
                return dict(bench.stores(last, (0, 0, 0)))
        except Exception as error:  # whatever stops a wrong kernel
            return type(error)

    bench.choose(last)
    right, others = written(True), [0] * len(bench.steps)
    for at, step in enumerate(bench.steps):
        for edit in step.schema.edits[::29]:
            bench.choose(last)
            assert written(False) == right
            bench.choose(at, edit)
            kept = written(False)
            assert kept == written(True), (at, edit.number)
            others[at] += kept != right
        bench.choose(at)
    assert len(others) > 1 and all(others)
