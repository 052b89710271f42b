"""Several versions of one buffer: what flips, where it lies, and which version is right."""

from __future__ import annotations

import numpy as np
import pytest
from examples import rounded_once, sum_of

from refsim.bytediff.evidence import cells
from refsim.bytediff.invocations import work_items, writers
from refsim.bytediff.versions import LEGAL, RIGHT, UNKNOWN, WRONG, Judgement, judge
from refsim.core.buffer import ByteKind, PackedBuffer, offsets
from refsim.core.errors import ParameterError, ShapeError
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case
from refsim.ops.base.target import Target

ADD = sum_of((1, 22, 12, 20))
GOOD = ADD.call.expected(ADD.inputs)
SMALL = PackedBuffer.pack(np.zeros((1, 4, 4, 4), np.int8), "4W4C")
PLACES = offsets(GOOD.desc)  # NCHW
VALUES = GOOD.kinds() == ByteKind.VALUE


def other(at: np.ndarray, seed: int = 0) -> PackedBuffer:
    """The right buffer with other bytes in these places."""
    buffer = PackedBuffer.from_raw(GOOD.raw, GOOD.desc.shape, GOOD.desc.layout)
    buffer.raw[at] ^= np.random.default_rng(seed).integers(1, 256, np.shape(at), np.uint8)
    return buffer


def tile() -> np.ndarray:
    """Elements that one invocation writes."""
    launch = ADD.call.dispatches()[-1].launch
    who = writers(launch, work_items(launch))
    own = [(each.workgroup, each.invocation) == (who[700].workgroup, who[700].invocation) for each in who]
    return np.flatnonzero(np.repeat(own, 4) & VALUES)


CHANNEL, ROW = PLACES[:, 5].reshape(-1), PLACES[:, :, 7].reshape(-1)


def verdicts(found: Judgement) -> list[str]:
    return [version.verdict for version in found.versions]


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_tile_that_flips_is_named(share: float) -> None:
    """Also where a part of it is right by chance."""
    at = tile()
    at = at[np.random.default_rng(6).random(len(at)) < share]
    found = judge([GOOD, other(at), GOOD, other(at, 1)], ADD)
    assert (found.flips, found.padding, found.right) == (len(at), 0, (0, 2))
    assert found.pattern[0].startswith("only in invocation") and verdicts(found) == [RIGHT, WRONG] * 2
    assert found.report is not None and found.report.differing == len(at)


@pytest.mark.few(1)
@pytest.mark.parametrize("share", [0.01, 0.1, 0.3, 0.5, 0.9, 1.0])
def test_scattered_flips_lie_nowhere(share: float) -> None:
    at = np.flatnonzero((np.random.default_rng(5).random(len(VALUES)) < share) & VALUES)
    assert not any(line.startswith("only") for line in judge([GOOD, other(at)], ADD).pattern)


@pytest.mark.parametrize(
    ("versions", "bound", "flips", "expected"),
    [
        ([CHANNEL[:8], ROW[:8]], ADD, len({*CHANNEL[:8], *ROW[:8]}), [WRONG, WRONG]),
        ([CHANNEL], ADD, 0, [WRONG]),
        ([[], CHANNEL], None, len(CHANNEL), [UNKNOWN, UNKNOWN]),
        ([[], [], []], ADD, 0, [RIGHT] * 3),
    ],
    ids=["all wrong", "one, and wrong", "without the call", "one content many times"],
)
def test_flips_are_counted_and_each_version_is_judged(
    versions: list[np.ndarray], bound: BoundCase | None, flips: int, expected: list[str]
) -> None:
    found = judge([other(np.array(at, int)) for at in versions], bound)
    assert (found.flips, verdicts(found)) == (flips, expected)
    assert found.right == tuple(np.flatnonzero(np.array(expected) == RIGHT))
    assert (found.report is not None) == (WRONG in expected)
    assert bound is not None or found.pattern[0] == "only at c = 5"
    assert RIGHT not in expected or found.versions[0].profiles == (Target().profile.name,)
    assert WRONG not in expected or found.versions[0].wrong == len(versions[0])


def test_padding_flips_and_makes_no_element_wrong() -> None:
    padding = np.flatnonzero(~VALUES)
    found = judge([GOOD, other(padding)], ADD)
    assert (found.flips, found.padding, found.pattern) == (0, len(padding), ())
    assert verdicts(found)[1] == (WRONG if ADD.call.device_defined()[padding].any() else RIGHT)


def test_a_version_that_another_profile_gives_is_legal() -> None:
    bound, good, fused = rounded_once()
    found = judge([good, fused], bound)
    assert found.flips > 0 and verdicts(found) == [RIGHT, LEGAL]
    assert found.versions[1].profiles == ("nvidia",) and found.right == (0, 1) and found.report is None


def test_float_buffers_are_compared_bit_by_bit() -> None:
    bound = bind(Case("q8ta_dequantize", dict(scale=0.5, zp=3), {"x": ((1, 6, 8, 8), "4W4C")}, "W", seed=1))
    good, bad = bound.call.expected(bound.inputs), bound.call.expected(bound.inputs)
    cells(bad)[64:128] ^= 1 << 22
    found = judge([good, bad], bound)
    assert (found.flips, verdicts(found)) == (64, [RIGHT, WRONG])


@pytest.mark.parametrize(
    ("versions", "bound", "error", "match"),
    [
        ([], None, ParameterError, "versions: there is none"),
        ([GOOD, SMALL], None, ShapeError, "of several tensors"),
        ([SMALL], ADD, ShapeError, "writes another tensor"),
    ],
)
def test_what_is_refused(
    versions: list[PackedBuffer], bound: BoundCase | None, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        judge(versions, bound)
