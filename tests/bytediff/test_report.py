"""The report: kinds of bytes, places, writers, profiles, patterns, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from examples import sum_of

import refsim
from refsim.bytediff import Cause
from refsim.bytediff.findings import Allowed
from refsim.bytediff.html import render
from refsim.bytediff.search.words import Place
from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.core.errors import LayoutError, ParameterError, RawBufferError, ShapeError
from refsim.core.qmath import NVIDIA, Profile
from refsim.core.rng import Rng
from refsim.formats.typed_json import typed
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target

ADD = sum_of((2, 5, 3, 7))
GOOD = ADD.call.expected(ADD.inputs)


def changed(*bytes_: int) -> np.ndarray:
    raw = GOOD.raw.copy()
    raw[list(bytes_)] ^= 0x55
    return raw


def test_equal_buffers_are_the_same() -> None:
    report = refsim.diff(GOOD.raw, GOOD.raw.tobytes(), "4W4C", (2, 5, 3, 7))
    assert report.same and not report.causes and not report.pattern and not report.differences


@pytest.mark.long
def test_every_changed_byte_is_found_with_its_kind_and_place() -> None:
    for byte in range(0, GOOD.desc.nbytes, 7):
        report = refsim.diff(GOOD, changed(byte), call=ADD)
        (found,) = report.differences
        assert found.place.byte == byte and not report.same
        assert found.actual == np.int8(GOOD.data[byte] ^ 0x55) and found.expected == GOOD.data[byte]
        kind = ("value", "lane padding", "word padding")[GOOD.kinds()[byte]]
        assert found.kind == kind
        assert {c.kind: c.different for c in report.counts}[kind] == 1
        if kind == "value":
            assert GOOD.unpack()[found.place.index] == found.expected


def test_the_writer_is_the_invocation_of_the_launch() -> None:
    launch = ADD.call.dispatches()[-1].launch
    report = refsim.diff(GOOD, changed(300), call=ADD)
    writer = report.differences[0].writer
    assert writer is not None
    point = [
        (g * local + i) * tile
        for g, i, local, tile in zip(
            writer.workgroup, writer.invocation, launch.local, launch.tile, strict=True
        )
    ]
    assert all(0 <= p - q < t for p, q, t in zip(writer.work_item, point, launch.tile, strict=True))
    n, c, h, w = report.differences[0].place.index
    rows = -(-GOOD.desc.shape[-2] // 4) * 4  # of a batch, padded: an invocation takes four
    assert tuple(writer.work_item) == (c // 4, w, n * rows + h)


def test_a_buffer_from_a_device_is_spared_what_upstream_leaves_to_chance() -> None:
    padding = np.flatnonzero(GOOD.kinds() != ByteKind.VALUE)
    raw = changed(*padding)
    assert not refsim.diff(GOOD, raw, call=ADD).same
    report = refsim.diff(GOOD, raw, call=ADD, device=True)
    assert report.same
    spared = next(c for c in report.counts if not c.compared)
    assert spared.kind == "unspecified padding" and spared.different == len(padding)


def test_the_tail_of_an_allocation_is_shown_and_never_fails() -> None:
    x = bind(Case("q8ta_clone", {}, {"x": ((1, 3, 5), "4C")}, "4C"))
    good = x.call.expected(x.inputs)
    assert good.desc.nbytes % 16
    rounded = np.zeros(-(-good.desc.nbytes // 16) * 16, np.uint8)
    rounded[: good.desc.nbytes] = good.raw
    rounded[-1] = 9
    report = refsim.diff(good.raw, rounded, "4C", (1, 3, 5))
    assert report.same and report.counts[-1].kind == "allocation tail" and report.counts[-1].different == 1


def fused_case() -> tuple[refsim.PackedBuffer, PackedBuffer, object]:
    rng = Rng(1)
    while True:
        bound = bind(replace(OPS["q8ta_conv2d_dw"].sample(rng), style="near_ties"))
        good = bound.call.expected(bound.inputs)
        fused = replace(bound.call, target=Target(NVIDIA)).expected(bound.inputs)
        if good != fused:
            return good, fused, bound


@pytest.mark.long
def test_a_profile_says_which_bytes_are_legal() -> None:
    good, fused, bound = fused_case()
    plain = refsim.diff(good, fused, call=bound)
    assert not plain.same and plain.legal["nvidia"] == Allowed(plain.differing, 0)
    assert all(d.legal == ("nvidia",) for d in plain.differences)
    assert plain.causes[0].name == "fused multiply-add"
    assert refsim.diff(good, fused, call=bound, profile="nvidia").same
    assert refsim.diff(good, fused, call=bound, profile=NVIDIA).same
    assert not refsim.diff(good, fused, call=bound, profile="lavapipe").same
    assert refsim.diff(good, fused, call=bound, profile=Profile("mine", contract=True)).same
    fused.raw[0] ^= 0x40
    spoiled = refsim.diff(good, fused, call=bound, profile="nvidia")
    assert not spoiled.same and spoiled.illegal == 1


def test_float_buffers_are_compared_bit_by_bit() -> None:
    x = np.array([[0.0, 1.5], [np.nan, -2.0]], np.float32)
    y = x.copy()
    y[0, 0] = -0.0
    assert refsim.diff(PackedBuffer.pack(x, "W"), PackedBuffer.pack(x, "W")).same
    report = refsim.diff(PackedBuffer.pack(x, "W"), PackedBuffer.pack(y, "W"))
    assert report.differing == 1 and report.differences[0].place.index == (0, 0)


PATTERNS = {
    "only at n = 1": lambda v: v[1],
    "only at c >= 3": lambda v: v[:, 3:],
    "only where w % 2 is 1": lambda v: v[..., 1::2],
    "only where w % 4 is 2": lambda v: v[..., 2::4],
    "every element differs": lambda v: v,
}


@pytest.mark.parametrize("line", PATTERNS)
def test_pattern(line: str) -> None:
    values = GOOD.unpack()
    part = PATTERNS[line](values)
    part ^= 0x35
    report = refsim.diff(GOOD, PackedBuffer.pack(values, "4W4C"), call=ADD, device=True)
    assert line in report.pattern


def test_borders_and_steps_are_patterns() -> None:
    values = np.zeros((1, 4, 9, 11), np.int8)
    good = PackedBuffer.pack(values, "4C")
    values[:, :, [0, -1], :] = 3
    values[:, :, :, [0, -1]] = 3
    report = refsim.diff(good, PackedBuffer.pack(values, "4C"))
    assert "only in the first or last row or column of the image" in report.pattern
    assert "every differing element is 3" in report.pattern


@pytest.mark.parametrize(
    ("low", "high", "line"), [(-9, 0, "negative"), (-128, -127, "negative"), (127, 128, "-128 or 127")]
)
def test_a_sign_is_a_pattern_only_where_another_was_possible(low: int, high: int, line: str) -> None:
    """Where every right value is so, wrong or not, it says nothing of the wrong ones."""
    rng = np.random.default_rng(1)
    every = rng.integers(low, high, (1, 8, 6, 7)).astype(np.int8)
    for others in (False, True):
        good = np.where(others & (rng.random(every.shape) < 0.4), np.int8(5), every)
        wrong = good.copy()
        wrong[good < 0 if line == "negative" else np.isin(good, (-128, 127))] ^= np.int8(0x41)
        report = refsim.diff(PackedBuffer.pack(good, "4W4C"), PackedBuffer.pack(wrong, "4W4C"))
        assert (f"only where the right value is {line}" in report.pattern) == others
        assert others or "right value is" not in str(report), str(report)


@pytest.mark.parametrize(("dtype", "first", "byte"), [(np.int8, 40, 40), (np.float32, 30, 120)])
def test_the_first_wrong_byte_is_where_a_pattern_begins(dtype: type, first: int, byte: int) -> None:
    good = np.arange(64).reshape(1, 4, 4, 4).astype(dtype)
    layout = "4C" if dtype is np.int8 else "W"
    right = PackedBuffer.pack(good, layout)
    words = right.raw.view(dtype).copy()
    words[first:] += 1
    report = refsim.diff(right, PackedBuffer.from_raw(words, good.shape, layout, right.desc.dtype))
    assert report.differences[0].place.byte == byte
    assert f"only from byte {byte} on" in report.pattern


def test_padding_alone_is_said_to_be_padding() -> None:
    padding = np.flatnonzero(GOOD.kinds() != ByteKind.VALUE)
    assert refsim.diff(GOOD, changed(padding[0]), call=ADD).pattern == (
        "padding only: every element is right",
    )


def test_as_json_is_plain_data_and_str_is_the_text() -> None:
    report = refsim.diff(GOOD, changed(1, 50), call=ADD)
    again = json.loads(json.dumps(report.as_json()))
    assert again["differing"] == 2 and len(again["differences"]) == 2
    assert str(report).splitlines()[0] == "2x5x3x7 4W4C: 2 bytes differ"


def test_a_profile_must_be_known_and_needs_the_call() -> None:
    with pytest.raises(ParameterError, match="unknown profile; got 'amd', need canonical"):
        refsim.diff(GOOD, GOOD, call=ADD, profile="amd")
    with pytest.raises(ParameterError, match="needs the call"):
        refsim.diff(GOOD, GOOD, profile="nvidia")


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ((b"123", b"123"), ShapeError, "need a layout and a shape"),
        ((b"123", b"123", "4C", (1, 4, 1, 1)), RawBufferError, "expected: wrong size; got 3 bytes"),
        ((b"1234", b"12345", "4C", (1, 4, 1, 1)), RawBufferError, "actual: wrong size; got 5 bytes"),
        ((b"1234", b"1234", "5C", (1, 4, 1, 1)), LayoutError, "unknown"),
        ((GOOD, PackedBuffer.pack(np.zeros((1, 4), np.int8), "4C")), RawBufferError, "another tensor"),
    ],
)
def test_buffers_that_do_not_fit_are_refused(arguments, error, match) -> None:
    with pytest.raises(error, match=match):
        refsim.diff(*arguments)


def test_the_place_of_an_edit_stands_in_text_page_and_json() -> None:
    place = Place("_window", "refsim/ops/a.py", 141, "h less H", "w + 1", "shaders/a.comp:88", ("one", "two"))
    cause = Cause("edge of the input", "reads one row below the image", 9, 9, 0, place=place)
    report = replace(refsim.diff(GOOD, changed(0, 1, 2, 3), call=ADD), causes=(cause,), facts=())
    for text in (str(report), render(report)):
        assert cause.about in text and place.told in text and cause.how in text
    assert typed(Cause, report.as_json()["causes"][0], "") == cause


@pytest.mark.parametrize(("count", "few"), [(1, True), (3, True), (4, False)])
def test_few_wrong_bytes_give_no_strong_statement(count: int, few: bool) -> None:
    report = refsim.diff(
        GOOD, changed(*np.flatnonzero(GOOD.kinds() == ByteKind.VALUE)[:count]), call=ADD, device=True
    )
    assert report.few is few and (not few or all(cause.weak for cause in report.causes))


@pytest.mark.parametrize("guards", [-1, 1.5, "x", True, 1 << 16])
def test_guards_are_a_whole_number_that_fits(guards: int) -> None:
    with pytest.raises(ParameterError, match="guards"):
        refsim.diff(bytes(16), bytes(16), "4W4C", (1, 4, 1, 1), guards=guards)
