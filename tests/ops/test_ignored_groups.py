"""What upstream's kernels do wrong, where it takes more than a formula to say it."""

from __future__ import annotations

import numpy as np

from refsim.bytediff import diff
from refsim.bytediff.defects import NAME
from refsim.core.buffer import FILL, ByteKind, byte_kinds
from refsim.golden import judge
from refsim.golden.judge import KNOWN_DEFECT, SAME, WRONG, judged
from refsim.golden.telling import choose
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case
from refsim.ops.q8ta_conv2d_pw import GROUPS_IGNORED

PW = "q8ta_conv2d_pw"


def grouped(batches: int = 1) -> BoundCase:
    """Two groups of four channels each, without a bias; scales that keep the sums apart."""
    params = dict(in_scale=0.02, in_zp=5, out_scale=1.5, out_zp=-9, kernel_size=(1, 1), groups=2)
    return bind(Case(PW, params, {"x": ((batches, 8, 3, 4), "4W4C")}, "4W4C", features={"out_channels": 8}))


def test_the_first_group_meets_the_weights_of_two_outputs_in_a_row() -> None:
    bound = grouped()
    arrays = {name: buffer.unpack() for name, buffer in bound.inputs.items()}
    assert GROUPS_IGNORED.values is not None
    found = GROUPS_IGNORED.values(bound.call, arrays)
    call, weight = bound.call, bound.call.consts["weight"]
    assert weight is not None and weight.shape == (8, 4)
    x = arrays["x"].astype(np.int64)
    for output in range(4):
        row = np.concatenate((weight[2 * output], weight[2 * output + 1]))
        sums = np.einsum("nchw,c->nhw", x, row) - call.params.in_zp * call.consts["weight_sums"][output]
        step = np.float32(call.consts["weight_scales"][output]) * np.float32(call.params.in_scale)
        real = sums.astype(np.float32) * step * np.float32(1 / np.float32(call.params.out_scale))
        q = np.clip(np.rint(real) + call.params.out_zp, -128, 127)
        assert np.array_equal(np.asarray(found[:, output]), q)


def test_nothing_is_said_of_the_other_groups_or_of_batches_that_nobody_writes() -> None:
    for batches in (1, 2):
        bound = grouped(batches)
        found = judge.defective(bound, GROUPS_IGNORED, FILL)
        assert found is not None
        buffer, certain = found
        actual = bound.call.expected(bound.inputs)
        actual.raw[:] = buffer.raw
        actual.raw[~certain] ^= 0x55
        assert judged(bound, actual).known is GROUPS_IGNORED
        assert np.count_nonzero(~certain) >= 4 * 12
        for at in np.flatnonzero(certain)[[0, -1]]:
            actual.raw[at] ^= 1
            assert judged(bound, actual).verdict == WRONG
            actual.raw[at] ^= 1


def test_a_call_of_one_group_has_no_such_defect() -> None:
    calls = [bind(one.case).call for one in choose((PW,))]
    shown = [GROUPS_IGNORED in call.defects for call in calls]
    assert shown == [call.params.groups > 1 for call in calls]
    assert (len(shown), sum(shown)) == (170, 67)


def test_as_many_cases_differ_as_did_on_the_runtime() -> None:
    """ExecuTorch's runtime of 2026-08 gave other bytes for 63 of the 67, on a driver whose reads outside give 0."""
    verdicts = []
    for bound in (bind(one.case) for one in choose((PW,))):
        if GROUPS_IGNORED in bound.call.defects:
            found = judge.defective(bound, GROUPS_IGNORED, FILL)
            assert found is not None
            verdicts.append(judged(bound, found[0]))
    alike = [row for row in verdicts if row.known is not GROUPS_IGNORED]
    assert len(verdicts) - len(alike) == 63
    assert all(row.verdict in (SAME, KNOWN_DEFECT) for row in alike)


def test_a_diff_names_the_defect_whatever_lies_behind_the_weights() -> None:
    bound = grouped()
    found = judge.defective(bound, GROUPS_IGNORED, FILL)
    assert found is not None
    actual, certain = found
    right = bound.call.expected(bound.inputs)
    actual.raw[~certain] = right.raw[~certain] ^ 0x11
    report = diff(right, actual, call=bound, device=True)
    assert report.causes[0].exact
    assert (report.causes[0].name, report.causes[0].detail) == (NAME, GROUPS_IGNORED.note)
    later = np.flatnonzero(~certain & (byte_kinds(bound.call.out) == ByteKind.VALUE))
    actual.raw[:] = right.raw
    actual.raw[later] ^= 0x11  # groups that are wrong while the first one is right are another bug
    report = diff(right, actual, call=bound, device=True)
    assert not any(cause.exact and cause.name == NAME for cause in report.causes)
