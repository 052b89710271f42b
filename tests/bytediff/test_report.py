"""The report: kinds of bytes, places, writers, profiles, patterns, facts, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from examples import rounded_once, sum_of

import refsim
from refsim.bytediff import Cause
from refsim.bytediff.evidence import Evidence
from refsim.bytediff.facts import facts
from refsim.bytediff.findings import Allowed
from refsim.bytediff.html import render
from refsim.bytediff.search.words import Place
from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.core.errors import LayoutError, ParameterError, RawBufferError, ShapeError
from refsim.core.qmath import NVIDIA, Profile
from refsim.formats.typed_json import typed
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case

ADD = sum_of((2, 5, 3, 7))
GOOD = ADD.call.expected(ADD.inputs)
VALUES = np.flatnonzero(GOOD.kinds() == ByteKind.VALUE)
PADDING = np.flatnonzero(GOOD.kinds() != ByteKind.VALUE)


def changed(*bytes_: int) -> np.ndarray:
    raw = GOOD.raw.copy()
    raw[list(bytes_)] ^= 0x55
    return raw


def compared(good: np.ndarray, wrong: np.ndarray, layout: str = "4W4C") -> refsim.Report:
    return refsim.diff(PackedBuffer.pack(good, layout), PackedBuffer.pack(wrong, layout))


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
        assert found.kind == ("value", "lane padding", "word padding")[GOOD.kinds()[byte]]
        assert {c.kind: c.different for c in report.counts}[found.kind] == 1
        assert found.kind != "value" or GOOD.unpack()[found.place.index] == found.expected


def test_the_writer_is_the_invocation_of_the_launch() -> None:
    launch = ADD.call.dispatches()[-1].launch
    found = refsim.diff(GOOD, changed(300), call=ADD).differences[0]
    writer, (n, c, h, w) = found.writer, found.place.index
    assert writer is not None
    group, own, item = map(np.array, (writer.workgroup, writer.invocation, writer.work_item))
    assert ((group * launch.local + own) * launch.tile <= item).all()
    assert (item < (group * launch.local + own + 1) * launch.tile).all()
    rows = -(-GOOD.desc.shape[-2] // 4) * 4  # of a batch, padded: an invocation takes four
    assert writer.work_item == (c // 4, w, n * rows + h)


def test_a_buffer_from_a_device_is_spared_what_upstream_leaves_to_chance() -> None:
    assert not refsim.diff(GOOD, changed(*PADDING), call=ADD).same
    report = refsim.diff(GOOD, changed(*PADDING), call=ADD, device=True)
    (spared,) = (c for c in report.counts if not c.compared)
    assert report.same and (spared.kind, spared.different) == ("unspecified padding", len(PADDING))


def test_the_tail_of_an_allocation_is_shown_and_never_fails() -> None:
    x = bind(Case("q8ta_clone", {}, {"x": ((1, 3, 5), "4C")}, "4C"))
    good = x.call.expected(x.inputs).raw
    rounded = np.append(good, np.zeros(-len(good) % 16, np.uint8))
    rounded[-1] = 9
    report = refsim.diff(good, rounded, "4C", (1, 3, 5))
    assert len(good) % 16 and report.same
    assert (report.counts[-1].kind, report.counts[-1].different) == ("allocation tail", 1)


@pytest.mark.long
def test_a_profile_says_which_bytes_are_legal() -> None:
    bound, good, fused = rounded_once()
    plain = refsim.diff(good, fused, call=bound)
    assert not plain.same and plain.legal["nvidia"] == Allowed(plain.differing, 0)
    assert all(d.legal == ("nvidia",) for d in plain.differences)
    assert plain.causes[0].name == "fused multiply-add"
    for profile in ("nvidia", NVIDIA, Profile("mine", contract=True), "lavapipe"):
        assert refsim.diff(good, fused, call=bound, profile=profile).same == (profile != "lavapipe")
    fused.raw[0] ^= 0x40
    spoiled = refsim.diff(good, fused, call=bound, profile="nvidia")
    assert not spoiled.same and spoiled.illegal == 1


def test_float_buffers_are_compared_bit_by_bit() -> None:
    x = np.array([[0.0, 1.5], [np.nan, -2.0]], np.float32)
    y = x.copy()
    y[0, 0] = -0.0
    report = compared(x, y, "W")
    assert compared(x, x, "W").same and report.differing == 1
    assert report.differences[0].place.index == (0, 0)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("only at n = 1", lambda n, c, h, w: n == 1),
        ("only at c >= 3", lambda n, c, h, w: c >= 3),
        ("only at h = 2", lambda n, c, h, w: h == 2),
        ("only at w = 3", lambda n, c, h, w: w == 3),
        ("only in lane 2", lambda n, c, h, w: c == 2),
        ("only where w % 2 is 1", lambda n, c, h, w: w % 2 == 1),
        ("only where w % 4 is 2", lambda n, c, h, w: w % 4 == 2),
        ("only in the first or last row or column of the image", lambda n, c, h, w: (h != 1) | (w % 6 == 0)),
        ("every element differs", lambda n, c, h, w: n >= 0),
    ],
)
def test_pattern(line: str, wrong: Callable[..., np.ndarray]) -> None:
    values = GOOD.unpack()
    values[wrong(*np.indices(values.shape))] ^= 0x35
    assert line in refsim.diff(GOOD, PackedBuffer.pack(values, "4W4C"), call=ADD, device=True).pattern


def test_one_value_is_a_pattern() -> None:
    zeros = np.zeros((1, 4, 9, 11), np.int8)
    assert "every differing element is 3" in compared(zeros, zeros + np.eye(9, 11, dtype=np.int8) * 3).pattern


@pytest.mark.parametrize(
    ("low", "high", "line"), [(-9, 0, "negative"), (-128, -127, "negative"), (127, 128, "-128 or 127")]
)
def test_a_sign_is_a_pattern_only_where_another_was_possible(low: int, high: int, line: str) -> None:
    """Where every right value is so, wrong or not, it says nothing of the wrong ones."""
    rng = np.random.default_rng(1)
    every = rng.integers(low, high, (1, 8, 6, 7)).astype(np.int8)
    for others in (False, True):
        good = np.where(others & (rng.random(every.shape) < 0.4), np.int8(5), every)
        wrong = good ^ np.int8(0x41) * (good < 0 if line == "negative" else np.isin(good, (-128, 127)))
        report = compared(good, wrong)
        assert (f"only where the right value is {line}" in report.pattern) == others
        assert others or "right value is" not in str(report), str(report)


@pytest.mark.parametrize(("dtype", "first", "byte"), [(np.int8, 40, 40), (np.float32, 30, 120)])
def test_the_first_wrong_byte_is_where_a_pattern_begins(dtype: type, first: int, byte: int) -> None:
    layout = "4C" if dtype is np.int8 else "W"
    right = PackedBuffer.pack(np.arange(64).reshape(1, 4, 4, 4).astype(dtype), layout)
    words = right.raw.view(dtype).copy()
    words[first:] += 1
    report = refsim.diff(right, PackedBuffer.from_raw(words, right.desc.shape, layout, right.desc.dtype))
    assert report.differences[0].place.byte == byte
    assert f"only from byte {byte} on" in report.pattern


def test_padding_alone_is_said_to_be_padding() -> None:
    pattern = refsim.diff(GOOD, changed(PADDING[0]), call=ADD).pattern
    assert pattern == ("padding only: every element is right",)


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        (lambda _, value: value > 2,
         "the wrong value depends on the right one alone: the epilogue or a constant, not an address"),
        (lambda place, _: place % 16 == 0,  # an address alone decides
         "where it is wrong, the value depends on the right one alone"),
    ],
)  # fmt: skip
def test_equal_right_values_that_became_equal_wrong_ones(
    wrong: Callable[[np.ndarray, np.ndarray], np.ndarray], line: str
) -> None:
    values = np.random.default_rng(1).integers(-8, 8, (1, 8, 16, 16)).astype(np.int8)
    good, actual = PackedBuffer.pack(values, "4W4C"), PackedBuffer.pack(values, "4W4C")
    every = np.arange(good.desc.nbytes)
    actual.raw[wrong(every, good.data)] ^= 16
    said = facts(Evidence(good, actual, np.ones(len(every), bool)))
    assert [one for one in said if "depends on the right one alone" in one] == [line]


def test_as_json_is_plain_data_and_str_is_the_text() -> None:
    report = refsim.diff(GOOD, changed(1, 50), call=ADD)
    again = json.loads(json.dumps(report.as_json()))
    assert again["differing"] == 2 and len(again["differences"]) == 2
    assert str(report).splitlines()[0] == "2x5x3x7 4W4C: 2 bytes differ"


def test_the_place_of_an_edit_stands_in_text_page_and_json() -> None:
    place = Place("_window", "refsim/ops/a.py", 141, "h less H", "w + 1", "shaders/a.comp:88", ("one", "two"))
    cause = Cause("edge of the input", "reads one row below the image", 9, 9, 0, place=place)
    report = replace(refsim.diff(GOOD, changed(0, 1, 2, 3), call=ADD), causes=(cause,), facts=())
    for text in (str(report), render(report)):
        assert cause.about in text and place.told in text and cause.how in text
    assert typed(Cause, report.as_json()["causes"][0], "") == cause


@pytest.mark.parametrize(("count", "few"), [(1, True), (3, True), (4, False)])
def test_few_wrong_bytes_give_no_strong_statement(count: int, few: bool) -> None:
    report = refsim.diff(GOOD, changed(*VALUES[:count]), call=ADD, device=True)
    assert report.few is few and (not few or all(cause.weak for cause in report.causes))


LAID = {"layout": "4C", "shape": (1, 4, 1, 1)}


@pytest.mark.parametrize(
    ("buffers", "options", "error", "match"),
    [
        ((b"123", b"123"), {}, ShapeError, "need a layout and a shape"),
        ((b"123", b"123"), LAID, RawBufferError, "expected: wrong size; got 3 bytes"),
        ((b"1234", b"12345"), LAID, RawBufferError, "actual: wrong size; got 5 bytes"),
        ((b"1234", b"1234"), LAID | {"layout": "5C"}, LayoutError, "unknown"),
        ((GOOD, PackedBuffer.pack(np.zeros((1, 4), np.int8), "4C")), {}, RawBufferError, "another tensor"),
        ((GOOD, GOOD), {"call": ADD, "profile": "amd"}, ParameterError,
         "unknown profile; got 'amd', need canonical"),
        ((GOOD, GOOD), {"profile": "nvidia"}, ParameterError, "needs the call"),
        *(((GOOD, GOOD), {"guards": guards}, ParameterError, "guards")
          for guards in (-1, 1.5, "x", True, 1 << 16)),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
    buffers: tuple[Any, Any], options: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        refsim.diff(*buffers, **options)
