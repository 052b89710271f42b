"""Several versions of one buffer: what flips, where it lies, and which version is right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from examples import sum_of

from refsim.bytediff.evidence import cells
from refsim.bytediff.invocations import writer
from refsim.bytediff.versions import LEGAL, RIGHT, UNKNOWN, WRONG, judge
from refsim.core.buffer import ByteKind, PackedBuffer, offsets
from refsim.core.errors import ParameterError, ShapeError
from refsim.core.qmath import NVIDIA
from refsim.core.rng import Rng
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target

ADD = sum_of((1, 22, 12, 20))
GOOD = ADD.call.expected(ADD.inputs)
PLACES = offsets(GOOD.desc)  # NCHW


def other(at: np.ndarray, seed: int = 0) -> PackedBuffer:
    """The right buffer with other bytes in these places."""
    buffer = PackedBuffer.from_raw(GOOD.raw, GOOD.desc.shape, GOOD.desc.layout)
    buffer.raw[at] ^= np.random.default_rng(seed).integers(1, 256, np.shape(at), np.uint8)
    return buffer


def words_of(test) -> np.ndarray:
    """Bytes of the words whose writer passes the test."""
    launch = ADD.call.dispatches()[-1].launch
    words = [word for word in range(launch.out.words) if test(writer(launch, word))]
    at = (np.array(words)[:, None] * 4 + np.arange(4)).reshape(-1)
    return at[GOOD.kinds()[at] == ByteKind.VALUE]


def elements(mask: np.ndarray) -> np.ndarray:
    return np.flatnonzero(mask & (GOOD.kinds() == ByteKind.VALUE))


ALL = np.arange(GOOD.desc.nbytes)
FIRST = writer(ADD.call.dispatches()[-1].launch, 700)
REGIONS = {
    "only at c = 5": PLACES[:, 5].reshape(-1),
    "only at h = 7": PLACES[:, :, 7].reshape(-1),
    "only at w = 3": PLACES[..., 3].reshape(-1),
    "only in lane 2": elements(ALL % 4 == 2),
    "only in invocation": words_of(
        lambda who: (who.workgroup, who.invocation) == (FIRST.workgroup, FIRST.invocation)
    ),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", REGIONS)
def test_a_region_that_flips_is_named(name: str) -> None:
    at = REGIONS[name]
    found = judge([GOOD, other(at), GOOD, other(at, 1)], ADD)
    assert found.flips == len(at) and found.padding == 0
    assert found.pattern[0].startswith(name)
    assert [v.verdict for v in found.versions] == [RIGHT, WRONG, RIGHT, WRONG] and found.right == (0, 2)
    assert found.report is not None and found.report.differing == len(at)


@pytest.mark.few(1)
@pytest.mark.parametrize("share", [0.01, 0.1, 0.3, 0.5, 0.9, 1.0])
def test_scattered_flips_lie_nowhere(share: float) -> None:
    at = elements(np.random.default_rng(5).random(GOOD.desc.nbytes) < share)
    assert not any(line.startswith("only") for line in judge([GOOD, other(at)], ADD).pattern)


def test_a_tile_is_found_though_half_of_it_is_right_by_chance() -> None:
    at = REGIONS["only in invocation"]
    half = at[np.random.default_rng(6).random(len(at)) < 0.5]
    assert judge([GOOD, other(half)], ADD).pattern[0].startswith("only in invocation")


def test_flips_between_wrong_versions_are_counted_too() -> None:
    a, b = REGIONS["only at c = 5"][:8], REGIONS["only at h = 7"][:8]
    found = judge([other(a), other(b)], ADD)
    assert found.flips == len(set(a) | set(b)) and found.right == ()


def test_no_version_needs_the_right_one_to_be_among_them() -> None:
    at = REGIONS["only at c = 5"]
    found = judge([other(at)], ADD)
    assert found.flips == 0 and found.versions[0].wrong == len(at) and found.report is not None


def test_without_the_call_it_is_not_known_which_is_right() -> None:
    found = judge([GOOD, other(REGIONS["only at c = 5"])])
    assert [v.verdict for v in found.versions] == [UNKNOWN] * 2 and found.right == () and found.report is None
    assert found.pattern[0] == "only at c = 5"


def test_padding_flips_and_makes_no_element_wrong() -> None:
    padding = np.flatnonzero(GOOD.kinds() != ByteKind.VALUE)
    found = judge([GOOD, other(padding)], ADD)
    assert (found.flips, found.padding, found.pattern) == (0, len(padding), ())
    defined = ADD.call.device_defined()[padding].any()
    assert found.versions[1].verdict == (WRONG if defined else RIGHT)


def test_a_version_that_another_profile_gives_is_legal() -> None:
    rng = Rng(8)
    good = fused = ADD.call.expected(ADD.inputs)
    while good == fused:
        bound = bind(replace(OPS["q8ta_conv2d_dw"].sample(rng), style="near_ties"))
        good = bound.call.expected(bound.inputs)
        fused = replace(bound.call, target=Target(NVIDIA)).expected(bound.inputs)
    found = judge([good, fused], bound)
    assert found.flips > 0 and [v.verdict for v in found.versions] == [RIGHT, LEGAL]
    assert found.versions[1].profiles == ("nvidia",) and found.right == (0, 1) and found.report is None


def test_one_content_many_times() -> None:
    found = judge([GOOD] * 3, ADD)
    assert found.flips == 0 and found.right == (0, 1, 2) and found.report is None
    assert found.versions[0].profiles == (Target().profile.name,)


def test_float_buffers_are_compared_bit_by_bit() -> None:
    bound = bind(Case("q8ta_dequantize", dict(scale=0.5, zp=3), {"x": ((1, 6, 8, 8), "4W4C")}, "W", seed=1))
    good = bound.call.expected(bound.inputs)
    bad = PackedBuffer.from_raw(good.raw, good.desc.shape, good.desc.layout, good.desc.dtype)
    cells(bad)[64:128] ^= 1 << 22
    found = judge([good, bad], bound)
    assert found.flips == 64 and [v.verdict for v in found.versions] == [RIGHT, WRONG]


def test_what_is_refused() -> None:
    with pytest.raises(ParameterError, match="versions: there is none"):
        judge([])
    small = PackedBuffer.pack(np.zeros((1, 4, 4, 4), np.int8), "4W4C")
    with pytest.raises(ShapeError, match="of several tensors"):
        judge([GOOD, small])
    with pytest.raises(ShapeError, match="writes another tensor"):
        judge([small], ADD)
