"""Whatever the bytes of a device are, the diff of a golden case describes them: it never fails, and it counts right."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refsim.bytediff import diff
from refsim.bytediff.html import render
from refsim.core.buffer import PackedBuffer
from refsim.golden.store import Corpus, default_root
from refsim.ops.base.binding import BoundCase, bind

CORPUS = Corpus(default_root())
OPERATORS = CORPUS.operators()
MOST_BYTES = 3000
#: What is done to a part of the bytes.
WAYS = ("value", "add", "xor", "roll", "turn", "random", "floats", "words", "lanes", "mapped", "shifted")


@cache
def lines(op: str) -> tuple[BoundCase | None, ...]:
    """Every so many-th case of an operator; None for a large one."""
    found = []
    for number, entry in enumerate(CORPUS.entries(op)):
        if number % 97 == 5:
            bound = bind(entry.case)
            size = bound.call.out.nbytes + sum(b.desc.nbytes for b in bound.inputs.values())
            found.append(bound if size <= MOST_BYTES else None)
    return tuple(found)


def corrupted(draw: st.DataObject, raw: np.ndarray) -> np.ndarray:
    """Other bytes of the same number: a few wrong, whole regions, words or lanes moved, values mapped, or all."""
    made = raw.copy()
    for _ in range(draw.draw(st.integers(1, 3), label="changes")):
        start = draw.draw(st.integers(0, len(made) - 1), label="start")
        stop = draw.draw(st.integers(start, len(made)), label="stop")
        step = draw.draw(st.sampled_from((1, 1, 2, 3, 4, 7, 16)), label="step")
        part = made[start:stop:step]
        way = draw.draw(st.sampled_from(WAYS), label="way")
        value = draw.draw(st.sampled_from((0, 1, 127, 128, 255)) | st.integers(0, 255), label="value")
        if way == "value":
            part[:] = value
        elif way == "add":
            part += np.uint8(value)
        elif way == "xor":
            part ^= np.uint8(value)
        elif way == "roll":
            part[:] = np.roll(part, value)
        elif way == "turn":
            part[:] = part[::-1].copy()
        elif way == "random":
            part[:] = np.random.default_rng(value).integers(0, 256, len(part), np.uint8)
        elif way == "words":
            words = made.view(np.uint32)[start // 4 : max(start // 4 + 1, stop // 4)]
            words[:] = np.random.default_rng(value).permutation(words)
        elif way == "lanes":
            made.reshape(-1, 4)[:] = made.reshape(-1, 4)[:, np.random.default_rng(value).permutation(4)]
        elif way == "mapped":
            part[:] = np.random.default_rng(value).permutation(256).astype(np.uint8)[part]
        elif way == "shifted":
            part[:] = np.take(made, np.arange(start, stop, step) - value, mode="wrap")
        else:
            made.view(np.uint32)[:: max(step, 1)] = draw.draw(
                st.sampled_from((0x7F800000, 0xFF800000, 0x7FC00001, 1, 0x80000000, 0x7F7FFFFF)), label="bits"
            )
    return made


def check(draw: st.DataObject, bound: BoundCase) -> None:
    expected = bound.call.expected(bound.inputs)
    raw = corrupted(draw, expected.raw)
    ways = (
        {}, {"device": True}, {"profile": "nvidia"}, {"others": {"o": raw[::-1].copy()}}, {"limit": 0},
        {"previous": bound},
    )  # fmt: skip
    keywords = draw.draw(st.sampled_from(ways), label="keywords")
    out = bound.call.out
    report = diff(
        expected, PackedBuffer.from_raw(raw, out.shape, out.layout, out.dtype), call=bound, **keywords
    )
    assert str(report) and report.as_json() and render(report)
    if not keywords.get("device"):
        assert (report.differing == 0) == np.array_equal(raw, expected.raw)


@pytest.mark.few(2)
@pytest.mark.parametrize("op", OPERATORS)
@settings(max_examples=8)
@given(st.data())
def test_any_bytes_of_any_case(op: str, draw: st.DataObject) -> None:
    small = [bound for bound in lines(op) if bound is not None]
    check(draw, draw.draw(st.sampled_from(small), label="case"))


@pytest.mark.long
@settings(max_examples=40)
@given(st.data())
def test_pixel_shuffle_by_one(draw: st.DataObject) -> None:
    """The factor 1 is a number of pixels, and no scale that could be taken as its inverse."""
    entries = [e for e in CORPUS.entries("q8ta_pixel_shuffle") if e.case.params["upscale"] == 1]
    check(draw, bind(draw.draw(st.sampled_from(entries[:40]), label="case").case))
